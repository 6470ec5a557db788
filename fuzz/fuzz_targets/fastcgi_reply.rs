//! libFuzzer's entry to `skep_fuzz::gateways::fastcgi_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::gateways::fastcgi_reply(data));
