//! Requests and replies byte for byte, as clients write and read them.

use super::{FORBIDDEN, POD, server};
use crate::Settings;
use std::net::IpAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// All that the server says to these bytes, which end with the end of the connection, given in pieces of this size.
async fn exchange(peer: IpAddr, bytes: &[u8], piece: usize) -> Vec<u8> {
    let server = server(Settings { max_request_bytes: 256, max_arguments: 8, ..Settings::default() });
    let (mut here, there) = tokio::io::duplex(piece);
    let (mut replies, mut ended) = (Vec::new(), false);
    let (mut read, mut write) = tokio::io::split(&mut here);
    let client = async {
        tokio::join!(
            async {
                // The server may have closed already.
                let _ = write.write_all(bytes).await;
                let _ = write.shutdown().await;
            },
            async {
                read.read_to_end(&mut replies).await.unwrap();
                ended = true;
            }
        );
    };
    tokio::join!(client, server.converse(there, peer));
    assert!(ended);
    replies
}

async fn check(peer: IpAddr, table: &[(&str, &str)]) {
    for (request, reply) in table {
        let reply = reply.replace("VERSION", env!("CARGO_PKG_VERSION"));
        for piece in [1, 7, 4096] {
            let found = exchange(peer, request.as_bytes(), piece).await;
            assert_eq!(
                found.escape_ascii().to_string(),
                reply.as_bytes().escape_ascii().to_string(),
                "{request:?} in pieces of {piece}"
            );
        }
    }
}

#[tokio::test]
async fn a_bootstrap_gets_its_bundle() {
    let request = b"*3\r\n$4\r\nHGET\r\n$4\r\napps\r\n$5\r\na.sab\r\n";
    for piece in [1, 5, 4096] {
        assert_eq!(exchange(POD, request, piece).await, b"$6\r\nPK\r\n\0\xff\r\n");
        assert_eq!(exchange(POD, b"hget apps pieces.sab\r\n", piece).await, b"$6\r\nPK\r\n\0\xff\r\n");
    }
}

#[tokio::test]
async fn who_asks_for_a_bundle_gets_it_or_the_end_of_the_connection_and_who_looks_is_told_why() {
    let late = "-TRYAGAIN late.sab is being fetched\r\n";
    check(
        POD,
        &[
            // A bootstrap would take words for its bundle.
            ("*3\r\n$4\r\nHGET\r\n$4\r\napps\r\n$8\r\nlate.sab\r\n", ""),
            ("HGET apps late.sab\r\nPING\r\n", ""),
            ("HGET apps x.sab\r\nPING\r\n", ""),
            ("HELLO\r\n", HELLO_2),
            ("HSTRLEN apps late.sab\r\nPING\r\n", &[late, "+PONG\r\n"].concat()),
            ("HSTRLEN apps x.sab\r\n", "-ERR there is no bundle x.sab\r\n"),
            ("HSTRLEN apps \"x\\r\\n+OK\"\r\n", "-ERR there is no bundle x  +OK\r\n"),
            // Sent as far as it goes, then the connection breaks.
            ("HGET apps short.sab\r\nPING\r\n", "$10\r\n123"),
            ("HGET apps long.sab\r\nPING\r\n", "$3\r\n123\r\n+PONG\r\n"),
        ],
    )
    .await;
    let refused = "-NOPERM no bundles are for this address\r\n";
    check(
        FORBIDDEN,
        &[
            ("HGET apps a.sab\r\n", ""),
            ("HSTRLEN apps a.sab\r\n", refused),
            ("HEXISTS apps a.sab\r\n", refused),
            ("HKEYS apps\r\n", refused),
            ("HLEN apps\r\n", refused),
            ("PING\r\n", "+PONG\r\n"),
        ],
    )
    .await;
}

const HELLO_2: &str = "*14\r\n$6\r\nserver\r\n$16\r\nstreams-operator\r\n$7\r\nversion\r\n$5\r\nVERSION\r\n\
     $5\r\nproto\r\n:2\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
     $7\r\nmodules\r\n*0\r\n";
const HELLO_3: &str = "%7\r\n$6\r\nserver\r\n$16\r\nstreams-operator\r\n$7\r\nversion\r\n$5\r\nVERSION\r\n\
     $5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
     $7\r\nmodules\r\n*0\r\n";

