//! When the daily backup of a hub is due, and which backups are deleted afterwards.
//!
//! The backups on disk decide, by the times in their names, so that a restart repeats nothing. The clock of a hub may
//! jump: a backup never waits for longer than two intervals, and a new backup is never deleted in favour of one whose
//! time is wrong. Called by the loop in `machinist up`.

use std::num::NonZeroUsize;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The time between two backups.
pub const INTERVAL_SECONDS: i64 = 24 * 3600;
/// How long a failed backup waits before the next attempt.
pub const RETRY_SECONDS: i64 = 3600;

const PREFIX: &str = "hub-";
const SUFFIX: &str = ".backup";
const ENCRYPTED_SUFFIX: &str = ".backup.age";
/// Times sort as text, and have no character that needs quoting.
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// A backup on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingBackup {
    /// The name of its file.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub time: i64,
}

impl ExistingBackup {
    /// The backup with this file name; `None` if the daily backup does not write such names.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_prefix(PREFIX)?;
        let stem = stem.strip_suffix(ENCRYPTED_SUFFIX).or_else(|| stem.strip_suffix(SUFFIX))?;
        let time = DateTime::strptime(TIME_FORMAT, stem).ok()?;
        let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
        // Only the one spelling that `file_name` writes.
        let is_ours = [false, true].iter().any(|is_encrypted| {
            file_name(time, *is_encrypted).is_some_and(|expected| expected == name)
        });
        is_ours.then(|| Self { name: name.to_owned(), time })
    }
}

/// The file name of a backup; `None` for a time beyond the year 9999.
#[must_use]
pub fn file_name(time: i64, is_encrypted: bool) -> Option<String> {
    let time = Timestamp::from_second(time).ok()?.strftime(TIME_FORMAT);
    let suffix = if is_encrypted { ENCRYPTED_SUFFIX } else { SUFFIX };
    Some(format!("{PREFIX}{time}{suffix}"))
}

/// When the next backup is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextBackup {
    /// At once.
    Now,
    /// At this time, in seconds since 1970.
    At(i64),
}

/// When the next backup is due. A backup counts if its time is less than an interval away, in either direction: one from
/// a distant future was taken by a wrong clock, and must not postpone the next one for years.
#[must_use]
pub fn next_backup(now: i64, existing: &[ExistingBackup], last_failure: Option<i64>) -> NextBackup {
    let is_within = |time: i64, seconds: i64| now.abs_diff(time) < seconds.unsigned_abs();
    let recent = existing.iter().map(|backup| backup.time);
    let newest = recent.filter(|time| is_within(*time, INTERVAL_SECONDS)).max();
    let failed = last_failure.filter(|time| is_within(*time, RETRY_SECONDS));
    match (newest, failed) {
        (Some(time), _) => NextBackup::At(time + INTERVAL_SECONDS),
        (None, Some(time)) => NextBackup::At(time + RETRY_SECONDS),
        (None, None) => NextBackup::Now,
    }
}

