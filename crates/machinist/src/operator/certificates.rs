//! The machine config server's CA and certificate: reads them and performs the steps of `core::operator::certificates`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use machinist_core::operator::certificates::{
    CertificateState, CertificateStep, DesiredCertificates, ServerCertificate, SigningCa,
    TrustedCertificate, next_step,
};
use machinist_core::operator::events::{self, OperatorEvent};
use machinist_core::operator::{BUNDLE_KEY, SERVER_CA, SERVER_TLS, labels};
use machinist_hub::auth::certificates::{CertificateAuthority, CertificateInfo, PemKeyPair};
use serde_json::{Value, json};

use super::caches::get_optional;
use super::write::ApplyWriter;
use super::{ROTATE_ANNOTATION, ROTATED_ANNOTATION};

/// More steps than any state needs.
const MAX_STEPS: usize = 10;

/// The stored certificates with their keys.
#[derive(Default)]
struct StoredCertificates {
    current: Option<PemKeyPair>,
    next: Option<PemKeyPair>,
    rotate: String,
    rotated: String,
    bundle: Vec<String>,
    serving: Option<(PemKeyPair, String)>,
}

/// The result of a pass over the certificates.
pub(super) struct CertificatesReport {
    /// The CAs that machines trust.
    pub(super) bundle: String,
    /// When each certificate expires, in seconds since 1970.
    pub(super) expirations: Vec<(&'static str, i64)>,
}

/// Creates, rotates and signs certificates until nothing is left to do, and reports the steps.
pub(super) async fn reconcile_certificates(
    writer: &ApplyWriter,
    namespace: &str,
    names: &[String],
    overlap: i64,
    report: &(dyn Fn(&OperatorEvent) + Sync),
) -> Result<CertificatesReport> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    for _ in 0..MAX_STEPS {
        let mut kept = read(writer, namespace).await?;
        let rotate = !kept.rotate.is_empty() && kept.rotate != kept.rotated;
        let wanted = DesiredCertificates { names: names.to_vec(), overlap, rotate };
        let state = kept.state();
        let Some(step) = next_step(&state, &wanted, now) else {
            return Ok(CertificatesReport {
                bundle: kept.bundle.concat(),
                expirations: expirations(&state),
            });
        };
        tracing::info!(
            step = step_name(&step),
            "changing the certificates of the machine config server"
        );
        let event = events::certificate_event(&step);
        match step {
            CertificateStep::CreateCa => {
                kept.current = Some(CertificateAuthority::generate("machine-config-server")?);
            }
            CertificateStep::CreateNextCa => {
                kept.next = Some(CertificateAuthority::generate("machine-config-server")?);
                kept.rotated = kept.rotate.clone();
            }
            CertificateStep::PromoteNextCa => kept.current = kept.next.take(),
            CertificateStep::UpdateBundle(bundle) => {
                writer.apply(&bundle_object(namespace, &bundle)).await?;
                continue;
            }
            CertificateStep::SignServerCertificate => {
                let signer = kept.current.as_ref().context("there is no CA")?;
                let pair = CertificateAuthority::from_pem(signer)?
                    .issue_server("machine-config-server", names)?;
                writer.apply(&serving_object(namespace, &pair, &signer.certificate)).await?;
                event.iter().for_each(report);
                continue;
            }
        }
        writer.apply(&signer_object(namespace, &kept)).await?;
        event.iter().for_each(report);
    }
    bail!("the certificates of the server do not settle: remove Secret {SERVER_CA} to start again")
}

/// When each certificate expires.
fn expirations(state: &CertificateState) -> Vec<(&'static str, i64)> {
    let ends = [
        ("server", state.serving.as_ref().map(|it| it.not_after)),
        ("ca", state.current.as_ref().map(|it| it.not_after)),
        ("next-ca", state.next.as_ref().map(|it| it.not_after)),
    ];
    ends.into_iter().filter_map(|(name, end)| Some((name, end?))).collect()
}

fn step_name(step: &CertificateStep) -> &'static str {
    match step {
        CertificateStep::CreateCa => "create a CA",
        CertificateStep::CreateNextCa => "create the next CA",
        CertificateStep::UpdateBundle(_) => "update the bundle of trusted CAs",
        CertificateStep::PromoteNextCa => "promote the next CA",
        CertificateStep::SignServerCertificate => "sign the server certificate",
    }
}

