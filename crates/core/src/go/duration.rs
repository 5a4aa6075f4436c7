//! Go's `time.Duration` as text: `5m`, `1h0m0s`, `1.5s`.

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000 * MICROSECOND;
const SECOND: i64 = 1_000 * MILLISECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Parses a duration into nanoseconds. `None` if Go would refuse it.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (nanoseconds, after) = part(rest)?;
        total = total.checked_add(nanoseconds)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Parses one number with its unit; returns the rest too.
fn part(text: &str) -> Option<(i128, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole_length = digits(text);
    let (whole, mut rest) = text.split_at(whole_length);
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        (fraction, rest) = after.split_at(digits(after));
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_length = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_length);
    let unit = i128::from(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    });
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()?.into() };
    // Further digits are below a nanosecond, even of an hour.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    Some((whole.checked_mul(unit)? + fraction * unit / scale, rest))
}

/// The text that Go writes for this many nanoseconds.
#[must_use]
pub fn format(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let all = nanoseconds.unsigned_abs();
    let per = |unit: i64| unit.unsigned_abs();
    let text = match all {
        0 => return "0s".to_owned(),
        all if all < per(MICROSECOND) => format!("{all}ns"),
        all if all < per(MILLISECOND) => format!("{}µs", decimal(all, per(MICROSECOND))),
        all if all < per(SECOND) => format!("{}ms", decimal(all, per(MILLISECOND))),
        all => {
            let minutes = all / per(MINUTE);
            let seconds = decimal(all % per(MINUTE), per(SECOND));
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// `value / unit` without trailing zeros.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_formatted_like_go() {
        for (text, written) in [
            ("0", Some("0s")),
            ("0s", Some("0s")),
            ("5m", Some("5m0s")),
            ("1h", Some("1h0m0s")),
            ("90s", Some("1m30s")),
            ("1.5h", Some("1h30m0s")),
            ("1m0.25s", Some("1m0.25s")),
            ("100ms", Some("100ms")),
            ("1.5ms", Some("1.5ms")),
            ("15us", Some("15µs")),
            ("7ns", Some("7ns")),
            ("-1h15m30.918s", Some("-1h15m30.918s")),
            ("+5s", Some("5s")),
            (".5s", Some("500ms")),
            ("1.s", Some("1s")),
            ("", None),
            ("3", None),
            ("-", None),
            ("s", None),
            (".", None),
            ("1x", None),
            ("1 s", None),
            ("9223372036854775808ns", None),
            ("3000000h", None),
        ] {
            assert_eq!(parse(text).map(format).as_deref(), written, "{text:?}");
        }
    }
}
