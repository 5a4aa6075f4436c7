//! The identity of the machine: a client certificate of its own, requested with the credentials it was given
//! to join with, and renewed with itself.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use machinist_core::hex::hex;
use machinist_hub::auth::certificates::{CertificateInfo, ClientCertificate, generate_csr};
use machinist_hub::auth::csr::MACHINE_SIGNER;
use machinist_hub::auth::machine::{APPROVAL_PENDING_ANNOTATION, ROLES_ANNOTATION};
use machinist_hub::auth::{NODE_GROUP, NODE_USER_PREFIX};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use crate::kubernetes::bounded_responses::{ResponseLimit, bounded_client};

/// How long to wait for a certificate unless a user says otherwise.
pub(crate) const CERTIFICATE_TIMEOUT: Duration = Duration::from_secs(120);
/// The first pause between two polls: a hub signs immediately.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The longest pause between two polls.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3);
/// How long to wait for someone else to approve before trying it.
const APPROVAL_DELAY: Duration = Duration::from_secs(1);

/// A client for a kubeconfig.
pub(crate) async fn client_for(kubeconfig: &Value) -> Result<Client> {
    let config: Kubeconfig =
        serde_json::from_value(kubeconfig.clone()).context("this kubeconfig cannot be read")?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await?;
    Ok(bounded_client(config, ResponseLimit::MACHINE)?)
}

/// A kubeconfig for a server with a token.
pub(crate) fn token_kubeconfig(server: &str, token: &str, authority: &str) -> Value {
    kubeconfig(
        &json!({"server": server, "certificate-authority-data": STANDARD.encode(authority)}),
        &json!({
            "token": token,
        }),
    )
}

fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "home",
        "clusters": [{"name": "home", "cluster": cluster}],
        "users": [{"name": "machine", "user": user}],
        "contexts": [{"name": "home", "context": {"cluster": "home", "user": "machine"}}],
    })
}

/// Reads a kubeconfig and all files that it refers to, so that it is self-contained.
pub(crate) fn read_flattened(path: &Path) -> Result<Value> {
    let show = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {show}"))?;
    let whole: Value =
        serde_saphyr::from_str(&text).map_err(|_| anyhow!("{show}: not a kubeconfig"))?;
    let named = |list: &str, name: &str, inner: &str| -> Result<Value> {
        let entries = whole[list].as_array().into_iter().flatten();
        let found = entries.clone().find(|entry| entry["name"] == name);
        Ok(found.with_context(|| format!("{show}: {list}: there is no {name:?}"))?[inner].clone())
    };
    let context = whole["current-context"].as_str().unwrap_or_default();
    let context = named("contexts", context, "context")?;
    let text = |field: &str| context[field].as_str().unwrap_or_default();
    let mut cluster = named("clusters", text("cluster"), "cluster")?;
    let mut user = named("users", text("user"), "user")?;
    let directory = path.parent().unwrap_or_else(|| Path::new("/"));
    inline_files(&mut cluster, &["certificate-authority"], directory)?;
    inline_files(&mut user, &["client-certificate", "client-key"], directory)?;
    Ok(kubeconfig(&cluster, &user))
}

/// Replaces paths by the contents of the files.
fn inline_files(object: &mut Value, fields: &[&str], directory: &Path) -> Result<()> {
    for field in fields {
        let Some(file) = object[*field].as_str().map(|file| directory.join(file)) else { continue };
        let bytes = std::fs::read(&file).with_context(|| format!("{field} {}", file.display()))?;
        object[format!("{field}-data")] = STANDARD.encode(bytes).into();
        object.as_object_mut().map(|object| object.remove(*field));
    }
    Ok(())
}

/// A private key, and the certificate request made with it. Kept on disk while a machine joins: the hub gives a name
/// away only once, so a machine that lost the key of a signed certificate could not join again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdentityRequest {
    /// The name of the Node.
    pub(crate) node: String,
    /// The URL of the API server.
    pub(crate) server: String,
    key: String,
    request: String,
}

impl IdentityRequest {
    /// A request with a new key.
    pub(crate) fn generate(given: &Value, node: &str) -> Result<Self> {
        let user = format!("{NODE_USER_PREFIX}{node}");
        let (key, request) = generate_csr(&user, NODE_GROUP)?;
        Ok(Self { node: node.to_owned(), server: server_url(given).to_owned(), key, request })
    }

