//! Whether an unquoted string is read back as the same string.
//!
//! YAML 1.1 resolves many plain scalars. A string that go-yaml would read as null, boolean, number or
//! timestamp is written in double quotes. So are base-60 numbers (`12:30:45`), which go-yaml reads as
//! strings but older parsers do not.

use std::borrow::Cow;

use super::timestamp::is_timestamp;

/// Whether a YAML 1.1 parser reads the unquoted `text` as the string `text`.
pub(super) fn stays_a_string(text: &str) -> bool {
    match text.as_bytes().first() {
        None => false,
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => {
            !is_word(text)
        }
        Some(b'.') => !is_special_float(text) && !is_dotted_float(text),
        Some(b'0'..=b'9' | b'+' | b'-') => !is_number_like(text),
        Some(_) => true,
    }
}

/// The forms of null, true and false.
fn is_word(text: &str) -> bool {
    matches!(
        text,
        "~" | "null"
            | "Null"
            | "NULL"
            | "y"
            | "Y"
            | "yes"
            | "Yes"
            | "YES"
            | "n"
            | "N"
            | "no"
            | "No"
            | "NO"
            | "true"
            | "True"
            | "TRUE"
            | "false"
            | "False"
            | "FALSE"
            | "on"
            | "On"
            | "ON"
            | "off"
            | "Off"
            | "OFF"
    )
}

/// Infinities and not-a-number; only infinities take a sign.
fn is_special_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// Whether a string that starts with a digit or sign is a number or timestamp without quotes.
fn is_number_like(text: &str) -> bool {
    if is_special_float(text) || is_timestamp(text) || is_base60(text) {
        return true;
    }
    // Underscores are removed anywhere before the text is parsed as a number.
    let plain =
        if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) };
    is_integer(&plain) || is_float(&plain) || plain.strip_prefix("0b").is_some_and(is_signed_binary)
}

/// A 64-bit integer in Go's notation: decimal, `0x`, `0o`, `0b`, or octal after `0`. Without a sign
/// it may use all 64 bits.
fn is_integer(text: &str) -> bool {
    let (sign, digits) = split_sign(text);
    let magnitude = match digits.as_bytes() {
        [b'0', b'b' | b'B', _, ..] => magnitude(&digits[2..], 2),
        [b'0', b'o' | b'O', _, ..] => magnitude(&digits[2..], 8),
        [b'0', b'x' | b'X', _, ..] => magnitude(&digits[2..], 16),
        [b'0'] => Some(0),
        [b'0', ..] => magnitude(&digits[1..], 8),
        _ => magnitude(digits, 10),
    };
    in_range(sign, magnitude)
}

/// The digits after `0b` may have their own sign: `0b-11`.
fn is_signed_binary(text: &str) -> bool {
    let (sign, digits) = split_sign(text);
    in_range(sign, magnitude(digits, 2))
}

fn split_sign(text: &str) -> (Option<u8>, &str) {
    match text.as_bytes().first() {
        Some(&sign @ (b'+' | b'-')) => (Some(sign), &text[1..]),
        _ => (None, text),
    }
}

/// The value of `digits`. `None` if there are none, one is invalid, or 64 bits overflow.
fn magnitude(digits: &str, base: u32) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.bytes().try_fold(0u64, |value, digit| {
        let digit = char::from(digit).to_digit(base)?;
        value.checked_mul(u64::from(base))?.checked_add(u64::from(digit))
    })
}

fn in_range(sign: Option<u8>, magnitude: Option<u64>) -> bool {
    const HALF: u64 = 1 << 63;
    magnitude.is_some_and(|m| match sign {
        None => true,
        Some(b'-') => m <= HALF,
        Some(_) => m < HALF,
    })
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, and not beyond the largest float.
fn is_float(text: &str) -> bool {
    let (_, unsigned) = split_sign(text);
    let fraction = skip_digits(unsigned);
    let whole = unsigned.len() - fraction.len();
    let rest = match fraction.strip_prefix('.') {
        None => fraction,
        Some(decimals) => {
            let rest = skip_digits(decimals);
            if whole == 0 && rest.len() == decimals.len() {
                return false;
            }
            rest
        }
    };
    if whole == 0 && !fraction.starts_with('.') {
        return false;
    }
    is_exponent(rest) && is_finite(text)
}

/// Empty, or `[eE][-+]?[0-9]+`.
fn is_exponent(text: &str) -> bool {
    text.strip_prefix(['e', 'E']).map_or(text.is_empty(), |exponent| {
        let (_, digits) = split_sign(exponent);
        !digits.is_empty() && skip_digits(digits).is_empty()
    })
}

fn skip_digits(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_digit())
}

fn is_finite(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// A float that starts with a dot. Here underscores are allowed only between two digits.
fn is_dotted_float(text: &str) -> bool {
    if !text.contains('_') {
        return is_float(text);
    }
    let bytes = text.as_bytes();
    let is_digit =
        |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let between_digits = |(at, byte): (usize, &u8)| {
        *byte != b'_' || (is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1)))
    };
    bytes.iter().enumerate().all(between_digits) && is_float(&text.replace('_', ""))
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`
fn is_base60(text: &str) -> bool {
    let (_, unsigned) = split_sign(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let mut rest = unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
    if !rest.starts_with(':') {
        return false;
    }
    while let Some(group) = rest.strip_prefix(':') {
        rest = skip_digits(group);
        match &group.as_bytes()[..group.len() - rest.len()] {
            [_] | [b'0'..=b'5', _] => {}
            _ => return false,
        }
    }
    rest.strip_prefix('.').map_or(rest.is_empty(), |decimals| {
        decimals.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    })
}
