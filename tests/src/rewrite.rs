//! Files that are rewritten in place, and replies that may have caught them half-way.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use skep_testclient::Response;

use crate::content::version_of;

/// Bytes of one `write` call: the file is half old and half new for a while.
const PIECE: usize = 16 * 1024;

/// Writes a file anew without cutting it first, piece by piece.
pub fn rewrite(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).expect("the file is there");
    bytes.chunks(PIECE).for_each(|piece| file.write_all(piece).expect("room on the disk"));
}

/// The version of what a whole 200 has, if it names one.
///
/// # Panics
/// If it names one and is of several, or names none and may be kept.
#[track_caller]
pub fn version_if_named(reply: &Response) -> Option<u32> {
    if reply.header("etag").is_some() {
        let version = version_of(&reply.body);
        return Some(version.unwrap_or_else(|mixed| panic!("{mixed}: {}", reply.head_text())));
    }
    assert_eq!(reply.header("last-modified"), None, "{}", reply.head_text());
    assert_eq!(reply.header("cache-control"), Some("no-store"), "{}", reply.head_text());
    assert_eq!(reply.cache_status(), "skep; fwd=bypass");
    None
}
