//! Extensions: names for sets of packages, and how rpm-ostree installs them.

use std::collections::BTreeSet;
use std::time::Duration;

/// The known extensions, and their packages.
const EXTENSION_PACKAGES: [(&str, &[&str]); 7] = [
    ("two-node-ha", &["pacemaker", "pcs", "fence-agents-all"]),
    ("ipsec", &["NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"]),
    ("usbguard", &["usbguard"]),
    ("kerberos", &["krb5-workstation", "libkadm5"]),
    ("kernel-devel", &["kernel-devel", "kernel-headers"]),
    ("sandboxed-containers", &["kata-containers"]),
    ("sysstat", &["sysstat"]),
];

/// The packages of an extension in older releases, valid on a machine that was not updated yet.
const LEGACY_EXTENSION_PACKAGES: [(&str, &[&str]); 1] =
    [("ipsec", &["NetworkManager-libreswan", "libreswan"])];

fn packages_of(extension: &str) -> Option<&'static [&'static str]> {
    EXTENSION_PACKAGES.iter().find(|(name, _)| *name == extension).map(|(_, packages)| *packages)
}

/// Why extensions cannot be installed: they are unknown.
#[must_use]
pub fn refusal(extensions: &[String]) -> Option<String> {
    let unknown: Vec<&str> =
        extensions.iter().map(String::as_str).filter(|one| packages_of(one).is_none()).collect();
    if unknown.is_empty() {
        return None;
    }
    let known: Vec<&str> = EXTENSION_PACKAGES.iter().map(|(name, _)| *name).collect();
    let (unknown, known) = (unknown.join(" "), known.join(", "));
    Some(format!("invalid extensions found: [{unknown}]: there are {known}"))
}

/// The packages of extensions, sorted.
#[must_use]
pub fn packages(extensions: &[String]) -> BTreeSet<&'static str> {
    extensions.iter().filter_map(|one| packages_of(one)).flatten().copied().collect()
}

/// The arguments with which rpm-ostree installs the extensions on a machine with these requested
/// packages. Packages that belong to no extension are left alone. Empty if nothing has to change.
#[must_use]
pub fn update_arguments(extensions: &[String], requested: &[String]) -> Option<Vec<String>> {
    let wanted = packages(extensions);
    let installed: BTreeSet<&str> = requested.iter().map(String::as_str).collect();
    let managed: BTreeSet<&str> =
        EXTENSION_PACKAGES.iter().flat_map(|(_, packages)| packages.iter().copied()).collect();
    let install = wanted.iter().filter(|name| !installed.contains(**name));
    let install = install.flat_map(|name| ["--install", name]);
    let gone = installed.iter().filter(|name| managed.contains(**name) && !wanted.contains(**name));
    let gone = gone.flat_map(|name| ["--uninstall", name]);
    let arguments: Vec<String> = install.chain(gone).map(str::to_owned).collect();
    (!arguments.is_empty()).then(|| std::iter::once("update".to_owned()).chain(arguments).collect())
}

/// What is wrong with the extensions of a staged deployment.
#[must_use]
pub fn missing_in_staged(extensions: &[String], staged: Option<&[String]>) -> Option<String> {
    let wanted = packages(extensions);
    if wanted.is_empty() {
        return None;
    }
    let Some(staged) = staged else {
        return Some("no staged deployment found after applying extensions".to_owned());
    };
    let has = |name: &&&str| !staged.iter().any(|one| one == **name);
    let missing: Vec<&str> = wanted.iter().filter(has).copied().collect();
    (!missing.is_empty()).then(|| {
        let missing = missing.join(" ");
        format!(
            "the following extension packages are missing from the staged deployment: [{missing}]"
        )
    })
}

/// What is wrong with the extensions of a running machine. `is_installed` says which packages it has.
#[must_use]
pub fn missing_on_host(
    extensions: &[String],
    is_installed: &dyn Fn(&str) -> bool,
) -> Option<String> {
    extensions.iter().find_map(|extension| {
        let packages = packages_of(extension)?;
        let legacy = LEGACY_EXTENSION_PACKAGES.iter().find(|(name, _)| name == extension);
        let has = |set: &[&str]| set.iter().all(|name| is_installed(name));
        if has(packages) || legacy.is_some_and(|(_, set)| has(set)) {
            return None;
        }
        let missing: Vec<&str> =
            packages.iter().copied().filter(|name| !is_installed(name)).collect();
        let missing = missing.join(" ");
        Some(format!(
            "extension package verification failed: extension {extension:?} verification failed: not installed: [{missing}]"
        ))
    })
}

/// The package repository for rpm-ostree, while it is needed.
pub const REPO_FILE: &str = "/etc/yum.repos.d/coreos-extensions.repo";
/// The directory of its packages.
pub const REPO_DIR: &str = "/run/mco-extensions/os-extensions-content-machinist";

