//! What a new machine needs to complete its first boot by itself: the binary, and a unit that runs
//! it once the network is up and before anything depends on the config.
//!
//! Ignition downloads the binary from the server and verifies its hash.

use crate::ignition::Config;
use crate::ignition::schema::{File, Resource, Unit, Verification};

/// Where the binary is installed. Image-based hosts keep this directory across image updates.
pub const BINARY_PATH: &str = "/usr/local/bin/machinist";
/// The server's route for the binary.
pub const BINARY_ROUTE: &str = "/machinist";
/// The unit that completes the first boot.
pub const FIRST_BOOT_UNIT: &str = "machinist-firstboot.service";

/// The links in the unit directory that enable the unit.
pub const UNIT_LINKS: [&str; 2] = [
    "multi-user.target.wants/machinist-firstboot.service",
    "kubelet.service.requires/machinist-firstboot.service",
];
/// In the unit, the hash of the binary that came with it. `machinist leave` removes only that
/// binary.
const BINARY_HASH_KEY: &str = "ProgramHash=sha512-"; // words: keep

/// Where the binary comes from, and which pool the machine joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstBootConfig {
    /// The URL of the server, without a trailing slash.
    pub url: String,
    /// The hash of the binary, in hexadecimal.
    pub sha512: String,
    /// The pool that the machine joins, if no kubelet creates a Node for it.
    pub join_pool: Option<String>,
}

/// Adds the binary and the unit.
pub(super) fn add_first_boot(config: &mut Config, first_boot: &FirstBootConfig) {
    let FirstBootConfig { url, sha512, .. } = first_boot;
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
        contents: Some(unit(first_boot)),
        ..Unit::default()
    });
}

/// The unit starts after the enrolment, which brings the secrets, and before anything that must not
/// run on a half-configured machine. It reboots the machine itself if that is needed.
fn unit(first_boot: &FirstBootConfig) -> String {
    let join = first_boot.join_pool.as_ref().map(|pool| format!(" --join --pool {pool}"));
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
         # Retries if a registry is unreachable, but not if the host cannot apply the config.\n\
         Restart=on-failure\n\
         RestartSec=30\n\
         RestartPreventExitStatus=3\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n\
         RequiredBy=kubelet.service\n\
         \n\
         # Not for systemd: machinist leave removes the binary if it still has this hash.\n\
         [X-Machinist]\n\
         {BINARY_HASH_KEY}{}\n",
        join.unwrap_or_default(),
        first_boot.sha512
    )
}

/// The hash of the binary that came with a unit, in hexadecimal.
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
        let mut first_boot = FirstBootConfig {
            url: "https://hub:22623".into(),
            sha512: "ab".into(),
            join_pool: Some("edge".into()),
        };
        add_first_boot(&mut config, &first_boot);
        let file = config.storage.files.iter().next().unwrap();
        assert_eq!(file.contents.source.as_deref(), Some("https://hub:22623/machinist"));
        assert_eq!(file.contents.verification.hash.as_deref(), Some("sha512-ab"));
        assert_eq!((file.path.as_str(), file.mode), ("/usr/local/bin/machinist", Some(0o755)));
        let text = config.systemd.units[0].contents.clone().unwrap();
        assert!(text.contains("machinist firstboot --join --pool edge\n"), "{text}");
        assert_eq!(binary_hash(&text), Some("ab"));
        first_boot.join_pool = None;
        assert!(unit(&first_boot).contains("machinist firstboot\n"));
        assert_eq!(binary_hash("[Unit]\n"), None);
    }

    /// The values of a key in the unit, as systemd splits them.
    fn words(text: &str, key: &str) -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
    }

    #[test]
    fn the_unit_starts_after_the_network_and_before_everything_that_needs_the_config() {
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
            // A half-configured machine must not accept pods.
            ("RequiredBy", &["kubelet.service"]),
        ] {
            let found = words(&text, key);
            for name in names {
                assert!(found.iter().any(|one| one == name), "{key}={name} is not in {text}");
            }
        }
        let enabled = ["WantedBy", "RequiredBy"].map(|key| words(&text, key).join(" "));
        let directories = [format!("{}.wants", enabled[0]), format!("{}.requires", enabled[1])];
        assert_eq!(
            directories.map(|directory| format!("{directory}/{FIRST_BOOT_UNIT}")),
            UNIT_LINKS
        );
    }
}
