//! Durations as kubectl prints them: two units for short ones, one for long ones.

use jiff::SignedDuration;

/// `45s`, `3m20s`, `45m`, `5h10m`, `20h`, `5d1h`, `200d`, `3y20d`; negative ones are `<invalid>`.
#[must_use]
pub fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    if seconds < -1 {
        "<invalid>".to_owned()
    } else if seconds < 0 {
        "0s".to_owned()
    } else if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two_units(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two_units(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 24 * 8 {
        two_units(days, 'd', hours % 24, 'h')
    } else if hours < 24 * 365 * 2 {
        format!("{days}d")
    } else if hours < 24 * 365 * 8 {
        two_units(days / 365, 'y', days % 365, 'd')
    } else {
        format!("{}y", days / 365)
    }
}

fn two_units(large: i64, unit: char, small: i64, part: char) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{part}") }
}
