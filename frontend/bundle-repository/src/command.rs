//! What each command means (rules repository-1 and repository-4).
//!
//! Knows: commands, their arguments, what a client said about itself. Must not know: bundles, sockets.

use crate::reply::{Protocol, Reply};
use bytes::Bytes;

/// The hash that has the bundles.
const BUNDLES: &[u8] = b"apps";

/// Most bytes of a command and of its arguments in an error.
const MAX_SHOWN: usize = 128;

/// Commands that would change something, here or in a server.
const WRITES: &[&str] = &[
    "ACL",
    "APPEND",
    "BGREWRITEAOF",
    "BGSAVE",
    "BITFIELD",
    "BITOP",
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "CONFIG",
    "COPY",
    "DEBUG",
    "DECR",
    "DECRBY",
    "DEL",
    "EVAL",
    "EVALSHA",
    "EXEC",
    "EXPIRE",
    "EXPIREAT",
    "FAILOVER",
    "FCALL",
    "FLUSHALL",
    "FLUSHDB",
    "FUNCTION",
    "GEOADD",
    "GEORADIUS",
    "GEORADIUSBYMEMBER",
    "GEOSEARCHSTORE",
    "GETDEL",
    "GETEX",
    "GETSET",
    "HDEL",
    "HEXPIRE",
    "HEXPIREAT",
    "HGETDEL",
    "HGETEX",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HMSET",
    "HPERSIST",
    "HPEXPIRE",
    "HPEXPIREAT",
    "HSET",
    "HSETEX",
    "HSETNX",
    "INCR",
    "INCRBY",
    "INCRBYFLOAT",
    "LINSERT",
    "LMOVE",
    "LMPOP",
    "LPOP",
    "LPUSH",
    "LPUSHX",
    "LREM",
    "LSET",
    "LTRIM",
    "MIGRATE",
    "MODULE",
    "MOVE",
    "MSET",
    "MSETNX",
    "MULTI",
    "PERSIST",
    "PEXPIRE",
    "PEXPIREAT",
    "PFADD",
    "PFMERGE",
    "PSETEX",
    "PUBLISH",
    "RENAME",
    "RENAMENX",
    "REPLICAOF",
    "RESTORE",
    "RPOP",
    "RPOPLPUSH",
    "RPUSH",
    "RPUSHX",
    "SADD",
    "SAVE",
    "SCRIPT",
    "SDIFFSTORE",
    "SET",
    "SETBIT",
    "SETEX",
    "SETNX",
    "SETRANGE",
    "SHUTDOWN",
    "SINTERSTORE",
    "SLAVEOF",
    "SMOVE",
    "SORT",
    "SPOP",
    "SREM",
    "SUNIONSTORE",
    "SWAPDB",
    "UNLINK",
    "XACK",
    "XADD",
    "XAUTOCLAIM",
    "XCLAIM",
    "XDEL",
    "XGROUP",
    "XSETID",
    "XTRIM",
    "ZADD",
    "ZDIFFSTORE",
    "ZINCRBY",
    "ZINTERSTORE",
    "ZMPOP",
    "ZPOPMAX",
    "ZPOPMIN",
    "ZRANGESTORE",
    "ZREM",
    "ZREMRANGEBYLEX",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
    "ZUNIONSTORE",
];

/// What a client said about itself.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The version of the protocol that it speaks.
    pub(crate) protocol: Protocol,
    /// The number of its connection.
    pub(crate) id: i64,
    name: Bytes,
}

impl Session {
    /// A client that said nothing yet.
    pub(crate) fn new(id: i64) -> Self {
        Self { id, ..Self::default() }
    }
}

/// What to do for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Reply this.
    Reply(Reply),
    /// Reply this, and close.
    Close(Reply),
    /// Send the bundle with this name.
    Send(String),
    /// Say how many bytes the bundle with this name has.
    Length(String),
    /// Say whether the client may have a bundle with this name.
    Has(String),
    /// Say the names of all that it may have.
    Names,
    /// Say how many it may have.
    Count,
}