/// The backups to delete after a new one was verified, so that `keep` remain: the oldest first, never the new one.
/// Backups from the future count as the oldest, because they were taken before the new one all the same.
#[must_use]
pub fn outdated<'a>(
    existing: &'a [ExistingBackup],
    new: &ExistingBackup,
    keep: NonZeroUsize,
) -> Vec<&'a str> {
    let mut others: Vec<&ExistingBackup> =
        existing.iter().filter(|backup| backup.name != new.name).collect();
    others.sort_by_key(|backup| (backup.time <= new.time, backup.time, &backup.name));
    let surplus = (others.len() + 1).saturating_sub(keep.get());
    others.iter().take(surplus).map(|backup| backup.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = INTERVAL_SECONDS;
    const NOW: i64 = 1_800_000_000;

    fn backup(time: i64) -> ExistingBackup {
        ExistingBackup { name: file_name(time, false).unwrap(), time }
    }

    fn backups(times: &[i64]) -> Vec<ExistingBackup> {
        times.iter().map(|time| backup(*time)).collect()
    }

    #[test]
    fn names_have_the_time() {
        let name = file_name(NOW, false).unwrap();
        assert_eq!(name, "hub-20270115T080000Z.backup");
        assert_eq!(ExistingBackup::parse(&name).unwrap().time, NOW);
        let encrypted = ExistingBackup::parse("hub-20270115T080000Z.backup.age").unwrap();
        assert_eq!(encrypted.time, NOW);
        for other in [
            "hub.backup",
            "hub-20270115T080000Z.backup.part",
            "hub-20270115T080000Z",
            "hub-20270115T080000.backup",
            "hub-20271315T080000Z.backup",
            "hub-2027-01-15.backup",
            "hub-20270115T080000Z.backup.age.age",
            "hub- 20270115T080000Z.backup",
            "other-20270115T080000Z.backup",
        ] {
            assert_eq!(ExistingBackup::parse(other), None, "{other}");
        }
        assert_eq!(file_name(i64::MAX, false), None);
    }

    #[test]
    fn backups_on_disk_decide_when_the_next_one_is_due() {
        use NextBackup::{At, Now};
        let table: &[(&str, &[i64], Option<i64>, NextBackup)] = &[
            ("there is none", &[], None, Now),
            ("a restart after an hour", &[NOW - 3600], None, At(NOW - 3600 + DAY)),
            ("the newest counts", &[NOW - 9 * DAY, NOW - 60], None, At(NOW - 60 + DAY)),
            ("a day ago", &[NOW - DAY], None, Now),
            ("almost a day ago", &[NOW - DAY + 1], None, At(NOW + 1)),
            ("the hub was down for a month", &[NOW - 30 * DAY], None, Now),
            ("the clock went back an hour", &[NOW + 3600], None, At(NOW + 3600 + DAY)),
            ("the clock was a year ahead", &[NOW + 365 * DAY], None, Now),
            ("… and there is a good one", &[NOW + 365 * DAY, NOW - 60], None, At(NOW - 60 + DAY)),
            ("the clock starts at 1970", &[NOW], Some(NOW), At(NOW + DAY)),
            ("an attempt just failed", &[NOW - 2 * DAY], Some(NOW), At(NOW + RETRY_SECONDS)),
            ("it failed an hour ago", &[], Some(NOW - RETRY_SECONDS), Now),
            ("it failed, then the clock went back a day", &[], Some(NOW + DAY), Now),
        ];
        for (name, times, failure, expected) in table {
            assert_eq!(next_backup(NOW, &backups(times), *failure), *expected, "{name}");
        }
        assert_eq!(next_backup(0, &backups(&[NOW]), None), Now, "1970 has no backup");
        assert_eq!(next_backup(i64::MIN, &backups(&[NOW]), Some(i64::MAX)), Now);
    }

    #[test]
    fn the_newest_backups_stay() {
        let table: &[(&str, &[i64], usize, &[i64])] = &[
            ("as many as wanted", &[NOW - DAY], 2, &[]),
            ("one too many", &[NOW - DAY, NOW - 2 * DAY], 2, &[NOW - 2 * DAY]),
            ("only the new one", &[NOW - DAY, NOW - 2 * DAY], 1, &[NOW - 2 * DAY, NOW - DAY]),
            ("fewer are wanted than before", &[1, 2, 3, 4], 3, &[1, 2]),
            ("one from the future goes first", &[NOW - DAY, NOW + DAY], 2, &[NOW + DAY]),
            (
                "the clock is at 1970: all others are from the future",
                &[NOW + 1, NOW + 2],
                1,
                &[NOW + 1, NOW + 2],
            ),
        ];
        for (name, times, keep, expected) in table {
            let (mut all, new) = (backups(times), backup(NOW));
            all.push(new.clone());
            let expected: Vec<String> = expected.iter().map(|time| backup(*time).name).collect();
            let keep = NonZeroUsize::new(*keep).unwrap();
            assert_eq!(outdated(&all, &new, keep), expected, "{name}");
            assert!(!outdated(&all, &new, keep).contains(&new.name.as_str()), "{name}");
        }
    }
}
