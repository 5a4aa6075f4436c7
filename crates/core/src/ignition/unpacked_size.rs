//! Limits for the unpacked contents of a config: a small gzip file can expand a thousandfold, and the daemon
//! holds all contents of a plan in memory. `validate` checks them before a config is rendered or applied,
//! `serve` before it is served, and `apply` while it unpacks.

use super::Config;
use super::contents::{self, ContentsError};
use super::schema::Resource;

/// The maximum size of one file, unpacked: 64 MiB.
pub const MAX_FILE_BYTES: u64 = 64 << 20;
/// The maximum size of all files of one config, unpacked: 256 MiB.
pub const MAX_CONFIG_BYTES: u64 = 256 << 20;

/// A file with which a config exceeds a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "storage.files: {path}: {}the contents are larger than {limit} bytes when unpacked (ship large files in the OS image)",
    if *whole_config { "with this file, all files have too many bytes: " } else { "" }
)]
pub struct UnpackedTooLarge {
    /// The file.
    pub path: String,
    /// The limit, in bytes.
    pub limit: u64,
    /// Whether the limit is that of all files together.
    pub whole_config: bool,
}

/// How many bytes the files of one config may still have.
#[derive(Debug, Clone, Copy)]
pub struct UnpackBudget {
    file: u64,
    left: u64,
    config: u64,
}

impl Default for UnpackBudget {
    fn default() -> Self {
        Self::new(MAX_FILE_BYTES, MAX_CONFIG_BYTES)
    }
}

impl UnpackBudget {
    fn new(file: u64, config: u64) -> Self {
        Self { file, left: config, config }
    }

    /// Unpacks the next file. Stops reading at the limit.
    pub fn decode(&mut self, resource: &Resource) -> Result<Vec<u8>, ContentsError> {
        let bytes = contents::decode(resource, self.file.min(self.left))
            .map_err(|error| self.explain(error))?;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        Ok(bytes)
    }

    /// Counts the next file without keeping its contents. Contents that cannot be unpacked count nothing:
    /// other checks report them.
    fn count(&mut self, resource: &Resource) -> Result<(), ContentsError> {
        match contents::unpacked_size(resource, self.file.min(self.left)) {
            Ok(size) => {
                self.left = self.left.saturating_sub(size);
                Ok(())
            }
            Err(error @ ContentsError::TooLarge { .. }) => Err(self.explain(error)),
            Err(_) => Ok(()),
        }
    }

    /// Names the limit that was exceeded, not what was left of it.
    fn explain(&self, error: ContentsError) -> ContentsError {
        match error {
            ContentsError::TooLarge { .. } => ContentsError::TooLarge {
                limit: if self.left < self.file { self.config } else { self.file },
            },
            other => other,
        }
    }
}

/// Checks the sizes of all files of a config, one block of memory at a time.
pub fn check_unpacked_sizes(config: &Config) -> Result<(), UnpackedTooLarge> {
    check(config, UnpackBudget::default())
}

fn check(config: &Config, mut budget: UnpackBudget) -> Result<(), UnpackedTooLarge> {
    for file in config.storage.files.iter() {
        if let Err(ContentsError::TooLarge { limit }) = budget.count(&file.contents) {
            let whole_config = limit == budget.config;
            return Err(UnpackedTooLarge { path: file.path.clone(), limit, whole_config });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    fn gzip(size: usize) -> serde_json::Value {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&vec![0; size]).unwrap();
        let source = super::super::data_url::encode(&encoder.finish().unwrap());
        json!({"source": source, "compression": "gzip"})
    }

    fn config(sizes: &[usize]) -> Config {
        let files = sizes.iter().enumerate();
        let files: Vec<_> = files
            .map(|(index, size)| json!({"path": format!("/{index}"), "contents": gzip(*size)}))
            .collect();
        let raw = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}});
        super::super::parse_and_upgrade(&raw).unwrap().0
    }

    #[test]
    fn files_and_configs_have_limits() {
        for (sizes, expected) in [
            (&[][..], None),
            (&[10, 10, 5], None),
            (&[10, 11], Some(("/1", 10))),
            (&[11], Some(("/0", 10))),
            (&[10, 10, 6], Some(("/2", 25))),
            (&[10, 10, 5, 0, 1], Some(("/4", 25))),
        ] {
            let found = check(&config(sizes), UnpackBudget::new(10, 25));
            let found = found.as_ref().err().map(|error| (error.path.as_str(), error.limit));
            assert_eq!(found, expected, "{sizes:?}");
            let mut budget = UnpackBudget::new(10, 25);
            let config = config(sizes);
            let decoded = config.storage.files.iter().try_for_each(|file| {
                budget.decode(&file.contents).map(|bytes| assert!(bytes.len() <= 10))
            });
            let limit = decoded.err().map(|error| match error {
                ContentsError::TooLarge { limit } => limit,
                other => panic!("{other}"),
            });
            assert_eq!(limit, expected.map(|(_, limit)| limit), "{sizes:?}");
        }
    }

    #[test]
    fn plain_contents_count_too() {
        let raw = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/a", "contents": {"source": "data:,0123456789a"}}]}});
        let config = super::super::parse_and_upgrade(&raw).unwrap().0;
        let error = check(&config, UnpackBudget::new(10, 25)).unwrap_err();
        assert!(error.to_string().starts_with("storage.files: /a: "), "{error}");
    }
}