impl From<Reply> for Action {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

/// What the arguments of a request ask for, the first of which is the command.
pub(crate) fn decide(arguments: &[Bytes], session: &mut Session) -> Action {
    let Some((command, rest)) = arguments.split_first() else { return error("ERR empty command") };
    let name = command.to_ascii_uppercase();
    match (name.as_slice(), rest) {
        (b"HGET", [hash, field]) => in_bundles(hash, || Action::Send(text(field)), Reply::Null),
        (b"HSTRLEN", [hash, field]) => in_bundles(hash, || Action::Length(text(field)), Reply::Integer(0)),
        (b"HEXISTS", [hash, field]) => in_bundles(hash, || Action::Has(text(field)), Reply::Integer(0)),
        (b"HKEYS", [hash]) => in_bundles(hash, || Action::Names, Reply::Array(Vec::new())),
        (b"HLEN", [hash]) => in_bundles(hash, || Action::Count, Reply::Integer(0)),
        (b"PING", []) => Reply::Simple("PONG").into(),
        (b"PING" | b"ECHO", [message]) => Reply::Bulk(message.clone()).into(),
        (b"QUIT", _) => Action::Close(OK),
        (b"SELECT", [index]) => select(index),
        (b"AUTH", [_]) => error(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?",
        ),
        (b"AUTH", [user, _]) => authenticate(user).map_or_else(Action::Reply, |()| OK.into()),
        (b"HELLO", options) => hello(options, session),
        (b"CLIENT", [subcommand, rest @ ..]) => client(subcommand, rest, session),
        (b"COMMAND", []) => Reply::Array(Vec::new()).into(),
        (b"COMMAND", [subcommand, ..]) => match subcommand.to_ascii_uppercase().as_slice() {
            b"DOCS" => Reply::Map(Vec::new()).into(),
            b"INFO" | b"LIST" => Reply::Array(Vec::new()).into(),
            b"COUNT" => Reply::Integer(0).into(),
            _ => unknown_subcommand("COMMAND", subcommand),
        },
        (b"INFO", _) => Reply::text(info()).into(),
        (
            b"HGET" | b"HSTRLEN" | b"HEXISTS" | b"HKEYS" | b"HLEN" | b"PING" | b"ECHO" | b"SELECT" | b"AUTH"
            | b"CLIENT",
            _,
        ) => wrong_number(&text(command)),
        (name, _) if WRITES.iter().any(|write| write.as_bytes() == name) => {
            error("READONLY the repository is read-only")
        }
        _ => unknown(command, rest),
    }
}

const OK: Reply = Reply::Simple("OK");

/// What is asked of the bundles, or what a server replies whose other keys do not exist.
fn in_bundles(hash: &[u8], action: impl FnOnce() -> Action, otherwise: Reply) -> Action {
    if hash == BUNDLES { action() } else { otherwise.into() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn error(text: impl Into<String>) -> Action {
    Reply::Error(text.into()).into()
}

fn wrong_number(command: &str) -> Action {
    error(format!("ERR wrong number of arguments for '{}' command", command.to_ascii_lowercase()))
}

fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Action {
    let shown = shown(subcommand, MAX_SHOWN);
    error(format!("ERR unknown subcommand '{shown}'. Try {command} HELP."))
}

/// The beginning of what a client sent.
fn shown(bytes: &[u8], most: usize) -> String {
    text(bytes.get(..most).unwrap_or(bytes))
}

fn unknown(command: &[u8], rest: &[Bytes]) -> Action {
    let mut arguments = String::new();
    for argument in rest {
        if arguments.len() >= MAX_SHOWN {
            break;
        }
        arguments.push_str(&format!("'{}' ", shown(argument, MAX_SHOWN - arguments.len())));
    }
    error(format!("ERR unknown command '{}', with args beginning with: {arguments}", shown(command, MAX_SHOWN)))
}

fn select(index: &[u8]) -> Action {
    match std::str::from_utf8(index).ok().and_then(|index| index.parse::<i64>().ok()) {
        Some(0) => OK.into(),
        Some(_) => error("ERR DB index is out of range"),
        None => error("ERR value is not an integer or out of range"),
    }
}

/// There is one user, who needs no password: who may have what is told by addresses.
fn authenticate(user: &[u8]) -> Result<(), Reply> {
    match user {
        b"default" => Ok(()),
        _ => Err(Reply::Error("WRONGPASS invalid username-password pair or user is disabled.".to_owned())),
    }
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
fn hello(options: &[Bytes], session: &mut Session) -> Action {
    let (mut protocol, mut name) = (session.protocol, None);
    let mut options = options;
    if let [version, rest @ ..] = options {
        protocol = match version.as_ref() {
            b"2" => Protocol::Two,
            b"3" => Protocol::Three,
            other if other.iter().all(u8::is_ascii_digit) => {
                return error("NOPROTO unsupported protocol version");
            }
            _ => return error("ERR Protocol version is not an integer or out of range"),
        };
        options = rest;
    }
    while let [option, rest @ ..] = options {
        options = match (option.to_ascii_uppercase().as_slice(), rest) {
            (b"AUTH", [user, _, rest @ ..]) => {
                if let Err(reply) = authenticate(user) {
                    return reply.into();
                }
                rest
            }
            (b"SETNAME", [new, rest @ ..]) => {
                if !is_name(new) {
                    return bad_name("names");
                }
                name = Some(new.clone());
                rest
            }
            _ => return error(format!("ERR Syntax error in HELLO option '{}'", shown(option, MAX_SHOWN))),
        };
    }
    session.protocol = protocol;
    if let Some(name) = name {
        session.name = copied(&name);
    }
    let version = match protocol {
        Protocol::Two => 2,
        Protocol::Three => 3,
    };
    let pairs = [
        ("server", Reply::text("streams-operator")),
        ("version", Reply::text(env!("CARGO_PKG_VERSION"))),
        ("proto", Reply::Integer(version)),
        ("id", Reply::Integer(session.id)),
        ("mode", Reply::text("standalone")),
        ("role", Reply::text("master")),
        ("modules", Reply::Array(Vec::new())),
    ];
    Reply::Map(pairs.into_iter().map(|(key, value)| (Reply::text(key), value)).collect()).into()
}

fn client(subcommand: &Bytes, rest: &[Bytes], session: &mut Session) -> Action {
    let word = subcommand.to_ascii_uppercase();
    match (word.as_slice(), rest) {
        (b"SETNAME", [name]) if is_name(name) => {
            session.name = copied(name);
            OK.into()
        }
        (b"SETNAME", [_]) => bad_name("names"),
        (b"GETNAME", []) if session.name.is_empty() => Reply::Null.into(),
        (b"GETNAME", []) => Reply::Bulk(session.name.clone()).into(),
        (b"SETINFO", [option, value]) => match option.to_ascii_uppercase().as_slice() {
            b"LIB-NAME" | b"LIB-VER" if is_name(value) => OK.into(),
            b"LIB-NAME" => bad_name("lib-name"),
            b"LIB-VER" => bad_name("lib-ver"),
            _ => error(format!("ERR Unrecognized option '{}'", shown(option, MAX_SHOWN))),
        },
        (b"ID", []) => Reply::Integer(session.id).into(),
        (b"SETNAME" | b"GETNAME" | b"SETINFO" | b"ID", _) => wrong_number(&format!("client|{}", text(subcommand))),
        _ => unknown_subcommand("CLIENT", subcommand),
    }
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}

fn bad_name(what: &str) -> Action {
    let what = if what == "names" { "Client names" } else { what };
    error(format!("ERR {what} cannot contain spaces, newlines or special characters."))
}

/// Bytes of their own: what stays must not keep the whole buffer of a request.
fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// What clients look for to see whether a server is ready.
fn info() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\nserver_name:streams-operator\r\n\
         streams_operator_version:{version}\r\n# Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_of_a_client_keeps_no_request() {
        let mut session = Session::new(1);
        let request = Bytes::from(vec![b'a'; 1000]);
        let name = request.slice(..10);
        decide(&[Bytes::from("CLIENT"), Bytes::from("SETNAME"), name], &mut session);
        assert_eq!(session.name.len(), 10);
        assert!(request.is_unique());
    }

    #[test]
    fn writes_are_sorted_and_in_capitals() {
        assert!(WRITES.is_sorted());
        assert!(WRITES.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_uppercase())));
    }
}
