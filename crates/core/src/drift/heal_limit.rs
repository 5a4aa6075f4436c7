//! Limits how often a path is healed. Something else may change a path as fast as the daemon heals it.
//!
//! The first drift of a path is healed at once. Each further heal waits longer, up to [`MAX_HEAL_PAUSE`].
//! After [`HEALS_BEFORE_CONFLICT`] heals the path is in conflict: `conflict` decides what follows. A path
//! that stays healed for [`HEAL_WINDOW`] starts again from zero. Times are durations since the daemon
//! started. Kept in memory only: a restarted daemon heals at once again. Called by `agent::drift_watch`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The longest pause between two heals of a path.
pub const MAX_HEAL_PAUSE: Duration = Duration::from_secs(300);
/// After this many heals, a path is in conflict.
pub const HEALS_BEFORE_CONFLICT: u32 = 5;
/// A path that stays healed for this long is no longer in conflict. Longer than [`MAX_HEAL_PAUSE`], so that
/// a path that drifts after each heal never leaves the conflict.
pub const HEAL_WINDOW: Duration = Duration::from_secs(600);

/// Who changes a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathWriter {
    /// The process, for people: `rm (pid 812, user 0)`.
    pub process: Option<String>,
    /// The systemd unit that the process was seen in when it changed the path.
    pub unit: Option<String>,
    /// A unit with a process whose command line names the path. It may only read it.
    pub suspect: Option<String>,
}

/// What is known about a path that was healed or has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HealedPath {
    heals: u32,
    first_heal: Duration,
    last_heal: Duration,
    /// Since when the path has been as its config says; `None` while it differs.
    healthy_since: Option<Duration>,
    /// Whether the current difference was reported.
    is_reported: bool,
    writer: PathWriter,
    /// The unit that was stopped for this path.
    stopped_unit: Option<String>,
    is_conflict_reported: bool,
}

/// The paths that were healed lately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealLimit {
    paths: BTreeMap<String, HealedPath>,
}

/// A path that drifts as often as it is healed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealConflict {
    /// The path.
    pub path: String,
    /// How often it was healed.
    pub heals: u32,
    /// The time from the first heal to the last one.
    pub within: Duration,
    /// Who changes it.
    pub writer: PathWriter,
    /// The unit that was stopped for it before.
    pub stopped_unit: Option<String>,
    /// Whether [`HealLimit::conflict_reported`] was called for it.
    pub is_reported: bool,
}

/// The pause after this many heals.
#[must_use]
pub fn heal_pause(heals: u32) -> Duration {
    match heals {
        0 => Duration::ZERO,
        heals => {
            let seconds = 1u64.checked_shl(heals - 1).unwrap_or(u64::MAX);
            Duration::from_secs(seconds).min(MAX_HEAL_PAUSE)
        }
    }
}

impl HealedPath {
    fn next_heal(&self) -> Duration {
        self.last_heal + heal_pause(self.heals)
    }

    fn is_settled(&self, now: Duration) -> bool {
        self.healthy_since.is_some_and(|since| now.saturating_sub(since) >= HEAL_WINDOW)
    }

    fn is_conflict(&self) -> bool {
        self.heals >= HEALS_BEFORE_CONFLICT
    }
}

impl HealLimit {
    /// Records a check that found these paths to differ, and no others.
    pub fn observe(&mut self, drifted: &BTreeSet<&str>, now: Duration) {
        self.paths.retain(|path, known| {
            let has_settled = known.is_settled(now);
            if drifted.contains(path.as_str()) {
                known.healthy_since = None;
            } else {
                known.healthy_since = known.healthy_since.or(Some(now));
                known.is_reported = false;
            }
            // A path that was never healed has nothing to remember once it is healthy.
            let has_history = known.heals > 0 || known.stopped_unit.is_some();
            !has_settled && (has_history || known.healthy_since.is_none())
        });
        for path in drifted {
            self.entry(path, now).healthy_since = None;
        }
    }

    /// Records that a path was healed.
    pub fn healed(&mut self, path: &str, now: Duration) {
        let known = self.entry(path, now);
        if known.heals == 0 {
            known.first_heal = now;
        }
        known.heals = known.heals.saturating_add(1);
        known.last_heal = now;
        known.healthy_since = Some(now);
        known.is_reported = false;
    }

