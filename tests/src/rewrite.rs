//! Rewriting files in place, and checks of replies that may contain a partial rewrite.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use skep_testclient::Response;

use crate::content::version_of;

/// Size of one `write` call in bytes: meanwhile, the file is partly old and partly new.
const PIECE: usize = 16 * 1024;

/// Overwrites a file piece by piece, without truncating it first.
pub fn rewrite(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).expect("the file is there");
    bytes.chunks(PIECE).for_each(|piece| file.write_all(piece).expect("room on the disk"));
}

/// Returns the version of the content of a complete 200 reply if it has an ETag.
///
/// # Panics
/// If it has one and mixes versions, or has none but may be stored.
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
