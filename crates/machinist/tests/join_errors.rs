//! What `machinist join` says of a server whose certificate does not fit: with an expired one, with one for later, and
//! with one for another name. Nothing is left on the machine. And what it says to a user who is not root.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    date_time_ymd,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, Stream};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    CertifiedIssuer::self_signed(params, key).unwrap()
}

/// A TLS server with a certificate for a name, valid between two years. Returns its address.
fn serve(authority: &Authority, name: &str, years: (i32, i32)) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(years.0, 1, 1);
    params.not_after = date_time_ymd(years.1, 1, 1);
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            // The client ends the handshake.
            let _ = Stream::new(&mut connection, &mut stream).read(&mut [0; 1024]);
        }
    });
    address
}

fn join(address: &str, ca: &Path, root: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(["join", "--server", &format!("https://{address}"), "--token", "a.b"]);
    command.args(["--node-name", "n", "--ca-file"]).arg(ca).arg("--root").arg(root);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_certificate_that_does_not_fit_is_named_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let (root, ca) = (directory.path().join("root"), directory.path().join("ca.crt"));
    fs::create_dir_all(root.join("etc")).unwrap();
    let authority = authority();
    fs::write(&ca, authority.pem()).unwrap();
    for (name, years, part) in [
        ("127.0.0.1", (2000, 2001), "compare `date -u` on both machines, and set the clock"),
        ("127.0.0.1", (3000, 3001), "compare `date -u` on both machines, and set the clock"),
        ("hub.example.com", (2000, 3000), "does not have this name: use a name or address"),
    ] {
        let address = serve(&authority, name, years);
        let error = join(&address, &ca, &root);
        let begin = format!("error: cannot join https://{address}: its certificate ");
        assert!(error.starts_with(&begin) && error.contains(part), "{name} {years:?}: {error}");
    }
    let left: Vec<_> =
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["etc"]);
    assert_eq!(fs::read_dir(root.join("etc")).unwrap().count(), 0);
}

/// An id that no user has.
const NOBODY: u32 = 65_534;

#[test]
fn a_user_who_is_not_root_sees_that_first() {
    let directory = tempfile::Builder::new().permissions(open_to_all()).tempdir().unwrap();
    // The directory of the build may be closed to others.
    let binary = directory.path().join("machinist");
    fs::copy(env!("CARGO_BIN_EXE_machinist"), &binary).unwrap();
    // Files that do not exist: the missing privilege comes first.
    let join = ["join", "--server", "https://hub:6443", "--token-file", "t", "--ca-file", "c"];
    for arguments in [join.as_slice(), &["leave"]] {
        let mut command = Command::new(&binary);
        command.args(arguments).current_dir(directory.path());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let name = arguments[0];
        let expected = format!(
            "error: only root can run machinist {name} on a machine: run it with sudo, or name a directory of your own with --root\n"
        );
        assert_eq!((output.status.code(), error.as_ref()), (Some(1), expected.as_str()));
    }
}

fn open_to_all() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}
