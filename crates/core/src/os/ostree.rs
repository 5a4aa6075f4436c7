//! Reads the output of `ostree` and the entries of the boot loader.

use super::kernel_arguments::split;
use serde::{Deserialize, Serialize};

/// A deployment in the output of `ostree admin status`. The first one is the default of the next boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OstreeDeployment {
    /// The stateroot.
    pub os: String,
    /// The checksum of its commit.
    pub checksum: String,
    /// The serial: the same commit may be deployed more than once.
    pub serial: u32,
    /// Whether it is booted.
    pub booted: bool,
    /// Whether it is staged, to be finalised at shutdown.
    pub staged: bool,
    /// The version in its commit.
    pub version: Option<String>,
}

impl OstreeDeployment {
    /// The name of its directory.
    #[must_use]
    pub fn directory_name(&self) -> String {
        format!("{}.{}", self.checksum, self.serial)
    }
}

/// Reads `ostree admin status`.
#[must_use]
pub fn parse_admin_status(status: &str) -> Vec<OstreeDeployment> {
    let mut list: Vec<OstreeDeployment> = Vec::new();
    for line in status.lines() {
        if let Some(listed) = parse_deployment_line(line) {
            list.push(listed);
        } else if let Some(last) = list.last_mut()
            && let Some(version) = line.trim().strip_prefix("Version: ")
        {
            last.version = Some(version.to_owned());
        }
    }
    list
}

/// `* debian 4fff….0 (staged)`
fn parse_deployment_line(line: &str) -> Option<OstreeDeployment> {
    // Details of a deployment are indented further.
    let rest = line.strip_prefix("* ").or_else(|| line.strip_prefix("  "))?;
    let mut words = rest.strip_prefix(' ').is_none().then(|| rest.split_whitespace())?;
    let os = words.next()?.to_owned();
    let (checksum, serial) = words.next()?.rsplit_once('.')?;
    let is_sum = checksum.len() == 64 && checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some(OstreeDeployment {
        os,
        checksum: is_sum.then(|| checksum.to_owned())?,
        serial: serial.parse().ok()?,
        booted: line.starts_with('*'),
        staged: words.any(|word| word == "(staged)"),
        version: None,
    })
}

/// An entry of the boot loader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoaderEntry {
    /// The link that leads to the deployment: `/ostree/boot.1/debian/805a…/0`.
    pub link: String,
    /// The kernel arguments, without that link.
    pub arguments: Vec<String>,
}

impl LoaderEntry {
    /// Reads an entry; `None` if it is not one of ostree.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let options = text.lines().find_map(|line| {
            let (key, value) = line.trim().split_once(char::is_whitespace)?;
            (key == "options").then(|| value.trim())
        })?;
        let words = split(options);
        let link = words.iter().find_map(|word| word.strip_prefix("ostree="))?.to_owned();
        let arguments = words.into_iter().filter(|word| !word.starts_with("ostree=")).collect();
        Some(Self { link, arguments })
    }
}

/// What is staged for the next boot. ostree does not report the kernel arguments of a staged deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StagedDeployment {
    /// The commit.
    pub checksum: String,
    /// The kernel arguments.
    pub kernel_arguments: Vec<String>,
}

/// Reads a string in GVariant notation, as `ostree show --print-metadata-key` prints it.
#[must_use]
pub fn parse_gvariant_string(value: &str) -> Option<String> {
    let value = value.trim();
    let quote = value.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let inner = value.get(1..)?.strip_suffix(quote)?;
    let (mut text, mut escaped) = (String::new(), false);
    for character in inner.chars() {
        if character == '\\' && !escaped {
            escaped = true;
        } else {
            escaped = false;
            text.push(character);
        }
    }
    Some(text)
}

/// The image in the origin of a deployment that another tool made.
#[must_use]
pub fn image_of_origin(origin: &str) -> Option<String> {
    let reference =
        origin.lines().find_map(|line| line.trim().strip_prefix("container-image-reference="))?;
    super::image_ref::pullspec_of_container_reference(reference.trim()).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "4fff1cc98daec473e8aa5cd6e69f21c645ed4168a028c628cb7f748ee3cb31d9";
    const B: &str = "805aeedfe3a2f824b3d2f83aaf5e63b8bb0780be06fd8f83cd199365a9d0bc85";

    #[test]
    fn deployments_are_read_in_order() {
        let text = format!(
            "  debian {B}.1 (staged)\n    Version: v2\n    origin: <unknown origin type>\n\
             * debian {A}.0\n    Version: v1\n    origin refspec: debian/v1\n\
             \x20 debian {A}.1 (rollback)\n"
        );
        let list = parse_admin_status(&text);
        let short: Vec<_> = list
            .iter()
            .map(|each| (each.checksum.as_str(), each.serial, each.booted, each.staged))
            .collect();
        assert_eq!(short, [(B, 1, false, true), (A, 0, true, false), (A, 1, false, false)]);
        assert_eq!(list[0].version.as_deref(), Some("v2"));
        assert_eq!((list[1].os.as_str(), list[2].version.as_deref()), ("debian", None));
        assert_eq!(list[1].directory_name(), format!("{A}.0"));
        assert_eq!(parse_admin_status("No deployments.\n"), []);
    }

    #[test]
    fn an_entry_gives_its_arguments_and_never_the_link() {
        let entry = LoaderEntry::parse(
            "title Debian\nversion 1\noptions root=LABEL=root rw x=\"a b\" ostree=/ostree/boot.1/d/8/0\n\
             linux /ostree/d/vmlinuz\n",
        )
        .unwrap();
        assert_eq!(entry.link, "/ostree/boot.1/d/8/0");
        assert_eq!(entry.arguments, ["root=LABEL=root", "rw", "x=\"a b\""]);
        assert_eq!(LoaderEntry::parse("title other\noptions root=/dev/sda\n"), None);
    }

    #[test]
    fn metadata_strings_are_unquoted() {
        assert_eq!(
            parse_gvariant_string("'quay.io/os@sha256:1'\n").as_deref(),
            Some("quay.io/os@sha256:1")
        );
        assert_eq!(parse_gvariant_string("\"it's\"").as_deref(), Some("it's"));
        assert_eq!(parse_gvariant_string(r"'it\'s'").as_deref(), Some("it's"));
        assert_eq!(parse_gvariant_string("uint64 5"), None);
    }

    #[test]
    fn an_origin_may_name_an_image() {
        let origin = "[origin]\ncontainer-image-reference=ostree-unverified-registry:q.io/os:1\n";
        assert_eq!(image_of_origin(origin).as_deref(), Some("q.io/os:1"));
        assert_eq!(image_of_origin("[origin]\nrefspec=debian/v1\n"), None);
    }
}
