//! The certificates in a ControllerConfig, with names and validity, for its status.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use x509_parser::prelude::{ASN1Time, AttributeTypeAndValue, Pem, X509Name};

use crate::api::{ControllerCertificate, ControllerConfigSpec};

/// The attributes that Go knows, in output order: OID, short name, and whether it occurs only once.
const KNOWN: [(&str, &str, bool); 9] = [
    ("2.5.4.5", "SERIALNUMBER", true),
    ("2.5.4.3", "CN", true),
    ("2.5.4.11", "OU", false),
    ("2.5.4.10", "O", false),
    ("2.5.4.17", "POSTALCODE", false),
    ("2.5.4.9", "STREET", false),
    ("2.5.4.7", "L", false),
    ("2.5.4.8", "ST", false),
    ("2.5.4.6", "C", false),
];

/// All certificates of all bundles. An unreadable one ends its bundle, as in MCO.
#[must_use]
pub fn certificates(spec: &ControllerConfigSpec) -> Vec<ControllerCertificate> {
    let bundles = [
        ("KubeAPIServerServingCAData", spec.kube_api_server_serving_ca_data.as_ref()),
        ("CloudProviderCAData", spec.cloud_provider_ca_data.as_ref()),
        ("RootCAData", spec.root_ca_data.as_ref()),
        ("AdditionalTrustBundle", spec.additional_trust_bundle.as_ref()),
    ];
    let bundles = bundles.into_iter().filter_map(|(name, data)| Some((name, data?)));
    let registries = [&spec.image_registry_bundle_data, &spec.image_registry_bundle_user_data];
    let registries = registries.into_iter().flatten().flatten();
    let registries = registries.map(|bundle| (bundle.file.as_str(), &bundle.data));
    bundles.chain(registries).flat_map(|(name, data)| in_bundle(name, data)).collect()
}

fn in_bundle(name: &str, data: &ByteString) -> Vec<ControllerCertificate> {
    let blocks = Pem::iter_from_buffer(&data.0);
    let read = |block: Result<Pem, _>| {
        let block = block.ok()?;
        let certificate = block.parse_x509().ok()?;
        let valid = certificate.validity();
        Some(ControllerCertificate {
            subject: shown(certificate.subject()),
            signer: shown(certificate.issuer()),
            not_before: time(valid.not_before),
            not_after: time(valid.not_after),
            bundle_file: name.to_owned(),
            ..ControllerCertificate::default()
        })
    };
    blocks.map_while(read).collect()
}

fn time(time: ASN1Time) -> Option<Time> {
    Timestamp::from_second(time.timestamp()).ok().map(Time)
}

/// Formats a name like Go's `pkix.Name`.
fn shown(name: &X509Name<'_>) -> String {
    let all: Vec<&AttributeTypeAndValue<'_>> = name.iter_attributes().collect();
    let of = |number: &str| {
        let same = all.iter().filter(|it| it.attr_type().to_id_string() == number);
        same.map(|it| value(it)).collect::<Vec<_>>()
    };
    let known = KNOWN.iter().filter_map(|(number, title, is_single)| {
        let mut values = of(number);
        if *is_single {
            values.drain(..values.len().saturating_sub(1));
            values.retain(|value| !value.is_empty());
        }
        let parts = values.iter().map(|value| format!("{title}={}", escaped(value)));
        (!values.is_empty()).then(|| parts.collect::<Vec<_>>().join("+"))
    });
    let is_known = |it: &&&AttributeTypeAndValue<'_>| {
        let number = it.attr_type().to_id_string();
        KNOWN.iter().any(|(known, ..)| *known == number)
    };
    let others = all.iter().rev().filter(|it| !is_known(it)).map(|it| {
        let bytes = crate::hex::hex(&encoded(&value(it)));
        format!("{}=#{bytes}", it.attr_type().to_id_string())
    });
    known.chain(others).collect::<Vec<_>>().join(",")
}

fn value(attribute: &AttributeTypeAndValue<'_>) -> String {
    attribute.as_str().map_or_else(
        |_| String::from_utf8_lossy(attribute.attr_value().data).into_owned(),
        str::to_owned,
    )
}

fn escaped(value: &str) -> String {
    let last = value.len().saturating_sub(1);
    let mut text = String::with_capacity(value.len());
    for (at, letter) in value.char_indices() {
        let is_special = match letter {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => true,
            ' ' => at == 0 || at == last,
            '#' => at == 0,
            _ => false,
        };
        if is_special {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

/// Encodes a value of unknown type like Go: as PrintableString if possible, else as UTF8String.
fn encoded(value: &str) -> Vec<u8> {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    let mut bytes = vec![if value.bytes().all(is_printable) { 0x13 } else { 0x0c }];
    let length = value.len().to_be_bytes();
    match u8::try_from(value.len()) {
        Ok(short @ 0..=127) => bytes.push(short),
        _ => {
            let from = length.iter().position(|byte| *byte != 0).unwrap_or_default();
            let long = &length[from..];
            bytes.push(0x80 | u8::try_from(long.len()).unwrap_or_default());
            bytes.extend_from_slice(long);
        }
    }
    bytes.extend_from_slice(value.as_bytes());
    bytes
}
