//! The token for new machines: reads it and performs the steps of `core::operator::bootstrap_token`.

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::jiff::Timestamp;
use machinist_core::operator::bootstrap_token::{
    BOOTSTRAP_ACCOUNT, BOOTSTRAP_SECRET, BootstrapTokenState, BootstrapTokenStep,
    DesiredBootstrapToken, LEGACY_SECRET, TokenClaims, next_step,
};
use machinist_core::operator::events::{self, OperatorEvent};
use machinist_core::operator::labels;
use serde_json::{Value, json};

use super::caches::get_optional;
use super::write::ApplyWriter;
use super::{ROTATE_ANNOTATION, ROTATED_ANNOTATION};

/// More steps than any state needs.
const MAX_STEPS: usize = 6;
const REMEDY: &str =
    "apply the manifests of this release, which permit it: kubectl apply -k deploy/";

/// The Secret as it is.
struct StoredToken {
    state: BootstrapTokenState,
    token: String,
    rotate: String,
}

/// Creates and rotates the token until nothing is left to do, and reports the steps. Returns when it expires, in seconds
/// since 1970.
pub(super) async fn reconcile_bootstrap_token(
    writer: &ApplyWriter,
    desired: &DesiredBootstrapToken,
    is_server_rolled_out: bool,
    report: &(dyn Fn(&OperatorEvent) + Sync),
) -> Result<i64> {
    ensure!(
        !desired.ca.is_empty(),
        "ConfigMap kube-root-ca.crt has no ca.crt: kube-controller-manager has to put the CA of the API there"
    );
    let now = Timestamp::now().as_second();
    for _ in 0..MAX_STEPS {
        let stored = read(writer, &desired.namespace, is_server_rolled_out).await?;
        let Some(step) = next_step(&stored.state, desired, now) else {
            return Ok(stored.state.token.map_or(0, |token| token.expires));
        };
        tracing::info!(?step, "changing the bootstrap token of new machines");
        perform(writer, desired, step, &stored).await?;
        events::bootstrap_token_event(step).iter().for_each(report);
    }
    bail!("the bootstrap token does not settle: delete Secret {BOOTSTRAP_SECRET} to start again")
}

async fn perform(
    writer: &ApplyWriter,
    desired: &DesiredBootstrapToken,
    step: BootstrapTokenStep,
    stored: &StoredToken,
) -> Result<()> {
    let namespace = desired.namespace.as_str();
    match step {
        BootstrapTokenStep::CreateSecret => writer.create(&secret(namespace, &json!({}), "")).await,
        BootstrapTokenStep::IssueToken => {
            let uid = stored.state.secret_uid.as_deref().unwrap_or_default();
            let token = request_token(writer, desired, uid).await?;
            // Token and CA change in one write; who mounts the Secret sees both or neither.
            writer.apply(&secret(namespace, &data(&token, &desired.ca), &stored.rotate)).await?;
            Ok(())
        }
        BootstrapTokenStep::UpdateCa => {
            let data = data(&stored.token, &desired.ca);
            writer.apply(&secret(namespace, &data, &stored.rotate)).await?;
            Ok(())
        }
        BootstrapTokenStep::RemoveLegacySecret => {
            let metadata = json!({"name": LEGACY_SECRET, "namespace": namespace});
            let legacy = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
            writer.delete(&legacy).await.context(REMEDY)
        }
    }
}

async fn request_token(
    writer: &ApplyWriter,
    desired: &DesiredBootstrapToken,
    secret_uid: &str,
) -> Result<String> {
    let namespace = &desired.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{BOOTSTRAP_ACCOUNT}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "expirationSeconds": desired.lifetime,
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Secret", "name": BOOTSTRAP_SECRET, "uid": secret_uid,
            },
        },
    });
    let response = writer.post(&path, &request).await.with_context(|| {
        format!("cannot request a token of ServiceAccount {BOOTSTRAP_ACCOUNT}: {REMEDY}")
    })?;
    let token = response["status"]["token"].as_str().unwrap_or_default();
    ensure!(!token.is_empty(), "the API server issued no token for {BOOTSTRAP_ACCOUNT}");
    Ok(token.to_owned())
}

async fn read(
    writer: &ApplyWriter,
    namespace: &str,
    is_server_rolled_out: bool,
) -> Result<StoredToken> {
    let path = |name: &str| format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let found = get_optional(&writer.client, &path(BOOTSTRAP_SECRET)).await?;
    let legacy = get_optional(&writer.client, &path(LEGACY_SECRET)).await?;
    let text = |key: &str| {
        let data = BASE64_STANDARD.decode(found["data"][key].as_str().unwrap_or_default());
        data.ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    };
    let annotation =
        |key: &str| found["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
    let created = found["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
    let (token, rotate) = (text("token"), annotation(ROTATE_ANNOTATION));
    let state = BootstrapTokenState {
        secret_uid: found["metadata"]["uid"].as_str().map(str::to_owned),
        // A Secret without a time is too young for everything.
        secret_created: created.parse().map_or(i64::MAX, |time: Timestamp| time.as_second()),
        token: TokenClaims::parse(&token),
        ca: text("ca.crt"),
        rotate: !rotate.is_empty() && rotate != annotation(ROTATED_ANNOTATION),
        // MCO has a Secret of this name, too, and keeps it.
        has_legacy_secret: legacy["metadata"]["labels"]["app.kubernetes.io/part-of"] == "machinist",
        is_server_rolled_out,
    };
    Ok(StoredToken { state, token, rotate })
}

fn data(token: &str, ca: &str) -> Value {
    json!({"token": BASE64_STANDARD.encode(token), "ca.crt": BASE64_STANDARD.encode(ca)})
}

fn secret(namespace: &str, data: &Value, rotated: &str) -> Value {
    let mut metadata =
        json!({"name": BOOTSTRAP_SECRET, "namespace": namespace, "labels": labels()});
    if !rotated.is_empty() {
        metadata["annotations"] = json!({ROTATED_ANNOTATION: rotated});
    }
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data})
}
