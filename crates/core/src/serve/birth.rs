//! What a new machine needs to complete its first boot by itself: the program, and a unit that runs it
//! after the network is there and before anything depends on the config.
//!
//! Ignition fetches the program from the server, and takes it only if its hash is right.

use crate::ignition::Config;
use crate::ignition::schema::{File, Resource, Unit, Verification};

/// Where the program is put. Image-based hosts keep this folder from image to image.
pub const PROGRAM: &str = "/usr/local/bin/machinist";
/// The page of the server that the program is at.
pub const PAGE: &str = "/machinist";
/// The unit that completes the first boot.
pub const UNIT: &str = "machinist-firstboot.service";

/// Where the program comes from, and what becomes of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Birth {
    /// Where machines reach the server, without a slash at the end.
    pub url: String,
    /// The hash of the program, as hexadecimal digits.
    pub sha512: String,
    /// The pool that the machine joins, where no kubelet makes a Node for it.
    pub joins: Option<String>,
}

/// Adds the program and the unit.
pub(super) fn add(config: &mut Config, birth: &Birth) {
    let Birth { url, sha512, .. } = birth;
    config.storage.files.push(File {
        path: PROGRAM.to_owned(),
        overwrite: Some(true),
        mode: Some(0o755),
        contents: Resource {
            source: Some(format!("{url}{PAGE}")),
            verification: Verification { hash: Some(format!("sha512-{sha512}")) },
            ..Resource::default()
        },
        ..File::default()
    });
    config.systemd.units.push(Unit {
        name: UNIT.to_owned(),
        enabled: Some(true),
        contents: Some(unit(birth)),
        ..Unit::default()
    });
}

/// It comes after the enrolment, which brings the secrets, and before whatever would run on a machine
/// that is not as it should be. It restarts the machine itself where that is needed.
fn unit(birth: &Birth) -> String {
    let join = birth.joins.as_ref().map(|pool| format!(" --join --pool {pool}"));
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
         ExecStart={PROGRAM} firstboot{}\n\
         # A registry may be away; what the host cannot do at all is not tried again.\n\
         Restart=on-failure\n\
         RestartSec=30\n\
         RestartPreventExitStatus=3\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n\
         RequiredBy=kubelet.service\n",
        join.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_fetched_by_its_hash() {
        let mut config = Config::default();
        let mut birth = Birth {
            url: "https://hub:22623".into(),
            sha512: "ab".into(),
            joins: Some("edge".into()),
        };
        add(&mut config, &birth);
        let file = config.storage.files.iter().next().unwrap();
        assert_eq!(file.contents.source.as_deref(), Some("https://hub:22623/machinist"));
        assert_eq!(file.contents.verification.hash.as_deref(), Some("sha512-ab"));
        assert_eq!((file.path.as_str(), file.mode), ("/usr/local/bin/machinist", Some(0o755)));
        let text = config.systemd.units[0].contents.clone().unwrap();
        assert!(text.contains("machinist firstboot --join --pool edge\n"), "{text}");
        birth.joins = None;
        assert!(unit(&birth).contains("machinist firstboot\n"));
    }
}
