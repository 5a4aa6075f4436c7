//! What each component may do, and nothing else: every verb on every kind that the API serves, checked with the
//! component's own token.

use crate::install::support::{
    CONTROLLER, DAEMON, NAMESPACE, OPERATOR, SERVER, client, deploy, install, token,
};
use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use machinist_e2e::{Cluster, block_on, wait_for};
use std::collections::BTreeSet;

const VERBS: [&str; 8] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// The scopes that are checked: no namespace, ours, and others.
const NAMESPACES: [&str; 5] = ["", NAMESPACE, "default", "kube-system", "kube-public"];

/// One permission: scope, group, resource, verb. The scope of a cluster-wide permission is `*`.
type Permission = (String, String, String, String);

/// The permissions of a component in a readable form: `scope group resource,resource verb,verb`; `-` is the core group.
const EXPECTED_PERMISSIONS: [(&str, &str); 4] = [
    (
        OPERATOR,
        "* - nodes list
         * machineconfiguration.openshift.io controllerconfigs get,list,watch,create,patch
         * machineconfiguration.openshift.io machineconfigpools get,list,watch,create
         * operator.openshift.io machineconfigurations get,list,watch,create
         * operator.openshift.io machineconfigurations/status patch
         * config.openshift.io infrastructures,networks,dnses,proxies get
         ns apps deployments,daemonsets get,list,watch,create,patch,delete
         ns - secrets,configmaps get,list,watch,create,patch
         ns - pods get
         ns coordination.k8s.io leases get,create,update
         default - events create,patch",
    ),
    (
        CONTROLLER,
        "* machineconfiguration.openshift.io machineconfigs get,list,watch,create,update,delete
         * machineconfiguration.openshift.io machineconfigpools,kubeletconfigs,containerruntimeconfigs get,list,watch,patch
         * machineconfiguration.openshift.io machineconfignodes get,list,watch,create,patch
         * machineconfiguration.openshift.io controllerconfigs,internalreleaseimages,machineosconfigs,machineosbuilds,osimagestreams get,list,watch
         * machineconfiguration.openshift.io machineconfigpools/status,machineconfignodes/status,controllerconfigs/status patch
         * machineconfiguration.openshift.io kubeletconfigs/status,containerruntimeconfigs/status patch
         * config.openshift.io apiservers,clusterimagepolicies,featuregates,imagedigestmirrorsets,imagepolicies,images,imagetagmirrorsets,nodes get,list,watch
         * config.openshift.io clusterimagepolicies/status,imagedigestmirrorsets/status,imagepolicies/status,images/status,imagetagmirrorsets/status patch
         * operator.openshift.io imagecontentsourcepolicies get,list,watch
         * operator.openshift.io imagecontentsourcepolicies/status patch
         * - nodes get,list,watch,patch
         * - pods get,list,watch
         * - pods/eviction create
         * apps daemonsets get
         ns - secrets get,list,watch,create,update,delete
         ns coordination.k8s.io leases get,create,update
         default - events create,patch",
    ),
    (
        SERVER,
        "* machineconfiguration.openshift.io machineconfigs,machineconfigpools,controllerconfigs,machineosconfigs,machineosbuilds get,list,watch",
    ),
    (
        DAEMON,
        "* - nodes get,list,watch,patch
         * machineconfiguration.openshift.io machineconfigs get
         * machineconfiguration.openshift.io machineconfigpools list
         * machineconfiguration.openshift.io machineconfignodes get,create,patch
         * machineconfiguration.openshift.io machineconfignodes/status patch
         * operator.openshift.io machineconfigurations get
         default - events create,patch",
    ),
];

fn parse_permissions(text: &str) -> BTreeSet<Permission> {
    let mut rights = BTreeSet::new();
    for line in text.lines() {
        let [scope, group, resources, verbs] =
            line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        let scope = scope.replace("ns", NAMESPACE);
        for resource in resources.split(',') {
            for verb in verbs.split(',') {
                let group = group.trim_start_matches('-').to_owned();
                rights.insert((scope.clone(), group, resource.to_owned(), verb.to_owned()));
            }
        }
    }
    rights
}

