//! Converts rendered templates to an Ignition config.
//!
//! A template generates one file or one unit in the format of FCCT 0.1: like Ignition, but with
//! `contents.inline` for literal contents.

use serde_json::{Map, Value};

use super::error::TemplateError;
use crate::go::yaml;
use crate::ignition::config_part::{ConfigDecoder, ConfigPart};
use crate::ignition::schema::{File, Unit};
use crate::ignition::{Config, data_url, empty_config, merge};

/// A rendered template.
#[derive(Debug, Clone)]
pub(super) struct RenderedTemplate {
    /// The path of the template.
    pub(super) file: String,
    /// Its output.
    pub(super) text: String,
}

/// The Ignition config of files and units, in input order.
pub(super) fn transpile<'a>(
    files: impl IntoIterator<Item = &'a RenderedTemplate>,
    units: impl IntoIterator<Item = &'a RenderedTemplate>,
) -> Result<Config, TemplateError> {
    let mut configs = Vec::new();
    for filled in files {
        let mut file: File = read(filled, "file")?;
        file.overwrite = Some(true);
        configs.push(with(|config| config.storage.files.push(file)));
    }
    for filled in units {
        let unit: Unit = read(filled, "unit")?;
        configs.push(with(|config| config.systemd.units.push(unit)));
    }
    Ok(merge(configs))
}

fn with(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = empty_config();
    change(&mut config);
    config
}

fn read<T: ConfigPart>(filled: &RenderedTemplate, kind: &'static str) -> Result<T, TemplateError> {
    let wrong =
        |message: String| TemplateError::Transpile { file: filled.file.clone(), kind, message };
    let mut value = yaml::parse(&filled.text).map_err(|error| wrong(error.to_string()))?;
    move_inline(&mut value);
    let mut part = T::default();
    let mut decoder = ConfigDecoder::new(0);
    part.decode(&value, &mut decoder);
    match decoder.report.errors().next() {
        None => Ok(part),
        Some(error) => Err(wrong(error.to_string())),
    }
}

/// Converts inline contents to a data URL.
fn move_inline(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    for (name, value) in fields.iter_mut() {
        match value {
            Value::Object(contents) if name.eq_ignore_ascii_case("contents") => {
                inline_to_source(contents);
            }
            Value::Array(all) if name.eq_ignore_ascii_case("append") => {
                all.iter_mut().filter_map(Value::as_object_mut).for_each(inline_to_source);
            }
            _ => {}
        }
    }
}

fn inline_to_source(contents: &mut Map<String, Value>) {
    let Some(name) = contents.keys().find(|name| name.eq_ignore_ascii_case("inline")).cloned()
    else {
        return;
    };
    // A value that is not a string stays, and Ignition's parser reports it.
    match contents.remove(&name) {
        Some(Value::String(text)) => {
            contents.retain(|name, _| !name.eq_ignore_ascii_case("source"));
            contents.insert("source".to_owned(), data_url::encode(text.as_bytes()).into());
        }
        Some(Value::Null) | None => {}
        Some(other) => {
            contents.insert("source".to_owned(), other);
        }
    }
}
