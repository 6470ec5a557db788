//! libFuzzer's entry to `skep_fuzz::machines::datagram`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::machines::datagram(data));
