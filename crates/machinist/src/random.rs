//! Random secrets. This is the only source of them in this crate.

use anyhow::{Result, anyhow};
use rustls::crypto::ring::default_provider;

/// Random bytes from the CSPRNG of the operating system.
///
/// # Errors
/// The operating system provides no random numbers.
pub(crate) fn random_bytes<const SIZE: usize>() -> Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    match default_provider().secure_random.fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(anyhow!("the operating system provides no random numbers")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_secrets_differ() {
        assert_ne!(random_bytes::<32>().unwrap(), random_bytes::<32>().unwrap());
    }
}
