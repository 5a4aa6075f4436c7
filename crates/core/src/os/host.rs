//! Which kind of host a machine is, and why.

use serde::{Deserialize, Serialize};

use super::bootc;

/// How a host changes its operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostKind {
    /// Only ostree.
    Ostree,
    /// rpm-ostree: Fedora CoreOS, RHCOS, SCOS.
    RpmOstree,
    /// bootc.
    Bootc,
    /// Packages, no images.
    Plain,
}

/// What was found on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The text of `/etc/os-release`.
    pub os_release: String,
    /// Whether `/run/ostree-booted` exists.
    pub is_ostree_booted: bool,
    /// Whether `ostree` is installed.
    pub has_ostree: bool,
    /// Whether `rpm-ostree` is installed.
    pub has_rpm_ostree: bool,
    /// The output of `bootc status --json`; `None` if `bootc` is not installed.
    pub bootc_status: Option<String>,
}

/// The kind of a host, and the reason.
#[must_use]
pub fn detect_host_kind(facts: &HostFacts) -> (HostKind, String) {
    let os = os_name(&facts.os_release);
    let bootc = facts.bootc_status.as_deref().map(bootc::parse_status);
    let by_bootc = bootc.is_some_and(|status| {
        status.is_ok_and(|status| status.is_compatible && status.host.booted.image.is_some())
    });
    if !facts.is_ostree_booted && !by_bootc {
        let why = "is not booted from an image (there is no /run/ostree-booted)";
        return (HostKind::Plain, format!("{os} {why}"));
    }
    if is_coreos(&facts.os_release) && facts.has_rpm_ostree {
        return (HostKind::RpmOstree, format!("{os} is a CoreOS with rpm-ostree"));
    }
    if by_bootc {
        return (HostKind::Bootc, format!("{os} is booted from an image that bootc manages"));
    }
    let booted = format!("{os} is booted from an ostree deployment");
    match (facts.has_rpm_ostree, facts.has_ostree) {
        (true, _) => (HostKind::RpmOstree, format!("{booted} and has rpm-ostree")),
        (false, true) => {
            (HostKind::Ostree, format!("{booted} and has ostree, but no rpm-ostree or bootc"))
        }
        (false, false) => (
            HostKind::Plain,
            format!("{booted}, but has none of the commands ostree, rpm-ostree and bootc"),
        ),
    }
}

/// The value of a field of os-release.
#[must_use]
pub fn os_field<'a>(os_release: &'a str, field: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.trim().strip_prefix(field)?.strip_prefix('=');
    let found = os_release.lines().find_map(value)?;
    Some(found.trim_matches(['"', '\''])).filter(|text| !text.is_empty())
}

/// The name of the operating system.
#[must_use]
pub fn os_name(os_release: &str) -> &str {
    let name = os_field(os_release, "PRETTY_NAME").or_else(|| os_field(os_release, "ID"));
    name.unwrap_or("this system")
}

/// Whether this is a CoreOS, by MCO's rules.
#[must_use]
pub fn is_coreos(os_release: &str) -> bool {
    let id = os_field(os_release, "ID").unwrap_or_default();
    os_field(os_release, "VARIANT_ID") == Some("coreos") || matches!(id, "rhcos" | "scos")
}

/// Whether this is an Enterprise Linux. Only there are other kernels and extensions available.
#[must_use]
pub fn is_enterprise_linux(os_release: &str) -> bool {
    let id = os_field(os_release, "ID").unwrap_or_default();
    matches!(id, "rhcos" | "scos" | "rhel" | "centos")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n";
    const FCOS: &str =
        "NAME=\"Fedora Linux\"\nID=fedora\nVARIANT_ID=coreos\nPRETTY_NAME='Fedora CoreOS 42'\n";
    const RHCOS: &str =
        "ID=\"rhel\"\nVARIANT_ID=coreos\nVERSION_ID=9.6\nPRETTY_NAME=\"RHCOS 9.6\"\n";
    const STREAM: &str = "ID=\"centos\"\nPRETTY_NAME=\"CentOS Stream 10\"\n";

    #[test]
    fn the_kind_and_the_reason() {
        let by_bootc = Some(bootc::tests::STAGED.to_owned());
        let not_by_bootc = Some(bootc::tests::NOT_BOOTC.to_owned());
        let layered =
            Some(bootc::tests::STAGED.replace("\"incompatible\": false", "\"incompatible\": true"));
        for (os, booted, ostree, rpm_ostree, bootc, kind_, words) in [
            (
                DEBIAN,
                false,
                true,
                false,
                None,
                HostKind::Plain,
                "Debian GNU/Linux 12 (bookworm) is not booted from an image",
            ),
            (DEBIAN, true, true, false, None, HostKind::Ostree, "has ostree, but no rpm-ostree"),
            (DEBIAN, true, false, false, None, HostKind::Plain, "none of the commands"),
            (
                FCOS,
                true,
                true,
                true,
                by_bootc.clone(),
                HostKind::RpmOstree,
                "Fedora CoreOS 42 is a CoreOS with rpm-ostree",
            ),
            (
                RHCOS,
                true,
                true,
                true,
                not_by_bootc.clone(),
                HostKind::RpmOstree,
                "RHCOS 9.6 is a CoreOS",
            ),
            (STREAM, true, true, true, by_bootc.clone(), HostKind::Bootc, "that bootc manages"),
            (STREAM, true, true, false, by_bootc, HostKind::Bootc, "that bootc manages"),
            (STREAM, true, true, true, layered, HostKind::RpmOstree, "and has rpm-ostree"),
            (
                STREAM,
                false,
                true,
                true,
                not_by_bootc,
                HostKind::Plain,
                "is not booted from an image",
            ),
            (
                STREAM,
                true,
                true,
                true,
                Some("no JSON".to_owned()),
                HostKind::RpmOstree,
                "has rpm-ostree",
            ),
        ] {
            let facts = HostFacts {
                os_release: os.to_owned(),
                is_ostree_booted: booted,
                has_ostree: ostree,
                has_rpm_ostree: rpm_ostree,
                bootc_status: bootc,
            };
            let (found, reason) = detect_host_kind(&facts);
            assert_eq!(found, kind_, "{facts:?}");
            assert!(reason.contains(words), "{reason}");
        }
    }

    #[test]
    fn the_name_of_an_operating_system() {
        assert_eq!(os_name(""), "this system");
        assert_eq!(os_name("ID=x"), "x");
        assert_eq!(os_field("VERSION_ID=1\nID=\"x\"", "ID"), Some("x"));
        assert!(is_enterprise_linux(RHCOS) && !is_enterprise_linux(FCOS));
        assert!(is_coreos("ID=scos") && is_coreos(FCOS) && !is_coreos(STREAM));
    }
}
