//! The order in which go-yaml writes the keys of a mapping.
//!
//! It is a natural order: runs of digits compare as numbers, and letters come after everything else.
//! It is not a total order: `"2"` comes before `"10"`, `"10"` before `"1a"`, and `"1a"` before `"2"`.
//! For such keys Go's result changes from run to run; ours is one of its results.

use std::cmp::Ordering;

use super::letters::{is_digit, is_letter};

/// Sorts entries that are already sorted by bytes, which is often sufficient.
///
/// The standard sort may panic if the order has cycles, so this is a separate merge sort.
pub(super) fn sort_by_key<T: Copy>(entries: &mut Vec<(&str, T)>) {
    if entries.is_sorted_by(|a, b| !comes_before(b.0, a.0)) {
        return;
    }
    let mut from = entries.clone();
    let mut width = 1;
    while width < from.len() {
        entries.clear();
        for pair in from.chunks(width * 2) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            merge(left, right, entries);
        }
        std::mem::swap(&mut from, entries);
        width *= 2;
    }
    *entries = from;
}

fn merge<'a, T: Copy>(left: &[(&'a str, T)], right: &[(&'a str, T)], out: &mut Vec<(&'a str, T)>) {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
        let next = if comes_before(r.0, l.0) { right.next() } else { left.next() };
        out.extend(next);
    }
    out.extend(left);
    out.extend(right);
}

/// True when go-yaml writes key `a` before key `b`.
pub(super) fn comes_before(a: &str, b: &str) -> bool {
    let same = common_prefix(a, b);
    let (mut rest_a, mut rest_b) = (a[same..].chars(), b[same..].chars());
    let (Some(next_a), Some(next_b)) = (rest_a.next(), rest_b.next()) else {
        return a.len() < b.len();
    };
    match (is_letter(next_a), is_letter(next_b)) {
        (true, true) => return next_a < next_b,
        (true, false) => return false,
        (false, true) => return true,
        (false, false) => {}
    }
    // After a significant digit a zero is not a leading zero: let both numbers start with 1.
    let inside = (next_a == '0' || next_b == '0') && ends_in_number(&a[..same]);
    let (value_a, digits_a) = number(&a[same..], inside);
    let (value_b, digits_b) = number(&b[same..], inside);
    value_a.cmp(&value_b).then(digits_a.cmp(&digits_b)).then(next_a.cmp(&next_b)) == Ordering::Less
}

/// The length in bytes of the common prefix, in whole characters.
fn common_prefix(a: &str, b: &str) -> usize {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    (0..=same).rev().find(|at| a.is_char_boundary(*at)).unwrap_or(0)
}

/// Whether the digits at the end of `text` contain one that is not zero.
fn ends_in_number(text: &str) -> bool {
    text.chars().rev().take_while(|c| is_digit(*c)).any(|c| c != '0')
}

/// The number that `text` starts with, and how many digits it has. As in Go, it overflows silently,
/// and a digit of another script counts as its distance from `0`.
fn number(text: &str, inside: bool) -> (i64, usize) {
    text.chars().take_while(|c| is_digit(*c)).fold((i64::from(inside), 0), |(value, count), c| {
        let digit = i64::from(u32::from(c)) - i64::from(u32::from('0'));
        (value.wrapping_mul(10).wrapping_add(digit), count + 1)
    })
}
