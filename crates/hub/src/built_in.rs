//! The built-in Kubernetes kinds that the hub serves, and the conversion of CRDs into kinds.
//!
//! Pure. Called by [`crate::hub`] when it builds its registry.

use serde_json::Value;

use crate::kind_registry::{EMPTY_KINDS, PrinterColumn, ResourceKind, ScalePaths};

/// The built-in kinds.
///
/// They have no `schema`: the types of `k8s-openapi` validate them.
#[must_use]
pub fn kinds() -> Vec<ResourceKind> {
    let mut kinds = vec![
        node_kind(),
        namespace_kind(),
        ResourceKind {
            columns: vec![
                text_column("Type", "What the data is for."),
                text_column("Data", "How many entries it has."),
                age_column(),
            ],
            ..kind("", "Secret", "secrets", true)
        },
        ResourceKind {
            short_names: names(&["cm"]),
            columns: vec![text_column("Data", "How many entries it has."), age_column()],
            ..kind("", "ConfigMap", "configmaps", true)
        },
        ResourceKind {
            short_names: names(&["sa"]),
            columns: vec![text_column("Secrets", "How many secrets it lists."), age_column()],
            ..kind("", "ServiceAccount", "serviceaccounts", true)
        },
        event_kind(""),
        event_kind("events.k8s.io"),
        ResourceKind {
            columns: vec![text_column("Holder", "Who holds the lease."), age_column()],
            ..kind("coordination.k8s.io", "Lease", "leases", true)
        },
        csr_kind(),
        role_kind("Role", "roles", true),
        role_kind("ClusterRole", "clusterroles", false),
        role_binding_kind("RoleBinding", "rolebindings", true),
        role_binding_kind("ClusterRoleBinding", "clusterrolebindings", false),
        crd_kind(),
    ];
    kinds.extend(EMPTY_KINDS.iter().map(|(group, name, plural, short, is_in_all)| ResourceKind {
        short_names: if short.is_empty() { Vec::new() } else { names(&[short]) },
        categories: if *is_in_all { names(&["all"]) } else { Vec::new() },
        columns: vec![age_column()],
        ..kind(group, name, plural, *name != "PersistentVolume")
    }));
    kinds
}

/// Returns the kinds of a `CustomResourceDefinition`, one per served version.
#[must_use]
pub fn from_crd(crd: &Value) -> Vec<ResourceKind> {
    let at = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let list = |pointer: &str| strings(crd.pointer(pointer));
    let name = at("/spec/names/kind").to_owned();
    let or =
        |given: &str, default: String| if given.is_empty() { default } else { given.to_owned() };
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().filter(|version| version["served"] == true);
    served
        .map(|version| ResourceKind {
            group: at("/spec/group").to_owned(),
            version: version["name"].as_str().unwrap_or_default().to_owned(),
            list_kind: or(at("/spec/names/listKind"), format!("{name}List")),
            plural: at("/spec/names/plural").to_owned(),
            singular: or(at("/spec/names/singular"), name.to_lowercase()),
            short_names: list("/spec/names/shortNames"),
            categories: list("/spec/names/categories"),
            namespaced: at("/spec/scope") == "Namespaced",
            status_subresource: version.pointer("/subresources/status").is_some(),
            schema: version.pointer("/schema/openAPIV3Schema").cloned(),
            built_in: false,
            columns: printer_columns(version.get("additionalPrinterColumns")),
            scale: version.pointer("/subresources/scale").and_then(scale_paths),
            selectable_fields: selectable_fields(version),
            defined: None,
            kind: name.clone(),
        })
        .collect()
}

/// Returns where the `scale` subresource finds its values.
fn scale_paths(scale: &Value) -> Option<ScalePaths> {
    let pointer = |field: &str| {
        let path = scale[field].as_str().filter(|path| !path.is_empty())?;
        let keys = path.trim_start_matches('.').split('.');
        Some(keys.map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect())
    };
    Some(ScalePaths {
        spec_replicas: pointer("specReplicasPath")?,
        status_replicas: pointer("statusReplicasPath")?,
        label_selector: pointer("labelSelectorPath"),
    })
}

/// Returns the fields by which objects of a CRD version can be selected.
fn selectable_fields(version: &Value) -> Vec<String> {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    let paths = fields.filter_map(|field| field["jsonPath"].as_str());
    paths.map(|path| path.trim_start_matches('.').to_owned()).collect()
}

/// Returns the printer columns of a CRD version. The default is the age alone.
fn printer_columns(columns: Option<&Value>) -> Vec<PrinterColumn> {
    let Some(columns) = columns.and_then(Value::as_array).filter(|list| !list.is_empty()) else {
        let path = ".metadata.creationTimestamp";
        return vec![PrinterColumn {
            type_: "date".into(),
            ..column("Age", path, AGE_DESCRIPTION, 0)
        }];
    };
    let text = |column: &Value, key: &str| column[key].as_str().unwrap_or_default().to_owned();
    columns
        .iter()
        .map(|given| {
            let path = text(given, "jsonPath");
            let description = match text(given, "description") {
                none if none.is_empty() => {
                    format!("Custom resource definition column (in JSONPath format): {path}")
                }
                some => some,
            };
            PrinterColumn {
                name: text(given, "name"),
                type_: text(given, "type"),
                format: text(given, "format"),
                description,
                priority: given["priority"]
                    .as_i64()
                    .and_then(|p| i32::try_from(p).ok())
                    .unwrap_or(0),
                json_path: path,
            }
        })
        .collect()
}

