//! The hub's CA: issues server and client certificates and reads the user from a client
//! certificate.
//!
//! Decides nothing about trust: `server::tls` verifies chains and [`super::csr`] decides what is
//! signed.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use sha2::Digest as _;
use time::{Duration, OffsetDateTime};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::X509Name;

use super::UserInfo;
use crate::hex;
use crate::random::{self, RandomError};

/// Validity of a CA certificate.
const CA_DAYS: i64 = 3650;
/// Validity of server and user certificates.
const LEAF_DAYS: i64 = 365;
/// Tolerated clock skew of other machines: certificates are valid from this long before they are issued.
pub const CLOCK_SKEW_SECONDS: i64 = 300;
const CLOCK_SKEW: Duration = Duration::seconds(CLOCK_SKEW_SECONDS);

/// Why a certificate cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The certificate cannot be made.
    #[error("cannot make a certificate")]
    Generate(#[from] rcgen::Error),
    /// There are no random bytes for it.
    #[error("cannot make a certificate")]
    Random(#[from] RandomError),
    /// A key does not belong to its certificate.
    #[error("the key does not belong to the certificate")]
    Mismatch,
    /// A certificate or CSR cannot be parsed.
    #[error("cannot parse the {what}: {reason}")]
    Parse {
        /// What was expected.
        what: &'static str,
        /// Why parsing failed.
        reason: String,
    },
}

/// A certificate and its key, both as PEM.
#[derive(Clone)]
pub struct PemKeyPair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl PemKeyPair {
    /// Checks that the key belongs to the certificate.
    ///
    /// # Errors
    /// One of them is damaged, or they do not belong together.
    pub fn verify(&self) -> Result<(), CertificateError> {
        let key = KeyPair::from_pem(&self.key)?;
        let (_, der) = x509_parser::pem::parse_x509_pem(self.certificate.as_bytes())
            .map_err(|error| parse_error("certificate", &error))?;
        let certificate = der.parse_x509().map_err(|error| parse_error("certificate", &error))?;
        match certificate.public_key().subject_public_key.data == key.public_key_raw() {
            true => Ok(()),
            false => Err(CertificateError::Mismatch),
        }
    }
}

impl std::fmt::Debug for PemKeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemKeyPair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A certificate authority.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Generates a CA. A random suffix makes its name unique among hubs, and different from that of
    /// every server: clients would take such a server certificate for a self-signed one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn generate(name: &str) -> Result<PemKeyPair, CertificateError> {
        let key = KeyPair::generate()?;
        let suffix = u32::from_be_bytes(random::bytes()?);
        let name = format!("{name}-ca-{suffix:08x}");
        let mut params = certificate_params(&name, None, CA_DAYS)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Ok(PemKeyPair { certificate, key: key.serialize_pem() })
    }

    /// Loads a CA.
    ///
    /// # Errors
    /// The PEM cannot be parsed, or the key does not belong to the certificate.
    pub fn from_pem(pair: &PemKeyPair) -> Result<Self, CertificateError> {
        pair.verify()?;
        let key = KeyPair::from_pem(&pair.key)?;
        let issuer = Issuer::from_ca_cert_pem(&pair.certificate, key)?;
        Ok(Self { issuer, certificate: pair.certificate.clone() })
    }

    /// The CA certificate as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a server certificate.
    ///
    /// # Errors
    /// A name is not valid in a certificate.
    pub fn issue_server(
        &self,
        name: &str,
        sans: &[String],
    ) -> Result<PemKeyPair, CertificateError> {
        let mut params = certificate_params(name, None, LEAF_DAYS)?;
        params.subject_alt_names = CertificateParams::new(sans.to_vec())?.subject_alt_names;
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Issues a client certificate for a user in one group.
    ///
    /// # Errors
    /// A name is not valid in a certificate.
    pub fn issue_client(&self, user: &str, group: &str) -> Result<PemKeyPair, CertificateError> {
        let params = certificate_params(user, Some(group), LEAF_DAYS)?;
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<PemKeyPair, CertificateError> {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(PemKeyPair { certificate, key: key.serialize_pem() })
    }

    /// Signs bytes with ES256, as JSON web tokens have it: the two numbers side by side.
    ///
    /// # Errors
    /// The key is not one for ES256.
    pub fn sign_es256(&self, message: &[u8]) -> Result<[u8; 64], CertificateError> {
        use rcgen::SigningKey as _;
        let key = self.issuer.key();
        let wrong = || parse_error("signature", &"the key of the CA is not on the curve P-256");
        if key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(wrong());
        }
        fixed_signature(&key.sign(message)?).ok_or_else(wrong)
    }

    /// Whether a signature is the one of [`CertificateAuthority::sign_es256`] for these bytes.
    #[must_use]
    pub fn verify_es256(&self, message: &[u8], signature: &[u8]) -> bool {
        use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
        let key = self.issuer.key().public_key_raw();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature).is_ok()
    }

    /// Signs a CSR for a client certificate with its key, user and first group.
    ///
    /// # Errors
    /// A name is not valid in a certificate.
    pub fn sign_request(
        &self,
        request: &SigningRequest,
        seconds: i64,
    ) -> Result<String, CertificateError> {
        let mut params =
            certificate_params(&request.user, request.groups.first().map(String::as_str), 0)?;
        params.not_after = OffsetDateTime::now_utc() + Duration::seconds(seconds);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params.signed_by(&request.key, &self.issuer)?.pem())
    }
}

