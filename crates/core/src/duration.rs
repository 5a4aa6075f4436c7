//! Durations as people write them.

use std::time::Duration;

/// A duration such as `45s`, `30m`, `2h`, `1h30m` or `1d`: whole numbers, each with its unit. A
/// number alone could be seconds or minutes, so it is refused.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut rest = text;
    let mut seconds: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let Some(unit) = tail.chars().next() else {
            return Err(format!("{number} has no unit"));
        };
        let size: u64 = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86400,
            _ => return Err(format!("{unit:?} is neither a digit nor a unit (s, m, h, d)")),
        };
        let number: Option<u64> = number.parse().ok();
        let sum = number.and_then(|number| number.checked_mul(size)?.checked_add(seconds));
        // No rollout takes more than some years; beyond that, times could not be added.
        seconds = sum
            .filter(|sum| *sum <= 10 * 365 * 86400)
            .ok_or_else(|| "not a number, or too long".to_owned())?;
        rest = &tail[unit.len_utf8()..];
    }
    if text.is_empty() { Err("empty".to_owned()) } else { Ok(Duration::from_secs(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_their_durations() {
        for (text, expected) in [
            ("30m", Some(1800)),
            ("2h", Some(7200)),
            ("1h30m", Some(5400)),
            ("1d", Some(86400)),
            ("45s", Some(45)),
            ("0m", Some(0)),
            ("", None),
            ("30", None),
            ("1h30", None),
            ("m", None),
            ("-5m", None),
            ("1.5h", None),
            ("30 m", None),
            ("30min", None),
            ("5µ", None),
            ("99999999999999999999h", None),
            ("999999999h", None),
        ] {
            assert_eq!(parse_duration(text).ok().map(|found| found.as_secs()), expected, "{text}");
        }
    }
}
