//! The CA and the certificates of the hub: created on the first start and renewed before they expire.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::jiff::Timestamp;
use machinist_hub::auth::ADMIN_GROUP;
use machinist_hub::auth::certificates::{
    CertificateAuthority, CertificateError, CertificateInfo, PemKeyPair,
};

use crate::data_dir::{DataDirectory, write_private};

/// All keys and certificates.
#[derive(Debug, Clone)]
pub struct Pki {
    /// The CA.
    pub ca: PemKeyPair,
    /// The certificate of the API server.
    pub server: PemKeyPair,
    /// The client certificate of the administrator.
    pub admin: PemKeyPair,
}

impl Pki {
    /// Reads the certificates, and creates those that are missing, lack a name, expire soon or do not fit the CA.
    ///
    /// # Errors
    /// A file cannot be read or written, or the CA is damaged or lost.
    pub fn open(directory: &DataDirectory, names: &[String]) -> Result<Self> {
        let ca = match stored_ca(directory)? {
            Some(pair) => pair,
            None => create_ca(directory)?,
        };
        let issuer = CertificateAuthority::from_pem(&ca).with_context(|| {
            format!(
                "the CA in {} is damaged: restore ca.crt and ca.key from a backup of this directory",
                directory.pki().display()
            )
        })?;
        let subject = CertificateInfo::parse(&ca.certificate)?.subject;
        let leaf = |name: &str, names: &[String], issue: &dyn Fn() -> IssuedPair| {
            let files = LeafFiles::new(directory, name);
            match files.read()? {
                Some(pair) if is_still_valid(&pair, &subject, names) => Ok(pair),
                _ => files.write(issue()?),
            }
        };
        let server = leaf("server", names, &|| issuer.issue_server("machinist", names))?;
        let admin = leaf("admin", &[], &|| issuer.issue_client("admin", ADMIN_GROUP))?;
        Ok(Self { ca, server, admin })
    }
}

type IssuedPair = Result<PemKeyPair, CertificateError>;

/// The CA of the data directory; `None` if there never was one.
///
/// Every machine and every administrator trusts this CA and no other, so a lost one is never replaced silently.
fn stored_ca(directory: &DataDirectory) -> Result<Option<PemKeyPair>> {
    let (certificate, key) = (directory.ca(), directory.pki().join("ca.key"));
    match (read_if_exists(&certificate)?, read_if_exists(&key)?) {
        (Some(certificate), Some(key)) => Ok(Some(PemKeyPair { certificate, key })),
        (found_certificate, found_key) => {
            // The CA is written before anything that it signs.
            let was_used = found_certificate.is_some()
                || directory.kubeconfig().exists()
                || LEAF_NAMES.iter().any(|name| LeafFiles::new(directory, name).exist());
            if !was_used {
                return Ok(None);
            }
            let missing = match (found_certificate, found_key) {
                (Some(_), None) => key.display().to_string(),
                (None, Some(_)) => certificate.display().to_string(),
                _ => format!("{} and {}", certificate.display(), key.display()),
            };
            bail!(
                "the CA of this hub is incomplete: {missing} is missing. Restore it from a backup of {}. \
                 To begin with a new CA, which every machine has to join again, remove that directory and {}",
                directory.pki().display(),
                directory.kubeconfig().display()
            )
        }
    }
}

/// Fails if there is no CA and machines have certificates of a lost one: with a new CA every one of them has to join
/// again, so it is made only on request.
///
/// # Errors
/// Then, with the two ways to proceed.
pub fn check_not_lost(directory: &DataDirectory, machines: &[String]) -> Result<()> {
    const SHOWN: usize = 3;
    // A key alone does not count: it is what a first start leaves that was interrupted, and would be replaced.
    if directory.ca().exists() || machines.is_empty() {
        return Ok(());
    }
    let mut names = machines[..machines.len().min(SHOWN)].join(", ");
    if machines.len() > SHOWN {
        names += ", …";
    }
    let count = match machines.len() {
        1 => "a machine has".to_owned(),
        count => format!("{count} machines have"),
    };
    bail!(
        "{} has no certificate of a CA, but {count} a certificate of the one that this hub had ({names}). \
         Copy the directory pki of the old hub to it, or restore a backup that was made with --include-pki into a fresh \
         directory. To begin with a new CA, add --new-ca: every machine then has to join again",
        directory.pki().display()
    )
}

/// The time in seconds since 1970.
pub(super) fn now_seconds() -> i64 {
    Timestamp::now().as_second()
}

/// Creates the CA. It is never renewed, so its two files stay apart: other tools read the certificate. A crash
/// between the two leaves a key that signed nothing, which the next start replaces.
fn create_ca(directory: &DataDirectory) -> Result<PemKeyPair> {
    let pair = CertificateAuthority::generate("machinist")?;
    write_private(&directory.pki().join("ca.key"), &pair.key)?;
    write_private(&directory.ca(), &pair.certificate)?;
    Ok(pair)
}

