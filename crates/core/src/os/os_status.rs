//! What a host reports about its operating system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One deployment that a machine can boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OsDeployment {
    /// The checksum of the deployment; empty if the host has none.
    pub checksum: String,
    /// The image it was built from, by digest if that is known: `registry/name@sha256:…`.
    pub image: Option<String>,
    /// The version in its metadata.
    pub version: Option<String>,
    /// Its kernel arguments, in order.
    pub kernel_arguments: Vec<String>,
    /// Packages that were requested on top of the image.
    pub requested_packages: Vec<String>,
    /// Packages of the image that were removed.
    pub removed_packages: Vec<String>,
}

impl fmt::Display for OsDeployment {
    /// The image, otherwise the version or checksum, then the rest in parentheses.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checksum = self.checksum.get(..12).unwrap_or(&self.checksum);
        let parts = [
            self.image.as_deref().unwrap_or_default(),
            self.version.as_deref().unwrap_or_default(),
            checksum,
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        match parts.split_first() {
            None => formatter.write_str("unknown"),
            Some((first, [])) => formatter.write_str(first),
            Some((first, rest)) => write!(formatter, "{first} ({})", rest.join(", ")),
        }
    }
}

/// The deployments of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OsStatus {
    /// The running one.
    pub booted: OsDeployment,
    /// The one that the next boot starts, if that is another one.
    pub next: Option<OsDeployment>,
    /// Those that are kept for a rollback, the newest first.
    pub kept: Vec<OsDeployment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_described_in_a_line() {
        let some = |text: &str| Some(text.to_owned());
        let mut deployment = OsDeployment::default();
        assert_eq!(deployment.to_string(), "unknown");
        deployment.version = some("Debian 12");
        assert_eq!(deployment.to_string(), "Debian 12");
        deployment.checksum = "0123456789abcdef".to_owned();
        assert_eq!(deployment.to_string(), "Debian 12 (0123456789ab)");
        deployment.image = some("r/os@sha256:1");
        assert_eq!(deployment.to_string(), "r/os@sha256:1 (Debian 12, 0123456789ab)");
    }
}
