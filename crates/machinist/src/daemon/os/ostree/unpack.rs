//! Unpacks layers, one on top of the other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use anyhow::{Context as _, Result, bail};
use machinist_core::hex::hex;
use machinist_core::os::layers::{LayerEntry, LayerPaths, classify, tree_path};
use machinist_core::os::manifest::LayerCompression;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest as _, Sha256};
use tar::{Archive, Entry, EntryType};

use super::tree::{EntryMeta, UnpackTree};

/// Unpacks a layer into a tree, and checks that its uncompressed contents have the digest in the image's
/// config.
pub(super) fn unpack_layer(
    tree: &mut UnpackTree,
    blob: File,
    packed: LayerCompression,
    diff_id: &str,
) -> Result<()> {
    let blob = BufReader::with_capacity(1 << 18, blob);
    let source: Box<dyn Read> = match packed {
        LayerCompression::None => Box::new(blob),
        LayerCompression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(blob)),
        LayerCompression::Zstd => {
            Box::new(ZstdReader { source: blob, frame: FrameDecoder::new(), open: false })
        }
    };
    let mut source =
        BufReader::with_capacity(1 << 18, HashingReader { source, hasher: Sha256::new() });
    let mut own = LayerPaths::default();
    let mut archive = Archive::new(&mut source);
    for entry in archive.entries()? {
        put(tree, &mut entry.context("the layer cannot be read")?, &mut own)?;
    }
    // Bytes after the end of the archive count for the digest too.
    io::copy(&mut source, &mut io::sink())?;
    let found = hex(&source.into_inner().hasher.finalize());
    if found != diff_id {
        bail!("the layer's contents have the digest {found} and should have {diff_id}");
    }
    Ok(())
}

fn put(
    tree: &mut UnpackTree,
    entry: &mut Entry<'_, impl Read>,
    own: &mut LayerPaths,
) -> Result<()> {
    let path = entry.path_bytes().into_owned();
    let shown = || String::from_utf8_lossy(&path).into_owned();
    match classify(&path)? {
        LayerEntry::Ignore => Ok(()),
        LayerEntry::Whiteout(path) => tree.whiteout(&path, own),
        LayerEntry::OpaqueWhiteout(path) => tree.whiteout_contents(&path, own),
        LayerEntry::Root => match entry.header().entry_type() {
            EntryType::Directory => tree.put_directory("", &meta(entry)?),
            _ => Ok(()),
        },
        LayerEntry::Add(path) => {
            own.insert(&path);
            put_at(tree, entry, &path).with_context(shown)?;
            Ok(())
        }
    }
    .with_context(shown)
}

fn put_at(tree: &mut UnpackTree, entry: &mut Entry<'_, impl Read>, path: &str) -> Result<()> {
    let target = |entry: &Entry<'_, _>| {
        let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned);
        target.context("a link without a target")
    };
    match entry.header().entry_type() {
        EntryType::Directory => tree.put_directory(path, &meta(entry)?)?,
        EntryType::Symlink => tree.put_symlink(path, &target(entry)?, &meta(entry)?)?,
        EntryType::Link => {
            let first = tree_path(&target(entry)?)?;
            tree.put_hard_link(path, &first).with_context(|| format!("as a link to {first}"))?;
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let meta = meta(entry)?;
            tree.put_file(path, &meta, entry)?;
        }
        // Devices and pipes: a machine creates its own, and ostree stores none.
        _ => {}
    }
    Ok(())
}

fn meta(entry: &mut Entry<'_, impl Read>) -> Result<EntryMeta> {
    let header = entry.header();
    let id = |id: u64| u32::try_from(id).context("an owner out of range");
    let (owner, group, mode) = (id(header.uid()?)?, id(header.gid()?)?, header.mode()?);
    let mut attributes = Vec::new();
    if let Some(extensions) = entry.pax_extensions()? {
        for extension in extensions {
            let extension = extension.context("its extended attributes cannot be read")?;
            let name = extension.key().ok().and_then(|key| key.strip_prefix("SCHILY.xattr."));
            if let Some(name) = name.filter(|name| keeps_xattr(name)) {
                attributes.push((name.to_owned(), extension.value_bytes().to_owned()));
            }
        }
    }
    Ok(EntryMeta { owner, group, mode, xattrs: attributes })
}

/// SELinux labels are the host's to assign.
fn keeps_xattr(attribute: &str) -> bool {
    attribute.starts_with("user.")
        || (attribute.starts_with("security.") && attribute != "security.selinux")
}

/// Hashes everything that is read.
struct HashingReader<R> {
    source: R,
    hasher: Sha256,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

/// All frames of a zstd file, one after another.
struct ZstdReader<R> {
    source: R,
    frame: FrameDecoder,
    /// Whether the decoder is inside a frame.
    open: bool,
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.open && !self.next_frame()? {
                return Ok(0);
            }
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.frame.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
            }
            match self.frame.read(buffer)? {
                0 => self.open = false,
                count => return Ok(count),
            }
        }
    }
}

impl<R: BufRead> ZstdReader<R> {
    /// Advances to the next frame with contents. Returns whether there is one.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.frame.init(&mut self.source) {
                Ok(()) => {
                    self.open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