/// Whether a certificate belongs to its key and to the CA, has all names and does not expire soon.
fn is_still_valid(pair: &PemKeyPair, ca_subject: &str, names: &[String]) -> bool {
    let now = now_seconds();
    pair.verify().is_ok()
        && CertificateInfo::parse(&pair.certificate)
            .is_ok_and(|info| info.issuer == ca_subject && !info.needs_renewal(now, names))
}

/// The certificates that the CA signs for the hub itself.
const LEAF_NAMES: [&str; 2] = ["server", "admin"];

/// Where a renewable certificate and its key are: in one file, so that one rename renews both.
struct LeafFiles {
    both: PathBuf,
    /// Older versions wrote two files.
    certificate: PathBuf,
    key: PathBuf,
}

impl LeafFiles {
    fn new(directory: &DataDirectory, name: &str) -> Self {
        let path = |suffix: &str| directory.pki().join(format!("{name}.{suffix}"));
        Self { both: path("pem"), certificate: path("crt"), key: path("key") }
    }

    fn exist(&self) -> bool {
        [&self.both, &self.certificate, &self.key].into_iter().any(|path| path.exists())
    }

    /// The pair, if there is one. Whether its parts fit is checked by the caller.
    fn read(&self) -> Result<Option<PemKeyPair>> {
        if let Some(both) = read_if_exists(&self.both)? {
            return Ok(split_pem(&both));
        }
        let parts = (read_if_exists(&self.certificate)?, read_if_exists(&self.key)?);
        Ok(match parts {
            (Some(certificate), Some(key)) => Some(PemKeyPair { certificate, key }),
            _ => None,
        })
    }

    fn write(&self, pair: PemKeyPair) -> Result<PemKeyPair> {
        write_private(&self.both, &format!("{}{}", pair.certificate, pair.key))?;
        // Nothing reads them any more.
        for old in [&self.certificate, &self.key] {
            match fs::remove_file(old) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", old.display()));
                }
                _ => {}
            }
        }
        Ok(pair)
    }
}

/// Splits a file with a certificate and a key. A damaged file is no pair, and is written again.
fn split_pem(text: &str) -> Option<PemKeyPair> {
    let at = text.rfind("-----BEGIN ")?;
    let (certificate, key) = text.split_at(at);
    Some(PemKeyPair { certificate: certificate.to_owned(), key: key.to_owned() })
}

fn read_if_exists(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The addresses at which other machines may reach this host, and its name.
#[must_use]
pub fn host_names() -> Vec<String> {
    let mut names: Vec<String> = nix::ifaddrs::getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|one| reachable(&one))
        .collect();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // The certificate takes only names that a URL can have.
    let is_dns_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if !host.is_empty() && host.chars().all(is_dns_name) {
        names.push(host.to_ascii_lowercase());
    }
    names
}

/// The address of an interface, unless it is local to the host or to the link.
fn reachable(interface: &nix::ifaddrs::InterfaceAddress) -> Option<String> {
    let address = interface.address.as_ref()?;
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
    let v6 = || address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip()));
    let ip = v4.or_else(v6)?;
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    (!ip.is_loopback() && !ip.is_unspecified() && !is_link_local).then(|| ip.to_string())
}

/// The names in the certificate of the server: loopback, the listen address (or all of the host) and `--san`.
#[must_use]
pub fn names(address: SocketAddr, more: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(ToOwned::to_owned).to_vec();
    for name in ["kubernetes", "kubernetes.default", "kubernetes.default.svc"] {
        names.push(name.to_owned());
    }
    if !is_unspecified(address.ip()) {
        names.push(address.ip().to_string());
    } else {
        names.extend(host_names());
    }
    names.extend(more.iter().cloned());
    names.sort();
    names.dedup();
    names
}