    /// The name of the CertificateSigningRequest: the same after an interruption.
    fn object_name(&self) -> String {
        let digest = hex(&Sha256::digest(&self.request));
        format!("machinist-{}-{}", self.node, digest.get(..10).unwrap_or_default())
    }
}

/// The URL of the API server in a kubeconfig.
pub(crate) fn server_url(kubeconfig: &Value) -> &str {
    let url = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
    url.trim_end_matches('/')
}

/// A kubeconfig with an identity of the machine, requested with the given one.
///
/// `roles` are those that a new machine asks for; a renewal asks for none.
pub(crate) async fn issue_identity(
    given: &Value,
    identity: &IdentityRequest,
    roles: &[&str],
    max_wait: Duration,
) -> Result<Value> {
    let client = client_for(given).await?;
    let certificate = request_certificate(&client, identity, roles, max_wait).await?;
    let cluster = &given["clusters"][0]["cluster"];
    Ok(kubeconfig(
        cluster,
        &json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        }),
    ))
}

/// Has a certificate request signed.
async fn request_certificate(
    client: &Client,
    identity: &IdentityRequest,
    roles: &[&str],
    max_wait: Duration,
) -> Result<Vec<u8>> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let object = CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(identity.object_name()),
            annotations: (!roles.is_empty())
                .then(|| [(ROLES_ANNOTATION.to_owned(), roles.join(","))].into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(identity.request.as_bytes().to_vec()),
            signer_name: MACHINE_SIGNER.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    let request = identity.object_name();
    match api.create(&PostParams::default(), &object).await {
        // Created before an interruption.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        made => drop(made.map_err(request_error)?),
    }
    let start = Instant::now();
    let (mut pause, mut has_tried, mut pending) = (POLL_INTERVAL, false, None);
    while start.elapsed() < max_wait {
        let seen = api.get(&request).await.context("cannot see the certificate")?;
        let status = seen.status.clone().unwrap_or_default();
        if let Some(certificate) = status.certificate {
            return Ok(certificate.0);
        }
        let conditions = status.conditions.unwrap_or_default();
        let bad = |condition: &&CertificateSigningRequestCondition| {
            matches!(condition.type_.as_str(), "Denied" | "Failed")
        };
        if let Some(bad) = conditions.iter().find(bad) {
            let message = bad.message.clone().unwrap_or_default();
            bail!("CertificateSigningRequest {request}: {}: {message}", bad.type_);
        }
        let annotations = seen.metadata.annotations.clone().unwrap_or_default();
        if let Some(reason) = annotations.get(APPROVAL_PENDING_ANNOTATION)
            && pending.is_none()
        {
            // Said at once: whoever reads it has to act while this waits.
            tracing::warn!(request, reason, "the hub does not approve this machine by itself");
            pending = Some(reason.clone());
        }
        if !has_tried && conditions.is_empty() && start.elapsed() > APPROVAL_DELAY {
            has_tried = true;
            approve(&api, &seen).await;
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_POLL_INTERVAL);
    }
    if let Some(reason) = pending {
        bail!("CertificateSigningRequest {request}: nobody has approved it: {reason}");
    }
    bail!(
        "CertificateSigningRequest {request}: nobody has signed it: kubectl certificate approve {request}, then join again"
    )
}

/// Approves the request, if an administrator joins the machine by hand.
async fn approve(api: &Api<CertificateSigningRequest>, request: &CertificateSigningRequest) {
    let condition = CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("MachinistJoin".to_owned()),
        message: Some("approved by whoever joined the machine".to_owned()),
        ..CertificateSigningRequestCondition::default()
    };
    let name = request.metadata.name.clone().unwrap_or_default();
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    if api.patch_approval(&name, &PatchParams::default(), &patch).await.is_err() {
        tracing::info!(
            request = name,
            "waiting for an approval of the certificate: run kubectl certificate approve REQUEST"
        );
    }
}

/// Why a certificate cannot be requested.
fn request_error(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => anyhow!(
            "cannot request a certificate: the API server refuses the token; it has expired, was revoked, or belongs to \
             another server. Create another with machinist hub token --role bootstrap"
        ),
        kube::Error::Api(status) => anyhow!("cannot request a certificate: {}", status.message),
        error => anyhow!(error).context("cannot request a certificate"),
    }
}

/// The certificate in a kubeconfig, as PEM.
fn own_certificate(kubeconfig: &Value) -> Option<String> {
    let data = kubeconfig["users"][0]["user"]["client-certificate-data"].as_str()?;
    String::from_utf8(STANDARD.decode(data).ok()?).ok()
}

