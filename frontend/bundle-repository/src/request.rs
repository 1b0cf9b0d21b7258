//! From bytes to the arguments of a request (rules repository-1 and repository-5).
//!
//! Knows: the two forms of a request, bounds. Must not know: what a command means, where the bytes come from.
//!
//! Invariants: what a request announces is compared with the bounds before a byte of it is waited for, and no memory is
//! taken for what is only announced. A request has one array of strings, so nothing here is nested.

use crate::inline::words;
use bytes::{Buf, Bytes, BytesMut};
use resp_rs::resp2::{Frame, parse_frame};

/// Bounds of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of it.
    pub bytes: usize,
    /// Arguments of it, with the name of the command.
    pub arguments: usize,
}

/// Why bytes are no request. A connection cannot go on after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub(crate) String);

impl Malformed {
    fn new(what: impl Into<String>) -> Self {
        Self(format!("Protocol error: {}", what.into()))
    }
}

/// Most bytes of a line that has a number.
const MAX_NUMBER: usize = 20;

/// Takes the first request from a buffer, without requests that are empty. `None` if more bytes are needed; there is
/// room for them within the bounds.
///
/// # Errors
/// When the bytes are no request, or it is larger than the bounds.
pub fn next(buffer: &mut BytesMut, limits: &Limits) -> Result<Option<Vec<Bytes>>, Malformed> {
    loop {
        let taken = match buffer.first() {
            None => return Ok(None),
            Some(b'*') => array(buffer, limits)?,
            Some(_) => line(buffer, limits)?,
        };
        match taken {
            Some(arguments) if arguments.is_empty() => {}
            Some(arguments) => return Ok(Some(arguments)),
            None if buffer.len() >= limits.bytes => return Err(too_large(limits)),
            None => return Ok(None),
        }
    }
}

fn too_large(limits: &Limits) -> Malformed {
    Malformed::new(format!("a request has at most {} bytes", limits.bytes))
}

/// A request that a person typed.
fn line(buffer: &mut BytesMut, limits: &Limits) -> Result<Option<Vec<Bytes>>, Malformed> {
    let Some(end) = buffer.iter().take(limits.bytes).position(|byte| *byte == b'\n') else {
        return if buffer.len() >= limits.bytes { Err(Malformed::new("too big inline request")) } else { Ok(None) };
    };
    let mut line = buffer.split_to(end);
    buffer.advance(1);
    if line.last() == Some(&b'\r') {
        line.truncate(end - 1);
    }
    let words = words(&line).ok_or_else(|| Malformed::new("unbalanced quotes in request"))?;
    if words.len() > limits.arguments { Err(Malformed::new("too many arguments")) } else { Ok(Some(words)) }
}

/// A request that a program wrote.
fn array(buffer: &mut BytesMut, limits: &Limits) -> Result<Option<Vec<Bytes>>, Malformed> {
    let Some(length) = measure(buffer, limits)? else { return Ok(None) };
    let (frame, _) =
        parse_frame(buffer.split_to(length).freeze()).map_err(|error| Malformed::new(error.to_string()))?;
    let items = frame.into_array().unwrap_or_default();
    Ok(Some(items.into_iter().filter_map(argument).collect()))
}

fn argument(frame: Frame) -> Option<Bytes> {
    frame.into_bulk_string().ok()
}

/// How many bytes the array at the beginning has; `None` if it goes on behind the end.
fn measure(bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Malformed> {
    let Some((count, mut at)) = number(bytes, 1).map_err(|()| Malformed::new("invalid multibulk length"))? else {
        return Ok(None);
    };
    if count < -1 || count > i64::try_from(limits.arguments).unwrap_or(i64::MAX) {
        return Err(Malformed::new("invalid multibulk length"));
    }
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => {
                return Err(Malformed::new(format!("expected '$', got '{}'", other.escape_ascii())));
            }
        }
        let invalid = || Malformed::new("invalid bulk length");
        let Some((length, behind)) = number(bytes, at + 1).map_err(|()| invalid())? else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= limits.bytes).ok_or_else(invalid)?;
        at = behind + length + 2;
        if at > limits.bytes {
            return Err(too_large(limits));
        }
    }
    Ok(Some(at).filter(|at| *at <= bytes.len()))
}

