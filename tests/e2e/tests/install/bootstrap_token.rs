//! The token of new machines against a real API server: it expires, is rotated, and can be revoked.

use crate::install::operator::{secret_text, settings, start};
use crate::install::support::{NAMESPACE, client, condition, get, install, merge, wait_condition};
use anyhow::{Result, ensure};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use machinist_e2e::{Cluster, block_on, wait_for};
use serde_json::{Value, json};

const SECRET: &str = "machine-config-server-bootstrap-token";
const SECRET_PATH: &str = "/api/v1/namespaces/openshift-machine-config-operator/secrets/\
                           machine-config-server-bootstrap-token";

fn token(cluster: &Cluster) -> Result<String> {
    secret_text(cluster, SECRET, "token")
}

/// Waits for a token other than these.
fn wait_for_token(cluster: &Cluster, others: &[&str]) -> String {
    let mut found = String::new();
    wait_for("a new bootstrap token", || {
        found = token(cluster)?;
        let degraded = condition(cluster, "Degraded").unwrap_or_default();
        ensure!(found.matches('.').count() == 2, "there is none: {degraded}");
        Ok(!others.contains(&found.as_str()))
    })
    .unwrap();
    found
}

/// The seconds between the issue and the expiry of a token.
fn lifetime(token: &str) -> i64 {
    let payload = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(claims["sub"], format!("system:serviceaccount:{NAMESPACE}:node-bootstrapper"));
    claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap()
}

/// The status with which the API server answers a machine that requests a certificate.
fn request_certificate(cluster: &Cluster, token: &str) -> u16 {
    // The body is not valid: a missing permission is reported before that.
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "n-"},
        "spec": {"request": "eA==", "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth"]},
    });
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(request.to_string().into_bytes())
        .unwrap();
    status(block_on(client(cluster, token).unwrap().request::<Value>(request)))
}

fn list_secrets(cluster: &Cluster, token: &str) -> u16 {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    status(block_on(client(cluster, token).unwrap().request::<Value>(request)))
}

fn status(response: kube::Result<Value>) -> u16 {
    match response {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_bootstrap_token_expires_is_rotated_and_can_be_revoked() {
    let cluster = Cluster::start().unwrap();
    install(&cluster).unwrap();
    let ca = "--from-literal=ca.crt=CA";
    let map = ["-n", NAMESPACE, "create", "configmap", "kube-root-ca.crt", ca];
    cluster.kubectl(&map).unwrap();
    // An earlier version left a token without an expiry.
    let legacy = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: node-bootstrapper-token, namespace: {NAMESPACE}, \
         labels: {{app.kubernetes.io/part-of: machinist}}}}\n"
    );
    cluster.apply(&legacy).unwrap();
    settings(&cluster, "");
    let _operator = start(&cluster, "1");

    let first = wait_for_token(&cluster, &[]);
    assert_eq!(lifetime(&first), 48 * 3600);
    assert_eq!(secret_text(&cluster, SECRET, "ca.crt").unwrap(), "CA");
    // It requests certificates, and does nothing else.
    assert_eq!(request_certificate(&cluster, &first), 422);
    assert_eq!(list_secrets(&cluster, &first), 403);

    let rotate = json!({"metadata": {"annotations": {"machinist.dev/rotate": "now"}}});
    merge(&cluster, SECRET_PATH, &rotate).unwrap();
    let second = wait_for_token(&cluster, &[&first]);
    // A machine that got the previous token can still use it.
    assert_eq!(request_certificate(&cluster, &first), 422);
    assert_eq!(request_certificate(&cluster, &second), 422);
    let annotations = &get(&cluster, SECRET_PATH).unwrap()["metadata"]["annotations"];
    assert_eq!(annotations["machinist.dev/rotated"], "now");

    // Anything else in its place is replaced.
    let garbage = json!({"data": {"token": BASE64_STANDARD.encode("a.b.c")}});
    merge(&cluster, SECRET_PATH, &garbage).unwrap();
    let third = wait_for_token(&cluster, &[&first, &second, "a.b.c"]);
    settings(&cluster, ", bootstrapTokenLifetime: 2h");
    let fourth = wait_for_token(&cluster, &[&third]);
    assert_eq!(lifetime(&fourth), 2 * 3600);

    // A new CA of the API server is written beside the same token.
    let other = json!({"data": {"ca.crt": "CA2"}});
    let map = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt");
    merge(&cluster, &map, &other).unwrap();
    wait_for("the new CA", || Ok(secret_text(&cluster, SECRET, "ca.crt")? == "CA2")).unwrap();
    assert_eq!(token(&cluster).unwrap(), fourth);

    // Deleting the Secret revokes all its tokens. The API server believes a token for a few more seconds.
    cluster.kubectl(&["-n", NAMESPACE, "delete", "secret", SECRET]).unwrap();
    let fifth = wait_for_token(&cluster, &[&fourth]);
    assert_eq!(request_certificate(&cluster, &fifth), 422);
    for revoked in [&first, &second, &third, &fourth] {
        wait_for("the token to be revoked", || Ok(request_certificate(&cluster, revoked) == 401))
            .unwrap();
    }
    let old = format!("/api/v1/namespaces/{NAMESPACE}/secrets/node-bootstrapper-token");
    assert!(!get(&cluster, &old).unwrap().is_null(), "machines may still use it for a day");

    // Without the permission, the operator says what to do, and keeps the token.
    let role = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/machine-config-operator"
    );
    let found = get(&cluster, &role).unwrap();
    let rules = found["rules"].as_array().unwrap().iter();
    let rules: Vec<&Value> =
        rules.filter(|rule| rule["resources"][0] != "serviceaccounts/token").collect();
    merge(&cluster, &role, &json!({"rules": rules})).unwrap();
    settings(&cluster, ", bootstrapTokenLifetime: 3h");
    // The token lives shorter than allowed: only a request makes the operator ask for another.
    let again = json!({"metadata": {"annotations": {"machinist.dev/rotate": "again"}}});
    merge(&cluster, SECRET_PATH, &again).unwrap();
    wait_condition(
        &cluster,
        "Degraded",
        "True BootstrapTokenFailed: Unable to apply 1: cannot request a token of ServiceAccount node-bootstrapper: apply the manifests",
    )
    .unwrap();
    assert_eq!(token(&cluster).unwrap(), fifth);
}
