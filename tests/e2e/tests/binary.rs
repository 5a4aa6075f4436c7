//! The `machinist` binary on the kit's machines.

use machinist_e2e::Lab;

#[test]
fn the_binary_runs_on_plain_and_on_image_based_machines() {
    let lab = Lab::new().unwrap();
    for machine in [lab.machine("plain"), lab.ostree_machine("ostree")] {
        let machine = machine.with_machinist().unwrap().boot().unwrap();
        let version = machine.sh("machinist --version").unwrap();
        assert!(version.starts_with("machinist "), "{version}");
    }
}
