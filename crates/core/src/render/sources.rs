//! Which MachineConfig each file, unit and drop-in of a rendered config comes from. It travels with the rendered config
//! as an annotation, so that a machine can say it without the MachineConfigs, which it may not read.
//!
//! The annotation is not part of the name. It is left out where it would be large.

use std::collections::BTreeMap;

use super::merge::ParsedMachineConfig;
use crate::api::MachineConfig;
use crate::api::names::annotation::machinist::SOURCES;

/// A longer annotation is not written.
const MAX_WRITTEN_BYTES: usize = 64 << 10;
/// A longer annotation is not read.
const MAX_READ_BYTES: usize = 128 << 10;

/// The value of the annotation: for each MachineConfig the paths, units and drop-ins (`unit/drop-in`) that it decides.
pub(super) fn collect(sources: &[ParsedMachineConfig<'_>]) -> Option<String> {
    let mut deciding: BTreeMap<String, &str> = BTreeMap::new();
    for source in sources {
        let Some(config) = &source.ignition else { continue };
        for file in &config.storage.files {
            deciding.insert(file.path.clone(), source.name());
        }
        for unit in &config.systemd.units {
            if unit.contents.is_some() || unit.mask.is_some() || unit.enabled.is_some() {
                deciding.insert(unit.name.clone(), source.name());
            }
            for dropin in &unit.dropins {
                deciding.insert(format!("{}/{}", unit.name, dropin.name), source.name());
            }
        }
    }
    let mut by_source: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (item, source) in deciding {
        by_source.entry(source).or_default().push(item);
    }
    let text = serde_json::to_string(&by_source).ok()?;
    (!by_source.is_empty() && text.len() <= MAX_WRITTEN_BYTES).then_some(text)
}

/// The MachineConfig of each path, unit and drop-in of a config, as far as that is known. A config that no controller
/// rendered is its own source.
#[must_use]
pub fn item_sources(config: &MachineConfig) -> ItemSources {
    let name = config.metadata.name.clone().unwrap_or_default();
    let text = config.metadata.annotations.as_ref().and_then(|all| all.get(SOURCES));
    let text = text.filter(|text| text.len() <= MAX_READ_BYTES);
    let by_source: BTreeMap<String, Vec<String>> =
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let by_item = by_source
        .into_iter()
        .flat_map(|(source, items)| items.into_iter().map(move |item| (item, source.clone())));
    let fallback = (!name.starts_with("rendered-")).then_some(name);
    ItemSources { by_item: by_item.collect(), fallback }
}

/// The MachineConfigs behind a config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemSources {
    by_item: BTreeMap<String, String>,
    fallback: Option<String>,
}

impl ItemSources {
    /// The MachineConfig that decides about a path, a unit or a drop-in.
    #[must_use]
    pub fn of(&self, item: &str) -> Option<&str> {
        self.by_item.get(item).or(self.fallback.as_ref()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MachineConfigPool;
    use crate::render::{ImageSources, render};
    use serde_json::json;

    fn config(name: &str, ignition: &serde_json::Value) -> MachineConfig {
        let mut config = json!({"ignition": {"version": "3.5.0"}});
        config.as_object_mut().unwrap().extend(ignition.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"role": "worker"}}, "spec": {"config": config},
        }))
        .unwrap()
    }

    fn file(path: &str) -> serde_json::Value {
        json!({"path": path, "contents": {"source": "data:,x"}, "overwrite": true})
    }

    fn rendered(configs: &[MachineConfig]) -> MachineConfig {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker"},
            "spec": {"machineConfigSelector": {"matchLabels": {"role": "worker"}}},
        }))
        .unwrap();
        let rendered = render(&pool, configs, ImageSources::default()).unwrap();
        rendered.into_object(&pool, None, "1").unwrap()
    }

    #[test]
    fn the_last_config_that_mentions_an_item_is_its_source() {
        let first = json!({
            "storage": {"files": [file("/etc/a"), file("/etc/b")]},
            "systemd": {"units": [{"name": "x.service", "dropins": [
                {"name": "10.conf", "contents": "[Unit]\n"}]}]},
        });
        let second = json!({
            "storage": {"files": [file("/etc/b")]},
            "systemd": {"units": [{"name": "x.service", "enabled": true}]},
        });
        let found = item_sources(&rendered(&[config("50-a", &first), config("60-b", &second)]));
        for (item, expected) in [
            ("/etc/a", Some("50-a")),
            ("/etc/b", Some("60-b")),
            ("x.service", Some("60-b")),
            ("x.service/10.conf", Some("50-a")),
            ("/etc/c", None),
        ] {
            assert_eq!(found.of(item), expected, "{item}");
        }
    }

    #[test]
    fn large_and_damaged_annotations_are_left_out() {
        let paths: Vec<_> =
            (0..3000).map(|index| file(&format!("/etc/some/directory/{index}"))).collect();
        let large = rendered(&[config("50-a", &json!({"storage": {"files": paths}}))]);
        assert!(!large.metadata.annotations.as_ref().unwrap().contains_key(SOURCES));
        let mut damaged = large;
        let annotations = damaged.metadata.annotations.get_or_insert_default();
        annotations.insert(SOURCES.to_owned(), "{".to_owned());
        assert_eq!(item_sources(&damaged).of("/etc/some/directory/1"), None);
        // Not rendered: applied by hand.
        assert_eq!(item_sources(&config("50-a", &json!({}))).of("/etc/a"), Some("50-a"));
    }
}
