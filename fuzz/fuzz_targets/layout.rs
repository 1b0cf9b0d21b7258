//! See the module that it runs.

#![no_main]

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/compilation.rs"]
mod compilation;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/layout.rs"]
mod layout;

libfuzzer_sys::fuzz_target!(|data: &[u8]| layout::run(data));
