//! `machinist logs` on machines with a journal: it has what earlier processes of the daemon wrote.

use super::fixture::FirstWeek;
use machinist_e2e::wait_for;

pub(super) fn the_journal_of_the_daemon_is_shown(week: &FirstWeek) {
    let (hub, plain) = (&week.hub, &week.plain);
    let before = hub.machinist(&["logs", "plain", "--lines", "500"]);
    assert!(before.code == 0, "{before:?}");
    assert!(before.stdout.contains("Config Drift Monitor started"), "{before:?}");
    plain.sh("systemctl restart machinist-daemon").unwrap();
    // systemd's own lines about the service are there, too: of both processes.
    wait_for("the log of both processes", || {
        let after = hub.machinist(&["logs", "plain", "--lines", "500"]);
        anyhow::ensure!(after.code == 0, "{after:?}");
        let stopped = after.stdout.find("Stopped machinist-daemon.service");
        let started = after.stdout.rfind("Started machinist-daemon.service");
        Ok(stopped.zip(started).is_some_and(|(stopped, started)| stopped < started))
    })
    .unwrap();
    let same = hub.machinist(&["diff", "--live", "plain"]);
    assert!(same.code == 0 && same.stdout.starts_with("plain has what"), "{same:?}");
}