/// Every kind that the API serves, with subresources: group, resource, whether it is namespaced.
async fn kinds(client: &Client) -> Result<Vec<(String, String, bool)>> {
    let mut lists = vec![(String::new(), client.list_core_api_resources("v1").await?)];
    for group in client.list_api_groups().await?.groups {
        // Everybody may review their own permissions.
        if ["authentication.k8s.io", "authorization.k8s.io"].contains(&group.name.as_str()) {
            continue;
        }
        for version in &group.versions {
            let list = client.list_api_group_resources(&version.group_version).await?;
            lists.push((group.name.clone(), list));
        }
    }
    let mut all = BTreeSet::new();
    for (group, list) in lists {
        all.extend(list.resources.into_iter().map(|it| (group.clone(), it.name, it.namespaced)));
    }
    Ok(all.into_iter().collect())
}

async fn is_allowed(client: &Client, right: &Permission) -> Result<bool> {
    let (scope, group, resource, verb) = right;
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let attributes = ResourceAttributes {
        namespace: text(scope),
        group: text(group),
        resource: text(resource),
        subresource: text(part),
        verb: text(verb),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let response = api.create(&PostParams::default(), &review).await?;
    Ok(response.status.is_some_and(|status| status.allowed))
}

/// Everything that the owner of a token may do.
async fn granted_permissions(
    client: &Client,
    kinds: &[(String, String, bool)],
) -> Result<BTreeSet<Permission>> {
    let mut permissions = Vec::new();
    for (group, resource, namespaced) in kinds {
        for verb in VERBS {
            let scopes: &[&str] = if *namespaced { &NAMESPACES } else { &[""] };
            permissions.extend(scopes.iter().map(|scope| -> Permission {
                ((*scope).into(), group.clone(), resource.clone(), verb.into())
            }));
        }
    }
    let check = |right: Permission| async move { Ok((is_allowed(client, &right).await?, right)) };
    let answers: Vec<Result<_>> = futures::stream::iter(permissions.into_iter().map(check))
        .buffer_unordered(16)
        .collect()
        .await;
    let mut allowed = BTreeSet::new();
    for response in answers {
        let (may, right) = response?;
        if may {
            allowed.insert(right);
        }
    }
    // A cluster-wide permission holds in all namespaces and is listed once.
    let whole: BTreeSet<Permission> =
        allowed.iter().filter(|right| right.0.is_empty()).cloned().collect();
    let mut lines = BTreeSet::new();
    for (scope, group, resource, verb) in allowed {
        let in_all =
            whole.contains(&(String::new(), group.clone(), resource.clone(), verb.clone()));
        lines.insert((if in_all { "*".to_owned() } else { scope }, group, resource, verb));
    }
    Ok(lines)
}

/// The status code for a component's request.
fn code(client: &Client, path: &str) -> u16 {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    match block_on(client.request_text(request)) {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{path}: {error}"),
    }
}

fn apply_extra(cluster: &Cluster, name: &str) {
    let path = deploy("extras").join(name).display().to_string();
    cluster.kubectl(&["apply", "-f", &path]).unwrap();
}

/// A ControllerConfig may contain the cluster's pull secret: a daemon may read that one object only if an administrator
/// allows it.
fn certificates(cluster: &Cluster) {
    let list = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs";
    let (own, other) = (format!("{list}/machine-config-controller"), format!("{list}/other"));
    let watched = format!("{list}?fieldSelector=metadata.name%3Dmachine-config-controller");
    let daemon = client(cluster, &token(cluster, DAEMON, None).unwrap()).unwrap();
    for path in [&own, &other, &watched, list] {
        assert_eq!(code(&daemon, path), 403, "{path}");
    }
    apply_extra(cluster, "daemon-certificates.yaml");
    // A new permission takes effect with a delay.
    wait_for("the daemon to be let in", || Ok(code(&daemon, &watched) == 200)).unwrap();
    // The object does not exist, which the component may learn.
    assert_eq!(code(&daemon, &own), 404);
    for path in [other.as_str(), list] {
        assert_eq!(code(&daemon, path), 403, "{path}");
    }
    let write = format!("--as=system:serviceaccount:{NAMESPACE}:{DAEMON}");
    let write = ["auth", "can-i", "patch", "controllerconfigs/machine-config-controller", &write];
    assert_eq!(cluster.kubectl_output(&write).unwrap().stdout.trim(), "no");
}

/// The server may read the Secrets with tokens and enrolments if an administrator allows it, and no others.
fn access(cluster: &Cluster) {
    let secrets = |namespace: &str| format!("/api/v1/namespaces/{namespace}/secrets");
    let server = client(cluster, &token(cluster, SERVER, None).unwrap()).unwrap();
    assert_eq!(code(&server, &secrets("machinist-access")), 403);
    apply_extra(cluster, "server-access.yaml");
    let seen = || Ok(code(&server, &secrets("machinist-access")) == 200);
    wait_for("the server to be let in", seen).unwrap();
    for namespace in [NAMESPACE, "default", "kube-system"] {
        assert_eq!(code(&server, &secrets(namespace)), 403, "{namespace}");
    }
}

#[test]
fn each_component_has_least_privilege() {
    let cluster = Cluster::start().unwrap();
    install(&cluster).unwrap();
    let kinds = block_on(kinds(&cluster.client())).unwrap();
    assert!(kinds.len() > 80, "{}", kinds.len());
    for (part, rights) in EXPECTED_PERMISSIONS {
        let own = client(&cluster, &token(&cluster, part, None).unwrap()).unwrap();
        let (found, written) =
            (block_on(granted_permissions(&own, &kinds)).unwrap(), parse_permissions(rights));
        let more: Vec<_> = found.difference(&written).collect();
        let less: Vec<_> = written.difference(&found).collect();
        assert!(more.is_empty() && less.is_empty(), "{part} may also {more:?}, may not {less:?}");
    }
    certificates(&cluster);
    access(&cluster);
    // Permissions on one object by name.
    for (part, args, expected) in [
        (OPERATOR, ["get", "namespaces/openshift-machine-config-operator", ""], "yes"),
        (OPERATOR, ["delete", "namespaces/openshift-machine-config-operator", ""], "no"),
        (OPERATOR, ["get", "namespaces/kube-system", ""], "no"),
        (OPERATOR, ["get", "configmaps/cluster-info", "kube-public"], "yes"),
        (SERVER, ["get", "configmaps/kubeconfig-data", NAMESPACE], "yes"),
        (SERVER, ["get", "configmaps/machinist-settings", NAMESPACE], "no"),
        (SERVER, ["get", "secrets/machine-config-server-ca", NAMESPACE], "no"),
        (DAEMON, ["get", "secrets/machine-config-server-ca", NAMESPACE], "no"),
        (CONTROLLER, ["get", "secrets/anything", "kube-system"], "no"),
        (OPERATOR, ["create", "serviceaccounts/node-bootstrapper", NAMESPACE], "no"),
        (OPERATOR, ["delete", "secrets/node-bootstrapper-token", NAMESPACE], "yes"),
        (OPERATOR, ["delete", "secrets/machine-config-server-ca", NAMESPACE], "no"),
        // To verify the tokens of clients that read metrics.
        (OPERATOR, ["create", "tokenreviews.authentication.k8s.io", ""], "yes"),
        (CONTROLLER, ["create", "tokenreviews.authentication.k8s.io", ""], "yes"),
        (SERVER, ["create", "subjectaccessreviews.authorization.k8s.io", ""], "yes"),
        (DAEMON, ["create", "subjectaccessreviews.authorization.k8s.io", ""], "yes"),
        (DAEMON, ["create", "localsubjectaccessreviews.authorization.k8s.io", "default"], "no"),
    ] {
        let account = format!("--as=system:serviceaccount:{NAMESPACE}:{part}");
        let [verb, object, scope] = args;
        let scope = format!("--namespace={scope}");
        let args = ["auth", "can-i", verb, object, &scope, &account];
        let output = cluster.kubectl_output(&args).unwrap();
        assert_eq!(output.stdout.trim(), expected, "{args:?}: {output:?}");
    }
}
