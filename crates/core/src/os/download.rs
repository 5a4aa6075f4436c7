//! Interrupted downloads: which of them are worth an immediate retry.

/// How often an interrupted download is continued before it fails.
pub const MAX_INTERRUPTIONS: u32 = 3;

/// What commands print when a connection breaks. They retry on their own when they cannot connect at
/// all.
const CONNECTION_LOST_MESSAGES: [&str; 6] = [
    "unexpected eof",
    "connection reset by peer",
    "broken pipe",
    "use of closed network connection",
    "i/o timeout",
    "stream error",
];

/// Whether a command failed because its connection broke. What was downloaded by then is kept.
#[must_use]
pub fn is_interruption(complaint: &str) -> bool {
    let complaint = complaint.to_lowercase();
    CONNECTION_LOST_MESSAGES.iter().any(|words| complaint.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_differs_from_a_refusal() {
        for (complaint, expected) in [
            ("writing blob: happened during read: unexpected EOF", true),
            ("read tcp 10.0.0.1:1->10.0.0.2:2: read: connection reset by peer", true),
            ("reading manifest: unauthorized: authentication required", false),
            ("Source image rejected by policy", false),
            ("Digest did not match, expected sha256:1, got sha256:2", false),
            ("no space left on device", false),
        ] {
            assert_eq!(is_interruption(complaint), expected, "{complaint}");
        }
    }
}
