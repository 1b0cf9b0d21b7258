//! See the module that it runs.

#![no_main]

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/expression.rs"]
mod expression;

libfuzzer_sys::fuzz_target!(|data: &[u8]| expression::run(data));
