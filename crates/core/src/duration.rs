//! Durations as people write them, in flags of the command line and in annotations of pools.
//!
//! This is the only parser of such text. [`crate::go::duration`] reads Go's syntax, which objects of
//! Kubernetes use, and accepts more.

use std::time::Duration;

/// The units, and how many milliseconds each has.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
/// Longer durations cannot be added to a time without care, and are never meant.
const MAX_MILLIS: u64 = 10 * 365 * 86_400_000;

/// Parses a duration such as `500ms`, `45s`, `30m`, `1h30m` or `1d`: whole numbers, each with its unit.
///
/// A number alone could be seconds or minutes, so it is rejected, except for `0`.
///
/// # Errors
/// The text is not a duration, or it is longer than ten years. The error says what is wrong.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err("empty".to_owned());
    }
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if tail.is_empty() {
            return Err(format!("{number} has no unit"));
        }
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let Some((_, size)) = UNITS.into_iter().find(|(name, _)| *name == unit) else {
            return Err(format!("{unit:?} is not a unit (ms, s, m, h, d)"));
        };
        let number: Option<u64> = number.parse().ok();
        let sum = number.and_then(|number| number.checked_mul(size)?.checked_add(millis));
        millis = sum
            .filter(|sum| *sum <= MAX_MILLIS)
            .ok_or_else(|| "not a number, or longer than ten years".to_owned())?;
        rest = tail;
    }
    Ok(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_unit_and_rejects_ambiguous_text() {
        for (text, expected) in [
            ("0", Some(0)),
            ("500ms", Some(500)),
            ("45s", Some(45_000)),
            ("30m", Some(1_800_000)),
            ("2h", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("1h30m", Some(5_400_000)),
            ("1m30s", Some(90_000)),
            ("1s500ms", Some(1_500)),
            ("0m", Some(0)),
            ("3650d", Some(MAX_MILLIS)),
            ("", None),
            ("30", None),
            ("1h30", None),
            ("s", None),
            ("-5m", None),
            ("1.5h", None),
            ("30 m", None),
            ("30min", None),
            ("5µ", None),
            ("3651d", None),
            ("99999999999999999999h", None),
        ] {
            let found = parse_duration(text).ok().map(|found| found.as_millis());
            assert_eq!(found, expected.map(u128::from), "{text}");
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        assert_eq!(parse_duration("30"), Err("30 has no unit".to_owned()));
        assert_eq!(parse_duration("5y"), Err("\"y\" is not a unit (ms, s, m, h, d)".to_owned()));
    }
}
