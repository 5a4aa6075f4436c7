//! bootc: which commands are run, and how their output is read.

use serde::Deserialize;

use super::{OsChange, OsDeployment, OsStatus};

/// The output of `bootc status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootcStatus {
    /// The operating systems.
    pub host: OsStatus,
    /// Whether bootc can change what is booted. Layered packages prevent that.
    pub is_compatible: bool,
}

/// A command and its arguments.
pub type CommandLine = (&'static str, Vec<String>);

fn command(name: &'static str, words: &[&str]) -> CommandLine {
    (name, words.iter().map(|&word| word.to_owned()).collect())
}

/// Why bootc cannot make a change.
#[must_use]
pub fn refusal(change: &OsChange, has_rpm_ostree: bool) -> Option<String> {
    let no =
        |field: &str, remedy: &str| Some(format!("{field}: a bootc host cannot do this: {remedy}"));
    if change.kernel_type.is_some() {
        return no("spec.kernelType", "build the kernel into the image that spec.osImageURL names");
    }
    if change.extensions.as_ref().is_some_and(|wanted| !wanted.is_empty()) {
        return no(
            "spec.extensions",
            "build the packages into the image that spec.osImageURL names",
        );
    }
    if !change.kernel_arguments.is_empty() && !has_rpm_ostree {
        return no(
            "spec.kernelArguments",
            "install rpm-ostree, which can, or put them into /usr/lib/bootc/kargs.d of the image",
        );
    }
    None
}

/// The commands that stage a change. bootc cannot change kernel arguments; rpm-ostree does it on what
/// bootc has staged. A rollback is a change like any other: the kept deployment has the files of the new
/// config in its /etc, so it must not simply be booted again.
#[must_use]
pub fn stage(change: &OsChange) -> Vec<CommandLine> {
    let switch = change.image.as_deref();
    let switch =
        switch.map(|image| command("bootc", &["switch", "--transport", "registry", image]));
    let arguments = super::rpm_ostree::kernel_arguments(change);
    switch.into_iter().chain(arguments.map(|arguments| ("rpm-ostree", arguments))).collect()
}

/// The commands that drop a staged change. bootc cannot; ostree can.
#[must_use]
pub fn unstage(has_rpm_ostree: bool, is_staged: bool) -> Option<CommandLine> {
    match (is_staged, has_rpm_ostree) {
        (false, _) => None,
        (true, true) => Some(command("rpm-ostree", &["cleanup", "-p"])),
        (true, false) => Some(command("ostree", &["admin", "undeploy", "0"])),
    }
}

#[derive(Debug, Deserialize)]
struct BootcStatusHost {
    status: BootcHostStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BootcHostStatus {
    staged: Option<BootcBootEntry>,
    booted: Option<BootcBootEntry>,
    rollback: Option<BootcBootEntry>,
    rollback_queued: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BootcBootEntry {
    image: Option<BootcImageStatus>,
    incompatible: bool,
    ostree: Option<BootcOstree>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BootcImageStatus {
    image: BootcImageReference,
    version: Option<String>,
    image_digest: Option<String>,
}

#[derive(Debug, Deserialize)]
struct BootcImageReference {
    image: String,
}

#[derive(Debug, Deserialize)]
struct BootcOstree {
    checksum: String,
}

impl BootcBootEntry {
    fn deployment(&self) -> OsDeployment {
        let image = self.image.as_ref();
        let name =
            |image: &BootcImageStatus| by_digest(&image.image.image, image.image_digest.as_deref());
        OsDeployment {
            checksum: self.ostree.as_ref().map(|it| it.checksum.clone()).unwrap_or_default(),
            image: image.map(name),
            version: image.and_then(|image| image.version.clone()),
            ..OsDeployment::default()
        }
    }
}

/// The name of an image with the digest that it was resolved to.
fn by_digest(name: &str, digest: Option<&str>) -> String {
    let Some(digest) = digest.filter(|_| !name.contains('@')) else { return name.to_owned() };
    // The last colon begins a tag unless it belongs to a port.
    let repository = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    };
    format!("{repository}@{digest}")
}

/// Reads `bootc status --json`.
///
/// # Errors
/// The output is not valid, or nothing is booted.
pub fn parse_status(json: &str) -> Result<BootcStatus, String> {
    let host: BootcStatusHost = serde_json::from_str(json)
        .map_err(|error| format!("bootc status --json cannot be read: {error}"))?;
    let BootcHostStatus { staged, booted, rollback, rollback_queued } = host.status;
    let booted = booted.ok_or("bootc status --json: nothing is booted that bootc knows")?;
    let (staged, rollback) = (staged.map(|it| it.deployment()), rollback.map(|it| it.deployment()));
    let (next, kept) = if rollback_queued { (rollback, staged) } else { (staged, rollback) };
    Ok(BootcStatus {
        is_compatible: !booted.incompatible,
        host: OsStatus { booted: booted.deployment(), next, kept: kept.into_iter().collect() },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::os::KernelArgumentsChange;

    /// The output of bootc 1.1.
    pub(crate) const STAGED: &str = include_str!("bootc/fixtures/staged.json");
    /// The output on a host that bootc does not manage.
    pub(crate) const NOT_BOOTC: &str = include_str!("bootc/fixtures/not-bootc.json");

    #[test]
    fn the_status_is_read() {
        let status = parse_status(STAGED).unwrap();
        assert!(status.is_compatible);
        let OsStatus { booted, next, kept } = status.host;
        let digest = |letter: &str| format!("@sha256:{}", letter.repeat(64));
        assert_eq!(booted.image.unwrap(), format!("quay.io:5000/os/centos{}", digest("a")));
        assert_eq!(booted.version.as_deref(), Some("stream10.20250701.0"));
        assert_eq!(next.unwrap().image.unwrap(), format!("quay.io:5000/os/centos{}", digest("b")));
        assert_eq!((kept.len(), kept[0].checksum.len()), (1, 64));
        let queued = STAGED.replace("\"rollbackQueued\": false", "\"rollbackQueued\": true");
        assert!(
            parse_status(&queued)
                .unwrap()
                .host
                .next
                .unwrap()
                .image
                .unwrap()
                .ends_with(&digest("c"))
        );
        assert!(parse_status(NOT_BOOTC).unwrap_err().contains("nothing is booted"));
        assert!(parse_status("").unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn the_exact_commands() {
        let lines = |commands: Vec<CommandLine>| -> Vec<String> {
            commands.iter().map(|(name, words)| format!("{name} {}", words.join(" "))).collect()
        };
        let image = OsChange { image: Some("r/os@sha256:1".to_owned()), ..OsChange::default() };
        let append = vec!["a=1".to_owned()];
        let kernel_arguments = KernelArgumentsChange { append, ..KernelArgumentsChange::default() };
        let both = OsChange { kernel_arguments, ..image.clone() };
        let switch = "bootc switch --transport registry r/os@sha256:1";
        assert_eq!(lines(stage(&image)), [switch]);
        assert_eq!(lines(stage(&both)), [switch, "rpm-ostree kargs --append=a=1"]);
        let back = OsChange { checksum: Some("c".to_owned()), ..both.clone() };
        assert_eq!(lines(stage(&back)), lines(stage(&both)));
        assert_eq!(refusal(&both, true), None);
        assert!(refusal(&both, false).unwrap().starts_with("spec.kernelArguments: "));
        let extensions = Some(vec!["usbguard".to_owned()]);
        let extended = OsChange { extensions, ..image };
        assert!(refusal(&extended, true).unwrap().starts_with("spec.extensions: "));
        assert_eq!(lines(unstage(true, true).into_iter().collect()), ["rpm-ostree cleanup -p"]);
        assert_eq!(lines(unstage(false, true).into_iter().collect()), ["ostree admin undeploy 0"]);
        assert_eq!(unstage(true, false), None);
    }
}
