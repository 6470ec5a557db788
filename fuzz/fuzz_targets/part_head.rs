//! libFuzzer's entry to `skep_fuzz::streams::part_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::streams::part_head(data));
