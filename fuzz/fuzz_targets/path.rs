//! libFuzzer's entry to `skep_fuzz::targets::path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::targets::path(data));
