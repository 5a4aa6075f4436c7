//! A disk that is really full: a small tmpfs in a user namespace. Deletes and a restart work.
//!
//! The test runs itself as the child process inside the namespace.
use std::path::Path;
use std::process::Command;

use machinist_hub::audit::AuditLog;
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde_json::json;

use crate::support::TestHub;

const DIR_VARIABLE: &str = "MACHINIST_FULL_DISK_DIR";
const OPTIONS: StoreOptions =
    StoreOptions { history: 1000, history_bytes: 1 << 20, reserve_bytes: 1 << 20 };
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn deletes_and_restarts_work_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=20m none \"$MACHINIST_FULL_DISK_DIR\"";
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.env(DIR_VARIABLE, dir.path()).env("TEST_BINARY", std::env::current_exe().unwrap());
        command.output()
    };
    if !in_namespace(mount).is_ok_and(|probe| probe.status.success()) {
        println!("skipped: this system does not allow user namespaces");
        return;
    }
    let run = "exec \"$TEST_BINARY\" --exact store_full_disk::child_process --nocapture";
    let output = in_namespace(&format!("{mount} && {run}")).unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && text.contains("full disk survived"), "{text}");
}

#[tokio::test]
async fn child_process() {
    let Ok(dir) = std::env::var(DIR_VARIABLE) else { return };
    let (data, filler) = (Path::new(&dir).join("data"), Path::new(&dir).join("filler"));
    let other = Path::new(&dir).join("other");
    std::fs::write(&other, vec![1; 8 << 20]).unwrap();
    let hub = start(&data).await;
    let mut created = 0;
    create_until_refused(&hub, &mut created).await;
    assert!(created > 20, "{created}");

    // Something else takes the rest of the disk. The reserve is not for it.
    fill(&filler);
    stop(hub).await;
    let hub = start(&data).await;
    create_until_refused(&hub, &mut created).await;
    for n in 0..created / 2 {
        let (code, body) = hub.send("DELETE", &format!("{MAPS}/m{n}"), &[], String::new()).await;
        assert_eq!(code, 200, "{n}: {body}");
    }
    stop(hub).await;
    let hub = start(&data).await;
    let left = hub.hub.store().list("/core/configmaps/", None, None).entries.len();
    assert_eq!(left, created - created / 2, "nothing was lost");

    let (code, error) = create(&hub, 9999).await;
    assert_eq!(code, 201, "the deleted objects made space: {error}");
    let full = create_until_refused(&hub, &mut created).await;
    println!("then {full}");
    let (code, body) = hub.send("DELETE", &format!("{MAPS}/m9999"), &[], String::new()).await;
    assert_eq!(code, 200, "{body}");

    std::fs::remove_file(&filler).unwrap();
    std::fs::remove_file(&other).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(create(&hub, 10_000).await.0, 201);
    assert!(data.join("RESERVE").exists(), "the reserve is allocated again");
    stop(hub).await;
    // Lines are missing, but each one that is there is whole.
    let audit = std::fs::read_to_string(data.with_file_name("audit.log")).unwrap();
    for line in audit.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect(line);
    }
    assert!(audit.ends_with('\n') && audit.contains("m10000"), "{audit}");
    println!("full disk survived");
}

async fn start(data: &Path) -> TestHub {
    let store = Store::open(data, OPTIONS).unwrap();
    let audit = AuditLog::to_file(&data.with_file_name("audit.log")).unwrap();
    TestHub { hub: Hub::start(store, HubConfig { audit, ..HubConfig::default() }).await.unwrap() }
}

async fn stop(hub: TestHub) {
    hub.hub.stop().await;
    let store = hub.hub.store().clone();
    drop(hub);
    store.close().await;
}

/// Creates objects until the hub says that the disk is full. It must not fail in any other way.
async fn create_until_refused(hub: &TestHub, created: &mut usize) -> String {
    loop {
        let (code, body) = create(hub, *created).await;
        if code != 201 {
            println!("{created} objects, then {code} {body}");
            assert_eq!(code, 503, "{body}");
            assert!(body.contains("only deletes are accepted"), "{body}");
            return body;
        }
        *created += 1;
    }
}

async fn create(hub: &TestHub, n: usize) -> (u16, String) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
        "data": {"x": "x".repeat(100_000)},
    });
    let (code, body) = hub.send("POST", MAPS, &[], map.to_string()).await;
    (code.as_u16(), body["message"].as_str().unwrap_or_default().to_owned())
}

/// Writes until nothing fits any more.
fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [64 << 10, 4 << 10, 1] {
        while file.write_all(&vec![1; size]).and_then(|()| file.sync_all()).is_ok() {}
    }
}
