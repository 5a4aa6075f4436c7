//! Encryption of backups in the `age` format: to X25519 recipients, or with a passphrase.
//!
//! Every limit of a hostile file is here: the size of its header and the work that its passphrase costs.
//! `docs/design/0010-backups.md` says why `age`.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, Write};
use std::path::{Path, PathBuf};

use age::secrecy::SecretString;
use age::stream::StreamWriter;
use age::{DecryptError, Decryptor, Encryptor, scrypt, x25519};
use anyhow::{Context as _, Result, anyhow, bail, ensure};

/// The first line of an encrypted file.
pub(crate) const AGE_MAGIC: &[u8] = b"age-encryption.org/v1\n";
/// The first bytes of an encrypted file as text.
pub(crate) const ARMOR_MAGIC: &[u8] = b"-----BEGIN AGE ENCRYPTED FILE-----";
/// The scrypt work factor of new files: 2^18, which is about a second and 256 MiB, as the tool `age` has it.
const WORK_FACTOR: u8 = 18;
/// The largest work factor that is accepted: 2^20, which is a few seconds and 1 GiB.
const MAX_WORK_FACTOR: u8 = 20;
/// The most bytes of a header: enough for 500 recipients.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// The most bytes of a file with keys or a passphrase.
const MAX_KEY_FILE_BYTES: u64 = 1 << 20;

/// How a backup is encrypted.
#[derive(Clone, Default)]
pub(crate) enum Encryption {
    /// Not at all.
    #[default]
    None,
    /// To these recipients; each of them can decrypt it.
    Recipients(Vec<x25519::Recipient>),
    /// With a passphrase.
    Passphrase(SecretString),
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Recipients(_) => "Recipients",
            Self::Passphrase(_) => "Passphrase",
        })
    }
}

impl Encryption {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Starts an encrypted stream. Also returns what decrypts it, to verify what was written: to recipients, whose keys
    /// are not here, that is one more key which is never stored.
    pub(crate) fn encrypt<W: Write>(&self, to: W) -> io::Result<(BackupWriter<W>, DecryptionKeys)> {
        let (encryptor, keys) = match self {
            Self::None => return Ok((BackupWriter::Plain(to), DecryptionKeys::None)),
            Self::Recipients(recipients) => {
                let own = x25519::Identity::generate();
                let own_recipient = own.to_public();
                let all = recipients.iter().chain([&own_recipient]);
                let all = all.map(|recipient| recipient as &dyn age::Recipient);
                (Encryptor::with_recipients(all), DecryptionKeys::Identities(vec![own]))
            }
            Self::Passphrase(passphrase) => {
                let mut recipient = scrypt::Recipient::new(passphrase.clone());
                recipient.set_work_factor(WORK_FACTOR);
                let all = std::iter::once(&recipient as &dyn age::Recipient);
                (Encryptor::with_recipients(all), DecryptionKeys::Passphrase(passphrase.clone()))
            }
        };
        let encryptor = encryptor.map_err(io::Error::other)?;
        Ok((BackupWriter::Encrypted(encryptor.wrap_output(to)?), keys))
    }
}

/// A stream that is encrypted, or not.
pub(crate) enum BackupWriter<W: Write> {
    Plain(W),
    Encrypted(StreamWriter<W>),
}

impl<W: Write> BackupWriter<W> {
    /// Writes the end of the stream. Without it the file is truncated.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(writer) => Ok(writer),
            Self::Encrypted(writer) => writer.finish(),
        }
    }
}

impl<W: Write> Write for BackupWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(writer) => writer.write(bytes),
            Self::Encrypted(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(writer) => writer.flush(),
            Self::Encrypted(writer) => writer.flush(),
        }
    }
}

/// What a backup is decrypted with.
#[derive(Default)]
pub(crate) enum DecryptionKeys {
    /// Nothing: the file is not encrypted.
    #[default]
    None,
    /// Any of these identities.
    Identities(Vec<x25519::Identity>),
    /// A passphrase.
    Passphrase(SecretString),
}

impl std::fmt::Debug for DecryptionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecryptionKeys").finish_non_exhaustive()
    }
}

/// Opens a backup file that may be encrypted, and reads what is in it as a stream.
pub(crate) fn open(path: &Path, keys: &DecryptionKeys) -> Result<Box<dyn Read>> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let mut file = BufReader::new(file);
    let start = file.fill_buf().with_context(|| format!("cannot read {name}"))?;
    if start.starts_with(ARMOR_MAGIC) {
        bail!("{name} is encrypted as text: decrypt it with age --decrypt, and restore the result");
    }
    match (start.starts_with(AGE_MAGIC), keys) {
        (false, DecryptionKeys::None) => return Ok(Box::new(file)),
        (false, _) => bail!(
            "{name} is not encrypted, or its first bytes are damaged: leave --identity-file and --passphrase-file \
             out, or use another backup"
        ),
        (true, DecryptionKeys::None) => bail!(
            "{name} is encrypted: name the key with --identity-file, or the passphrase with --passphrase-file"
        ),
        (true, _) => {}
    }
    check_header_size(&mut file, path)?;
    let decryptor = Decryptor::new_buffered(file).map_err(|error| decrypt_error(path, &error))?;
    let reader = match keys {
        DecryptionKeys::Passphrase(_) if !decryptor.is_scrypt() => {
            bail!("{name} is encrypted to a key, not with a passphrase: use --identity-file")
        }
        DecryptionKeys::Identities(_) if decryptor.is_scrypt() => {
            bail!("{name} is encrypted with a passphrase, not to a key: use --passphrase-file")
        }
        DecryptionKeys::Passphrase(passphrase) => {
            let mut identity = scrypt::Identity::new(passphrase.clone());
            identity.set_max_work_factor(MAX_WORK_FACTOR);
            decryptor.decrypt(std::iter::once(&identity as &dyn age::Identity))
        }
        DecryptionKeys::Identities(identities) => {
            decryptor.decrypt(identities.iter().map(|identity| identity as &dyn age::Identity))
        }
        DecryptionKeys::None => bail!("{name} is encrypted"),
    };
    let reader = reader.map_err(|error| decrypt_error(path, &error))?;
    Ok(Box::new(BufReader::new(DecryptedReader(reader))))
}

