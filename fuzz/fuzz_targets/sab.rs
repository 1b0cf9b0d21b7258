//! See the module that it runs.

#![no_main]

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/sab.rs"]
mod sab;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sab::run(data));
