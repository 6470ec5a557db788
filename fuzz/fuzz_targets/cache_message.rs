//! libFuzzer's entry to `skep_fuzz::streams::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::streams::message(data));