/// The two numbers of an ASN.1 signature on P-256, in 32 bytes each.
fn fixed_signature(der: &[u8]) -> Option<[u8; 64]> {
    let mut rest = der.strip_prefix(&[0x30, u8::try_from(der.len()).ok()?.checked_sub(2)?])?;
    let mut fixed = [0; 64];
    for half in fixed.chunks_exact_mut(32) {
        let (length, tail) = rest.strip_prefix(&[0x02])?.split_first()?;
        let (number, tail) = tail.split_at_checked(usize::from(*length))?;
        let number = number.strip_prefix(&[0]).unwrap_or(number);
        let start = 32_usize.checked_sub(number.len())?;
        half.get_mut(start..)?.copy_from_slice(number);
        rest = tail;
    }
    rest.is_empty().then_some(fixed)
}

/// rcgen writes at most one organization, so a subject has at most one group.
fn certificate_params(
    user: &str,
    group: Option<&str>,
    days: i64,
) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(Vec::new())?;
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, user);
    params.distinguished_name = subject;
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + Duration::days(days);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(random_serial()?);
    Ok(params)
}

/// Returns a random serial number: positive and without leading zero bytes, as DER demands.
fn random_serial() -> Result<SerialNumber, RandomError> {
    let mut bytes = random::bytes::<16>()?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Generates a key and a CSR for a client certificate. Returns both as PEM.
///
/// # Errors
/// The system gives no random bytes.
pub fn generate_csr(user: &str, group: &str) -> Result<(String, String), CertificateError> {
    let mut request = CertificateParams::new(Vec::new())?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, group);
    subject.push(DnType::CommonName, user);
    request.distinguished_name = subject;
    let key = KeyPair::generate()?;
    let pem = request.serialize_request(&key)?.pem()?;
    Ok((key.serialize_pem(), pem))
}

/// A CSR with a verified signature.
#[derive(Debug)]
pub struct SigningRequest {
    /// The requested user.
    pub user: String,
    /// The requested groups.
    pub groups: Vec<String>,
    /// Whether it requests alternative names or a CA certificate.
    pub has_forbidden_extensions: bool,
    key: rcgen::PublicKey,
}

impl SigningRequest {
    /// Parses a CSR and verifies its signature.
    ///
    /// # Errors
    /// It is not PEM, not a CSR, or its signature is wrong.
    pub fn parse(pem: &str) -> Result<Self, CertificateError> {
        let read = CertificateSigningRequestParams::from_pem(pem)?;
        let der = x509_parser::pem::parse_x509_pem(pem.as_bytes())
            .map_err(|error| parse_error("signing request", &error))?
            .1;
        let (_, parsed) = X509CertificationRequest::from_der(&der.contents)
            .map_err(|error| parse_error("signing request", &error))?;
        let (user, groups) = parse_subject(&parsed.certification_request_info.subject);
        let wants_more = !read.params.subject_alt_names.is_empty()
            || !matches!(read.params.is_ca, IsCa::NoCa | IsCa::ExplicitNoCa);
        Ok(Self { user, groups, has_forbidden_extensions: wants_more, key: read.public_key })
    }

    /// The first half of the public key's SHA-256, in hex. Identifies the key.
    #[must_use]
    pub fn key_hash(&self) -> String {
        let hash = sha2::Sha256::digest(rcgen::PublicKeyData::der_bytes(&self.key));
        hex::encode(&hash[..hash.len() / 2])
    }
}

fn parse_error(what: &'static str, error: &impl ToString) -> CertificateError {
    CertificateError::Parse { what, reason: error.to_string() }
}

fn parse_subject(name: &X509Name<'_>) -> (String, Vec<String>) {
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().unwrap_or_default().to_owned()
    };
    let user = name.iter_common_name().map(text).next().unwrap_or_default();
    (user, name.iter_organization().map(text).collect())
}

/// The subject and the validity of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The user.
    pub user: UserInfo,
    /// Seconds since 1970.
    pub not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
}

