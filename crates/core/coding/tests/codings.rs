//! Output of the encoders is decoded by the same libraries; the black-box tests use others.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read;

use proptest::prelude::*;
use skep_coding::{Encoder, levels};
use skep_http::negotiate::Encoding;

/// As much as can be decoded.
fn decoded(coding: Encoding, bytes: &[u8]) -> Vec<u8> {
    let mut decoder: Box<dyn Read + '_> = match coding {
        Encoding::Br => Box::new(brotli::Decompressor::new(bytes, 4096)),
        Encoding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
        Encoding::Zstd => Box::new(zstd::Decoder::new(bytes).unwrap()),
    };
    let (mut out, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = decoder.read(&mut buffer) {
        out.extend_from_slice(&buffer[..read]);
    }
    out
}

#[test]
fn every_level_has_a_result_that_decodes() {
    let text = "straw beehives, skep by skep; ".repeat(3000);
    for coding in Encoding::ALL {
        for level in levels(coding) {
            for bytes in [Some(text.len() as u64), None] {
                let mut encoder = Encoder::new(coding, level, bytes).unwrap();
                encoder.push(text.as_bytes()).unwrap();
                let out = encoder.finish().unwrap();
                assert!(out.len() < text.len() / 10, "{coding:?} {level}: {}", out.len());
                assert_eq!(decoded(coding, &out), text.as_bytes(), "{coding:?} {level}");
            }
        }
    }
}

#[test]
fn what_was_flushed_can_be_read_before_the_end() {
    for coding in Encoding::ALL {
        let mut encoder = Encoder::new(coding, 4, None).unwrap();
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        for number in 0..20 {
            let event = format!("data: {number}\n\n").into_bytes();
            encoder.push(&event).unwrap();
            sent.extend(event);
            encoder.flush().unwrap();
            out.extend(encoder.take());
            assert_eq!(decoded(coding, &out), sent, "{coding:?}");
        }
    }
}

#[test]
fn fewer_bytes_than_were_told_are_an_error_of_zstd() {
    let mut encoder = Encoder::new(Encoding::Zstd, 3, Some(10)).unwrap();
    encoder.push(b"nine byte").unwrap();
    assert!(encoder.finish().is_err());
}

#[test]
fn the_window_of_zstd_is_one_that_clients_support() {
    let bytes = 40 << 20;
    let mut encoder = Encoder::new(Encoding::Zstd, 19, Some(bytes)).unwrap();
    encoder.push(&vec![7; 1 << 20]).unwrap();
    encoder.flush().unwrap();
    let out = encoder.take();
    // RFC 8878 3.1.1.1: with a window descriptor after the frame header descriptor.
    assert_eq!(out[4] & 0x20, 0, "no single segment");
    let exponent = u32::from(out[5] >> 3) + 10;
    assert!(exponent <= 23, "2^{exponent} bytes");
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_come_back(
        data in proptest::collection::vec(any::<u8>(), 0..20_000),
        cuts in proptest::collection::vec(0..20_000_usize, 0..8),
        coding in proptest::sample::select(&Encoding::ALL[..]),
        level in 0..20_u32,
        flushes in any::<bool>(),
    ) {
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(data.len())).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let mut encoder = Encoder::new(coding, level, None).unwrap();
        let mut out = Vec::new();
        for pair in cuts.windows(2) {
            encoder.push(&data[pair[0]..pair[1]]).unwrap();
            if flushes {
                encoder.flush().unwrap();
            }
            out.extend(encoder.take());
        }
        out.extend(encoder.finish().unwrap());
        prop_assert_eq!(decoded(coding, &out), data);
    }
}
