//! The manifest of the machine config server, and the settings that change it.

use serde_json::{Value, json};

use super::bootstrap_token::BOOTSTRAP_SECRET;
use super::component_order::OperatorComponent;
use super::components::{
    BUNDLE_DIR, ComponentInputs, NOBODY_UID, control_plane_affinity, control_plane_scheduling,
    metrics_listen, nobody_security_context, unprivileged_security_context,
};
use super::{ACCESS_NAMESPACE, BUNDLE_KEY, SERVER_CA, SERVER_TLS};
use crate::api::names::{label, port};

/// In MiB. Responses are cached per pool, and connections are limited.
const SERVER_MEMORY_LIMIT: u32 = 1024;

impl ComponentInputs {
    pub(super) fn server(&self) -> Value {
        let endpoint = self.endpoint.as_ref();
        let api_server = endpoint.map(|it| it.api_server.as_str()).unwrap_or_default();
        let url = endpoint.map(|it| it.server.as_str()).unwrap_or_default();
        let secret = |name: &str, secret: &str| json!({"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}});
        let mut volumes =
            vec![secret("tls", SERVER_TLS), secret("bootstrap-token", BOOTSTRAP_SECRET)];
        let mut mounts = vec![
            json!({"name": "tls", "mountPath": "/etc/ssl/mcs", "readOnly": true}),
            json!({"name": "bootstrap-token", "mountPath": "/etc/mcs/bootstrap-token", "readOnly": true}),
        ];
        let mut args = vec![
            "server".to_owned(),
            "start".to_owned(),
            format!("--apiserver-url={api_server}"),
            format!("--namespace={}", self.namespace),
            metrics_listen(port::METRICS_SERVER),
        ];
        if self.settings.needs_access() {
            args.push(format!("--access-namespace={ACCESS_NAMESPACE}"));
        }
        if self.settings.server_token.is_some() {
            args.push("--require-token".to_owned());
        }
        if self.settings.sealed {
            args.push(format!("--sealed-url={url}"));
            args.push(format!("--sealed-ca-file={BUNDLE_DIR}/{BUNDLE_KEY}"));
            volumes.push(json!({"name": "server-ca", "configMap": {"name": SERVER_CA}}));
            mounts.push(json!({"name": "server-ca", "mountPath": BUNDLE_DIR, "readOnly": true}));
        }
        if self.settings.first_boot {
            args.push(format!("--first-boot-url={url}"));
        }
        let mut container = self.container("server", &args, 50, Some(SERVER_MEMORY_LIMIT));
        container["ports"] = json!([
            {"name": "https", "containerPort": port::SERVER_TLS},
            {"name": "http", "containerPort": port::SERVER_HTTP},
            {"name": "metrics", "containerPort": port::METRICS_SERVER},
        ]);
        container["readinessProbe"] = json!({"tcpSocket": {"port": "https"}});
        container["securityContext"] = unprivileged_security_context();
        container["volumeMounts"] = mounts.into();
        let mut nobody = nobody_security_context();
        nobody["fsGroup"] = NOBODY_UID.into();
        let pod = json!({
            "serviceAccountName": OperatorComponent::Server.name(),
            "priorityClassName": "system-cluster-critical",
            "hostNetwork": true,
            "securityContext": nobody,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    control_plane_affinity(label::NODE_ROLE_CONTROL_PLANE),
                    control_plane_affinity(label::NODE_ROLE_MASTER),
                ],
            }}},
            "tolerations": control_plane_scheduling(),
            "containers": [container],
            "volumes": volumes,
        });
        self.workload(OperatorComponent::Server, &pod)
    }
}

#[cfg(test)]
mod tests {
    use super::super::components::tests::inputs;
    use super::super::settings::OperatorSettings;
    use super::*;

    /// The arguments that each setting adds to the server and the controller; each volume has its
    /// mount.
    #[test]
    fn server_settings_become_arguments() {
        let access = "--access-namespace=machinist-access";
        let token =
            OperatorSettings { server_token: Some("t".to_owned()), ..OperatorSettings::default() };
        let sealed = OperatorSettings { sealed: true, ..OperatorSettings::default() };
        let first_boot = OperatorSettings { first_boot: true, ..OperatorSettings::default() };
        let all = OperatorSettings { sealed: true, first_boot: true, ..token.clone() };
        let token_file = "--server-token-file=/etc/machinist/server-token/token";
        let (url, ca) = (
            "--sealed-url=https://a:22623",
            "--sealed-ca-file=/etc/machinist/server-ca/ca-bundle.crt",
        );
        let first_boot_url = "--first-boot-url=https://a:22623";
        for (settings, server, controller) in [
            (OperatorSettings::default(), &[][..], &[][..]),
            (token, &[access, "--require-token"], &[token_file]),
            (sealed, &[access, url, ca], &[]),
            (first_boot, &[first_boot_url], &[]),
            (all, &[access, "--require-token", url, ca, first_boot_url], &[token_file]),
        ] {
            let chosen = ComponentInputs { settings, ..inputs() };
            for (part, expected) in
                [(OperatorComponent::Server, server), (OperatorComponent::Controller, controller)]
            {
                let (plain, object) = (inputs().manifest(part), chosen.manifest(part));
                let pod = |object: &Value| object["spec"]["template"]["spec"].clone();
                let words = |object: &Value| -> Vec<String> {
                    let args = &pod(object)["containers"][0]["args"];
                    serde_json::from_value(args.clone()).unwrap()
                };
                let usual = words(&plain);
                let mut more = words(&object);
                more.retain(|word| !usual.contains(word));
                assert_eq!(more, expected, "{part:?}");
                let names = |list: &Value| -> Vec<String> {
                    let all = list.as_array().unwrap().iter();
                    all.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
                };
                let pod = pod(&object);
                let mounts = &pod["containers"][0]["volumeMounts"];
                assert_eq!(names(&pod["volumes"]), names(mounts), "{part:?}");
                let secrets = pod["volumes"].to_string();
                assert_eq!(
                    secrets.contains(r#""secretName":"t""#),
                    controller.contains(&token_file) && part == OperatorComponent::Controller
                );
            }
        }
    }
}
