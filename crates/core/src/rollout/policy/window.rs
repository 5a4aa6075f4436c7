//! Maintenance windows: hours of the week in a time zone.
//!
//! ```text
//! windows := window { ";" window }
//! window  := [ days " " ] HH:MM "-" HH:MM " " zone
//! days    := day [ "-" day ] { "," day [ "-" day ] }        Mon … Sun; every day if left out
//! zone    := a name of the time zone database                UTC, Europe/Berlin
//! ```
//!
//! A window that ends at or before its start crosses midnight and belongs to the day it starts on;
//! `24:00` is the end of the day. When clocks go forward, hours that do not exist are skipped. When
//! they go back, the first occurrence of a start or end counts.

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const DAY: i32 = 24 * 60;

/// When machines may be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceWindows(Vec<MaintenanceWindow>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct MaintenanceWindow {
    /// Monday first.
    days: [bool; 7],
    /// Minutes after midnight of the day; the end may be on the next day.
    start: i32,
    end: i32,
    zone: TimeZone,
}

impl MaintenanceWindows {
    /// Parses the value of the annotation.
    pub fn parse(text: &str) -> Result<Self, String> {
        let windows: Result<Vec<MaintenanceWindow>, String> =
            text.split(';').map(|window| MaintenanceWindow::parse(window.trim())).collect();
        windows.map(Self)
    }

    /// When the open window closes. `None` if none is open.
    pub(in crate::rollout) fn closes_at(&self, now: &Time) -> Option<Time> {
        let mut closes = self.end_of_open(now.0)?;
        // Adjacent windows count as one. One that never closes is extended by two weeks at a time.
        for _ in 0..15 {
            match self.end_of_open(closes) {
                Some(later) if later > closes => closes = later,
                _ => break,
            }
        }
        Some(Time(closes))
    }

    fn end_of_open(&self, now: Timestamp) -> Option<Timestamp> {
        let spans = self.0.iter().flat_map(|window| window.spans(now, -2, 1));
        spans.filter(|(start, end)| *start <= now && now < *end).map(|(_, end)| end).max()
    }

    /// When the next window opens.
    pub(in crate::rollout) fn opens_at(&self, now: &Time) -> Time {
        // A week, and another one in case the window falls into an hour that does not exist.
        let spans = self.0.iter().flat_map(|window| window.spans(now.0, -2, 15));
        let next = spans.filter(|(start, end)| *start > now.0 && start < end).map(|span| span.0);
        // None only at the end of the supported time range.
        Time(next.min().unwrap_or(Timestamp::MAX))
    }
}

impl MaintenanceWindow {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (days, hours, zone) = match words.as_slice() {
            [] => return Err("a window is empty".to_owned()),
            [hours, zone] if hours.contains(':') => (None, hours, zone),
            [days, hours, zone] => (Some(days), hours, zone),
            _ => {
                return Err(format!(
                    "{text:?} is not [days] hours zone (the time zone must be there)"
                ));
            }
        };
        let (start, end) =
            hours.split_once('-').ok_or_else(|| format!("{hours:?} is not HH:MM-HH:MM"))?;
        let (start, end) = (minutes(start)?, minutes(end)?);
        if start == end || start == DAY {
            return Err(format!(
                "{hours:?} has no length (the whole day is 00:00-24:00, over midnight is 22:00-01:00)"
            ));
        }
        let zone = TimeZoneDatabase::bundled()
            .get(zone)
            .map_err(|_| format!("{zone:?} is not a time zone, such as UTC or Europe/Berlin"))?;
        let days = days.map_or(Ok([true; 7]), |days| weekdays(days))?;
        Ok(Self { days, start, end: if end < start { end + DAY } else { end }, zone })
    }

    /// The windows as start and end times on the days around a time.
    fn spans(
        &self,
        now: Timestamp,
        from: i32,
        to: i32,
    ) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let today = self.zone.to_datetime(now).date();
        (from..=to).filter_map(move |offset| {
            let date = today.checked_add(offset.days()).ok()?;
            let index = usize::try_from(date.weekday().to_monday_zero_offset()).ok()?;
            if !self.days[index] {
                return None;
            }
            Some((self.instant(date, self.start)?, self.instant(date, self.end)?))
        })
    }

    /// The time when the clock of the zone shows this; for an hour that does not exist, the time when
    /// the clock skips it.
    fn instant(&self, date: Date, minutes: i32) -> Option<Timestamp> {
        let date = date.checked_add((minutes / DAY).days()).ok()?;
        let hour = i8::try_from(minutes % DAY / 60).ok()?;
        let minute = i8::try_from(minutes % 60).ok()?;
        let ambiguous = self.zone.to_ambiguous_timestamp(date.at(hour, minute, 0, 0));
        match ambiguous.offset() {
            AmbiguousOffset::Gap { .. } => {
                let before = ambiguous.earlier().ok()?;
                self.zone.following(before).next().map(|jump| jump.timestamp())
            }
            _ => ambiguous.compatible().ok(),
        }
    }
}

