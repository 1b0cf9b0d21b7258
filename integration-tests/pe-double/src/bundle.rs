//! Fetches the bundle of the job, as the runtime's bootstrap does: `HGET apps NAME` from the bundle server.

use crate::api::CALL;
use crate::resolver::Resolver;
use anyhow::{Context as _, Result, bail, ensure};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// The port of the bundle server.
pub const BUNDLE_PORT: u16 = 6379;
/// The hash that has all bundles.
const HASH: &str = "apps";
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a bundle may take.
const TRANSFER: Duration = Duration::from_secs(30);
/// Largest bundle.
const LARGEST: usize = 512 * 1024 * 1024;
/// Longest line of an answer.
const LINE: u64 = 1024;

/// Fetches the bundle `name` from the Service `host`.
///
/// # Errors
/// When all tries failed: with the failure of the last one.
pub(crate) async fn fetch(resolver: &Resolver, from: IpAddr, host: &str, name: &str, tries: u32) -> Result<Vec<u8>> {
    let mut last = anyhow::anyhow!("it was not asked for");
    for attempt in 0..tries {
        if attempt > 0 {
            sleep(PAUSE).await;
        }
        match timeout(TRANSFER, once(resolver, from, host, name)).await {
            Ok(Ok(bundle)) => return Ok(bundle),
            Ok(Err(error)) => last = error,
            Err(_) => last = anyhow::anyhow!("not within {TRANSFER:?}"),
        }
    }
    Err(last).with_context(|| format!("the bundle {name:?} cannot be had from {host}:{BUNDLE_PORT}"))
}

async fn once(resolver: &Resolver, from: IpAddr, host: &str, name: &str) -> Result<Vec<u8>> {
    let address = SocketAddr::new(resolver.address(host).await?, BUNDLE_PORT);
    let stream = timeout(CALL, connect(from, address)).await.context("no connection in time")??;
    ask(stream, name).await
}

/// Connects to `to` from `from`.
///
/// # Errors
/// When it cannot.
pub(crate) async fn connect(from: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(from, 0))?;
    Ok(socket.connect(to).await?)
}

/// Asks for a field and reads the answer, both in the Redis protocol.
async fn ask(stream: TcpStream, name: &str) -> Result<Vec<u8>> {
    let mut stream = BufStream::new(stream);
    stream.write_all(&question(name)).await?;
    stream.flush().await?;
    let mut line = Vec::new();
    (&mut stream).take(LINE).read_until(b'\n', &mut line).await?;
    let line = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix("\r\n"));
    let length = match line.and_then(|line| line.split_at_checked(1)) {
        Some(("$", "-1")) => bail!("it is not there"),
        Some(("$", length)) => length.parse::<usize>().context("an answer without a length")?,
        Some(("-", error)) => bail!("the server says: {error}"),
        _ => bail!("the server answers {line:?}"),
    };
    ensure!(length <= LARGEST, "it has {length} bytes");
    let mut bundle = vec![0; length];
    stream.read_exact(&mut bundle).await.context("the answer is cut")?;
    let mut end = [0; 2];
    stream.read_exact(&mut end).await.context("the answer is cut")?;
    ensure!(end == *b"\r\n", "the answer is longer than it says");
    Ok(bundle)
}

/// The bytes of `HGET apps NAME`.
#[must_use]
pub fn question(name: &str) -> Vec<u8> {
    let words = ["HGET", HASH, name].map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.concat()).into_bytes()
}