/// The library reads a header of any size, in quadratic time; a hostile one has to end early.
fn check_header_size(file: &mut BufReader<File>, path: &Path) -> Result<()> {
    let context = || format!("cannot read {}", path.display());
    let mut header = file.by_ref().take(MAX_HEADER_BYTES);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = header.read_until(b'\n', &mut line).with_context(context)?;
        if line.starts_with(b"---") {
            break;
        }
        ensure!(
            length > 0,
            "{} is damaged (its header is truncated, or longer than {MAX_HEADER_BYTES} bytes): use another backup",
            path.display()
        );
    }
    file.rewind().with_context(context)
}

fn decrypt_error(path: &Path, error: &DecryptError) -> anyhow::Error {
    let name = path.display();
    match error {
        DecryptError::NoMatchingKeys => anyhow!(
            "{name} is not encrypted to any key in the identity file: use the identity of one of its recipients"
        ),
        DecryptError::DecryptionFailed | DecryptError::KeyDecryptionFailed => anyhow!(
            "cannot decrypt {name}: the passphrase is wrong, or the file is damaged: check the passphrase, or use \
             another backup"
        ),
        DecryptError::ExcessiveWork { required, .. } => anyhow!(
            "{name} asks for 2^{required} steps to check its passphrase, and at most 2^{MAX_WORK_FACTOR} are done: if \
             you trust it, decrypt it with age --decrypt, and restore the result"
        ),
        DecryptError::InvalidHeader | DecryptError::InvalidMac | DecryptError::UnknownFormat => {
            anyhow!("{name} is damaged (its header is not valid): use another backup")
        }
        DecryptError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            anyhow!("{name} is damaged (it is truncated): use another backup")
        }
        error => anyhow!("cannot decrypt {name}: {error}: use another backup"),
    }
}

/// Names what is wrong with the encrypted contents; the library says only that a chunk does not match.
struct DecryptedReader<R>(R);

impl<R: Read> Read for DecryptedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::Other => io::Error::new(
                io::ErrorKind::InvalidData,
                "its encrypted contents were changed or truncated",
            ),
            _ => error,
        })
    }
}

/// Parses a recipient: the public half of a key of `age-keygen`.
pub(crate) fn parse_recipient(text: &str) -> Result<x25519::Recipient, String> {
    text.parse().map_err(|_| {
        "it is not a public key of age-keygen, which starts with age1; other kinds of keys are not supported"
            .to_owned()
    })
}

/// Reads a passphrase: the first line of a file, or of standard input for `-`.
pub(crate) fn read_passphrase(path: &Path) -> Result<SecretString> {
    let text = read_small(path)?;
    let line = text.lines().next().unwrap_or_default();
    ensure!(
        !line.is_empty(),
        "{}: its first line must be the passphrase, and is empty",
        path.display()
    );
    Ok(SecretString::from(line.to_owned()))
}

/// Reads the identities of a file that `age-keygen` wrote.
pub(crate) fn read_identities(path: &Path) -> Result<Vec<x25519::Identity>> {
    let text = read_small(path)?;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut identities = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        // The line may be a secret: it is not shown.
        identities.push(line.parse::<x25519::Identity>().map_err(|_| {
            anyhow!(
                "{}, line {number}: this is not an identity of age-keygen, which starts with AGE-SECRET-KEY-1",
                path.display()
            )
        })?);
    }
    ensure!(
        !identities.is_empty(),
        "{} has no identity: write one with age-keygen",
        path.display()
    );
    Ok(identities)
}

fn read_small(path: &Path) -> Result<String> {
    let context = || format!("cannot read {}", path.display());
    let mut source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).with_context(context)?)
    };
    let mut text = String::new();
    let length = source.by_ref().take(MAX_KEY_FILE_BYTES + 1).read_to_string(&mut text);
    let length = length.with_context(context)?;
    ensure!(
        length as u64 <= MAX_KEY_FILE_BYTES,
        "{} has more than {MAX_KEY_FILE_BYTES} bytes: it is not a file with keys or a passphrase",
        path.display()
    );
    Ok(text)
}

/// Reads the keys that a command names; at most one of the two files is given.
pub(crate) fn read_keys(
    identities: Option<&PathBuf>,
    passphrase: Option<&PathBuf>,
) -> Result<DecryptionKeys> {
    Ok(match (identities, passphrase) {
        (Some(path), _) => DecryptionKeys::Identities(read_identities(path)?),
        (None, Some(path)) => DecryptionKeys::Passphrase(read_passphrase(path)?),
        (None, None) => DecryptionKeys::None,
    })
}