    /// Records who changed a path. A known unit is kept: the next process may end before it is identified.
    pub fn changed_by(&mut self, path: &str, writer: PathWriter) {
        let Some(known) = self.paths.get_mut(path) else { return };
        if writer.unit.is_some() || known.writer.unit.is_none() {
            let suspect = writer.suspect.clone().or(known.writer.suspect.take());
            let process = writer.process.or(known.writer.process.take());
            known.writer = PathWriter { process, suspect, unit: writer.unit };
        }
    }

    /// Whether the current difference of a path should be reported. A path that waits for its next heal is
    /// reported once, whatever else happens to it meanwhile.
    pub fn take_unreported(&mut self, path: &str) -> bool {
        match self.paths.get_mut(path) {
            Some(known) if known.heals > 0 => !std::mem::replace(&mut known.is_reported, true),
            _ => true,
        }
    }

    /// How long a path has to wait for its next heal; zero if it is due.
    #[must_use]
    pub fn pause(&self, path: &str, now: Duration) -> Duration {
        self.paths.get(path).map_or(Duration::ZERO, |known| known.next_heal().saturating_sub(now))
    }

    /// The paths in conflict.
    #[must_use]
    pub fn conflicts(&self) -> Vec<HealConflict> {
        let conflict = |(path, known): (&String, &HealedPath)| HealConflict {
            path: path.clone(),
            heals: known.heals,
            within: known.last_heal.saturating_sub(known.first_heal),
            writer: known.writer.clone(),
            stopped_unit: known.stopped_unit.clone(),
            is_reported: known.is_conflict_reported,
        };
        self.paths.iter().filter(|(_, known)| known.is_conflict()).map(conflict).collect()
    }

    /// Whether all of these paths are in conflict. Such drift comes back while a change is checked, so it blocks no
    /// other config: that config may well be the one that ends the conflict.
    #[must_use]
    pub fn are_all_in_conflict<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> bool {
        let is_conflict = |path: &str| self.paths.get(path).is_some_and(HealedPath::is_conflict);
        let mut paths = paths.into_iter().peekable();
        paths.peek().is_some() && paths.all(is_conflict)
    }

    /// How long until the next path leaves its conflict, if nothing changes it; `None` without a conflict
    /// on a path that is healed.
    #[must_use]
    pub fn settles_in(&self, now: Duration) -> Option<Duration> {
        let settles =
            |known: &HealedPath| Some((known.healthy_since? + HEAL_WINDOW).saturating_sub(now));
        self.paths.values().filter(|known| known.is_conflict()).filter_map(settles).min()
    }

    /// Records that a conflict was reported as an event.
    pub fn conflict_reported(&mut self, path: &str) {
        if let Some(known) = self.paths.get_mut(path) {
            known.is_conflict_reported = true;
        }
    }

    /// Records that a unit was stopped for a path. The path is healed at once again, and is in conflict
    /// again if that does not help.
    pub fn unit_stopped(&mut self, path: &str, unit: &str) {
        if let Some(known) = self.paths.get_mut(path) {
            known.heals = 0;
            known.is_conflict_reported = false;
            known.stopped_unit = Some(unit.to_owned());
        }
    }

    /// Forgets everything: the machine gets a new config, or all of its files are written again.
    pub fn clear(&mut self) {
        self.paths.clear();
    }

