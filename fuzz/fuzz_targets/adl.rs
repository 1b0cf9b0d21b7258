//! See the module that it runs.

#![no_main]

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/adl.rs"]
mod adl;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/compilation.rs"]
mod compilation;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/people.rs"]
mod people;

libfuzzer_sys::fuzz_target!(|data: &[u8]| adl::run(data));