/// Whether the address stands for all interfaces.
#[must_use]
pub fn is_unspecified(ip: IpAddr) -> bool {
    ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_kept_until_they_must_change() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDirectory::at(temporary.path().join("data"));
        directory.create().unwrap();
        let local: SocketAddr = "127.0.0.1:6443".parse().unwrap();
        let first = Pki::open(&directory, &names(local, &[])).unwrap();
        let again = Pki::open(&directory, &names(local, &[])).unwrap();
        assert_eq!(first.ca.certificate, again.ca.certificate);
        assert_eq!(first.server.certificate, again.server.certificate);
        let more = Pki::open(&directory, &names(local, &["hub.example.com".into()])).unwrap();
        assert_eq!(first.ca.certificate, more.ca.certificate);
        assert_ne!(first.server.certificate, more.server.certificate);
        assert_eq!(first.admin.certificate, more.admin.certificate);
    }

    fn opened(temporary: &tempfile::TempDir) -> (DataDirectory, Pki) {
        let directory = DataDirectory::at(temporary.path().join("data"));
        directory.create().unwrap();
        let pki = Pki::open(&directory, &["localhost".to_owned()]).unwrap();
        (directory, pki)
    }

    fn reopen(directory: &DataDirectory) -> Result<Pki> {
        Pki::open(directory, &["localhost".to_owned()])
    }

    /// Older versions renewed a certificate with two renames.
    #[test]
    fn a_renewal_that_a_crash_interrupted_is_repeated() {
        let temporary = tempfile::tempdir().unwrap();
        let (directory, pki) = opened(&temporary);
        let at = |name: &str| directory.pki().join(name);
        // The old layout is read.
        fs::remove_file(at("server.pem")).unwrap();
        write_private(&at("server.crt"), &pki.server.certificate).unwrap();
        write_private(&at("server.key"), &pki.server.key).unwrap();
        assert_eq!(reopen(&directory).unwrap().server.certificate, pki.server.certificate);
        // A new key, and the old certificate.
        write_private(&at("server.key"), &pki.admin.key).unwrap();
        let renewed = reopen(&directory).unwrap();
        renewed.server.verify().unwrap();
        assert_ne!(renewed.server.certificate, pki.server.certificate);
        assert!(!at("server.key").exists() && !at("server.crt").exists());
        // A damaged file.
        fs::write(at("server.pem"), &renewed.server.certificate[..20]).unwrap();
        reopen(&directory).unwrap().server.verify().unwrap();
    }

    #[test]
    fn certificates_of_another_ca_are_issued_again() {
        let temporary = tempfile::tempdir().unwrap();
        let (directory, pki) = opened(&temporary);
        let other = CertificateAuthority::generate("machinist").unwrap();
        write_private(&directory.ca(), &other.certificate).unwrap();
        write_private(&directory.pki().join("ca.key"), &other.key).unwrap();
        let restored = reopen(&directory).unwrap();
        assert_ne!(restored.server.certificate, pki.server.certificate);
        assert_ne!(restored.admin.certificate, pki.admin.certificate);
    }

    #[test]
    fn a_lost_ca_is_an_error_and_is_not_replaced() {
        let lose: [(&[&str], &str); 3] = [
            (&["ca.key"], "ca.key is missing"),
            (&["ca.crt"], "ca.crt is missing"),
            (&["ca.crt", "ca.key"], "ca.key is missing"),
        ];
        for (names, message) in lose {
            let temporary = tempfile::tempdir().unwrap();
            let (directory, _) = opened(&temporary);
            for name in names {
                fs::remove_file(directory.pki().join(name)).unwrap();
            }
            let error = format!("{:#}", reopen(&directory).unwrap_err());
            assert!(error.contains(message) && error.contains("from a backup"), "{error}");
            assert!(names.iter().all(|name| !directory.pki().join(name).exists()));
        }
        // A key of another CA.
        let temporary = tempfile::tempdir().unwrap();
        let (directory, _) = opened(&temporary);
        let other = CertificateAuthority::generate("machinist").unwrap();
        write_private(&directory.pki().join("ca.key"), &other.key).unwrap();
        let error = format!("{:#}", reopen(&directory).unwrap_err());
        assert!(error.contains("damaged") && error.contains("restore"), "{error}");
    }

    #[test]
    fn a_lost_ca_of_machines_is_replaced_only_on_request() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDirectory::at(temporary.path().join("data"));
        let machines: Vec<String> = (1..=5).map(|n| format!("w{n}")).collect();
        check_not_lost(&directory, &[]).unwrap();
        let error = check_not_lost(&directory, &machines).unwrap_err().to_string();
        for part in ["5 machines", "w1, w2, w3, …", "--include-pki", "--new-ca"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let (directory, _) = opened(&temporary);
        check_not_lost(&directory, &machines).unwrap();
        fs::remove_file(directory.ca()).unwrap();
        check_not_lost(&directory, &machines).unwrap_err();
    }

    #[test]
    fn a_first_start_that_a_crash_interrupted_is_repeated() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDirectory::at(temporary.path().join("data"));
        directory.create().unwrap();
        // The key is written first; it signed nothing.
        write_private(&directory.pki().join("ca.key"), "half").unwrap();
        reopen(&directory).unwrap();
    }

    #[test]
    fn the_server_has_the_address_it_listens_on() {
        let found = names("10.0.0.5:1".parse().unwrap(), &[]);
        assert!(found.contains(&"10.0.0.5".to_owned()));
        let found = names("0.0.0.0:1".parse().unwrap(), &["a".into()]);
        assert!(!found.contains(&"0.0.0.0".to_owned()) && found.contains(&"a".to_owned()));
        // A host may have the loopback interface only; whatever else it has is in the certificate.
        for name in host_names() {
            assert!(found.contains(&name), "{name}");
            let ip: Option<IpAddr> = name.parse().ok();
            assert!(ip.is_none_or(|ip| !ip.is_loopback() && !ip.is_unspecified()), "{name}");
        }
    }
}
