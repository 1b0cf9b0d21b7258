//! The targets as tests: with the seeds of each, and with every input that ever found something (`regressions/TARGET`).
//!
//! `FUZZ_CORPUS=fuzz/corpus cargo test -p streams-frontend-fuzzing seeds` writes the seeds into folders, for
//! `cargo fuzz run`.

use super::{TARGETS, grpc_apis};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// What a client sends, each in pieces of another size.
const REDIS: [&[u8]; 14] = [
    b"\x01*3\r\n$4\r\nHGET\r\n$4\r\napps\r\n$1\r\na\r\n",
    b"\xff*3\r\n$4\r\nHGET\r\n$4\r\napps\r\n$1\r\nb\r\n*1\r\n$4\r\nQUIT\r\nPING\r\n",
    b"\x40HELLO 3 AUTH default x SETNAME me\r\nHGET apps x\r\nHELLO 2\r\nHGET other a\r\n",
    b"\x05HKEYS apps\r\nHLEN apps\r\nHEXISTS apps a\r\nHSTRLEN apps b\r\nHGET apps c\r\n",
    b"\x20CLIENT SETINFO LIB-NAME a\r\nCLIENT SETNAME b\r\nCLIENT GETNAME\r\nCLIENT ID\r\nCLIENT KILL\r\n",
    b"\x20COMMAND\r\nCOMMAND DOCS\r\nCOMMAND COUNT\r\nINFO\r\nSELECT 0\r\nSELECT 9\r\nAUTH x\r\nECHO 'a b'\r\n",
    b"\x20SET a b\r\nFLUSHALL\r\nEVAL 'return 1' 0\r\nCONFIG GET *\r\nFoo 'x' \"\\x00\\n\"\r\n",
    b"\x20*1000000\r\n$999999999\r\n",
    b"\x20*1\r\n$999999999\r\n",
    b"\x20*6\r\n$40\r\n0123456789012345678901234567890123456789\r\n$250\r\n",
    b"\x20*1\r\n*1\r\n*1\r\n$4\r\nPING\r\n",
    b"\x20*0\r\n*-1\r\n\r\n\n*1\r\n$0\r\n\r\n",
    b"\x03*1\r\n$4\r\nPINGxx",
    b"\x10GET / HTTP/1.1\r\nHost: h\r\n\r\n\x16\x03\x01\x02\x00",
];

/// Runs them all, and tells which failed.
fn run(inputs: impl Iterator<Item = (&'static str, fn(&[u8]), String, Vec<u8>)>) {
    let mut failed = Vec::new();
    for (target, run, name, input) in inputs {
        if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
            failed.push(format!("{target}/{name}"));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Where to begin with a target. Two of them read decisions from bytes, so any bytes are as good as others.
fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "redis" => return REDIS.iter().map(|seed| seed.to_vec()).collect(),
        "grpc_apis" => return grpc_apis::seeds::all().into_iter().map(|seed| seed.input).collect(),
        _ => {}
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..100).map(|number| (0..8 + 4 * number).map(|_| byte()).collect()).collect()
}

#[test]
fn seeds() {
    for (target, function) in TARGETS {
        let seeds = seeds_of(target);
        if let Some(folder) = std::env::var_os("FUZZ_CORPUS") {
            // Relative to where the command was given, not to this package.
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder).join(target);
            std::fs::create_dir_all(&folder).unwrap();
            for (number, input) in seeds.iter().enumerate() {
                std::fs::write(folder.join(format!("seed-{number}")), input).unwrap();
            }
        }
        let numbered = seeds.into_iter().enumerate();
        run(numbered.map(|(number, input)| (target, function, number.to_string(), input)));
    }
}

#[test]
fn inputs_that_found_something() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    run(TARGETS.into_iter().flat_map(|(target, run)| {
        let entries = std::fs::read_dir(folder.join(target)).into_iter().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.into_iter().map(move |path| {
            (target, run, path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
        })
    }));
}
