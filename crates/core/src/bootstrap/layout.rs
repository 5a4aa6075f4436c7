//! The directory layout that `machinist server bootstrap` and MCO's server read.

use kube::ResourceExt as _;
use serde::Serialize;

use super::BootstrapOutput;
use crate::api::names::object;
use crate::go::yaml::to_go_yaml;

/// The directories, in the order in which they must be written: a reader of a pool finds the config
/// that it points to.
pub const DIRECTORIES: [&str; 4] =
    ["machine-configs", "controller-config", "api-server", "machine-pools"];

/// A file in one of these directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapFile {
    /// One of [`DIRECTORIES`].
    pub directory: &'static str,
    /// The file name.
    pub name: String,
    /// The contents.
    pub text: String,
}

/// The files, in the order in which they must be written.
#[must_use]
pub fn files(made: &BootstrapOutput) -> Vec<BootstrapFile> {
    let [configs, facts, api_server, pools] = DIRECTORIES;
    let mut files = Vec::new();
    files.extend(made.rendered.iter().map(|config| file(configs, &config.name_any(), config)));
    files.push(file(facts, object::CONTROLLER_CONFIG, &made.controller_config));
    files.extend(made.api_server.iter().map(|settings| file(api_server, "api-server", settings)));
    files.extend(made.pools.iter().map(|pool| file(pools, &pool.name_any(), pool)));
    files
}

fn file(directory: &'static str, name: &str, object: &impl Serialize) -> BootstrapFile {
    let value = serde_json::to_value(object).unwrap_or_default();
    BootstrapFile { directory, name: format!("{name}.yaml"), text: to_go_yaml(&value) }
}

/// Whether a name is valid for an object, and so for a file.
pub(super) fn is_object_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = |byte: Option<u8>| byte.is_some_and(plain);
    name.len() <= 253
        && name.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'.'))
        && ends(name.bytes().next())
        && ends(name.bytes().last())
}
