//! Lints an object of any kind by itself. `machinist validate`, `plan` and `apply` call it, so that the same input gets
//! the same verdict with the same words; a pool that is rendered and a machine refuse what is an error here.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{LintFinding, machine_config, pool};
use crate::api::names::annotation::PRE_BUILT_IMAGE;
use crate::api::names::misspelt_annotations;
use crate::api::names::object::CLUSTER;
use crate::api::{MachineConfig, MachineConfigPool, MachineConfiguration, crds::crds};

/// The group of the kinds that are Machinist's and MCO's own.
const GROUP: &str = "machineconfiguration.openshift.io";

/// The findings about an object, whatever its kind.
#[must_use]
pub fn object(value: &Value) -> Vec<LintFinding> {
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (group, _) = text("/apiVersion").split_once('/').unwrap_or_default();
    let kind = text("/kind");
    let mut findings = match kind {
        "MachineConfig" if group == GROUP => typed(value, |it: &MachineConfig| machine_config(it)),
        "MachineConfigPool" if group == GROUP => typed(value, |it: &MachineConfigPool| pool(it)),
        "MachineConfiguration" => typed(value, machine_configuration),
        _ if group == GROUP => unknown_kind(kind).into_iter().collect(),
        _ => Vec::new(),
    };
    findings.extend(not_carried_out(kind, value));
    let annotations = value.pointer("/metadata/annotations").cloned().unwrap_or_default();
    let annotations = serde_json::from_value(annotations).ok();
    findings.extend(
        misspelt_annotations(annotations.as_ref()).into_iter().map(|message| {
            LintFinding::warning("metadata.annotations", message, "correct the name")
        }),
    );
    findings
}

/// An object whose fields have the wrong types has no findings here: whoever reads it reports them.
fn typed<T: DeserializeOwned>(
    value: &Value,
    check: impl Fn(&T) -> Vec<LintFinding>,
) -> Vec<LintFinding> {
    serde_json::from_value(value.clone()).map_or_else(|_| Vec::new(), |object| check(&object))
}

/// A kind of our group that does not exist.
fn unknown_kind(kind: &str) -> Option<LintFinding> {
    let known: Vec<String> = crds()
        .into_iter()
        .filter(|crd| crd.spec.group == GROUP)
        .map(|crd| crd.spec.names.kind)
        .collect();
    if known.iter().any(|own| own == kind) {
        return None;
    }
    let likeness = |own: &String| similar::TextDiff::from_chars(kind, own.as_str()).ratio();
    let meant = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    let message = format!("{kind} is not a kind of {GROUP}");
    Some(LintFinding::error(
        "kind",
        message,
        format!("write {meant}, or another kind of this group"),
    ))
}

fn machine_configuration(object: &MachineConfiguration) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    if object.metadata.name.as_deref() != Some(CLUSTER) {
        findings.push(LintFinding::error(
            "metadata.name",
            format!("only the MachineConfiguration {CLUSTER} has an effect"),
            format!("name it {CLUSTER}"),
        ));
    }
    for (field, is_set) in [
        ("spec.managedBootImages", object.spec.managed_boot_images.is_some()),
        ("spec.bootImageSkewEnforcement", object.spec.boot_image_skew_enforcement.is_some()),
    ] {
        if is_set {
            findings.push(LintFinding::warning(
                field,
                "nothing carries this out: Machinist changes no boot images",
                "update the images that new machines boot from yourself",
            ));
        }
    }
    findings
}

/// Kinds that are accepted, and that nothing carries out.
fn not_carried_out(kind: &str, value: &Value) -> Option<LintFinding> {
    let (message, remedy) = match kind {
        "PinnedImageSet" => (
            "nothing carries this out: no machine pulls or pins these images",
            "pull them from a unit, with crictl pull or podman pull",
        ),
        "MachineOSConfig" => {
            let annotations = value.pointer("/metadata/annotations");
            let pre_built = annotations.and_then(|all| all.get(PRE_BUILT_IMAGE));
            if pre_built.and_then(Value::as_str).is_some_and(|image| !image.is_empty()) {
                return None;
            }
            (
                "Machinist builds no images: its pool waits until another controller reports a built image",
                "build the image yourself and name it in the annotation machinist.dev/os-image of the pool",
            )
        }
        "CRIOCredentialProviderConfig" => (
            "nothing carries this out: no machine gets a credential provider",
            "write the files of the credential provider in a MachineConfig",
        ),
        _ => return None,
    };
    Some(LintFinding::warning("spec", message, remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_has_its_verdict() {
        let mc = |spec: Value| {
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                "metadata": {"name": "a", "labels": {"machineconfiguration.openshift.io/role": "worker"}}, "spec": spec})
        };
        let files = |files: Value| {
            mc(json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}}))
        };
        let storage = |storage: Value| {
            mc(json!({"config": {"ignition": {"version": "3.5.0"}, "storage": storage}}))
        };
        let other = |version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let group = "machineconfiguration.openshift.io/v1";
        for (value, is_error, expected) in [
            (mc(json!({})), false, ""),
            (files(json!([{"path": "etc/a"}])), true, "path not absolute (begin the path with /)"),
            (mc(json!({"config": {"ignition": {"version": "9.9.0"}}})), true, "spec.config"),
            (mc(json!({"config": "x"})), true, "spec.config"),
            (
                files(json!([{"path": "/a", "mode": 644}])),
                true,
                "644 is decimal for 0o1204; write 420 for 0644",
            ),
            (
                files(json!([{"path": "/a", "mode": 400}])),
                false,
                "400 is decimal for 0o620; write 256 for 0400",
            ),
            (files(json!([{"path": "/a", "mode": 420}])), false, ""),
            (files(json!([{"path": "/a", "contents": {"inline": "x"}}])), false, "inline"),
            (
                storage(json!({"directories": [{"path": "/a"}]})),
                false,
                "running machines refuse to change directories",
            ),
            (
                storage(json!({"links": [{"path": "/a", "target": "/b"}]})),
                false,
                "running machines refuse to add or change links",
            ),
            (
                other(group, "MachineCfg", "a", json!({})),
                true,
                "write MachineConfig, or another kind",
            ),
            (
                other("operator.openshift.io/v1", "MachineConfiguration", "mine", json!({})),
                true,
                "name it cluster",
            ),
            (
                other("operator.openshift.io/v1", "MachineConfiguration", "cluster", json!({})),
                false,
                "",
            ),
            (other(group, "PinnedImageSet", "a", json!({})), false, "no machine pulls or pins"),
            (other(group, "MachineOSConfig", "a", json!({})), false, "builds no images"),
            (other("v1", "ConfigMap", "a", json!({})), false, ""),
            (json!({}), false, ""),
        ] {
            let found = object(&value);
            assert_eq!(found.iter().any(LintFinding::is_error), is_error, "{value}: {found:?}");
            assert_eq!(found.is_empty(), expected.is_empty(), "{value}: {found:?}");
            let text = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert!(text.contains(expected), "{value}: {text}");
        }
    }
}
