//! Files that follow from files of the config on some hosts: what containerd reads instead of `registries.conf`.

use crate::container_runtime::containerd_hosts::containerd_hosts;
use crate::container_runtime::registries_conf::RegistriesConf;
use crate::ignition::contents;
use crate::ignition::schema::Config;
use crate::os::abilities::CERTS_D;

const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";
/// A larger one is not read.
const MAX_BYTES: u64 = 1 << 20;

/// A file that follows from the config.
pub(super) struct DerivedFile {
    pub(super) path: String,
    pub(super) text: String,
}

/// The files, and what they leave out. An unreadable `registries.conf` is CRI-O's and Podman's to report.
pub(super) fn derived_files(config: &Config) -> (Vec<DerivedFile>, Vec<String>) {
    let file = config.storage.files.iter().rev().find(|file| file.path == REGISTRIES_CONF);
    let bytes = file.and_then(|file| contents::decode(&file.contents, MAX_BYTES).ok());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(conf) = text.and_then(|text| RegistriesConf::parse(&text).ok()) else {
        return (Vec::new(), Vec::new());
    };
    let hosts = containerd_hosts(&conf);
    let files = hosts.files.into_iter().map(|(registry, text)| DerivedFile {
        path: format!("{CERTS_D}/{registry}/hosts.toml"),
        text,
    });
    (files.collect(), hosts.not_applied)
}
