//! Encrypts the report of a machine for the one who asked, and decrypts it: MachineConfigNodes may be read by others.
//! What is asked and answered is in `core::machine_report`. Called by the daemon and by the commands.

use age::x25519;
use anyhow::{Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_core::machine_report::MAX_REPORT_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The header of an answer to one recipient is much shorter. The library reads one of any size, in quadratic time.
const MAX_HEADER_BYTES: usize = 1024;
/// What encryption adds at most: the header, and a tag for each chunk of 64 KiB.
const MAX_ENCRYPTED_BYTES: usize = MAX_REPORT_BYTES + 2048;

/// The key of one question. It is never stored.
pub(crate) struct ReportKey(x25519::Identity);

impl std::fmt::Debug for ReportKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReportKey")
    }
}

impl Default for ReportKey {
    fn default() -> Self {
        Self(x25519::Identity::generate())
    }
}

impl ReportKey {
    /// The public key, as text.
    #[must_use]
    pub(crate) fn recipient(&self) -> String {
        self.0.to_public().to_string()
    }

    /// Decrypts a report. A machine may have written anything.
    ///
    /// # Errors
    /// It is not a report for this key.
    pub(crate) fn open<T: DeserializeOwned>(&self, sealed: &str) -> Result<T> {
        let bytes = STANDARD.decode(sealed).map_err(|_| anyhow!("the report is not base64"))?;
        ensure!(bytes.len() <= MAX_ENCRYPTED_BYTES, "the report is too long");
        let header = &bytes[..bytes.len().min(MAX_HEADER_BYTES)];
        ensure!(header.windows(4).any(|end| end == b"\n---"), "the report is damaged");
        let plain = age::decrypt(&self.0, &bytes)
            .map_err(|_| anyhow!("the report is not encrypted for this command"))?;
        serde_json::from_slice(&plain).map_err(|_| anyhow!("the report cannot be read"))
    }
}

/// Encrypts a report.
///
/// # Errors
/// The public key is invalid, or the report too long.
pub(crate) fn seal(report: &impl Serialize, recipient: &str) -> Result<String> {
    let recipient: x25519::Recipient =
        recipient.parse().map_err(|error| anyhow!("the key of the request: {error}"))?;
    let plain = serde_json::to_vec(report)?;
    ensure!(plain.len() <= MAX_REPORT_BYTES, "the report is too long");
    Ok(STANDARD.encode(age::encrypt(&recipient, &plain)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_who_asked_reads_a_report() {
        let (key, other) = (ReportKey::default(), ReportKey::default());
        let sealed = seal(&vec!["a line"], &key.recipient()).unwrap();
        assert_eq!(key.open::<Vec<String>>(&sealed).unwrap(), ["a line"]);
        assert!(other.open::<Vec<String>>(&sealed).is_err());
        assert!(!sealed.contains("line"));
        assert!(seal(&"x".repeat(MAX_REPORT_BYTES), &key.recipient()).is_err());
        assert!(seal(&"x", "age1").is_err());
    }

    #[test]
    fn a_hostile_report_is_refused() {
        let key = ReportKey::default();
        let long_header = format!("age-encryption.org/v1\n{}---", "-> x\n".repeat(10_000));
        let long = STANDARD.encode(vec![0; MAX_ENCRYPTED_BYTES + 1]);
        let sealed = seal(&1, &key.recipient()).unwrap();
        for bad in ["", "%", &STANDARD.encode(long_header), &long, &sealed[..sealed.len() / 2]] {
            assert!(key.open::<Vec<String>>(bad).is_err());
        }
        // Not what was asked for.
        assert!(key.open::<Vec<String>>(&sealed).is_err());
    }
}
