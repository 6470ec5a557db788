//! Pools whose servers use FastCGI or AJP: real php-fpm, real Tomcat, and servers that lie.

mod examples;
mod liars;
mod php;
mod pings;
mod status;
mod tomcat;

use skep_tests::{PATIENCE, Site, Skep, poll_until};

/// Returns the output of `skep pool list`.
fn pool_list(skep: &Skep) -> String {
    let finished = skep.command(&["pool", "list"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished.stdout
}

/// Waits until the node has logged `words`.
fn until_logged(skep: &Skep, words: &str) {
    poll_until(PATIENCE, &format!("{words:?} in the log"), || skep.stderr_text().contains(words));
}

/// Encodes `body` in chunks of at most `bytes`, with the last chunk.
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

/// Returns bytes that depend on their position.
fn body_of(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// CRC-32/ISO-HDLC, as in PHP and Java.
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

/// Adds a cache that sorts and filters queries to config lines of a site with a pool.
fn cached(lines: &str) -> String {
    let cache = "[site.cache]\nenabled = true\nfresh_ms = 60000\nquery_sorted = true\n\
                 query_ignored = \"utm_*\"\n[[pool]]";
    lines.replacen("[[pool]]", cache, 1)
}

/// Asserts that a page which contains its query is stored under the query that the application received.
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

/// Asserts that a node whose site has `lines` sends the file that `asked` names with `field` and `path`.
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
