//! See the module that it runs.

#![no_main]

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/compilation.rs"]
mod compilation;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/grpc_request.rs"]
mod grpc_request;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../../fusion-service/tests/fuzzing/layout.rs"]
mod layout;

libfuzzer_sys::fuzz_target!(|data: &[u8]| grpc_request::run(data));
