//! The manifests of the components.

use serde_json::{Value, json};

use super::component_order::OperatorComponent;
use super::settings::{OperatorSettings, TOKEN_KEY};
use super::{BUNDLE_KEY, RELEASE_ANNOTATION, SERVER_CA, labels};
use crate::api::names::{label, port};

/// The directory of the server's CA certificates in the containers of the controller and the
/// server.
pub(super) const BUNDLE_DIR: &str = "/etc/machinist/server-ca";
/// The directory of the pointer configs' provisioning token in the controller's container.
const TOKEN_DIR: &str = "/etc/machinist/server-token";
/// The UID of an unprivileged user.
pub(super) const NOBODY_UID: u32 = 65534;

/// The inputs of the manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentInputs {
    /// Machinist's namespace.
    pub namespace: String,
    /// The image of all components.
    pub image: String,
    /// The release.
    pub release: String,
    /// The log filter of the components.
    pub log_filter: String,
    /// The administrator's settings.
    pub settings: OperatorSettings,
    /// Whether the components are about to be removed.
    pub is_removal: bool,
    /// The addresses of the API server and the machine config server; without them there is no
    /// server.
    pub endpoint: Option<ClusterEndpoints>,
}

/// In MiB. The controller of 5,000 machines uses less than a tenth of it.
const CONTROLLER_MEMORY_LIMIT: u32 = 2048;

/// The addresses of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEndpoints {
    /// The API server.
    pub api_server: String,
    /// The machine config server.
    pub server: String,
}

impl ComponentInputs {
    /// The desired components, in the order in which they get a new release.
    #[must_use]
    pub fn desired_components(&self) -> Vec<OperatorComponent> {
        let has_server = self.endpoint.is_some();
        OperatorComponent::ALL
            .into_iter()
            .filter(|part| *part != OperatorComponent::Server || has_server)
            .collect()
    }

    /// The manifest of a component.
    #[must_use]
    pub fn manifest(&self, part: OperatorComponent) -> Value {
        match part {
            OperatorComponent::Controller => self.controller(),
            OperatorComponent::Server => self.server(),
            OperatorComponent::Daemon => self.daemon(),
        }
    }

