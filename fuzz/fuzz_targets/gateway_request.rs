//! libFuzzer's entry to `skep_fuzz::gateways::gateway_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::gateways::gateway_request(data));
