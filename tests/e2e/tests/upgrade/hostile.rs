//! What a machine is sent by a hub that is broken or taken over, and what a machine that is taken over tries.

use std::fs;

use super::fixture::{BINARY, UPGRADE, UpgradeFixture, digest, script};
use machinist_e2e::wait_for;
use serde_json::json;

const MACHINE: &str = "/var/lib/machinist/kubeconfig";

#[test]
fn nothing_but_the_wished_binary_runs() {
    let fixture = UpgradeFixture::start(&["a", "b"]);
    let (hub, a) = (&fixture.hub, fixture.machine("a"));
    let newer = fixture.newer(b'2');
    let stored = hub.data().join("binaries").join(digest(&newer));
    fs::create_dir_all(stored.parent().unwrap()).unwrap();
    let ask = |id: &str, size: usize| {
        let request = json!({"id": id, "sha256": digest(&newer), "size": size}).to_string();
        hub.annotate("a", &[(UPGRADE, request.as_str())]);
    };
    let wait_failed = |id: &str, part: &str| {
        let waited = wait_for(part, || {
            let failed = &fixture.report("a")["failed"];
            anyhow::ensure!(failed["id"] == id, "{failed}");
            let reason = failed["reason"].as_str().unwrap_or_default();
            anyhow::ensure!(reason.contains(part), "{reason}");
            Ok(true)
        });
        if let Err(error) = waited {
            panic!("{error:#}\n{}", fixture.log(a));
        }
        fixture.assert_installed(a, &fixture.first);
    };
    // Other bytes under the name of the binary, more of them, and none.
    fs::write(&stored, vec![0; newer.len()]).unwrap();
    ask("other", newer.len());
    wait_failed("other", "has the SHA-256 digest");
    ask("longer", newer.len() - 1);
    wait_failed("longer", "more than the");
    fs::remove_file(&stored).unwrap();
    ask("none", newer.len());
    wait_failed("none", "does not have the binary");
    // Part of them: the machine tries again, and gets it when it is whole.
    fs::write(&stored, &newer[..newer.len() / 2]).unwrap();
    ask("half", newer.len());
    a.wait_for("the daemon to say so", |a| {
        let log = a.sh("journalctl --no-pager -u machinist-daemon")?;
        Ok(log.contains("the transfer ended after"))
    })
    .unwrap();
    fixture.assert_installed(a, &fixture.first);
    fs::write(&stored, &newer).unwrap();
    fixture.wait_runs(a, &newer);

    // An older version, and what is no machinist, run once at most: as `version`.
    let older = script("0.0.1", "touch /run/it-ran");
    let output = fixture.upgrade("a", &older, &[]);
    assert!(output.code == 3 && output.stdout.contains("--allow-downgrade"), "{output:?}");
    let foreign = b"#!/bin/sh\necho GNU bash\n";
    let output = fixture.upgrade("a", foreign, &[]);
    assert!(output.code == 3 && output.stdout.contains("is not machinist"), "{output:?}");
    assert!(!a.exists("/run/it-ran").unwrap());
    fixture.assert_installed(a, &newer);

    // A machine that is taken over cannot make itself or others run anything, nor put a binary on the hub.
    let request = json!({"id": "x", "sha256": digest(&newer), "size": newer.len()}).to_string();
    let wish = format!("{UPGRADE}={request}");
    for (kind, name) in [("node", "a"), ("node", "b"), ("mcp", "worker")] {
        let tried = a.exec(&[
            "machinist",
            "annotate",
            kind,
            name,
            &wish,
            "--overwrite",
            "--kubeconfig",
            MACHINE,
        ]);
        let tried = tried.unwrap();
        assert!(tried.code == 1 && tried.stderr.to_lowercase().contains("forbidden"), "{tried:?}");
    }
    let tried = a
        .exec(&["machinist", "upgrade", "node/b", "--binary", BINARY, "--kubeconfig", MACHINE])
        .unwrap();
    assert_eq!(tried.code, 1, "{tried:?}");
    assert_eq!(hub.annotation("b", UPGRADE), "");
    fixture.assert_installed(fixture.machine("b"), &fixture.first);

    // A machine without a watchdog, or with a package, says so, and nothing is asked for.
    a.sh("systemctl disable --now machinist-watchdog.timer; systemctl restart machinist-daemon")
        .unwrap();
    a.wait_for("the report", |_| {
        let why = fixture.report("a")["cannotUpgrade"].to_string();
        Ok(why.contains("machinist-watchdog.timer"))
    })
    .unwrap();
    let refused = fixture.upgrade("a", &fixture.newer(b'3'), &[]);
    assert!(refused.code == 3 && refused.stderr.contains("its watchdog is off"), "{refused:?}");
    a.sh(&format!(
        "systemctl enable --now machinist-watchdog.timer; mkdir -p /var/lib/dpkg/info; echo {BINARY} >/var/lib/dpkg/info/machinist.list; systemctl restart machinist-daemon"
    ))
    .unwrap();
    a.wait_for("the report", |_| {
        let why = fixture.report("a")["cannotUpgrade"].to_string();
        Ok(why.contains("is a file of the package machinist"))
    })
    .unwrap();
}
