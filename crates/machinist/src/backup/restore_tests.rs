//! Restores: interrupted anywhere, with damaged files and wrong keys.
use std::os::unix::fs::PermissionsExt as _;

use age::secrecy::SecretString;
use age::x25519;
use machinist_hub::auth::certificates::CertificateAuthority;
use machinist_hub::store::{Precondition, StoreOp, StoreOptions};
use proptest::prelude::*;

use super::*;
use crate::backup::encryption::Encryption;

/// The backup of a store with a few objects.
fn store_backup(values: usize) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::in_memory(StoreOptions::default());
        for n in 0..values {
            let value =
                format!("{{\"metadata\":{{\"name\":\"{n}\"}},\"data\":\"{}\"}}", "x".repeat(n));
            let put = StoreOp::Put {
                key: format!("/core/secrets/a/{n:05}"),
                value: value.into(),
                expect: Precondition::Any,
            };
            store.commit(vec![put]).await.unwrap();
        }
        let mut bytes = Vec::new();
        store.backup(&mut bytes).await.unwrap();
        bytes
    })
}

struct Fixture {
    directory: tempfile::TempDir,
    identity: x25519::Identity,
    ca: PemKeyPair,
}

impl Fixture {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            identity: x25519::Identity::generate(),
            ca: CertificateAuthority::generate("machinist").unwrap(),
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("hub.backup")
    }

    fn write(&self, encryption: &Encryption, ca: Option<&PemKeyPair>, values: usize) {
        let backup = store_backup(values);
        let written = file::write(&self.file(), &mut &backup[..], ca, encryption).unwrap();
        assert_eq!(written.bytes, fs::metadata(self.file()).unwrap().len());
        assert_eq!(written.verified.contents.objects, values);
    }

    fn recipients(&self) -> Encryption {
        Encryption::Recipients(vec![self.identity.to_public()])
    }

    fn keys(&self) -> DecryptionKeys {
        DecryptionKeys::Identities(vec![self.identity.clone()])
    }

    fn data(&self, name: &str) -> DataDirectory {
        DataDirectory::at(self.directory.path().join(name))
    }

    /// The error of a restore into a new directory, which must not get a store or a CA.
    fn error(&self, keys: &DecryptionKeys) -> String {
        let data = self.data("refused");
        let error = format!("{:#}", restore(&self.file(), keys, &data).unwrap_err());
        assert!(!data.path().exists(), "{error}");
        error
    }
}

