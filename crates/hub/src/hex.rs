//! Hexadecimal text of bytes: token hashes, key fingerprints, excerpts of bodies.

use std::fmt::Write as _;

/// Returns two lower-case digits a byte.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn encodes_leading_zeros() {
        assert_eq!(super::encode(&[0, 0x0a, 0xff]), "000aff");
    }
}
