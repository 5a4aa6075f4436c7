//! Frames of RFC 6455: what a client sends, and the headers of what the server sends.
//!
//! Data of clients is skipped as it arrives and never held: a watch has no use for it.

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};

/// The largest data frame that is skipped.
const MAX_DATA_BYTES: u64 = 64 << 10;
/// How much is skipped after a violation.
const MAX_SKIPPED_BYTES: u64 = 256 << 10;
/// The largest payload of a control frame.
const MAX_CONTROL_BYTES: u64 = 125;
/// How many frames a client may send at once, and how many each second. Clients send a ping every few seconds.
const FRAME_BURST: f64 = 100.0;
const FRAMES_PER_SECOND: f64 = 10.0;
/// Clients send little, and there may be thousands.
const READ_BUFFER_BYTES: usize = 256;

/// The last frame of a message.
const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

/// The kinds of frames that the server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Opcode {
    Text = 1,
    Close = 8,
    Pong = 10,
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum CloseReason {
    /// The watch is over.
    Normal = 1000,
    /// The client violates the protocol.
    ProtocolError = 1002,
    /// The client sends more frames than it may.
    TooManyFrames = 1008,
    /// The client sends a frame that is too large.
    TooLarge = 1009,
}

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientFrame {
    /// Its payload comes back in a pong.
    Ping(Vec<u8>),
    /// The client closes the connection.
    Close,
    /// Anything else that is allowed.
    Ignored,
    /// The connection must be closed.
    Violation(CloseReason),
}

