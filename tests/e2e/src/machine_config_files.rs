//! Reads the files in a MachineConfig.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The text of a file in a MachineConfig.
pub fn contents(config: &Value, path: &str) -> Result<String> {
    let files = config["spec"]["config"]["storage"]["files"].as_array().context("no files")?;
    let file = files.iter().find(|file| file["path"] == path).context("no such file")?;
    let source = file["contents"]["source"].as_str().context("no source")?;
    let (head, data) = source.split_once(',').context("the source is no data URL")?;
    let bytes = match head.ends_with(";base64") {
        true => STANDARD.decode(data)?,
        false => percent_decode(data)?,
    };
    Ok(String::from_utf8(bytes)?)
}

/// Decodes percent escapes.
fn percent_decode(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let digits = tail.get(..2).context("a percent sign without digits")?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits)?, 16)?);
            rest = &tail[2..];
        } else {
            bytes.push(byte);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_file_encodings_are_read() {
        let config = json!({"spec": {"config": {"storage": {"files": [
            {"path": "/a", "contents": {"source": "data:,a%20b%0A"}},
            {"path": "/b", "contents": {"source": "data:text/plain;charset=utf-8;base64,YSBi"}},
        ]}}}});
        assert_eq!(contents(&config, "/a").unwrap(), "a b\n");
        assert_eq!(contents(&config, "/b").unwrap(), "a b");
        assert!(contents(&config, "/c").is_err());
    }
}