/// The Node that the certificate in a kubeconfig is for.
pub(crate) fn own_node_name(kubeconfig: &Value) -> Option<String> {
    let certificate = ClientCertificate::from_pem(&own_certificate(kubeconfig)?).ok()?;
    certificate.user.user.strip_prefix(NODE_USER_PREFIX).map(str::to_owned)
}

/// Whether the certificate in a kubeconfig has to be renewed: less than a third of its lifetime is left.
pub(crate) fn needs_renewal(kubeconfig: &Value) -> bool {
    certificate_info(kubeconfig).is_some_and(|validity| validity.needs_renewal(now(), &[]))
}

/// Whether the certificate in a kubeconfig has expired. It cannot be renewed then.
pub(crate) fn has_expired(kubeconfig: &Value) -> bool {
    certificate_info(kubeconfig).is_some_and(|validity| validity.not_after < now())
}

/// Whether two kubeconfigs trust no common CA: then what one of them was given is worth nothing to the server of the
/// other.
pub(crate) fn is_other_ca(kubeconfig: &Value, given: &Value) -> bool {
    let (own, given) = (trusted_certificates(kubeconfig), trusted_certificates(given));
    !own.is_empty() && !given.is_empty() && own.is_disjoint(&given)
}

/// The certificates that a kubeconfig trusts, without the white space around and in them.
fn trusted_certificates(kubeconfig: &Value) -> BTreeSet<String> {
    let data = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"].as_str();
    let pem = STANDARD.decode(data.unwrap_or_default()).unwrap_or_default();
    let pem = String::from_utf8_lossy(&pem);
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    let blocks = blocks.filter_map(|block| block.split("-----END CERTIFICATE-----").next());
    blocks.map(|block| block.split_whitespace().collect()).collect()
}

fn certificate_info(kubeconfig: &Value) -> Option<CertificateInfo> {
    CertificateInfo::parse(&own_certificate(kubeconfig)?).ok()
}

/// Seconds since 1970.
fn now() -> i64 {
    Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_hub::auth::certificates::CertificateAuthority;

    #[test]
    fn another_ca_is_recognised_whatever_its_white_space() {
        let ca = || CertificateAuthority::generate("test").unwrap().certificate;
        let (one, other) = (ca(), ca());
        let trusting = |authority: &str| token_kubeconfig("https://a", "t", authority);
        assert!(is_other_ca(&trusting(&one), &trusting(&other)));
        let again = format!("# the CA\n{}\n", one.replace('\n', "\r\n"));
        assert!(!is_other_ca(&trusting(&one), &trusting(&again)));
        // One of several is enough, and nothing is known without one.
        assert!(!is_other_ca(&trusting(&one), &trusting(&format!("{other}{one}"))));
        assert!(!is_other_ca(&trusting(&one), &json!({})));
        assert!(!is_other_ca(&json!({}), &trusting(&one)));
    }

    #[test]
    fn a_kubeconfig_becomes_self_contained() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.crt"), "authority").unwrap();
        let file = directory.path().join("config");
        let text = "current-context: b\n\
            contexts: [{name: a, context: {cluster: x, user: x}}, {name: b, context: {cluster: c, user: u}}]\n\
            clusters: [{name: c, cluster: {server: https://h, certificate-authority: ca.crt}}]\n\
            users: [{name: u, user: {token: t}}]\n";
        std::fs::write(&file, text).unwrap();
        let found = read_flattened(&file).unwrap();
        let cluster = &found["clusters"][0]["cluster"];
        assert_eq!(cluster["certificate-authority-data"], STANDARD.encode("authority"));
        assert_eq!(cluster["certificate-authority"], Value::Null);
        assert_eq!(found["users"][0]["user"]["token"], "t");
        std::fs::write(&file, "current-context: z\n").unwrap();
        assert!(
            format!("{:#}", read_flattened(&file).unwrap_err())
                .contains("contexts: there is no \"z\"")
        );
    }

    #[test]
    fn a_certificate_is_renewed_in_its_last_third() {
        let ca = CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap())
            .unwrap();
        let pair = ca.issue_client("system:node:a", "system:nodes").unwrap();
        let user = json!({"client-certificate-data": STANDARD.encode(pair.certificate)});
        assert!(!needs_renewal(&kubeconfig(&json!({}), &user)));
        // Nothing to renew.
        assert!(!needs_renewal(&token_kubeconfig("https://h", "t", "ca")));
    }
}
