//! Which credentials images of operating systems are fetched with.

use crate::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET as INTERNAL, PULL_SECRET as KUBELET};

/// The file to use: the first if it is there and JSON, else the kubelet's if that is there.
#[must_use]
pub fn choose(internal: Option<&[u8]>, has_kubelet: bool) -> Option<&'static str> {
    let is_json = |bytes: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    if internal.is_some_and(is_json) {
        return Some(INTERNAL);
    }
    has_kubelet.then_some(KUBELET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_secret_does_not_count() {
        for (internal, kubelet, expected) in [
            (None, false, None),
            (None, true, Some(KUBELET)),
            (Some("{}"), true, Some(INTERNAL)),
            (Some("\n"), true, Some(KUBELET)),
            (Some("\n"), false, None),
        ] {
            assert_eq!(choose(internal.map(str::as_bytes), kubelet), expected);
        }
    }
}