    fn controller(&self) -> Value {
        let mut args = vec![
            "controller".to_owned(),
            format!("--namespace={}", self.namespace),
            format!("--profile={}", self.settings.profile.as_str()),
            metrics_listen(port::METRICS),
        ];
        if self.is_removal {
            args.push("--release-machines".to_owned());
        }
        let (mut volumes, mut mounts) = (vec![], vec![]);
        if let Some(endpoint) = &self.endpoint {
            let namespace = self.settings.user_data_namespace.as_ref().unwrap_or(&self.namespace);
            args.push(format!("--server-url={}", endpoint.server));
            args.push(format!("--server-ca-file={BUNDLE_DIR}/{BUNDLE_KEY}"));
            args.push(format!("--user-data-namespace={namespace}"));
            volumes.push(json!({"name": "server-ca", "configMap": {"name": SERVER_CA}}));
            mounts.push(json!({"name": "server-ca", "mountPath": BUNDLE_DIR, "readOnly": true}));
            if let Some(secret) = &self.settings.server_token {
                args.push(format!("--server-token-file={TOKEN_DIR}/{TOKEN_KEY}"));
                volumes.push(json!({"name": "server-token", "secret": {"secretName": secret}}));
                mounts.push(
                    json!({"name": "server-token", "mountPath": TOKEN_DIR, "readOnly": true}),
                );
            }
        }
        let probe =
            |path: &str| json!({"httpGet": {"path": path, "port": "metrics", "scheme": "HTTPS"}});
        let mut container = self.container("controller", &args, 50, Some(CONTROLLER_MEMORY_LIMIT));
        container["ports"] = json!([{"name": "metrics", "containerPort": port::METRICS}]);
        container["readinessProbe"] = probe("/readyz");
        container["livenessProbe"] = probe("/healthz");
        container["securityContext"] = unprivileged_security_context();
        container["volumeMounts"] = mounts.into();
        let mut pod = json!({
            "serviceAccountName": OperatorComponent::Controller.name(),
            "priorityClassName": "system-cluster-critical",
            "securityContext": nobody_security_context(),
            "affinity": {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": control_plane_affinity(label::NODE_ROLE_CONTROL_PLANE)},
                ]},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 50,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": selector(OperatorComponent::Controller)},
                    },
                }]},
            },
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(OperatorComponent::Controller)},
            }],
            "tolerations": control_plane_scheduling(),
            "containers": [container],
        });
        pod["volumes"] = volumes.into();
        let mut object = self.workload(OperatorComponent::Controller, &pod);
        object["spec"]["replicas"] = self.settings.controller_replicas.into();
        object["spec"]["strategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}});
        object
    }

    fn daemon(&self) -> Value {
        let args = [
            "daemon".to_owned(),
            "start".to_owned(),
            "--root=/rootfs".to_owned(),
            format!("--drift={}", self.settings.drift),
            format!("--mode={}", self.settings.mode),
            metrics_listen(port::METRICS_DAEMON),
        ];
        // The port is not declared: the daemon runs even where another pod has it, and then serves no metrics.
        // No limit: tools that unpack OS images run in this container, and an update must not be killed half-way.
        let mut container = self.container("daemon", &args, 20, None);
        let name =
            json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
        if let Some(variables) = container["env"].as_array_mut() {
            variables.push(name);
        }
        container["securityContext"] = json!({"privileged": true});
        container["volumeMounts"] = json!([
            {"name": "rootfs", "mountPath": "/rootfs", "mountPropagation": "HostToContainer"},
        ]);
        let pod = json!({
            "serviceAccountName": OperatorComponent::Daemon.name(),
            "priorityClassName": "system-node-critical",
            "hostNetwork": true,
            "hostPID": true,
            "nodeSelector": {label::OS: "linux"},
            "tolerations": [{"operator": "Exists"}],
            // A running update is completed or rolled back, not interrupted.
            "terminationGracePeriodSeconds": 600,
            "containers": [container],
            "volumes": [{"name": "rootfs", "hostPath": {"path": "/"}}],
        });
        let mut object = self.workload(OperatorComponent::Daemon, &pod);
        object["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}});
        object
    }

    /// A container with the memory it needs, and the most it may use, in MiB. Only memory is limited: a processor
    /// limit would delay rollouts on an idle node.
    pub(super) fn container(
        &self,
        name: &str,
        args: &[String],
        memory: u32,
        limit: Option<u32>,
    ) -> Value {
        let mut resources = json!({"requests": {"cpu": "20m", "memory": format!("{memory}Mi")}});
        if let Some(limit) = limit {
            resources["limits"] = json!({"memory": format!("{limit}Mi")});
        }
        json!({
            "name": name,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": args,
            "env": [{"name": "MACHINIST_LOG", "value": self.log_filter}],
            "resources": resources,
            "terminationMessagePolicy": "FallbackToLogsOnError",
        })
    }

    /// The object around a pod. The release annotation is on the object and not on the pod, so that
    /// pods are recreated only if something else changes.
    pub(super) fn workload(&self, part: OperatorComponent, pod: &Value) -> Value {
        let mut labels = labels();
        labels["k8s-app"] = part.name().into();
        json!({
            "apiVersion": "apps/v1",
            "kind": part.kind(),
            "metadata": {
                "name": part.name(),
                "namespace": self.namespace,
                "labels": labels,
                "annotations": {RELEASE_ANNOTATION: self.release},
            },
            "spec": {
                "selector": {"matchLabels": selector(part)},
                "template": {
                    "metadata": {
                        "labels": labels,
                        "annotations": {"kubectl.kubernetes.io/default-container": pod["containers"][0]["name"]},
                    },
                    "spec": pod,
                },
            },
        })
    }
}

/// On every address, so with HTTPS and authentication.
pub(super) fn metrics_listen(port: u16) -> String {
    format!("--metrics-listen=[::]:{port}")
}

fn selector(part: OperatorComponent) -> Value {
    json!({"k8s-app": part.name()})
}

pub(super) fn control_plane_affinity(label: &str) -> Value {
    json!({"matchExpressions": [{"key": label, "operator": "Exists"}]})
}

pub(super) fn control_plane_scheduling() -> Value {
    let tolerated =
        [label::NODE_ROLE_CONTROL_PLANE, label::NODE_ROLE_MASTER, "node-role.kubernetes.io/etcd"];
    tolerated
        .iter()
        .map(|key| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}))
        .collect()
}

pub(super) fn nobody_security_context() -> Value {
    json!({"runAsNonRoot": true, "runAsUser": NOBODY_UID, "seccompProfile": {"type": "RuntimeDefault"}})
}

