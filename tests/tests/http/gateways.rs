//! Pools whose servers speak FastCGI or AJP: real php-fpm, real Tomcat, and servers that lie.

mod examples;
mod liars;
mod php;
mod pings;
mod status;
mod tomcat;

use skep_tests::{PATIENCE, Site, Skep, poll_until};

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

/// Lines of a config whose site is a pool, with a cache that orders queries.
fn cached(lines: &str) -> String {
    let cache = "[site.cache]\nenabled = true\nfresh_ms = 60000\nquery_sorted = true\n\
                 query_ignored = \"utm_*\"\n[[pool]]";
    lines.replacen("[[pool]]", cache, 1)
}

/// A page that tells its query is stored under the query that the application saw.
fn assert_is_cached(skep: &Skep, page: &str, query_line: &str) {
    let mut client = skep.connect();
    let first = client.get(&format!("{page}?utm_source=x&do=told&a=1"));
    let told = first.assert_status(200).text();
    assert!(told.lines().any(|it| it == query_line), "{query_line} is missing in\n{told}");
    assert!(!told.contains("utm_source"), "{told}");
    assert!(first.cache_status().ends_with("; stored"), "{}", first.head_text());
    let hit = client.get(&format!("{page}?do=told&a=1&utm_medium=y"));
    assert!(hit.cache_status().starts_with("skep; hit"), "{}", hit.head_text());
    assert_eq!(hit.text(), told);
}

/// A node whose site has `lines` sends the file that `asked` with `field` and `path` names.
fn assert_sends_named_files(lines: &str, asked: &str) {
    let files = Site::new().with("a b.pdf", b"the file");
    let root = files.root().display();
    let forward = format!("[site.forward]\nsendfile_root = \"{root}\"\nsendfile_path = \"/own\"\n");
    let skep = Skep::node_of(&lines.replacen("[[pool]]", &format!("{forward}[[pool]]"), 1));
    let mut client = skep.connect();
    let names = [
        ("X-Accel-Redirect", "/own/a%2520b.pdf".to_owned()),
        ("X-Sendfile", format!("{root}/a%20b.pdf")),
    ];
    for (field, path) in names {
        let target = format!("{asked}field={field}&path={path}");
        let reply = client.get(&target);
        assert_eq!((reply.status, reply.text().as_str()), (200, "the file"), "{field}");
        reply.assert_header("content-length", "8");
        assert!(reply.header("content-type").unwrap().starts_with("application/pdf"));
        assert!(reply.header("x-accel-redirect").or(reply.header("x-sendfile")).is_none());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: bytes=4-\r\n\r\n"));
        let part = client.response();
        assert_eq!((part.status, part.text().as_str()), (206, "file"));
    }
}