const AGE_DESCRIPTION: &str = "When the object was created, as seen by the server.";

fn node_kind() -> ResourceKind {
    ResourceKind {
        short_names: names(&["no"]),
        status_subresource: true,
        columns: vec![
            text_column("Status", "The status of the node"),
            text_column("Roles", "The roles of the node"),
            age_column(),
            text_column("Version", "The version of the kubelet, as the node reports it."),
            wide_column("Internal-IP", "The first address inside the cluster's network."),
            wide_column("External-IP", "The first address outside the cluster's network."),
            wide_column("OS-Image", "The operating system, as the node reports it."),
            wide_column("Kernel-Version", "The version of the kernel, as the node reports it."),
            wide_column("Container-Runtime", "The container runtime, as the node reports it."),
        ],
        ..kind("", "Node", "nodes", false)
    }
}

fn namespace_kind() -> ResourceKind {
    ResourceKind {
        short_names: names(&["ns"]),
        status_subresource: true,
        columns: vec![text_column("Status", "The status of the namespace"), age_column()],
        ..kind("", "Namespace", "namespaces", false)
    }
}

/// Events print their name as the last column, so their list includes it.
fn event_kind(group: &str) -> ResourceKind {
    ResourceKind {
        short_names: names(&["ev"]),
        columns: vec![
            text_column("Last Seen", "When it was last seen."),
            text_column("Type", "Normal or Warning."),
            text_column("Reason", "Why the object is in its state, as a short word for machines."),
            text_column("Object", "The object that it is about."),
            wide_column("Subobject", "The part of the object that it is about."),
            wide_column("Source", "Who reports it."),
            text_column("Message", "What happened, for people."),
            wide_column("First Seen", "When it was first seen."),
            wide_column("Count", "How often it happened."),
            PrinterColumn {
                format: "name".into(),
                ..wide_column("Name", "The name of the object.")
            },
        ],
        ..kind(group, "Event", "events", true)
    }
}

fn csr_kind() -> ResourceKind {
    ResourceKind {
        short_names: names(&["csr"]),
        status_subresource: true,
        columns: vec![
            age_column(),
            text_column("SignerName", "Who is asked to sign."),
            text_column("Requestor", "Who asks."),
            text_column("RequestedDuration", "Requested lifetime of the certificate."),
            text_column("Condition", "Whether it is approved, denied, issued."),
        ],
        ..kind(
            "certificates.k8s.io",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            false,
        )
    }
}

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

fn role_kind(name: &str, plural: &str, namespaced: bool) -> ResourceKind {
    ResourceKind {
        columns: vec![created_at_column()],
        ..kind(RBAC_GROUP, name, plural, namespaced)
    }
}

fn role_binding_kind(name: &str, plural: &str, namespaced: bool) -> ResourceKind {
    ResourceKind {
        columns: vec![
            text_column("Role", "The kind and name of the role that it grants."),
            age_column(),
            wide_column("Users", "The users that it grants the role to."),
            wide_column("Groups", "The groups that it grants the role to."),
            wide_column("ServiceAccounts", "The service accounts that it grants the role to."),
        ],
        ..kind(RBAC_GROUP, name, plural, namespaced)
    }
}

fn created_at_column() -> PrinterColumn {
    PrinterColumn {
        type_: "date".into(),
        ..column("Created At", ".metadata.creationTimestamp", AGE_DESCRIPTION, 0)
    }
}

fn crd_kind() -> ResourceKind {
    ResourceKind {
        short_names: names(&["crd", "crds"]),
        categories: names(&["api-extensions"]),
        status_subresource: true,
        columns: vec![created_at_column()],
        ..kind(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
        )
    }
}

fn kind(group: &str, kind: &str, plural: &str, namespaced: bool) -> ResourceKind {
    ResourceKind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        status_subresource: false,
        schema: None,
        built_in: true,
        columns: Vec::new(),
        scale: None,
        selectable_fields: Vec::new(),
        defined: None,
    }
}

fn column(name: &str, path: &str, description: &str, priority: i32) -> PrinterColumn {
    PrinterColumn {
        name: name.to_owned(),
        type_: "string".to_owned(),
        format: String::new(),
        description: description.to_owned(),
        priority,
        json_path: path.to_owned(),
    }
}

fn text_column(name: &str, description: &str) -> PrinterColumn {
    column(name, "", description, 0)
}

fn wide_column(name: &str, description: &str) -> PrinterColumn {
    column(name, "", description, 1)
}

fn age_column() -> PrinterColumn {
    column("Age", ".metadata.creationTimestamp", AGE_DESCRIPTION, 0)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
