//! Errors of mirrors, policies and registry lists.

use serde_json::{Value, json};

use super::{RuntimeObjects, digest, key_policy};

#[test]
fn mistakes_name_the_object_the_field_and_the_remedy() {
    let image = |lists: Value| RuntimeObjects { image: lists, ..RuntimeObjects::default() };
    let mirrors = |spec: Value| RuntimeObjects { idms: vec![spec], ..RuntimeObjects::default() };
    let never =
        |policy: &str| json!({"source": "s.io", "mirrors": ["m.io"], "mirrorSourcePolicy": policy});
    let blocked = RuntimeObjects {
        image: json!({"blockedRegistries": ["a.io"]}),
        cluster_policies: vec![key_policy(&["x.io", "a.io/x"])],
        ..RuntimeObjects::default()
    };
    let not_allowed = RuntimeObjects {
        image: json!({"allowedRegistries": ["a.io/x"]}),
        policies: vec![
            json!({"namespace": "n", "scopes": ["a.io"], "policy": key_policy(&[])["policy"]}),
        ],
        ..RuntimeObjects::default()
    };
    for (objects, expected) in [
        (
            image(json!({"insecureRegistries": ["a.io", "foo.*.com"]})),
            "Image cluster: spec.registrySources.insecureRegistries[1]: invalid entry for insecure registries \"foo.*.com\" (write host",
        ),
        (
            image(json!({"allowedRegistries": ["a.io"], "blockedRegistries": ["b.io"]})),
            "Image cluster: spec.registrySources.allowedRegistries: invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified (remove one",
        ),
        (
            mirrors(digest(&[("a.io", &["b.io"]), ("https://x.io", &["y.io"])])),
            "ImageDigestMirrorSet o0: spec.imageDigestMirrors[1].source: invalid format for source \"https://x.io\" (write host",
        ),
        (
            mirrors(digest(&[("a.io", &["b.io", "*.c.io"])])),
            "ImageDigestMirrorSet o0: spec.imageDigestMirrors[0].mirrors[1]: invalid format for mirror \"*.c.io\" (write host",
        ),
        (
            mirrors(json!({"imageDigestMirrors": [never("NeverContactSource"), never("")]})),
            "ImageDigestMirrorSet o0: spec.imageDigestMirrors[1].mirrorSourcePolicy: conflicting mirrorSourcePolicy is set for the same source \"s.io\" in imagedigestmirrorsets, imagetagmirrorsets, or imagecontentsourcepolicies (make it the same as in ImageDigestMirrorSet o0 spec.imageDigestMirrors[0])",
        ),
        (
            mirrors(json!({"imageDigestMirrors": [
                {"source": "s.io", "mirrors": ["m.io", "s.io"], "mirrorSourcePolicy": "NeverContactSource"},
            ]})),
            "ImageDigestMirrorSet o0: spec.imageDigestMirrors[0].mirrors[1]: cannot set mirrorSourcePolicy: NeverContactSource if the source \"s.io\" is one of the mirrors (remove",
        ),
        (
            RuntimeObjects {
                image: json!({"insecureRegistries": ["a.wild.io"]}),
                ..mirrors(digest(&[("*.wild.io", &["m.io"])]))
            },
            "ImageDigestMirrorSet o0: spec.imageDigestMirrors[0].source: the mirrors of \"*.wild.io\" cannot be carried over to \"a.wild.io\" inside it (give",
        ),
        (
            blocked,
            "ClusterImagePolicy o0: spec.scopes[1]: clusterimagePolicy configured for the scope a.io/x is nested inside blockedRegistries (take it out",
        ),
        (
            not_allowed,
            "ImagePolicy n/o0: spec.scopes[0]: imagePolicy configured for the scope a.io is not nested inside allowedRegistries (add it",
        ),
        (
            RuntimeObjects {
                cluster_policies: vec![
                    json!({"scopes": ["a.io"], "policy": {"rootOfTrust": {"policyType": "PKI"}}}),
                ],
                ..RuntimeObjects::default()
            },
            "ClusterImagePolicy o0: spec.policy.rootOfTrust.pki: it is missing (set what",
        ),
        (
            RuntimeObjects {
                image: json!({}),
                release: Some("busybox".to_owned()),
                ..RuntimeObjects::default()
            },
            "ClusterVersion version: status.desired.image: error parsing reference of release image \"busybox\" (it has",
        ),
    ] {
        let error = objects.error();
        assert!(error.starts_with(expected), "{error}\nexpected\n{expected}");
    }
}
