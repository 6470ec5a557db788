//! libFuzzer's entry to `skep_fuzz::handoffs::lccp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::handoffs::lccp(data));