/// The header of a frame of the server.
pub(super) fn header(opcode: Opcode, length: usize) -> Vec<u8> {
    let mut out = vec![FINAL | opcode as u8];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short <= 125 => out.push(short),
        (_, Ok(medium)) => {
            out.push(126);
            out.extend(medium.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out
}

/// Reads the frames of a client.
pub(super) struct FrameReader<R> {
    source: BufReader<R>,
    /// Frames that the client may send now, and when that was computed.
    allowance: f64,
    counted: Instant,
    /// After a violation, where the next frame begins is unknown.
    is_violated: bool,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(source: R) -> Self {
        let source = BufReader::with_capacity(READ_BUFFER_BYTES, source);
        Self { source, allowance: FRAME_BURST, counted: Instant::now(), is_violated: false }
    }

    /// The next frame; `None` when the connection has ended.
    ///
    /// After a violation, what follows is skipped up to a limit: closing a connection with unread data resets it, and the
    /// client would not learn the reason.
    pub(super) async fn next(&mut self) -> Option<ClientFrame> {
        if self.is_violated {
            let mut rest = (&mut self.source).take(MAX_SKIPPED_BYTES);
            let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
            return None;
        }
        let frame = self.read().await.ok()?;
        self.is_violated = matches!(frame, ClientFrame::Violation(_));
        Some(frame)
    }

    async fn read(&mut self) -> std::io::Result<ClientFrame> {
        let [first, second] = self.bytes::<2>().await?;
        let (opcode, is_control) = (first & 0x0f, first & 0x08 != 0);
        let length = match second & !MASKED {
            126 => u64::from(u16::from_be_bytes(self.bytes().await?)),
            127 => u64::from_be_bytes(self.bytes().await?),
            short => u64::from(short),
        };
        let violation = |reason| Ok(ClientFrame::Violation(reason));
        let is_known = matches!(opcode, 0..=2 | 8..=10);
        let is_fragment = is_control && (first & FINAL == 0 || length > MAX_CONTROL_BYTES);
        if first & RESERVED != 0 || second & MASKED == 0 || !is_known || is_fragment {
            return violation(CloseReason::ProtocolError);
        }
        if length > MAX_DATA_BYTES {
            return violation(CloseReason::TooLarge);
        }
        if !self.is_within_rate(Instant::now()) {
            return violation(CloseReason::TooManyFrames);
        }
        let mask = self.bytes::<4>().await?;
        if !is_control {
            tokio::io::copy(&mut (&mut self.source).take(length), &mut tokio::io::sink()).await?;
            return Ok(ClientFrame::Ignored);
        }
        let mut payload = vec![0; usize::try_from(length).unwrap_or(0)];
        self.source.read_exact(&mut payload).await?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        Ok(match opcode {
            8 => ClientFrame::Close,
            9 => ClientFrame::Ping(payload),
            _ => ClientFrame::Ignored,
        })
    }

    async fn bytes<const N: usize>(&mut self) -> std::io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    fn is_within_rate(&mut self, now: Instant) -> bool {
        let gained = now.duration_since(self.counted).as_secs_f64() * FRAMES_PER_SECOND;
        self.allowance = (self.allowance + gained).min(FRAME_BURST) - 1.0;
        self.counted = now;
        self.allowance >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CloseReason::{ProtocolError, TooLarge, TooManyFrames};

    /// The first frame in some bytes.
    async fn read(bytes: &[u8]) -> Option<ClientFrame> {
        FrameReader::new(bytes).next().await
    }

    #[tokio::test]
    async fn frames_of_clients() {
        let violation = |reason| Some(ClientFrame::Violation(reason));
        let data = [&b"\x82\xfe\x01\x00mask"[..], &[7; 256], b"\x88\x80mask"].concat();
        let mut reader = FrameReader::new(&data[..]);
        assert_eq!(reader.next().await, Some(ClientFrame::Ignored));
        assert_eq!(reader.next().await, Some(ClientFrame::Close));
        assert_eq!(reader.next().await, None);
        let table: [(&[u8], _); 11] = [
            (b"\x89\x82\x01\x02\x01\x02ik", Some(ClientFrame::Ping(b"hi".to_vec()))),
            (b"\x8a\x80mask", Some(ClientFrame::Ignored)),
            (b"\x89\x02hi", violation(ProtocolError)), // not masked
            (b"\x09\x80mask", violation(ProtocolError)), // a fragment of a control frame
            (b"\x89\xfe\x00\x7emask", violation(ProtocolError)), // a large control frame
            (b"\xc1\x80mask", violation(ProtocolError)), // an extension that was not agreed on
            (b"\x83\x80mask", violation(ProtocolError)), // an unknown opcode
            (b"\x82\xff\x00\x00\x00\x00\x00\x01\x00\x01mask", violation(TooLarge)),
            (b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffmask", violation(TooLarge)),
            (b"\x89\x82\x01\x02", None), // cut off
            (b"", None),
        ];
        for (bytes, expected) in table {
            assert_eq!(read(bytes).await, expected, "{bytes:x?}");
        }
    }

    #[tokio::test]
    async fn a_flood_is_a_violation() {
        let pings = b"\x89\x80mask".repeat(200);
        let mut reader = FrameReader::new(&pings[..]);
        let mut count = 0;
        while let Some(ClientFrame::Ping(_)) = reader.next().await {
            count += 1;
        }
        assert!((100..150).contains(&count), "{count}");
        let mut idle = FrameReader::new(&b""[..]);
        idle.allowance = 0.0;
        let later = idle.counted + std::time::Duration::from_secs(1);
        assert!((0..10).all(|_| idle.is_within_rate(later)) && !idle.is_within_rate(later));
        let mut flood = FrameReader::new(&pings[..]);
        flood.allowance = 0.5;
        assert_eq!(flood.next().await, Some(ClientFrame::Violation(TooManyFrames)));
    }

    proptest::proptest! {
        /// Whatever a client sends, the reader comes to an end and holds no more than a control frame.
        #[test]
        fn any_bytes_are_read_to_an_end(bytes: Vec<u8>) {
            let read = async {
                let (mut reader, mut frames) = (FrameReader::new(&bytes[..]), 0);
                while let Some(frame) = reader.next().await {
                    frames += 1;
                    if let ClientFrame::Ping(payload) = frame {
                        assert!(payload.len() <= 125);
                    }
                }
                frames
            };
            let frames = futures::executor::block_on(read);
            assert!(frames <= bytes.len() / 2, "{frames} in {} bytes", bytes.len());
        }
    }

    #[test]
    fn headers_of_the_server() {
        assert_eq!(header(Opcode::Text, 5), [0x81, 5]);
        assert_eq!(header(Opcode::Text, 126), [0x81, 126, 0, 126]);
        assert_eq!(header(Opcode::Close, 2), [0x88, 2]);
        assert_eq!(header(Opcode::Text, 65536), [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }
}
