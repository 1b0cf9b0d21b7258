//! Fetches the bundle of the job, as the runtime's bootstrap does: `HGET apps NAME` from the bundle server, once.
//!
//! The bootstrap is a shell script that ends at the first command that fails (`set -e`). Its loop of 30 tries is never
//! gone through twice, because `redis-cli` ends with another code than 0 only if the name has no address, nobody
//! listens, or the connection ends without a reply: then the script ends as well. An error is a reply; `redis-cli`
//! writes its words where the bundle should be, and ends with 0. The script ends when it unpacks that.
//!
//! | what the server does | what becomes of the pod |
//! |---|---|
//! | it sends a bundle | it starts |
//! | it lets the request wait | it waits, for as long as that takes |
//! | anything else | it ends with 1 |

use crate::api::CALL;
use crate::resolver::Resolver;
use anyhow::{Context as _, Result, bail, ensure};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The port of the bundle server.
pub const BUNDLE_PORT: u16 = 6379;
/// The hash that has all bundles.
const HASH: &str = "apps";
/// How long an answer may take. A bootstrap waits for ever; this is so that a test ends.
const ANSWER: Duration = Duration::from_secs(900);
/// Largest bundle.
const LARGEST: usize = 512 * 1024 * 1024;
/// Longest line of an answer.
const LINE: u64 = 1024;

/// Fetches the bundle `name` from the Service `host`.
///
/// # Errors
/// When the bootstrap would end.
pub(crate) async fn fetch(resolver: &Resolver, from: IpAddr, host: &str, name: &str) -> Result<Vec<u8>> {
    let asked = async {
        let address = SocketAddr::new(resolver.address(host).await?, BUNDLE_PORT);
        let stream = timeout(CALL, connect(from, address)).await.context("no connection in time")??;
        timeout(ANSWER, ask(stream, name)).await.with_context(|| format!("not within {ANSWER:?}"))?
    };
    asked.await.with_context(|| format!("the bundle {name:?} cannot be had from {host}:{BUNDLE_PORT}"))
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
    ensure!(!line.is_empty(), "the server closed the connection");
    let line = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix("\r\n"));
    let length = match line.and_then(|line| line.split_at_checked(1)) {
        Some(("$", "-1")) => bail!("it is not there"),
        Some(("$", length)) => length.parse::<usize>().context("an answer without a length")?,
        Some(("-", error)) => bail!("what came is no bundle: {error}"),
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
