//! See the module that it runs.

#![no_main]

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/compilation.rs"]
mod compilation;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/submission_values.rs"]
mod submission_values;

libfuzzer_sys::fuzz_target!(|data: &[u8]| submission_values::run(data));
