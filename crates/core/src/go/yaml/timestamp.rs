//! The timestamps that go-yaml recognizes, as leniently as Go's `time.Parse`.
//!
//! Four forms count: a date; a date, `T` or `t`, a time and a zone; and a date, spaces and a time
//! without a zone. Only the year has a fixed width.

/// Whether go-yaml reads `text` as a timestamp.
pub(super) fn is_timestamp(text: &str) -> bool {
    parse(text.as_bytes()).is_some()
}

fn parse(text: &[u8]) -> Option<()> {
    let (year, rest) = text.split_at_checked(4)?;
    let year = year.iter().try_fold(0, |sum, b| Some(sum * 10 + digit(*b)?))?;
    let (month, rest) = number(after(rest, b'-')?, 12)?;
    let (day, rest) = number(after(rest, b'-')?, 31)?;
    if month == 0 || day == 0 || day > days_in(month, year) {
        return None;
    }
    let rest = match rest {
        [] => return Some(()),
        [b'T' | b't', time @ ..] => zone(time_of_day(time)?)?,
        [b' ', ..] => time_of_day(skip_spaces(rest))?,
        _ => return None,
    };
    rest.is_empty().then_some(())
}

/// Trims spaces only; the standard trim removes more.
fn skip_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|b| **b == b' ').count();
    text.get(spaces..).unwrap_or_default()
}

fn digit(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(10)
}

fn after(text: &[u8], mark: u8) -> Option<&[u8]> {
    text.split_first().and_then(|(first, rest)| (*first == mark).then_some(rest))
}

/// One or two digits, as many as there are, up to `max`.
fn number(text: &[u8], max: u32) -> Option<(u32, &[u8])> {
    let (first, rest) = text.split_first()?;
    let first = digit(*first)?;
    let (value, rest) = match rest.split_first().map(|(b, rest)| (digit(*b), rest)) {
        Some((Some(second), rest)) => (first * 10 + second, rest),
        _ => (first, rest),
    };
    (value <= max).then_some((value, rest))
}

/// Hours, minutes, seconds, and a fraction of any length after a dot or comma.
fn time_of_day(text: &[u8]) -> Option<&[u8]> {
    let (_, rest) = number(text, 23)?;
    let (_, rest) = number(after(rest, b':')?, 59)?;
    let (_, rest) = number(after(rest, b':')?, 59)?;
    Some(match rest {
        [b'.' | b',', fraction @ ..] if fraction.first().is_some_and(u8::is_ascii_digit) => {
            let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            fraction.get(digits..).unwrap_or_default()
        }
        _ => rest,
    })
}

/// `Z`, or a sign and two digits each for hours (up to 24) and minutes (up to 60).
fn zone(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'Z', rest @ ..] => Some(rest),
        [b'+' | b'-', h1, h2, b':', m1, m2, rest @ ..] => {
            let hours = digit(*h1)? * 10 + digit(*h2)?;
            let minutes = digit(*m1)? * 10 + digit(*m2)?;
            (hours <= 24 && minutes <= 60).then_some(rest)
        }
        _ => None,
    }
}

fn days_in(month: u32, year: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