pub(super) fn unprivileged_security_context() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The inputs in an ordinary cluster.
    pub(in super::super) fn inputs() -> ComponentInputs {
        ComponentInputs {
            namespace: "ns".to_owned(),
            image: "image:1".to_owned(),
            release: "1".to_owned(),
            log_filter: "info".to_owned(),
            settings: OperatorSettings::default(),
            is_removal: false,
            endpoint: Some(ClusterEndpoints {
                api_server: "https://a:6443".to_owned(),
                server: "https://a:22623".to_owned(),
            }),
        }
    }

    fn args(object: &Value) -> String {
        object["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
    }

    #[test]
    fn there_is_no_server_without_an_api_endpoint() {
        let alone = ComponentInputs { endpoint: None, ..inputs() };
        assert_eq!(
            alone.desired_components(),
            [OperatorComponent::Controller, OperatorComponent::Daemon]
        );
        assert!(!args(&alone.manifest(OperatorComponent::Controller)).contains("--server-url"));
        let removed = ComponentInputs { is_removal: true, ..inputs() };
        for (inputs, expected) in [(inputs(), false), (removed, true)] {
            let args = args(&inputs.manifest(OperatorComponent::Controller));
            assert_eq!(args.contains("--release-machines"), expected);
        }
        assert_eq!(inputs().desired_components(), OperatorComponent::ALL);
        assert!(
            args(&inputs().manifest(OperatorComponent::Controller))
                .contains("--server-url=https://a:22623")
        );
        assert!(
            args(&inputs().manifest(OperatorComponent::Server))
                .contains("--apiserver-url=https://a:6443")
        );
    }

    /// `deploy/system/metrics.yaml` has the same ports. Two components on the network of one host need two.
    #[test]
    fn every_component_serves_metrics_on_a_port_of_its_own() {
        for (part, port) in [
            (OperatorComponent::Controller, 8797),
            (OperatorComponent::Server, 22625),
            (OperatorComponent::Daemon, 9001),
        ] {
            let object = inputs().manifest(part);
            assert!(args(&object).contains(&format!("--metrics-listen=[::]:{port}")), "{part:?}");
            assert!(!args(&object).contains("insecure"), "{part:?}");
        }
        let controller = inputs().manifest(OperatorComponent::Controller);
        let container = &controller["spec"]["template"]["spec"]["containers"][0];
        for probe in ["readinessProbe", "livenessProbe"] {
            assert_eq!(container[probe]["httpGet"]["scheme"], "HTTPS");
        }
    }

    #[test]
    fn a_new_release_with_the_same_image_restarts_nothing() {
        let newer = ComponentInputs { release: "2".to_owned(), ..inputs() };
        for part in OperatorComponent::ALL {
            let (old, new) = (inputs().manifest(part), newer.manifest(part));
            assert_eq!(old["spec"], new["spec"]);
            assert_ne!(old["metadata"], new["metadata"]);
        }
    }

    #[test]
    fn selectors_find_the_pods_and_only_the_daemon_is_privileged() {
        for part in OperatorComponent::ALL {
            let object = inputs().manifest(part);
            let labels = &object["spec"]["template"]["metadata"]["labels"];
            assert_eq!(object["spec"]["selector"]["matchLabels"]["k8s-app"], labels["k8s-app"]);
            let pod = &object["spec"]["template"]["spec"];
            let privileged = pod["containers"][0]["securityContext"]["privileged"] == true;
            assert_eq!(privileged, part == OperatorComponent::Daemon);
            assert_eq!(
                pod["securityContext"]["runAsNonRoot"] == true,
                part != OperatorComponent::Daemon
            );
            let limit = &pod["containers"][0]["resources"]["limits"]["memory"];
            assert_eq!(limit.is_string(), part != OperatorComponent::Daemon, "{part:?}");
        }
    }

    /// The NetworkPolicy of `deploy/system` selects the label and allows the port; the test `deploy` compares.
    #[test]
    fn every_pod_has_the_network_policy_or_the_network_of_its_host() {
        for part in OperatorComponent::ALL {
            let template = inputs().manifest(part)["spec"]["template"].clone();
            assert_eq!(
                template["metadata"]["labels"]["app.kubernetes.io/part-of"], "machinist",
                "{part:?}"
            );
            let pod = &template["spec"];
            let uses_host_network = pod["hostNetwork"] == true;
            assert_eq!(uses_host_network, part != OperatorComponent::Controller, "{part:?}");
            assert!(!pod.to_string().contains("--metrics-insecure"), "{part:?}");
            let ports = pod["containers"][0]["ports"].as_array().cloned().unwrap_or_default();
            for port in ports.iter().filter(|_| !uses_host_network) {
                assert_eq!(port["containerPort"], 8797, "{part:?}");
            }
        }
    }
}