/// The number in the line that begins here, and where the next line begins; `None` if the line has no end yet.
fn number(bytes: &[u8], from: usize) -> Result<Option<(i64, usize)>, ()> {
    let rest = bytes.get(from..).unwrap_or_default();
    let Some(length) = rest.windows(2).take(MAX_NUMBER + 1).position(|pair| pair == b"\r\n") else {
        return if rest.len() > MAX_NUMBER + 1 { Err(()) } else { Ok(None) };
    };
    let text = rest.get(..length).unwrap_or_default();
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(());
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(())?;
    Ok(Some((number, from + length + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { bytes: 64, arguments: 4 };

    /// All requests in these bytes, then what is left, or what is wrong.
    fn all(bytes: &[u8], limits: &Limits) -> (Vec<Vec<Bytes>>, Result<usize, String>) {
        let (mut buffer, mut requests) = (BytesMut::from(bytes), Vec::new());
        loop {
            match next(&mut buffer, limits) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => return (requests, Ok(buffer.len())),
                Err(Malformed(text)) => return (requests, Err(text)),
            }
        }
    }

    #[test]
    fn bytes_are_requests_or_say_why_not() {
        let long = "x".repeat(64);
        let too_large = "Protocol error: a request has at most 64 bytes";
        let count = "Protocol error: invalid multibulk length";
        let bulk = "Protocol error: invalid bulk length";
        // bytes, requests, bytes that are left or what is wrong
        let table: &[(&str, &[&[&str]], Result<usize, &str>)] = &[
            ("", &[], Ok(0)),
            ("*1\r\n$4\r\nPING\r\n", &[&["PING"]], Ok(0)),
            ("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n*1", &[&["PING"], &["QUIT"]], Ok(2)),
            ("PING\r\n\r\nhget apps 'a b'\n", &[&["PING"], &["hget", "apps", "a b"]], Ok(0)),
            ("*0\r\n*-1\r\n*1\r\n$0\r\n\r\n", &[&[""]], Ok(0)),
            ("*2\r\n$4\r\nPING\r\n", &[], Ok(14)),
            ("*1\r\n$4\r\nPIN", &[], Ok(11)),
            ("*1\r\n$4\r", &[], Ok(7)),
            ("*5\r\n", &[], Err(count)),
            ("*1000000\r\n", &[], Err(count)),
            ("*-2\r\n", &[], Err(count)),
            ("*x\r\n", &[], Err(count)),
            ("*+1\r\n", &[], Err(count)),
            ("*\r\n", &[], Err(count)),
            ("*99999999999999999999999", &[], Err(count)),
            ("*9999999999999999999\r\n", &[], Err(count)),
            ("*1\r\n$999999999\r\n", &[], Err(bulk)),
            ("*1\r\n$65\r\n", &[], Err(bulk)),
            ("*1\r\n$-1\r\n", &[], Err(bulk)),
            ("*1\r\n$9223372036854775807\r\n", &[], Err(bulk)),
            ("*2\r\n$30\r\n123456789012345678901234567890\r\n$30\r\n", &[], Err(too_large)),
            ("*1\r\n*1\r\n", &[], Err("Protocol error: expected '$', got '*'")),
            ("*1\r\n:1\r\n", &[], Err("Protocol error: expected '$', got ':'")),
            ("*1\r\n\n", &[], Err("Protocol error: expected '$', got '\\n'")),
            ("*1\r\n$4\r\nPINGxx", &[], Err("Protocol error: invalid format")),
            ("a b c d e\r\n", &[], Err("Protocol error: too many arguments")),
            ("'a\r\n", &[], Err("Protocol error: unbalanced quotes in request")),
            (&long, &[], Err("Protocol error: too big inline request")),
        ];
        for (bytes, requests, end) in table {
            let (found, left) = all(bytes.as_bytes(), &LIMITS);
            let expected: Vec<Vec<Bytes>> = requests
                .iter()
                .map(|words| words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect())
                .collect();
            assert_eq!(found, expected, "{bytes:?}");
            assert_eq!(left.as_ref().map_err(String::as_str), end.as_ref().map_err(|text| *text), "{bytes:?}");
        }
    }

    /// A request as a program writes it.
    fn written(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend_from_slice(argument);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_however_it_is_cut(
            requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 1..5), 0..6),
            cuts in prop::collection::vec(1_usize..20, 1..20),
        ) {
            let limits = Limits { bytes: 128, arguments: 4 };
            let bytes: Vec<u8> = requests.iter().flat_map(|request| written(request)).collect();
            let (mut buffer, mut read, mut rest) = (BytesMut::new(), Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at(rest.len().min(*cut));
                buffer.extend_from_slice(now);
                rest = later;
                while let Some(request) = next(&mut buffer, &limits).unwrap() {
                    read.push(request.into_iter().map(Vec::from).collect::<Vec<_>>());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(read, requests);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn nothing_is_larger_than_the_bounds(
            bytes in prop::collection::vec(prop_oneof![
                any::<u8>(), Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'2')
            ], 0..200),
        ) {
            let (requests, _) = all(&bytes, &LIMITS);
            for request in requests {
                prop_assert!(!request.is_empty() && request.len() <= LIMITS.arguments);
                prop_assert!(request.iter().map(Bytes::len).sum::<usize>() <= LIMITS.bytes);
            }
        }
    }
}
