//! Durations as people write them: `30s`, `1m30s`, `500ms`.

use std::time::Duration;

/// Reads a duration, for clap.
pub(in crate::cli) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || "write it like 30s, 1m30s or 500ms".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u32 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(bad()),
        };
        rest = &rest[letters..];
        let part = unit.checked_mul(number).ok_or_else(bad)?;
        total = total.checked_add(part).ok_or_else(bad)?;
    }
    if text.is_empty() { Err(bad()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in
            [("30s", 30_000), ("1m30s", 90_000), ("500ms", 500), ("2h", 7_200_000), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "5", "5d", "-1s", "1.5s", "99999999999s", "1s2"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