#[tokio::test]
async fn commands_that_look() {
    check(
        POD,
        &[
            ("", ""),
            ("HEXISTS apps a.sab\r\nHEXISTS apps x.sab\r\nHEXISTS other a.sab\r\n", ":1\r\n:0\r\n:0\r\n"),
            ("HKEYS apps\r\nHKEYS other\r\n", "*2\r\n$5\r\na.sab\r\n$8\r\nlate.sab\r\n*0\r\n"),
            ("HLEN apps\r\nHLEN other\r\n", ":2\r\n:0\r\n"),
            ("HSTRLEN apps a.sab\r\nHSTRLEN other a.sab\r\n", ":6\r\n:0\r\n"),
            ("HGET other a.sab\r\n", "$-1\r\n"),
            (
                "HELLO 3\r\nHGET other a.sab\r\nHELLO 2\r\nHGET other a.sab\r\n",
                &[HELLO_3, "_\r\n", HELLO_2, "$-1\r\n"].concat(),
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_clients_send_when_they_connect() {
    let auth = "-ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                configuration is correct?\r\n";
    let pass = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    check(
        POD,
        &[
            ("PING\r\n", "+PONG\r\n"),
            ("*1\r\n$4\r\nping\r\n*2\r\n$4\r\nPING\r\n$1\r\nx\r\n", "+PONG\r\n$1\r\nx\r\n"),
            ("ECHO 'a b'\r\n", "$3\r\na b\r\n"),
            ("HELLO 3\r\n", HELLO_3),
            ("HELLO 3 AUTH default x SETNAME me\r\nCLIENT GETNAME\r\n", &[HELLO_3, "$2\r\nme\r\n"].concat()),
            ("HELLO 3 AUTH other x\r\nCLIENT GETNAME\r\n", &[pass, "$-1\r\n"].concat()),
            ("HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n"),
            ("HELLO x\r\n", "-ERR Protocol version is not an integer or out of range\r\n"),
            ("HELLO 2 AUTH\r\n", "-ERR Syntax error in HELLO option 'AUTH'\r\n"),
            (
                "HELLO 2 SETNAME 'a b'\r\n",
                "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
            ),
            ("AUTH x\r\nAUTH default x\r\nAUTH other x\r\n", &[auth, "+OK\r\n", pass].concat()),
            (
                "SELECT 0\r\nSELECT 1\r\nSELECT x\r\n",
                "+OK\r\n-ERR DB index is out of range\r\n-ERR value is not an integer or out of range\r\n",
            ),
            ("CLIENT SETNAME me\r\nCLIENT GETNAME\r\nCLIENT ID\r\n", "+OK\r\n$2\r\nme\r\n:1\r\n"),
            ("CLIENT SETINFO LIB-NAME hiredis\r\nCLIENT SETINFO lib-ver 1.2\r\n", "+OK\r\n+OK\r\n"),
            (
                "CLIENT SETINFO LIB-NAME 'a b'\r\n",
                "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n",
            ),
            ("CLIENT SETINFO x y\r\n", "-ERR Unrecognized option 'x'\r\n"),
            ("CLIENT KILL ID 3\r\n", "-ERR unknown subcommand 'KILL'. Try CLIENT HELP.\r\n"),
            ("COMMAND\r\nCOMMAND DOCS\r\nCOMMAND COUNT\r\n", "*0\r\n*0\r\n:0\r\n"),
            ("COMMAND GETKEYS a\r\n", "-ERR unknown subcommand 'GETKEYS'. Try COMMAND HELP.\r\n"),
            ("QUIT\r\nPING\r\n", "+OK\r\n"),
        ],
    )
    .await;
    let info = String::from_utf8(exchange(POD, b"INFO server\r\n", 64).await).unwrap();
    assert!(info.contains("\r\nloading:0\r\n") && info.contains("redis_version:"), "{info}");
}

#[tokio::test]
async fn nothing_can_be_changed() {
    let read_only = "-READONLY the repository is read-only\r\n";
    for command in [
        "HSET apps a.sab x",
        "hset",
        "SET a b",
        "DEL apps",
        "HDEL apps a.sab",
        "FLUSHALL",
        "CONFIG SET dir /",
        "CONFIG GET *",
        "EVAL 'return 1' 0",
        "SCRIPT LOAD x",
        "SLAVEOF h 1",
        "REPLICAOF NO ONE",
        "MODULE LOAD x",
        "DEBUG SEGFAULT",
        "SHUTDOWN",
        "SAVE",
        "MIGRATE h 1 k 0 1",
        "FUNCTION LOAD x",
        "ACL SETUSER x",
        "MULTI",
        "RENAME apps b",
        "UNLINK apps",
        "EXPIRE apps 1",
    ] {
        check(POD, &[(&format!("{command}\r\nHGET apps long.sab\r\n"), &format!("{read_only}$3\r\n123\r\n"))]).await;
    }
}

#[tokio::test]
async fn what_is_not_understood() {
    let hget = "-ERR wrong number of arguments for 'hget' command\r\n";
    let argument = "y".repeat(200);
    check(
        POD,
        &[
            ("HGET apps\r\nHGET\r\nhget a b c\r\n", &hget.repeat(3)),
            ("ECHO\r\n", "-ERR wrong number of arguments for 'echo' command\r\n"),
            ("CLIENT\r\n", "-ERR wrong number of arguments for 'client' command\r\n"),
            ("CLIENT SETNAME\r\n", "-ERR wrong number of arguments for 'client|setname' command\r\n"),
            ("Foo a 'b c'\r\n", "-ERR unknown command 'Foo', with args beginning with: 'a' 'b c' \r\n"),
            ("Foo\r\nPING\r\n", "-ERR unknown command 'Foo', with args beginning with: \r\n+PONG\r\n"),
            (
                &format!("F {argument} z\r\n"),
                &format!("-ERR unknown command 'F', with args beginning with: '{}' \r\n", &argument[..128]),
            ),
            ("*1\r\n$5\r\na\r\nbc\r\n", "-ERR unknown command 'a  bc', with args beginning with: \r\n"),
            ("*1\r\n$0\r\n\r\n", "-ERR unknown command '', with args beginning with: \r\n"),
            // The connection ends behind what is no request.
            ("*x\r\nPING\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
            ("PING\r\n*1\r\n*1\r\n$4\r\nPING\r\n", "+PONG\r\n-ERR Protocol error: expected '$', got '*'\r\n"),
            ("*1000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
            ("*1\r\n$999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
            (
                "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
                "-ERR unknown command 'GET', with args beginning with: '/' 'HTTP/1.1' \r\n\
              -ERR unknown command 'Host:', with args beginning with: 'h' \r\n",
            ),
            ("\"\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
            // Half a request is none.
            ("*1\r\n$4\r\nPI", ""),
        ],
    )
    .await;
}
