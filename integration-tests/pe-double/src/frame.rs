//! What doubles send each other. The format is their own: each frame is four bytes of length, the most significant one
//! first, and so many bytes of JSON. The real runtime speaks otherwise, and the two do not understand each other.

use crate::aadl::Origin;
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Longest frame.
pub(crate) const LONGEST: usize = 64 * 1024;

/// One thing that is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// The first frame of a connection: the PE port that sends, as a label.
    Hello(String),
    /// A tuple.
    Tuple(Tuple),
    /// A mark between tuples.
    Marker(Marker),
}

/// A tuple: nothing but where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tuple {
    /// Who made it.
    pub(crate) source: String,
    /// Its number at the source, from 0.
    pub(crate) number: u64,
    /// The operators that it has passed.
    pub(crate) path: Vec<String>,
}

/// A mark of a consistent region between tuples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// The region.
    pub(crate) region: u32,
    /// What it says.
    pub(crate) wave: Wave,
    /// The output that it left last.
    pub(crate) origin: Origin,
}

/// What goes through a consistent region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Wave {
    /// Everything before is drained: make a checkpoint.
    Drain { seq: u64 },
    /// Go back to a checkpoint. Everything before is void.
    Reset { seq: u64, attempt: u64 },
    /// It goes on. A checkpoint is of no use any more.
    Resume { seq: u64, retire: u64, pending: bool },
}

/// The bytes of a frame.
///
/// # Errors
/// When it is too long.
pub(crate) fn encode(frame: &Frame) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, frame)?;
    let length = bytes.len().saturating_sub(4);
    ensure!(length <= LONGEST, "a frame has {length} bytes");
    let head = u32::try_from(length)?.to_be_bytes();
    bytes.splice(..4, head);
    Ok(bytes)
}

/// The next frame, or none at the end.
///
/// # Errors
/// When the connection breaks, or what comes is no frame.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<Frame>> {
    let mut head = [0; 4];
    match stream.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let length = usize::try_from(u32::from_be_bytes(head))?;
    ensure!(length <= LONGEST, "a frame has {length} bytes");
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    serde_json::from_slice(&bytes).map(Some).context("a frame is no JSON of a frame")
}
