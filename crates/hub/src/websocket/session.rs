//! A session: sends lines as text frames, and answers control frames, until either side closes it.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufWriter};

use super::frames::{ClientFrame, CloseReason, FrameReader, Opcode, header};

/// How long the server waits for the client's close frame. Then the connection ends in any case.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Larger pieces are sent without a copy.
const WRITE_BUFFER_BYTES: usize = 4 << 10;

/// Sends each line of the pieces as one frame. Ends with the pieces, when the client closes, or when it violates the
/// protocol.
pub(crate) async fn serve<I>(connection: I, pieces: impl Stream<Item = Bytes>)
where
    I: AsyncRead + AsyncWrite,
{
    let (read, write) = tokio::io::split(connection);
    let mut write = BufWriter::with_capacity(WRITE_BUFFER_BYTES, write);
    // As streams, both can be dropped between two items without losing one.
    let frames = futures::stream::unfold(FrameReader::new(read), |mut reader| async move {
        reader.next().await.map(|frame| (frame, reader))
    });
    let (mut frames, mut pieces) = (pin!(frames), pin!(pieces));
    let reason = loop {
        let sent = tokio::select! {
            frame = frames.next() => match frame {
                None => return,
                Some(ClientFrame::Ping(payload)) => send(&mut write, Opcode::Pong, &payload).await,
                Some(ClientFrame::Ignored) => Ok(()),
                Some(ClientFrame::Close) => break CloseReason::Normal,
                Some(ClientFrame::Violation(reason)) => break reason,
            },
            piece = pieces.next() => match piece {
                None => break CloseReason::Normal,
                Some(piece) => send_lines(&mut write, &piece).await,
            },
        };
        if let Err(error) = sent {
            return tracing::debug!(%error, "WebSocket ended");
        }
    };
    let close = async {
        send(&mut write, Opcode::Close, &(reason as u16).to_be_bytes()).await?;
        // Until the client closes too, or has sent enough.
        while let Some(frame) = frames.next().await {
            if frame == ClientFrame::Close {
                break;
            }
        }
        write.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(CLOSE_TIMEOUT, close).await {
        tracing::debug!(%error, "WebSocket ended");
    }
}

async fn send(
    write: &mut (impl AsyncWrite + Unpin),
    opcode: Opcode,
    payload: &[u8],
) -> io::Result<()> {
    write.write_all(&header(opcode, payload.len())).await?;
    write.write_all(payload).await?;
    write.flush().await
}

/// A piece has whole lines: an event never contains a line break.
async fn send_lines(write: &mut (impl AsyncWrite + Unpin), piece: &[u8]) -> io::Result<()> {
    for line in piece.split_inclusive(|byte| *byte == b'\n') {
        write.write_all(&header(Opcode::Text, line.len())).await?;
        write.write_all(line).await?;
    }
    write.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, DuplexStream};

    /// Starts a session without an end and returns the client's side.
    fn endless(pieces: Vec<&'static str>) -> (DuplexStream, tokio::task::JoinHandle<()>) {
        let (client, server) = tokio::io::duplex(1 << 10);
        let pieces = futures::stream::iter(pieces.into_iter().map(Bytes::from));
        let pieces = pieces.chain(futures::stream::pending());
        (client, tokio::spawn(serve(server, pieces)))
    }

    async fn expect(client: &mut DuplexStream, bytes: &[u8]) {
        let mut found = vec![0; bytes.len()];
        client.read_exact(&mut found).await.unwrap();
        assert_eq!(found, bytes);
    }

    #[tokio::test]
    async fn one_frame_for_each_line() {
        let (mut client, session) = endless(vec!["{1}\n{2}\n", "{3}\n"]);
        expect(&mut client, b"\x81\x04{1}\n\x81\x04{2}\n\x81\x04{3}\n").await;
        client.write_all(b"\x89\x82\0\0\0\0hi").await.unwrap();
        expect(&mut client, b"\x8a\x02hi").await;
        client.write_all(b"\x88\x80\0\0\0\0").await.unwrap();
        expect(&mut client, b"\x88\x02\x03\xe8").await;
        drop(client);
        session.await.unwrap();
    }

    #[tokio::test]
    async fn hostile_clients_are_closed() {
        for (bytes, code) in [
            (b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_vec(), b"\x03\xf1"),
            (b"\x89\x02hi".to_vec(), b"\x03\xea"),
            (b"\x8a\x80\0\0\0\0".repeat(150), b"\x03\xf0"),
        ] {
            let (mut client, session) = endless(Vec::new());
            client.write_all(&bytes).await.unwrap();
            expect(&mut client, &[&[0x88, 2], &code[..]].concat()).await;
            drop(client);
            session.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_close_is_dropped() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let session = tokio::spawn(serve(server, futures::stream::empty()));
        expect(&mut client, b"\x88\x02\x03\xe8").await;
        session.await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_the_session() {
        let (client, session) = endless(Vec::new());
        drop(client);
        session.await.unwrap();
    }
}