fn objects(data: &DataDirectory) -> usize {
    machinist_hub::check_data(&data.store()).unwrap().objects
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn every_kind_of_backup_is_restored() {
    let fixture = Fixture::new();
    let secret = SecretString::from("correct horse".to_owned());
    let table = [
        ("plain", Encryption::None, DecryptionKeys::None, None),
        ("recipient", fixture.recipients(), fixture.keys(), None),
        ("with the CA", fixture.recipients(), fixture.keys(), Some(&fixture.ca)),
        (
            "passphrase",
            Encryption::Passphrase(secret.clone()),
            DecryptionKeys::Passphrase(secret),
            Some(&fixture.ca),
        ),
    ];
    for (name, encryption, keys, ca) in table {
        // More than one chunk of the encrypted stream.
        fixture.write(&encryption, ca, 500);
        assert_eq!(mode(&fixture.file()), 0o600, "{name}");
        let data = fixture.data(name);
        let restored = restore(&fixture.file(), &keys, &data).unwrap();
        assert_eq!((restored.objects, restored.has_ca), (500, ca.is_some()), "{name}");
        assert_eq!(objects(&data), 500, "{name}");
        check_complete(&data).unwrap();
        if let Some(ca) = ca {
            assert_eq!(fs::read_to_string(data.ca()).unwrap(), ca.certificate, "{name}");
            assert_eq!(fs::read_to_string(data.ca_key()).unwrap(), ca.key, "{name}");
            assert_eq!(
                (mode(&data.pki()), mode(&data.ca_key()), mode(&data.ca())),
                (0o700, 0o600, 0o600)
            );
        }
        let error = format!("{:#}", restore(&fixture.file(), &keys, &data).unwrap_err());
        assert!(error.contains("contains a store"), "{name}: {error}");
    }
}

/// Every prefix of the steps is a state that a hub refuses and that the next restore completes.
#[test]
fn an_interrupted_restore_is_repeated() {
    let fixture = Fixture::new();
    fixture.write(&fixture.recipients(), Some(&fixture.ca), 5);
    let (path, keys) = (fixture.file(), fixture.keys());
    for count in 0..STEPS.len() {
        let data = fixture.data(&count.to_string());
        let pending = PendingRestore {
            path: &path,
            keys: &keys,
            directory: &data,
            ca: Some(fixture.ca.clone()),
        };
        let marker = pending.lock_marker().unwrap();
        let second = format!("{:#}", restore(&path, &keys, &data).unwrap_err());
        assert!(second.contains("another process restores"), "{second}");
        for step in &STEPS[..count] {
            pending.perform(*step).unwrap();
        }
        drop(marker);
        let error = check_complete(&data).unwrap_err().to_string();
        assert!(error.contains("machinist hub restore again"), "{error}");
        let restored = restore(&path, &keys, &data).unwrap();
        assert!(restored.has_ca && objects(&data) == 5, "after {count} steps");
        check_complete(&data).unwrap();
    }
}

#[test]
fn another_ca_is_not_overwritten() {
    let fixture = Fixture::new();
    fixture.write(&fixture.recipients(), Some(&fixture.ca), 1);
    let data = fixture.data("data");
    data.create().unwrap();
    write_private(&data.ca_key(), "another key").unwrap();
    let error = format!("{:#}", restore(&fixture.file(), &fixture.keys(), &data).unwrap_err());
    assert!(error.contains("ca.key belongs to another CA"), "{error}");
    assert_eq!(fs::read_to_string(data.ca_key()).unwrap(), "another key");
    assert!(!data.store().exists() && !data.restore_marker().exists());
}

#[test]
fn wrong_keys_are_named() {
    let fixture = Fixture::new();
    let other = DecryptionKeys::Identities(vec![x25519::Identity::generate()]);
    let passphrase = |text: &str| SecretString::from(text.to_owned());
    fixture.write(&fixture.recipients(), None, 1);
    assert!(fixture.error(&other).contains("not encrypted to any key in the identity file"));
    assert!(fixture.error(&DecryptionKeys::None).contains("--identity-file"));
    let error = fixture.error(&DecryptionKeys::Passphrase(passphrase("x")));
    assert!(error.contains("use --identity-file"), "{error}");

    fixture.write(&Encryption::Passphrase(passphrase("right")), None, 1);
    let error = fixture.error(&DecryptionKeys::Passphrase(passphrase("wrong")));
    assert!(error.contains("the passphrase is wrong"), "{error}");
    assert!(fixture.error(&other).contains("use --passphrase-file"));

    fixture.write(&Encryption::None, None, 1);
    assert!(fixture.error(&other).contains("is not encrypted"));
    fs::write(fixture.file(), "-----BEGIN AGE ENCRYPTED FILE-----\n").unwrap();
    assert!(fixture.error(&other).contains("age --decrypt"));
}

/// A hostile file must not cost hours or gigabytes.
#[test]
fn hostile_headers_are_refused() {
    let fixture = Fixture::new();
    let keys = DecryptionKeys::Passphrase(SecretString::from("x".to_owned()));
    let header = |work: &str| {
        let body = "A".repeat(43);
        format!(
            "age-encryption.org/v1\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA {work}\n{body}\n--- {body}\n"
        )
    };
    fs::write(fixture.file(), header("40") + &"x".repeat(100)).unwrap();
    let error = fixture.error(&keys);
    assert!(error.contains("2^40 steps") && error.contains("2^20"), "{error}");
    fs::write(fixture.file(), header("64") + &"x".repeat(100)).unwrap();
    fixture.error(&keys);
    let long = format!("age-encryption.org/v1\n{}", "-> X25519 a\n\n".repeat(1 << 18));
    fs::write(fixture.file(), long).unwrap();
    assert!(fixture.error(&fixture.keys()).contains("longer than 65536 bytes"));
    // A length that promises gigabytes.
    let backup = [b"machinist-pki-v1".as_slice(), &u32::MAX.to_le_bytes()].concat();
    fs::write(fixture.file(), backup).unwrap();
    assert!(fixture.error(&DecryptionKeys::None).contains("too large"));
    let backup = [b"machinist-backup".as_slice(), &1u32.to_le_bytes(), &[0xff; 20]].concat();
    fs::write(fixture.file(), backup).unwrap();
    assert!(fixture.error(&DecryptionKeys::None).contains("damaged"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever is cut off, changed or added: nothing is restored, and nothing is left.
    #[test]
    fn a_damaged_backup_is_never_restored(
        encrypted in any::<bool>(),
        with_ca in any::<bool>(),
        place in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
        damage in 0..3u8,
    ) {
        let fixture = Fixture::new();
        let encryption = if encrypted { fixture.recipients() } else { Encryption::None };
        let keys = if encrypted { fixture.keys() } else { DecryptionKeys::None };
        fixture.write(&encryption, with_ca.then_some(&fixture.ca), 4);
        let mut bytes = fs::read(fixture.file()).unwrap();
        match damage {
            0 => bytes.truncate(place.index(bytes.len())),
            1 => {
                let place = place.index(bytes.len());
                bytes[place] ^= flip;
            }
            _ => bytes.push(flip),
        }
        fs::write(fixture.file(), bytes).unwrap();
        fixture.error(&keys);
    }
}
