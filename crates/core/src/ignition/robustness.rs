//! Properties that hold for any input. Called by the fuzz targets and the regression corpus.

use serde_json::Value;

use super::convert::{convert, from_current};
use super::{IgnitionVersion, ParsedConfig, data_url, merge, parse, parse_and_upgrade};

const TARGETS: [(i64, i64); 6] = [(3, 5), (3, 4), (3, 3), (3, 2), (3, 1), (2, 2)];

/// Parsing never panics, and a parsed config survives a round trip through JSON.
pub fn parse_any(bytes: &[u8]) {
    let Ok(raw) = serde_json::from_slice::<Value>(bytes) else { return };
    let Ok((ParsedConfig::V3(config), _)) = parse(&raw) else {
        let _ = parse_and_upgrade(&raw);
        return;
    };
    for file in &config.storage.files {
        let _ = super::contents::decode(&file.contents, 1 << 16);
        let _ = data_url::check(file.contents.source.as_deref().unwrap_or_default());
    }
    let written = serde_json::to_value(&config).unwrap_or_default();
    if let Ok((ParsedConfig::V3(again), _)) = parse(&written) {
        let again = serde_json::to_value(&again).unwrap_or_default();
        assert_eq!(written, again, "reading what was written changed it");
    }
}

/// Converting never panics, and the result has the requested version.
pub fn convert_any(bytes: &[u8]) {
    let Ok(raw) = serde_json::from_slice::<Value>(bytes) else { return };
    for (major, minor) in TARGETS {
        let target = IgnitionVersion::new(major, minor);
        let converted = convert(&raw, &target).or_else(|error| match parse_and_upgrade(&raw) {
            Ok((config, _)) => from_current(&config, &target),
            Err(_) => Err(error),
        });
        if let Ok(converted) = converted {
            let value = serde_json::to_value(&converted).unwrap_or_default();
            assert_eq!(value["ignition"]["version"], target.to_string());
            assert!(parse(&value).is_ok(), "a converted config cannot be read: {value}");
        }
    }
}

/// Merging never panics. Merging all at once equals merging one after the other. A config merged
/// with itself stays the same, except for lists that merging only appends to.
pub fn merge_any(bytes: &[u8]) {
    let Ok(Value::Array(raws)) = serde_json::from_slice::<Value>(bytes) else { return };
    let configs: Vec<_> = raws
        .iter()
        .filter_map(|raw| parse_and_upgrade(raw).ok().map(|(config, _)| config))
        .collect();
    let at_once = merge(configs.clone());
    let one_by_one = configs
        .into_iter()
        .reduce(|merged, config| merge(vec![merged, config]))
        .unwrap_or_default();
    let (at_once, one_by_one) = (serde_json::to_value(&at_once), serde_json::to_value(&one_by_one));
    assert_eq!(at_once.ok(), one_by_one.ok(), "merging in one go differs");
}

/// Writing YAML never panics, whatever the value.
pub fn yaml_any(bytes: &[u8]) {
    use crate::go::yaml::{go_yaml_error, to_go_yaml};
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let _ = go_yaml_error(&value);
    let _ = to_go_yaml(&value);
}
