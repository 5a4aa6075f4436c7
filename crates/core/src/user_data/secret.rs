//! The Secret that machine sets refer to. Machinist owns it and reverts changes.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;

use super::{PointerVersion, ServerEndpoint, pointer_config};
use crate::api::MachineConfigPool;
use crate::api::names::label;

/// The namespace of machine sets.
pub const NAMESPACE: &str = "openshift-machine-api";
/// The suffix of the name, after the pool.
pub const SUFFIX: &str = "-user-data-managed";

/// The key of the pointer config.
pub const USER_DATA: &str = "userData";
/// The key that disables templating of the pointer config.
pub const DISABLE_TEMPLATING: &str = "disableTemplating";
/// With a trailing newline, as in MCO.
const TRUE: &[u8] = b"true\n";

/// The name of a pool's Secret.
#[must_use]
pub fn secret_name(pool: &str) -> String {
    format!("{pool}{SUFFIX}")
}

/// The desired state of a pool's Secret, given the existing one; `None` if nothing changes. Other
/// keys are kept.
#[must_use]
pub fn desired_secret(
    pool: &MachineConfigPool,
    endpoint: &ServerEndpoint,
    present: Option<&Secret>,
) -> Option<Secret> {
    let pool_name = pool.name_any();
    let mut secret = present.cloned().unwrap_or_else(|| Secret {
        metadata: ObjectMeta { name: Some(secret_name(&pool_name)), ..ObjectMeta::default() },
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    });
    let labels = secret.metadata.labels.get_or_insert_default();
    labels.entry(label::MANAGED_CA_BUNDLE.to_owned()).or_default();
    add_owner(secret.metadata.owner_references.get_or_insert_default(), pool);
    let data = secret.data.get_or_insert_default();
    let config = pointer_config(endpoint, &pool_name, PointerVersion::V3);
    data.insert(USER_DATA.to_owned(), ByteString(config.into_bytes()));
    data.insert(DISABLE_TEMPLATING.to_owned(), ByteString(TRUE.to_vec()));
    (present != Some(&secret)).then_some(secret)
}

/// Makes the pool an owner, so that the Secret is deleted with it. A recreated pool has another UID
/// and replaces the old owner.
fn add_owner(owners: &mut Vec<OwnerReference>, pool: &MachineConfigPool) {
    let owner = OwnerReference {
        api_version: "machineconfiguration.openshift.io/v1".to_owned(),
        kind: "MachineConfigPool".to_owned(),
        name: pool.name_any(),
        uid: pool.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let ours = owners.iter().position(|known| is_pool(known) && known.name == owner.name);
    match ours {
        Some(at) if owners[at].uid == owner.uid => {}
        Some(at) => owners[at] = owner,
        None => owners.push(owner),
    }
}

/// Whether a Secret belongs to a deleted pool. API servers with a garbage collector remove it
/// themselves.
#[must_use]
pub fn is_orphan<'a>(
    secret: &Secret,
    mut pools: impl Iterator<Item = &'a MachineConfigPool>,
) -> bool {
    let is_ours = secret.labels().contains_key(label::MANAGED_CA_BUNDLE);
    let mut owners = secret.owner_references().iter().filter(|owner| is_pool(owner));
    let Some(owner) = owners.next().filter(|_| is_ours) else { return false };
    secret.name_any() == secret_name(&owner.name)
        && !pools.any(|pool| pool.name_any() == owner.name)
}

fn is_pool(owner: &OwnerReference) -> bool {
    owner.kind == "MachineConfigPool"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, uid: &str) -> MachineConfigPool {
        let mut pool = MachineConfigPool::new(name, Default::default());
        pool.metadata.uid = Some(uid.to_owned());
        pool
    }

    fn endpoint(authority: &str) -> ServerEndpoint {
        let authority = Some(authority.to_owned());
        ServerEndpoint { url: "https://host:22623".to_owned(), ca_bundle: authority, token: None }
    }

    fn made() -> Secret {
        desired_secret(&pool("worker", "1"), &endpoint("CA"), None).unwrap()
    }

    #[test]
    fn a_new_secret_is_the_same_as_in_mco() {
        let secret = serde_json::to_value(made()).unwrap();
        assert_eq!(secret["metadata"]["name"], "worker-user-data-managed");
        assert_eq!(secret["type"], "Opaque");
        assert_eq!(secret["data"]["disableTemplating"], "dHJ1ZQo=");
        let label = "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
        assert_eq!(secret["metadata"]["labels"], serde_json::json!({ label: "" }));
        let owner = serde_json::json!([{"apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool", "name": "worker", "uid": "1"}]);
        assert_eq!(secret["metadata"]["ownerReferences"], owner);
    }

    #[test]
    fn an_unchanged_secret_is_not_written() {
        assert_eq!(desired_secret(&pool("worker", "1"), &endpoint("CA"), Some(&made())), None);
    }

    #[test]
    fn changes_are_reverted_and_other_keys_kept() {
        let mut changed = made();
        let data = changed.data.as_mut().unwrap();
        data.insert(USER_DATA.to_owned(), ByteString(b"{}".to_vec()));
        data.remove(DISABLE_TEMPLATING);
        data.insert("mine".to_owned(), ByteString(b"x".to_vec()));
        changed.metadata.labels = Some([("mine".to_owned(), "y".to_owned())].into());
        changed.metadata.owner_references = None;
        let repaired =
            desired_secret(&pool("worker", "1"), &endpoint("CA"), Some(&changed)).unwrap();
        let (made, data) = (made(), repaired.data.clone().unwrap());
        assert_eq!(data[USER_DATA], made.data.clone().unwrap()[USER_DATA]);
        assert_eq!(data[DISABLE_TEMPLATING].0, TRUE);
        assert_eq!(data["mine"].0, b"x");
        assert_eq!(repaired.labels()["mine"], "y");
        assert_eq!(repaired.metadata.owner_references, made.metadata.owner_references);
    }

    #[test]
    fn a_new_ca_or_a_recreated_pool_updates_the_secret() {
        assert!(desired_secret(&pool("worker", "1"), &endpoint("NEW"), Some(&made())).is_some());
        let updated = desired_secret(&pool("worker", "2"), &endpoint("CA"), Some(&made())).unwrap();
        assert_eq!(updated.owner_references().len(), 1);
        assert_eq!(updated.owner_references()[0].uid, "2");
    }

    #[test]
    fn only_managed_secrets_of_deleted_pools_are_orphans() {
        let (worker, infra) = (pool("worker", "1"), pool("infra", "2"));
        assert!(!is_orphan(&made(), [&worker, &infra].into_iter()));
        assert!(is_orphan(&made(), [&infra].into_iter()));
        let mut unmanaged = made();
        unmanaged.metadata.labels = None;
        assert!(!is_orphan(&unmanaged, [&infra].into_iter()));
        let mut other = made();
        other.metadata.name = Some("somebody-elses".to_owned());
        assert!(!is_orphan(&other, [&infra].into_iter()));
    }
}
