//! What a new machine needs to complete its first boot by itself: the program, and a unit that runs it
//! after the network is there and before anything depends on the config.
//!
//! Ignition fetches the program from the server, and takes it only if its hash is right.

use crate::ignition::Config;
use crate::ignition::schema::{File, Resource, Unit, Verification};

/// Where the program is put. Image-based hosts keep this folder from image to image.
pub const BINARY_PATH: &str = "/usr/local/bin/machinist";
/// The page of the server that the program is at.
pub const BINARY_ROUTE: &str = "/machinist";
/// The unit that completes the first boot.
pub const FIRST_BOOT_UNIT: &str = "machinist-firstboot.service";

/// What enables the unit: links in the folder of units.
pub const UNIT_LINKS: [&str; 2] = [
    "multi-user.target.wants/machinist-firstboot.service",
    "kubelet.service.requires/machinist-firstboot.service",
];
/// In the unit, the hash of the program that came with it: what a machine that leaves may remove.
const BINARY_HASH_KEY: &str = "ProgramHash=sha512-";

/// Where the program comes from, and what becomes of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstBootConfig {
    /// Where machines reach the server, without a slash at the end.
    pub url: String,
    /// The hash of the program, as hexadecimal digits.
    pub sha512: String,
    /// The pool that the machine joins, where no kubelet makes a Node for it.
    pub join_pool: Option<String>,
}

/// Adds the program and the unit.
pub(super) fn add_first_boot(config: &mut Config, birth: &FirstBootConfig) {
    let FirstBootConfig { url, sha512, .. } = birth;
    config.storage.files.push(File {
        path: BINARY_PATH.to_owned(),
        overwrite: Some(true),
        mode: Some(0o755),
        contents: Resource {
            source: Some(format!("{url}{BINARY_ROUTE}")),
            verification: Verification { hash: Some(format!("sha512-{sha512}")) },
            ..Resource::default()
        },
        ..File::default()
    });
    config.systemd.units.push(Unit {
        name: FIRST_BOOT_UNIT.to_owned(),
        enabled: Some(true),
        contents: Some(unit(birth)),
        ..Unit::default()
    });
}

/// It comes after the enrolment, which brings the secrets, and before whatever would run on a machine
/// that is not as it should be. It restarts the machine itself where that is needed.
fn unit(birth: &FirstBootConfig) -> String {
    let join = birth.join_pool.as_ref().map(|pool| format!(" --join --pool {pool}"));
    let encapsulated = crate::api::names::path::ENCAPSULATED;
    format!(
        "[Unit]\n\
         Description=Complete the first boot of this machine\n\
         ConditionPathExists={encapsulated}\n\
         Wants=network-online.target\n\
         After=network-online.target machinist-enrol.service\n\
         Before=kubelet-dependencies.target crio.service containerd.service kubelet.service\n\
         Before=machinist-daemon.service\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={BINARY_PATH} firstboot{}\n\
         # A registry may be away; what the host cannot do at all is not tried again.\n\
         Restart=on-failure\n\
         RestartSec=30\n\
         RestartPreventExitStatus=3\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n\
         RequiredBy=kubelet.service\n\
         \n\
         # Not for systemd: machinist leave removes the program, if it still is this one.\n\
         [X-Machinist]\n\
         {BINARY_HASH_KEY}{}\n",
        join.unwrap_or_default(),
        birth.sha512
    )
}

/// The hash of the program that came with a unit, as hexadecimal digits.
#[must_use]
pub fn binary_hash(unit: &str) -> Option<&str> {
    unit.lines().find_map(|line| line.strip_prefix(BINARY_HASH_KEY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_fetched_by_its_hash() {
        let mut config = Config::default();
        let mut birth = FirstBootConfig {
            url: "https://hub:22623".into(),
            sha512: "ab".into(),
            join_pool: Some("edge".into()),
        };
        add_first_boot(&mut config, &birth);
        let file = config.storage.files.iter().next().unwrap();
        assert_eq!(file.contents.source.as_deref(), Some("https://hub:22623/machinist"));
        assert_eq!(file.contents.verification.hash.as_deref(), Some("sha512-ab"));
        assert_eq!((file.path.as_str(), file.mode), ("/usr/local/bin/machinist", Some(0o755)));
        let text = config.systemd.units[0].contents.clone().unwrap();
        assert!(text.contains("machinist firstboot --join --pool edge\n"), "{text}");
        assert_eq!(binary_hash(&text), Some("ab"));
        birth.join_pool = None;
        assert!(unit(&birth).contains("machinist firstboot\n"));
        assert_eq!(binary_hash("[Unit]\n"), None);
    }

    /// What each line of the unit is worth, as systemd reads it.
    fn words(text: &str, key: &str) -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
    }

    #[test]
    fn it_comes_after_the_network_and_before_whatever_needs_the_config() {
        let text =
            unit(&FirstBootConfig { url: String::new(), sha512: String::new(), join_pool: None });
        for (key, names) in [
            ("Wants", &["network-online.target"][..]),
            ("After", &["network-online.target", "machinist-enrol.service"]),
            (
                "Before",
                &[
                    "kubelet.service",
                    "kubelet-dependencies.target",
                    "crio.service",
                    "containerd.service",
                    "machinist-daemon.service",
                ],
            ),
            ("ConditionPathExists", &["/etc/ignition-machine-config-encapsulated.json"]),
            ("WantedBy", &["multi-user.target"]),
            // A machine that is not as it should be takes no pods.
            ("RequiredBy", &["kubelet.service"]),
        ] {
            let found = words(&text, key);
            for name in names {
                assert!(found.iter().any(|one| one == name), "{key}={name} is not in {text}");
            }
        }
        let enabled = ["WantedBy", "RequiredBy"].map(|key| words(&text, key).join(" "));
        let folders = [format!("{}.wants", enabled[0]), format!("{}.requires", enabled[1])];
        assert_eq!(folders.map(|folder| format!("{folder}/{FIRST_BOOT_UNIT}")), UNIT_LINKS);
    }
}
