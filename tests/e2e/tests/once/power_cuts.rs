//! True power cuts: unsynced data is lost, and the root still has the old or the new state.

use super::fixture::{
    apply, check, configs_touching_everything, create_system, once, recover, tree,
};
use machinist_e2e::{Lab, LoopDisk, binary, command};
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn a_power_cut_leaves_the_old_or_the_new_state() {
    let lab = Lab::new().unwrap();
    let disk = LoopDisk::new(&lab, "disk", 64).unwrap();
    let [old, new] = configs_touching_everything(lab.dir());
    let root = disk.path().join("root");
    let prepare = || {
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).unwrap();
        create_system(&root);
        apply(&root, &old);
        command::run_args("sync", ["-f", &root.to_string_lossy()]).unwrap();
    };
    prepare();
    let before = tree(&root);
    apply(&root, &new);
    let after = tree(&root);
    // What is reported as done is on the disk.
    disk.power_cycle().unwrap();
    assert!(check(&root, &before, &after, recover(&root).as_deref(), "after the end"));

    let (mut cuts, mut point) = (0, 1);
    loop {
        prepare();
        let output =
            command::output(once(&root, &new).env("MACHINIST_FAULT_POINT", point.to_string()));
        disk.power_cycle().unwrap();
        let outcome = recover(&root);
        check(&root, &before, &after, outcome.as_deref(), &format!("cut at point {point}"));
        if output.unwrap().succeeded() {
            assert!(
                point > 1,
                "{} has no fault points, only debug builds have them: unset MACHINIST_BIN",
                binary::machinist_binary().unwrap().display()
            );
            break;
        }
        (cuts, point) = (cuts + 1, point + 5);
    }
    assert!(cuts > 10, "{cuts}");

    // And while it runs: all I/O fails from then on.
    prepare();
    let whole = Instant::now();
    apply(&root, &new);
    let whole = whole.elapsed();
    for part in 0..10 {
        prepare();
        let mut child = once(&root, &new).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(part) / 10.0).min(Duration::from_secs(5)));
        disk.power_cut().unwrap();
        child.wait().unwrap();
        disk.detach().unwrap();
        disk.attach().unwrap();
        let outcome = recover(&root);
        check(&root, &before, &after, outcome.as_deref(), &format!("cut after part {part}"));
    }
}
