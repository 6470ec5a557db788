//! Pools whose servers speak FastCGI or AJP: real php-fpm, real Tomcat, and servers that lie.

mod examples;
mod liars;
mod php;
mod tomcat;

use skep_tests::{PATIENCE, Skep, poll_until};

/// What `skep pool list` says.
fn pool_list(skep: &Skep) -> String {
    let finished = skep.command(&["pool", "list"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished.stdout
}

/// Waits until the node has logged `words`.
fn until_logged(skep: &Skep, words: &str) {
    poll_until(PATIENCE, &format!("{words:?} in the log"), || skep.stderr_text().contains(words));
}

/// Chunks of `body`, each of at most `bytes`, and the last.
fn in_chunks(body: &[u8], bytes: usize) -> Vec<u8> {
    let mut chunks = Vec::new();
    for chunk in body.chunks(bytes) {
        chunks.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        chunks.extend_from_slice(chunk);
        chunks.extend(b"\r\n");
    }
    chunks.extend(b"0\r\n\r\n");
    chunks
}

/// Bytes that differ from place to place.
fn body_of(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// CRC-32 of ISO-HDLC, as PHP's and Java's.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}