/// `HH:MM` as minutes after midnight.
fn minutes(text: &str) -> Result<i32, String> {
    let wrong = || format!("{text:?} is not a time of day (HH:MM, 00:00 to 24:00)");
    let two = |text: &str| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<i32>().ok()).flatten()
    };
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    match (two(hours), two(minutes)) {
        (Some(hours), Some(minutes)) if minutes < 60 && hours * 60 + minutes <= DAY => {
            Ok(hours * 60 + minutes)
        }
        _ => Err(wrong()),
    }
}

fn weekdays(text: &str) -> Result<[bool; 7], String> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (weekday(first)?, weekday(last)?);
        days[day] = true;
        while day != last {
            day = (day + 1) % 7;
            days[day] = true;
        }
    }
    Ok(days)
}

fn weekday(text: &str) -> Result<usize, String> {
    const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    NAMES
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text))
        .ok_or_else(|| format!("{text:?} is not a day (Mon, Tue, Wed, Thu, Fri, Sat, Sun)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time(text.parse().unwrap())
    }

    /// Steps from opening to closing and checks that both functions agree.
    fn walk(text: &str, from: &str, steps: usize) -> Vec<String> {
        let windows = MaintenanceWindows::parse(text).unwrap();
        let mut now = time(from);
        let mut found = Vec::new();
        for _ in 0..steps {
            let moment = match windows.closes_at(&now) {
                Some(closes) => closes,
                None => windows.opens_at(&now),
            };
            assert!(moment > now, "{text}: {moment:?} is not after {now:?}");
            let before = Time(moment.0 - 1.second());
            assert_eq!(windows.closes_at(&now).is_some(), windows.closes_at(&before).is_some());
            assert_ne!(windows.closes_at(&now).is_some(), windows.closes_at(&moment).is_some());
            found.push(moment.0.to_string());
            now = moment;
        }
        found
    }

    #[test]
    fn days_hours_and_midnight() {
        let cases: [(&str, &str, &[&str]); 7] = [
            // 2026-11-15 is a Sunday.
            (
                "02:00-05:00 UTC",
                "2026-11-15T00:00:00Z",
                &["2026-11-15T02:00:00Z", "2026-11-15T05:00:00Z", "2026-11-16T02:00:00Z"],
            ),
            (
                "Sat,Sun 02:00-05:00 Europe/Berlin",
                "2026-11-16T00:00:00Z",
                &[
                    "2026-11-21T01:00:00Z",
                    "2026-11-21T04:00:00Z",
                    "2026-11-22T01:00:00Z",
                    "2026-11-22T04:00:00Z",
                    "2026-11-28T01:00:00Z",
                ],
            ),
            (
                "Wed 22:00-01:00 UTC",
                "2026-11-15T00:00:00Z",
                &["2026-11-18T22:00:00Z", "2026-11-19T01:00:00Z", "2026-11-25T22:00:00Z"],
            ),
            (
                "Wed 22:00-01:00 UTC; Thu 00:30-02:00 UTC",
                "2026-11-15T00:00:00Z",
                &["2026-11-18T22:00:00Z", "2026-11-19T02:00:00Z", "2026-11-25T22:00:00Z"],
            ),
            (
                "Fri-Mon 00:00-24:00 UTC",
                "2026-11-15T00:00:00Z",
                &["2026-11-17T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-24T00:00:00Z"],
            ),
            (
                "20:00-24:00 America/New_York",
                "2026-11-15T00:00:00Z",
                &["2026-11-15T01:00:00Z", "2026-11-15T05:00:00Z", "2026-11-16T01:00:00Z"],
            ),
            (
                "sun 14:00-15:00 Pacific/Kiritimati",
                "2026-11-15T01:00:00Z",
                &["2026-11-22T00:00:00Z", "2026-11-22T01:00:00Z"],
            ),
        ];
        for (text, from, expected) in cases {
            assert_eq!(walk(text, from, expected.len()), expected, "{text}");
        }
    }

    /// Berlin: forward on 2026-03-29 at 01:00 UTC (02:00 becomes 03:00), back on 2026-10-25 at
    /// 01:00 UTC (03:00 becomes 02:00).
    #[test]
    fn daylight_saving_changes() {
        let cases: [(&str, &str, &[&str]); 7] = [
            // The clock goes from 02:00 to 03:00: one hour less, the same hours on the clock.
            (
                "Sun 01:00-05:00 Europe/Berlin",
                "2026-03-28T00:00:00Z",
                &["2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z"],
            ),
            // It starts in the skipped hour.
            (
                "Sun 02:30-05:00 Europe/Berlin",
                "2026-03-28T00:00:00Z",
                &["2026-03-29T01:00:00Z", "2026-03-29T03:00:00Z"],
            ),
            // It ends in the skipped hour.
            (
                "Sun 01:30-02:30 Europe/Berlin",
                "2026-03-28T00:00:00Z",
                &["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"],
            ),
            // It is inside the skipped hour: no window this week.
            (
                "Sun 02:00-03:00 Europe/Berlin",
                "2026-03-28T00:00:00Z",
                &["2026-04-05T00:00:00Z", "2026-04-05T01:00:00Z"],
            ),
            // The clock goes back: one hour more.
            (
                "Sun 01:00-05:00 Europe/Berlin",
                "2026-10-24T00:00:00Z",
                &["2026-10-24T23:00:00Z", "2026-10-25T04:00:00Z"],
            ),
            // It is inside the repeated hour: the first occurrence counts.
            (
                "Sun 02:00-02:30 Europe/Berlin",
                "2026-10-24T00:00:00Z",
                &["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-11-01T01:00:00Z"],
            ),
            // Summer and winter time of the zone.
            (
                "Sat 22:00-04:00 Europe/Berlin",
                "2026-10-24T00:00:00Z",
                &["2026-10-24T20:00:00Z", "2026-10-25T03:00:00Z", "2026-10-31T21:00:00Z"],
            ),
        ];
        for (text, from, expected) in cases {
            assert_eq!(walk(text, from, expected.len()), expected, "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config {
            cases: 400,
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(7),
            ..Default::default()
        })]

        /// Also where clocks change by half an hour or at midnight, or a day was skipped.
        #[test]
        fn opening_and_closing_agree(
            zone in proptest::sample::select(vec![
                "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
                "Pacific/Apia", "America/Sao_Paulo", "Africa/Casablanca", "Asia/Kathmandu",
            ]),
            day in proptest::sample::select(vec!["", "Mon ", "Sat,Sun ", "Fri-Tue "]),
            start in 0..1440_u32,
            length in 1..1440_u32,
            from in 1_290_000_000..1_900_000_000_i64,
        ) {
            let end = (start + length) % 1440;
            let clock = |minutes: u32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
            let text = format!("{day}{}-{} {zone}", clock(start), clock(end));
            let from = Timestamp::from_second(from).unwrap().to_string();
            walk(&text, &from, 8);
        }

        #[test]
        fn no_text_is_too_strange(text in "[A-Za-z0-9:;,/ -]{0,40}|.{0,20}") {
            let _ = MaintenanceWindows::parse(&text);
        }
    }

    #[test]
    fn always_open_is_open() {
        let windows = MaintenanceWindows::parse("00:00-24:00 UTC").unwrap();
        let now = time("2026-11-15T00:00:00Z");
        assert!(windows.closes_at(&now).unwrap() > time("2026-11-25T00:00:00Z"));
    }

    #[test]
    fn invalid_windows_are_errors() {
        for (text, problem) in [
            ("", "empty"),
            ("02:00-05:00 UTC;", "empty"),
            ("02:00-05:00", "time zone must be there"),
            ("Sat 02:00-05:00", "time zone must be there"),
            ("Sat Sun 02:00-05:00 UTC", "is not [days]"),
            ("02:00 UTC", "HH:MM-HH:MM"),
            ("2:00-05:00 UTC", "time of day"),
            ("02:00-25:00 UTC", "time of day"),
            ("02:00-24:01 UTC", "time of day"),
            ("02:60-05:00 UTC", "time of day"),
            ("+2:00-05:00 UTC", "time of day"),
            ("02:00-02:00 UTC", "no length"),
            ("24:00-02:00 UTC", "no length"),
            ("02:00-05:00 Europe/Berln", "not a time zone"),
            ("Samstag 02:00-05:00 UTC", "not a day"),
            ("Sat, 02:00-05:00 UTC", "not a day"),
            ("02:00-05:00 UTC tomorrow", "is not HH:MM"),
        ] {
            let error = MaintenanceWindows::parse(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
