//! libFuzzer's entry to `skep_fuzz::targets::request_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::targets::request_head(data));
