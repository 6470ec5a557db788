//! libFuzzer's entry to `skep_fuzz::caching::caching`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::caching::caching(data));
