//! See the module that it runs.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| streams_frontend_fuzzing::grpc_apis::run(data));
