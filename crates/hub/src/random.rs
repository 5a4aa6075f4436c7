//! Random bytes for secrets: tokens, certificate serials and the like.
//!
//! The only place that draws them, so that every secret comes from the operating system's CSPRNG and no bit of it is
//! fixed, as some bits of a UUID are. Object UIDs are not secret and stay UUIDs. Called by `router::admin_endpoints`,
//! `auth::certificates` and the commands of the binary.

/// The operating system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot read random bytes from the operating system")]
pub struct RandomError(#[from] getrandom::Error);

/// Returns `N` random bytes that are fit for secrets.
///
/// # Errors
/// The operating system gives none.
pub fn bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_is_fixed() {
        let (mut ever_set, mut ever_clear) = ([0; 32], [0; 32]);
        for _ in 0..128 {
            for (index, byte) in bytes::<32>().unwrap().into_iter().enumerate() {
                ever_set[index] |= byte;
                ever_clear[index] |= !byte;
            }
        }
        assert_eq!((ever_set, ever_clear), ([0xff; 32], [0xff; 32]));
    }
}