    fn entry(&mut self, path: &str, now: Duration) -> &mut HealedPath {
        self.paths.entry(path.to_owned()).or_insert_with(|| HealedPath {
            heals: 0,
            first_heal: now,
            last_heal: now,
            healthy_since: None,
            is_reported: false,
            writer: PathWriter::default(),
            stopped_unit: None,
            is_conflict_reported: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATH: &str = "/etc/one";

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn drifted(limit: &mut HealLimit, now: Duration) {
        limit.observe(&BTreeSet::from([PATH]), now);
    }

    /// Heals as often as the limit allows, against something that changes the path at once each time.
    fn fight(limit: &mut HealLimit, from: Duration, until: Duration) -> Vec<u64> {
        let (mut now, mut heals) = (from, Vec::new());
        loop {
            drifted(limit, now);
            now += limit.pause(PATH, now);
            if now > until {
                return heals;
            }
            limit.healed(PATH, now);
            heals.push(now.as_secs());
        }
    }

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let pauses: Vec<u64> = (0..=11).map(|heals| heal_pause(heals).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(heal_pause(u32::MAX), MAX_HEAL_PAUSE);
    }

    #[test]
    fn a_path_that_is_fought_over_is_healed_less_and_less() {
        let mut limit = HealLimit::default();
        assert_eq!(fight(&mut limit, seconds(0), seconds(20)), [0, 1, 3, 7, 15]);
        let conflicts = limit.conflicts();
        assert_eq!((conflicts[0].heals, conflicts[0].within), (5, seconds(15)));
        assert!(limit.are_all_in_conflict([PATH]));
        assert!(!limit.are_all_in_conflict([PATH, "/etc/two"]));
        assert!(!limit.are_all_in_conflict([]));
        // Other paths are not concerned.
        assert_eq!(limit.pause("/etc/two", seconds(20)), Duration::ZERO);
        // The conflict stays while it goes on, although the pauses are long by then.
        assert!(fight(&mut limit, seconds(20), seconds(7200)).len() < 35);
        assert_eq!(limit.conflicts().len(), 1);
    }

    #[test]
    fn a_path_that_stays_healed_for_the_window_starts_again() {
        let mut limit = HealLimit::default();
        fight(&mut limit, seconds(0), seconds(20));
        limit.observe(&BTreeSet::new(), seconds(100));
        // It was healed at 31 at the latest; the check at 100 is the first to see it.
        assert_eq!(limit.settles_in(seconds(100)), Some(HEAL_WINDOW));
        limit.observe(&BTreeSet::new(), seconds(699));
        assert_eq!(limit.conflicts().len(), 1);
        limit.observe(&BTreeSet::new(), seconds(700));
        assert_eq!(limit, HealLimit::default());
        // The same if the next check is the one that finds drift again.
        fight(&mut limit, seconds(0), seconds(20));
        limit.observe(&BTreeSet::new(), seconds(100));
        drifted(&mut limit, seconds(900));
        assert_eq!((limit.pause(PATH, seconds(900)), limit.conflicts()), (Duration::ZERO, vec![]));
    }

    #[test]
    fn a_difference_is_reported_once_per_heal() {
        let mut limit = HealLimit::default();
        drifted(&mut limit, seconds(0));
        assert!(limit.take_unreported(PATH) && limit.take_unreported(PATH));
        limit.healed(PATH, seconds(0));
        drifted(&mut limit, seconds(0));
        assert!(limit.take_unreported(PATH) && !limit.take_unreported(PATH));
        limit.healed(PATH, seconds(1));
        assert!(limit.take_unreported(PATH));
    }

    #[test]
    fn a_known_unit_is_kept_and_a_stopped_one_gives_another_chance() {
        let writer = |process: &str, unit: Option<&str>| PathWriter {
            process: Some(process.to_owned()),
            unit: unit.map(str::to_owned),
            suspect: None,
        };
        let mut limit = HealLimit::default();
        fight(&mut limit, seconds(0), seconds(20));
        limit.changed_by(PATH, writer("a", Some("a.service")));
        limit.changed_by(PATH, writer("b", None));
        assert_eq!(limit.conflicts()[0].writer, writer("a", Some("a.service")));
        limit.unit_stopped(PATH, "a.service");
        limit.observe(&BTreeSet::new(), seconds(16));
        assert_eq!(limit.conflicts(), []);
        assert_eq!(limit.pause(PATH, seconds(16)), Duration::ZERO);
        fight(&mut limit, seconds(20), seconds(60));
        assert_eq!(limit.conflicts()[0].stopped_unit.as_deref(), Some("a.service"));
    }

    proptest! {
        /// However drift and checks are timed, heals of one path are bounded: with at most one window
        /// without drift per window, the pauses add up.
        #[test]
        fn heals_are_bounded_however_the_path_drifts(gaps in prop::collection::vec(0u64..60, 1..300)) {
            let (mut limit, mut now, mut heals) = (HealLimit::default(), Duration::ZERO, Vec::new());
            for (step, gap) in gaps.into_iter().enumerate() {
                now += seconds(gap);
                let is_drifted = step % 3 != 2;
                let paths = if is_drifted { BTreeSet::from([PATH]) } else { BTreeSet::new() };
                limit.observe(&paths, now);
                if is_drifted && limit.pause(PATH, now).is_zero() {
                    limit.healed(PATH, now);
                    heals.push(now);
                }
            }
            // No gap reaches the window, so no count is ever forgotten.
            for (count, pair) in heals.windows(2).enumerate() {
                let count = u32::try_from(count).unwrap() + 1;
                prop_assert!(pair[1] - pair[0] >= heal_pause(count));
            }
            prop_assert_eq!(limit.conflicts().len(), usize::from(heals.len() >= 5));
        }
    }
}
