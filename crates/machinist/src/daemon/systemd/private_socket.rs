//! systemd's private socket, adapted for zbus.
//!
//! There is no bus that assigns names, so systemd sends its messages under the name that it has elsewhere,
//! `org.freedesktop.systemd1`. That is not a unique name, and zbus refuses the message. Changing one letter
//! makes it a unique name of the same length: `:rg.freedesktop.systemd1`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;

/// The header field for the sender, up to the first letter of the name: the number of the field, its type,
/// and the length of `org.freedesktop.systemd1`.
const SENDER: [u8; 8] = [7, 1, b's', 0, 24, 0, 0, 0];

/// Connects to systemd's private socket.
#[derive(Debug)]
pub(super) struct PrivateSocket(pub(super) UnixStream);

impl Socket for PrivateSocket {
    type ReadHalf = PrivateSocketReader;
    type WriteHalf = PrivateSocketWriter;

    fn split(self) -> Split<PrivateSocketReader, PrivateSocketWriter> {
        let (read, write) = self.0.into_split();
        Split::new(
            PrivateSocketReader { stream: read, renamer: SenderRewriter::default() },
            PrivateSocketWriter(write),
        )
    }
}

/// Reads from systemd.
#[derive(Debug)]
pub(super) struct PrivateSocketReader {
    stream: OwnedReadHalf,
    renamer: SenderRewriter,
}

#[async_trait]
impl ReadHalf for PrivateSocketReader {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let count = self.stream.read(buffer).await?;
        self.renamer.rename(&mut buffer[..count]);
        Ok((count, Vec::new()))
    }
}

/// Writes to systemd.
#[derive(Debug)]
pub(super) struct PrivateSocketWriter(OwnedWriteHalf);

#[async_trait]
impl WriteHalf for PrivateSocketWriter {
    async fn sendmsg(&mut self, buffer: &[u8], _: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.write(buffer).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

/// Makes the sender a unique name, wherever the bytes are split.
#[derive(Debug, Default)]
struct SenderRewriter {
    /// How many bytes of [`SENDER`] were just seen.
    matched: usize,
}

impl SenderRewriter {
    fn rename(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.matched == SENDER.len() {
                if *byte == b'o' {
                    *byte = b':';
                }
                self.matched = 0;
            } else if *byte == SENDER[self.matched] {
                self.matched += 1;
            } else {
                // No other byte equals the first one, so no other match can have begun.
                self.matched = usize::from(*byte == SENDER[0]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_renamed_wherever_the_bytes_are_split() {
        let message = |name: &str| {
            let parts = [&[7, 7, 1, b's'][..], &SENDER, name.as_bytes(), b"\0more org.x"];
            parts.concat()
        };
        let whole = message("org.freedesktop.systemd1");
        for cut in 0..=whole.len() {
            let (mut renamer, mut bytes) = (SenderRewriter::default(), whole.clone());
            let (first, second) = bytes.split_at_mut(cut);
            renamer.rename(first);
            renamer.rename(second);
            assert_eq!(bytes, message(":rg.freedesktop.systemd1"), "cut at {cut}");
        }
    }
}