impl ClientCertificate {
    /// Reads a client certificate from PEM. Verifies nothing.
    ///
    /// # Errors
    /// It is not a certificate.
    pub fn from_pem(pem: &str) -> Result<Self, CertificateError> {
        let (_, der) = x509_parser::pem::parse_x509_pem(pem.as_bytes())
            .map_err(|error| parse_error("certificate", &error))?;
        Self::from_der(&der.contents)
    }

    /// Reads a client certificate. The caller has verified it.
    ///
    /// # Errors
    /// It is not a certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|error| parse_error("certificate", &error))?;
        let (user, groups) = parse_subject(certificate.subject());
        Ok(Self {
            user: UserInfo::new(user, groups),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
        })
    }
}

/// The names and validity of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The subject of its issuer.
    pub issuer: String,
    /// Its own subject.
    pub subject: String,
    /// Subject alternative names, sorted.
    pub sans: Vec<String>,
    /// Seconds since 1970.
    pub not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
}

impl CertificateInfo {
    /// Parses a certificate.
    ///
    /// # Errors
    /// It is not a certificate.
    pub fn parse(pem: &str) -> Result<Self, CertificateError> {
        use x509_parser::extensions::GeneralName;
        let (_, der) = x509_parser::pem::parse_x509_pem(pem.as_bytes())
            .map_err(|error| parse_error("certificate", &error))?;
        let certificate = der.parse_x509().map_err(|error| parse_error("certificate", &error))?;
        let names = certificate.subject_alternative_name().ok().flatten();
        let mut sans: Vec<String> = names
            .into_iter()
            .flat_map(|extension| &extension.value.general_names)
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                GeneralName::IPAddress(bytes) => format_ip(bytes),
                _ => None,
            })
            .collect();
        sans.sort();
        Ok(Self {
            issuer: certificate.issuer().to_string(),
            subject: certificate.subject().to_string(),
            sans,
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
        })
    }

    /// Whether it must be reissued: less than a third of its validity is left, it is not valid yet because the clock
    /// was ahead when it was issued, or a name is missing.
    #[must_use]
    pub fn needs_renewal(&self, now: i64, wanted: &[String]) -> bool {
        let left = self.not_after - now;
        let whole = self.not_after - self.not_before;
        left * 3 < whole
            || now < self.not_before
            || wanted.iter().any(|name| !self.sans.contains(name))
    }
}

fn format_ip(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    let six = <[u8; 16]>::try_from(bytes).ok()?;
    Some(std::net::Ipv6Addr::from(six).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_certificate_names_its_user() {
        let ca = CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap())
            .unwrap();
        let pair = ca.issue_client("system:node:a", "system:nodes").unwrap();
        let (_, der) = x509_parser::pem::parse_x509_pem(pair.certificate.as_bytes()).unwrap();
        let found = ClientCertificate::from_der(&der.contents).unwrap();
        assert_eq!(found.user, UserInfo::node("a"));
        assert!(found.not_before < found.not_after);
    }

    #[test]
    fn a_key_must_belong_to_its_certificate() {
        let [one, other] =
            ["one", "other"].map(|name| CertificateAuthority::generate(name).unwrap());
        one.verify().unwrap();
        let mixed = PemKeyPair { certificate: one.certificate, key: other.key };
        assert!(matches!(mixed.verify(), Err(CertificateError::Mismatch)));
        assert!(CertificateAuthority::from_pem(&mixed).is_err());
        assert!(PemKeyPair { key: String::new(), ..mixed }.verify().is_err());
    }

    #[test]
    fn a_request_is_signed_with_its_subject_only() {
        let ca = CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap())
            .unwrap();
        let (_, pem) = generate_csr("system:node:a", "system:nodes").unwrap();
        let request = SigningRequest::parse(&pem).unwrap();
        assert_eq!(
            (request.user.as_str(), request.has_forbidden_extensions),
            ("system:node:a", false)
        );
        let signed = ca.sign_request(&request, 3600).unwrap();
        let validity = CertificateInfo::parse(&signed).unwrap();
        assert!(!validity.needs_renewal(validity.not_before + 600, &[]));
        assert!(SigningRequest::parse("nonsense").is_err());
    }

    #[test]
    fn a_server_certificate_is_reissued_for_names_and_age() {
        let ca = CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap())
            .unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let validity =
            CertificateInfo::parse(&ca.issue_server("hub", &names).unwrap().certificate).unwrap();
        let early = validity.not_before + 10;
        assert!(!validity.needs_renewal(early, &names));
        assert!(validity.needs_renewal(early, &["other".to_owned()]));
        assert!(validity.needs_renewal(validity.not_before - 10, &names));
        assert!(validity.needs_renewal(validity.not_after - 10, &names));
    }
}
