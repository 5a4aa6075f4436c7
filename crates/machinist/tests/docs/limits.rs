//! The limits in the page about the daemon are those of the code.

use machinist::kubernetes::bounded_responses::ResponseLimit;
use machinist_core::daemon::backoff;
use machinist_core::daemon::session::MAX_ACTION_ATTEMPTS;
use machinist_core::drift::{HEALS_BEFORE_CONFLICT, MAX_HEAL_PAUSE};
use machinist_core::ignition::path_limits::{NAME_MAX, PATH_MAX};
use machinist_core::ignition::unpacked_size::{MAX_CONFIG_BYTES, MAX_FILE_BYTES};
use machinist_core::machine_report::MAX_REPORT_BYTES;
use machinist_core::render::MAX_RENDERED_BYTES;

use super::read;

#[test]
fn the_limits_of_the_daemon_are_those_of_the_code() {
    let page = read("docs/daemon.md");
    let (_, section) = page.split_once("\n## Limits\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    for (what, limit) in [
        ("a rendered config, as JSON", format!("{MAX_RENDERED_BYTES} bytes")),
        ("the contents of one file, unpacked", mib(MAX_FILE_BYTES)),
        ("the contents of all files of a config, unpacked", mib(MAX_CONFIG_BYTES)),
        ("a name between two slashes", format!("{NAME_MAX} bytes")),
        ("a path", format!("{PATH_MAX} bytes")),
        (
            "one response of the API server, unpacked, or one event of a watch",
            mib(ResponseLimit::MACHINE.bytes()),
        ),
        ("the pause after a failure", format!("{} seconds", backoff(u32::MAX).as_secs())),
        ("attempts of an action after a change", MAX_ACTION_ATTEMPTS.to_string()),
        ("heals of a path before it is in conflict", HEALS_BEFORE_CONFLICT.to_string()),
        ("the pause between two heals of a path", format!("{} seconds", MAX_HEAL_PAUSE.as_secs())),
        (
            "the answer to `machinist logs` and `diff --live`",
            format!("{} KiB", MAX_REPORT_BYTES >> 10),
        ),
    ] {
        let row = format!("| {what} | {limit} |");
        assert!(section.contains(&row), "{row}\nis not in\n{section}");
    }
    let rows = section.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(rows, 1 + 11, "each row is compared");
}
