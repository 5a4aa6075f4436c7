//! Floats in Go's shortest `%g` format.

use std::fmt::Write as _;

/// Converts a float from JSON's notation to Go's: with an exponent of at least two digits below 1e-4
/// and from 1e6 on, without one otherwise, and with a fraction only if there is one.
///
/// The digits are kept. `serde_json` and Go print the fewest digits that identify the number, and of
/// two equally near choices the even one. Rust's own formatting differs in that.
pub(super) fn go_float(json: &str) -> String {
    let (sign, unsigned) = json.strip_prefix('-').map_or(("", json), |rest| ("-", rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    let digits = significant.trim_end_matches('0');
    let Some((first, others)) = digits.split_at_checked(1) else { return format!("{sign}0") };

    // The exponent of the first significant digit.
    let places = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let shift: i64 = exponent.parse().unwrap_or(0);
    let exponent = shift + places(whole) - places(&all) + places(significant) - 1;
    let mut text = sign.to_owned();
    // Writing to a String cannot fail.
    let _ = match usize::try_from(exponent) {
        Ok(exponent @ 0..6) if digits.len() <= exponent + 1 => {
            write!(text, "{digits:0<width$}", width = exponent + 1)
        }
        Ok(exponent @ 0..6) => {
            let (whole, fraction) = digits.split_at(exponent + 1);
            write!(text, "{whole}.{fraction}")
        }
        Err(_) if exponent >= -4 => {
            let zeros = usize::try_from(-1 - exponent).unwrap_or(0);
            write!(text, "0.{:0<zeros$}{digits}", "")
        }
        _ => {
            let dot = if others.is_empty() { "" } else { "." };
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(text, "{first}{dot}{others}e{sign}{:02}", exponent.unsigned_abs())
        }
    };
    text
}
