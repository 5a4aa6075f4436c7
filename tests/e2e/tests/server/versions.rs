//! Older and newer versions of Ignition: each requests the newest specification that it reads, and gets it.

use crate::server::support::{ServerProcess, serve_directory_args};
use machinist_e2e::Lab;
use machinist_e2e::ignition::{IgnitionRun, pointer_config};

#[test]
fn every_ignition_gets_the_version_it_requests() {
    let lab = Lab::new().unwrap();
    let arguments = serve_directory_args(&lab);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = ServerProcess::start(&lab, lab.loopback(), &arguments);
    let url = format!("https://{}:22623/config/master", server.address);
    let pointer = pointer_config(&url, Some(&server.authority));
    let work = |name: &str| lab.create_dir(name).unwrap();
    for (ignition, requested, served) in [
        // Debian's, 2.14.
        (IgnitionRun::new(&work("debian")), "version=3.3.0,", "version=\"3.3.0\""),
        (IgnitionRun::with_version("v2.22.0", &work("22")), "version=3.5.0,", "version=\"3.5.0\""),
        // The newest requests more than we have, and reads older specifications.
        (IgnitionRun::with_version("v2.26.0", &work("26")), "version=3.6.0,", "version=\"3.5.0\""),
    ] {
        let config = ignition.unwrap().fetch(&pointer).unwrap();
        assert!(config.to_string().contains("/etc/greeting"), "{requested}: {config}");
        let log = server.process.log();
        let line = log.lines().rfind(|line| line.contains("answered")).unwrap();
        assert!(line.contains(requested) && line.contains(served), "{requested}: {line}");
    }
}
