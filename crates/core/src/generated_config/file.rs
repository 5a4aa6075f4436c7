//! Conversion between files and the MachineConfigs that carry them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::api::names::label;
use crate::api::{MachineConfig, MachineConfigSpec};
use crate::ignition::{IgnitionError, contents, parse_and_upgrade};

/// Larger files are skipped when decoding.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A file of a generated MachineConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Its path on the machine.
    pub path: String,
    /// Its contents.
    pub contents: Vec<u8>,
}

impl GeneratedFile {
    /// A file at this path.
    pub fn new(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), contents: contents.into() }
    }

    /// The file in Ignition's format: mode 0644, overwriting an existing file.
    fn ignition(&self) -> Value {
        let mut source = "data:text/plain;charset=utf-8;base64,".to_owned();
        source.reserve(self.contents.len().div_ceil(3) * 4);
        STANDARD.encode_string(&self.contents, &mut source);
        let mut file = json!({
            "overwrite": true,
            "path": self.path,
            "contents": {"compression": ""},
            "mode": 0o644,
        });
        // Moved instead of formatted in `json!`, because it may be large.
        file["contents"]["source"] = Value::String(source);
        file
    }
}

/// A MachineConfig with these files, for the pool of this role.
pub fn machine_config(name: &str, role: &str, files: &[GeneratedFile]) -> MachineConfig {
    let mut config = json!({ "ignition": { "version": "3.5.0" } });
    if !files.is_empty() {
        config["storage"]["files"] = files.iter().map(GeneratedFile::ignition).collect();
    }
    MachineConfig {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(label::ROLE.to_owned(), role.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() },
    }
}

/// The decoded files of a MachineConfig. Files with a remote source are skipped.
///
/// # Errors
/// Its Ignition config is not valid.
pub fn decoded_files(machine_config: &MachineConfig) -> Result<Vec<GeneratedFile>, IgnitionError> {
    let Some(config) = &machine_config.spec.config else { return Ok(Vec::new()) };
    let (ignition, _) = parse_and_upgrade(config)?;
    let files = ignition.storage.files.iter().filter_map(|file| {
        let bytes = contents::decode(&file.contents, MAX_FILE_BYTES).ok()?;
        Some(GeneratedFile::new(file.path.clone(), bytes))
    });
    Ok(files.collect())
}
