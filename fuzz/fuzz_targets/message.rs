//! libFuzzer's entry to `skep_fuzz::machines::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::machines::message(data));
