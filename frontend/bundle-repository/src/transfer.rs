//! Sending: a reply as a whole, a bundle piece by piece (rules repository-5 and repository-6).
//!
//! Knows: bytes, and how long a client may let them lie. Must not know: why they are sent.
//!
//! Invariant: one piece is in memory, and the client has had all before it.

use crate::repository::{Content, Found};
use crate::settings::Settings;
use std::io::{Error, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Sends bytes.
///
/// # Errors
/// When the connection breaks, or makes no progress for too long.
pub(crate) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    settings: &Settings,
) -> Result<(), Error> {
    while !bytes.is_empty() {
        let written = within(settings, stream.write(bytes)).await?;
        if written == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(written..).unwrap_or_default();
    }
    within(settings, stream.flush()).await
}

async fn within<T>(settings: &Settings, written: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let stalled = || Error::new(ErrorKind::TimedOut, "the client does not read");
    timeout(settings.stalled, written).await.unwrap_or_else(|_| Err(stalled()))
}

/// Sends a bundle as one string. Gives the number of its bytes.
///
/// # Errors
/// When the connection breaks, makes no progress or takes too long, or the bundle cannot be read to its end. The client
/// has a part of it then, and can only be left.
pub(crate) async fn send_bundle(
    stream: &mut (impl AsyncWrite + Unpin),
    found: Found,
    settings: &Settings,
) -> Result<u64, Error> {
    let long = || Error::new(ErrorKind::TimedOut, "sending the bundle takes too long");
    timeout(settings.transfer, send_whole(stream, found, settings)).await.unwrap_or_else(|_| Err(long()))
}

async fn send_whole(stream: &mut (impl AsyncWrite + Unpin), found: Found, settings: &Settings) -> Result<u64, Error> {
    let Found { length, content } = found;
    send(stream, format!("${length}\r\n").as_bytes(), settings).await?;
    match content {
        Content::Whole(bytes) => send(stream, &bytes, settings).await?,
        Content::Pieces(reader) => {
            let mut reader = reader.take(length);
            let mut piece = Vec::with_capacity(settings.piece_bytes.max(1));
            let mut left = length;
            while left > 0 {
                piece.clear();
                let read = (&mut reader).take(piece.capacity() as u64).read_buf(&mut piece).await?;
                if read == 0 {
                    return Err(Error::new(ErrorKind::UnexpectedEof, "the bundle is shorter than it should be"));
                }
                send(stream, &piece, settings).await?;
                left -= read as u64;
            }
        }
    }
    send(stream, b"\r\n", settings).await?;
    Ok(length)
}