impl StoredCertificates {
    /// The input of the decision. A certificate that cannot be parsed counts as missing.
    fn state(&self) -> CertificateState {
        let signer = |pair: &Option<PemKeyPair>| {
            let pair = pair.as_ref()?;
            CertificateAuthority::from_pem(pair).ok()?;
            let validity = CertificateInfo::parse(&pair.certificate).ok()?;
            let certificate = pair.certificate.clone();
            Some(SigningCa {
                certificate,
                not_before: validity.not_before,
                not_after: validity.not_after,
            })
        };
        let trusted = self.bundle.iter().map(|certificate| {
            let to = CertificateInfo::parse(certificate).map_or(0, |validity| validity.not_after);
            TrustedCertificate { certificate: certificate.clone(), not_after: to }
        });
        let serving = self.serving.as_ref().and_then(|(pair, signer)| {
            let validity = CertificateInfo::parse(&pair.certificate).ok()?;
            let (from, to) = (validity.not_before, validity.not_after);
            Some(ServerCertificate {
                names: validity.sans,
                not_before: from,
                not_after: to,
                signer: signer.clone(),
            })
        });
        CertificateState {
            current: signer(&self.current),
            next: signer(&self.next),
            bundle: trusted.collect(),
            serving,
        }
    }
}

async fn read(writer: &ApplyWriter, namespace: &str) -> Result<StoredCertificates> {
    let path = |plural: &str, name: &str| format!("/api/v1/namespaces/{namespace}/{plural}/{name}");
    let signer = get_optional(&writer.client, &path("secrets", SERVER_CA)).await?;
    let serving = get_optional(&writer.client, &path("secrets", SERVER_TLS)).await?;
    let bundle = get_optional(&writer.client, &path("configmaps", SERVER_CA)).await?;
    let pair = |object: &Value, name: &str| {
        let key = secret_text(object, &format!("{name}.key"))?;
        Some(PemKeyPair { certificate: secret_text(object, &format!("{name}.crt"))?, key })
    };
    let annotation =
        |key: &str| signer["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
    Ok(StoredCertificates {
        current: pair(&signer, "tls"),
        next: pair(&signer, "next"),
        rotate: annotation(ROTATE_ANNOTATION),
        rotated: annotation(ROTATED_ANNOTATION),
        bundle: certificates(bundle["data"][BUNDLE_KEY].as_str().unwrap_or_default()),
        serving: pair(&serving, "tls").zip(secret_text(&serving, "ca.crt")),
    })
}

fn secret_text(secret: &Value, key: &str) -> Option<String> {
    let data = BASE64_STANDARD.decode(secret["data"][key].as_str()?).ok()?;
    String::from_utf8(data).ok()
}

/// The certificates in a file, each with a newline at its end.
fn certificates(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = text.split_inclusive(END).filter(|part| part.ends_with(END));
    parts.map(|part| format!("{}\n", part.trim().replace("\r\n", "\n"))).collect()
}

fn secret(namespace: &str, name: &str, data: &BTreeMap<&str, &str>) -> Value {
    let data: BTreeMap<_, _> =
        data.iter().map(|(key, text)| (key, BASE64_STANDARD.encode(text))).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace, "labels": labels()},
        "data": data,
    })
}

fn signer_object(namespace: &str, kept: &StoredCertificates) -> Value {
    let mut data = BTreeMap::new();
    if let Some(pair) = &kept.current {
        data.extend([("tls.crt", pair.certificate.as_str()), ("tls.key", pair.key.as_str())]);
    }
    if let Some(pair) = &kept.next {
        data.extend([("next.crt", pair.certificate.as_str()), ("next.key", pair.key.as_str())]);
    }
    let mut object = secret(namespace, SERVER_CA, &data);
    object["metadata"]["annotations"] = json!({ROTATED_ANNOTATION: kept.rotated});
    object
}

fn serving_object(namespace: &str, pair: &PemKeyPair, signer: &str) -> Value {
    let data = [("tls.crt", pair.certificate.as_str()), ("tls.key", &pair.key), ("ca.crt", signer)];
    secret(namespace, SERVER_TLS, &data.into())
}

fn bundle_object(namespace: &str, bundle: &[String]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": SERVER_CA, "namespace": namespace, "labels": labels()},
        "data": {BUNDLE_KEY: bundle.concat()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_survives_reading_and_writing() {
        let all = ["b", "a"].map(|name| CertificateAuthority::generate(name).unwrap().certificate);
        let sorted: Vec<String> = certificates(&all.concat());
        assert_eq!(sorted, all.map(|one| format!("{}\n", one.trim().replace("\r\n", "\n"))));
        assert_eq!(certificates(&sorted.concat()), sorted);
        assert!(certificates("nonsense").is_empty());
    }

    #[test]
    fn an_unreadable_certificate_counts_as_missing() {
        let bad = PemKeyPair { certificate: "x".to_owned(), key: "y".to_owned() };
        let kept = StoredCertificates {
            current: Some(bad.clone()),
            serving: Some((bad, String::new())),
            ..StoredCertificates::default()
        };
        assert_eq!(kept.state(), CertificateState::default());
    }
}