/// The text of [`REPO_FILE`].
#[must_use]
pub fn repo_file() -> String {
    format!(
        "[coreos-extensions]\nenabled=1\nmetadata_expire=1m\nbaseurl={REPO_DIR}/usr/share/rpm-ostree/extensions/\ngpgcheck=0\nskip_if_unavailable=False\n"
    )
}

/// The commands that extract the packages from their image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionsFetch {
    /// `nice`: podman pulls the image with low priority.
    pub pull: Vec<String>,
    /// `podman`: creates a container from it that never runs.
    pub create: Vec<String>,
    /// `podman`: copies its contents.
    pub copy: Vec<String>,
    /// `chcon`: lets rpm-ostree read it.
    pub label: Vec<String>,
    /// The name of the container.
    pub container: String,
}

/// The commands that extract the packages from an image.
#[must_use]
pub fn fetch_commands(image: &str, authfile: Option<&str>) -> ExtensionsFetch {
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|&it| it.to_owned()).collect() };
    let container = "ostree-container-pivot-machinist";
    let pull = words(&["--", "ionice", "-c", "3", "podman", "pull", "-q"]);
    let auth = authfile.map(|file| words(&["--authfile", file])).unwrap_or_default();
    let annotation = "--annotation=org.openshift.machineconfigoperator.pivot=true";
    ExtensionsFetch {
        pull: [pull, auth, words(&[image])].concat(),
        create: words(&[
            "create",
            "--replace",
            "--net=none",
            annotation,
            "--name",
            container,
            image,
        ]),
        copy: words(&["cp", &format!("{container}:/"), REPO_DIR]),
        label: words(&["-R", "-t", "var_run_t", REPO_DIR]),
        container: container.to_owned(),
    }
}

/// The pause after this many failed pulls; `None` after the last attempt.
#[must_use]
pub fn fetch_backoff(failures: u32) -> Option<Duration> {
    (failures <= 5).then(|| Duration::from_secs(5 << failures.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn the_exact_commands() {
        for (extensions, requested, expected) in [
            (&["usbguard"][..], &[][..], Some("update --install usbguard")),
            (&["usbguard"], &["usbguard", "vim"], None),
            (&[], &["usbguard", "vim"], Some("update --uninstall usbguard")),
            (
                &["kerberos"],
                &["usbguard", "libkadm5"],
                Some("update --install krb5-workstation --uninstall usbguard"),
            ),
            (&["ipsec"], &["libreswan", "NetworkManager-libreswan"], {
                Some("update --install openvswitch3.5-ipsec")
            }),
            (
                &["two-node-ha", "sysstat"],
                &[],
                Some(
                    "update --install fence-agents-all --install pacemaker --install pcs --install sysstat",
                ),
            ),
            (&[], &["kernel-rt-core"], None),
        ] {
            let call =
                update_arguments(&list(extensions), &list(requested)).map(|call| call.join(" "));
            assert_eq!(call.as_deref(), expected, "{extensions:?} {requested:?}");
        }
    }

    #[test]
    fn unknown_extensions_are_named() {
        let refused = refusal(&list(&["usbguard", "x", "y"])).unwrap();
        assert!(refused.starts_with("invalid extensions found: [x y]"), "{refused}");
        let wanted = list(&["kerberos"]);
        assert!(missing_in_staged(&wanted, None).unwrap().starts_with("no staged deployment"));
        let staged = list(&["libkadm5"]);
        assert!(missing_in_staged(&wanted, Some(&staged)).unwrap().ends_with("[krb5-workstation]"));
        assert_eq!(missing_in_staged(&[], None), None);
        let old = |name: &str| name.contains("libreswan");
        assert_eq!(missing_on_host(&list(&["ipsec"]), &old), None);
        let found = missing_on_host(&list(&["ipsec", "usbguard"]), &old).unwrap();
        assert!(found.contains("\"usbguard\" verification failed"), "{found}");
    }

    #[test]
    fn packages_are_extracted_from_their_image() {
        let calls = fetch_commands("r/ext@sha256:1", Some("/var/lib/kubelet/config.json"));
        assert_eq!(
            calls.pull.join(" "),
            "-- ionice -c 3 podman pull -q --authfile /var/lib/kubelet/config.json r/ext@sha256:1"
        );
        assert_eq!(
            calls.create.join(" "),
            "create --replace --net=none --annotation=org.openshift.machineconfigoperator.pivot=true --name ostree-container-pivot-machinist r/ext@sha256:1"
        );
        assert_eq!(calls.copy.join(" "), format!("cp {}:/ {REPO_DIR}", calls.container));
        assert!(repo_file().contains(&format!("baseurl={REPO_DIR}/usr/share")));
        let pauses: Vec<u64> =
            (1..9).map_while(fetch_backoff).map(|pause| pause.as_secs()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80]);
    }
}
