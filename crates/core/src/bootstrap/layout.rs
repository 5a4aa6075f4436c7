//! Where everything goes: the folder that `machinist server bootstrap` serves from, and the real
//! system's server as well.

use kube::ResourceExt as _;
use serde::Serialize;

use super::BootstrapOutput;
use crate::api::names::object;
use crate::go::yaml::to_go_yaml;

/// The folders that are ours, in the order in which they have to be written: whoever reads a pool
/// finds what it points at.
pub const DIRECTORIES: [&str; 4] =
    ["machine-configs", "controller-config", "api-server", "machine-pools"];

/// A file of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapFile {
    /// Which of [`FOLDERS`] it is in.
    pub directory: &'static str,
    /// Its name there.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// The files, in the order in which they have to be written.
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

fn file(folder: &'static str, name: &str, object: &impl Serialize) -> BootstrapFile {
    let value = serde_json::to_value(object).unwrap_or_default();
    BootstrapFile { directory: folder, name: format!("{name}.yaml"), text: to_go_yaml(&value) }
}

/// Whether a name can be that of an object, and so of a file.
pub(super) fn is_object_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = |byte: Option<u8>| byte.is_some_and(plain);
    name.len() <= 253
        && name.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'.'))
        && ends(name.bytes().next())
        && ends(name.bytes().last())
}
