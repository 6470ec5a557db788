//! Compression: which variant clients receive, whether curl can decode it, what is left uncompressed, and
//! that each variant is made once.

use std::process::Command;

use skep_tests::app::{App, response};
use skep_tests::{FreePort, PATIENCE, RawClient, Response, Site, Skep, poll_until};

use super::pool_cache::{Received, app};
use super::pools::pool_lines;

/// A node with compression, and its metrics port.
pub(super) struct Node {
    pub(super) skep: Skep,
    metrics: FreePort,
}

impl Node {
    /// `settings` are lines of its only site, and of further tables.
    fn start(settings: &str) -> Self {
        let metrics = FreePort::claim();
        let listen = metrics.address();
        let settings = format!("{settings}\n[metrics]\nlisten = \"{listen}\"");
        Self { skep: Skep::node_of(&settings), metrics }
    }

    /// Starts one with the files of `site`.
    fn with_files(site: &Site, compress: &str) -> Self {
        let root = site.root().display();
        Self::start(&format!("root = \"{root}\"\n[site.compress]\nenabled = true\n{compress}"))
    }

    /// Starts one with the pool of `app`.
    pub(super) fn with_app(app: &App, cache: bool, compress: &str) -> Self {
        let pool = pool_lines("", &[(app.address(), "")]);
        Self::start(&format!(
            "pool = \"app\"\n[site.cache]\nenabled = {cache}\n\
             [site.compress]\nenabled = true\n{compress}\n{pool}"
        ))
    }

    pub(super) fn get(&self, target: &str, accept: &str) -> Response {
        self.ask(target, &[("Accept-Encoding", accept)])
    }

    pub(super) fn ask(&self, target: &str, fields: &[(&str, &str)]) -> Response {
        self.skep.connect().request("GET", target, fields)
    }

    /// Returns a reply in `coding`, decoded by curl with its own libraries.
    pub(super) fn by_curl(&self, target: &str, coding: &str) -> Vec<u8> {
        let url = format!("http://{}{target}", self.skep.address());
        let accept = format!("Accept-Encoding: {coding}");
        let arguments = [
            "-s",
            "-S",
            "-f",
            "--max-time",
            "30",
            "--compressed",
            "-H",
            "Host: test",
            "-H",
            &accept,
            &url,
        ];
        let output = Command::new("curl").args(arguments).output().expect("curl runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{target} in {coding}: {told}");
        output.stdout
    }

    fn metric(&self, name: &str) -> u64 {
        let page = RawClient::connect(self.metrics.address()).get("/metrics").text();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in\n{page}")).parse().unwrap()
    }

    pub(super) fn compressions(&self) -> u64 {
        let of = |coding| self.metric(&format!("skep_compressions_total{{coding=\"{coding}\"}}"));
        ["zstd", "br", "gzip"].map(of).iter().sum()
    }

    fn skipped(&self, cause: &str) -> u64 {
        self.metric(&format!("skep_compressions_skipped_total{{cause=\"{cause}\"}}"))
    }
}

pub(super) const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

pub(super) fn text(lines: usize) -> Vec<u8> {
    (0..lines)
        .map(|line| format!("<p>line {line} of {}</p>\n", line * line))
        .collect::<String>()
        .into()
}

/// Text that compresses to half its size at best.
fn noise_text(bytes: usize) -> Vec<u8> {
    noise(bytes / 2).iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// Incompressible bytes.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(next).collect()
}

#[track_caller]
pub(super) fn assert_coding(reply: &Response, coding: Option<&str>) {
    assert_eq!(reply.header("content-encoding"), coding, "{}", reply.head_text());
}

#[track_caller]
fn assert_varies(reply: &Response) {
    let mut names = reply.header_all("vary").flat_map(|value| value.split(','));
    let varies = names.any(|name| name.trim().eq_ignore_ascii_case("accept-encoding"));
    assert!(varies, "{}", reply.head_text());
}

#[test]
fn curl_reads_what_is_made_once() {
    let page = text(4000);
    let site = Site::new().with("page.html", &page).with("large.css", text(250_000));
    let node = Node::with_files(&site, "");
    let plain = node.get("/page.html", "identity");
    assert_coding(&plain, None);
    assert_varies(&plain);
    for coding in CODINGS {
        for _ in 0..3 {
            assert!(node.by_curl("/page.html", coding) == page, "{coding}");
        }
        let reply = node.get("/page.html", coding);
        assert_coding(&reply, Some(coding));
        assert_varies(&reply);
        assert!(reply.body.len() < page.len() / 3, "{coding}: {} bytes", reply.body.len());
        let tag = reply.header("etag").unwrap();
        assert!(tag.starts_with('"') && Some(tag) != plain.header("etag"), "{tag}");
        assert!(reply.cache_status().starts_with("skep; hit"), "{}", reply.head_text());
    }
    assert_eq!(node.compressions(), 3);
    assert_eq!(node.metric("skep_compression_input_bytes_total{coding=\"br\"}"), page.len() as u64);
    // It has several segments, and is so long that the first client may get plain bytes.
    let is_made = || node.get("/large.css", "zstd").header("content-encoding").is_some();
    poll_until(PATIENCE, "the variant", is_made);
    assert!(node.by_curl("/large.css", "zstd") == text(250_000));
    assert_eq!(node.compressions(), 4);
}

/// RFC 9110, section 12.5.3.
#[test]
fn clients_get_what_they_accept() {
    let site = Site::new().with("page.html", text(400)).with("with.html", text(400));
    site.write("with.html.gz", "not what it was, but a sidecar");
    let node = Node::with_files(&site, "");
    let (zstd, br, gzip) = (Some("zstd"), Some("br"), Some("gzip"));
    for (accept, coding) in [
        ("gzip, deflate, br, zstd", zstd),
        ("gzip, deflate, br", br),
        ("deflate, GZIP", gzip),
        ("x-gzip", gzip),
        ("zstd;q=0.1, br;q=0.2, gzip;q=0.3", gzip),
        ("*", zstd),
        ("*;q=0.5, zstd;q=0", br),
        ("gzip;q=0.5, identity", None),
        ("gzip;q=0.5, identity;q=0.1", gzip),
        ("gzip;q=0", None),
        ("identity;q=0", None),
        ("identity;q=0, *", zstd),
        ("*;q=0", None),
        ("deflate", None),
        ("", None),
        // Malformed values are ignored.
        ("gzip;q=2", None),
        ("gzip;q=x, br", br),
        (";;q=1,,, br ;q=1.000 ,", br),
        ("gzip br", None),
        ("\u{e9}, gzip", gzip),
    ] {
        assert_coding(&node.get("/page.html", accept), coding);
    }
    assert_coding(&node.ask("/page.html", &[]), None);
    let of_two = [("Accept-Encoding", "br;q=0.5"), ("Accept-Encoding", "gzip")];
    assert_coding(&node.ask("/page.html", &of_two), gzip);
    // A sidecar needs no compression; without one for the coding, the file is compressed.
    assert_coding(&node.get("/with.html", "zstd, gzip"), gzip);
    assert_eq!(node.get("/with.html", "gzip").text(), "not what it was, but a sidecar");
    assert_coding(&node.get("/with.html", "zstd"), zstd);
    assert_eq!(node.compressions(), 4);
}

#[test]
fn conditions_and_ranges_are_about_one_variant() {
    let page = text(2000);
    let site = Site::new().with("page.html", &page);
    let node = Node::with_files(&site, "");
    let ask = |fields: &[(&str, &str)]| {
        node.ask("/page.html", &[&[("Accept-Encoding", "br")], fields].concat())
    };
    let plain = node.get("/page.html", "identity");
    let (plain_tag, date) = (plain.header("etag").unwrap(), plain.header("last-modified").unwrap());
    // The client's copy is valid: nothing needs to be compressed for that.
    for condition in [("If-None-Match", plain_tag), ("If-Modified-Since", date)] {
        let reply = ask(&[condition]);
        reply.assert_status(304);
        assert_varies(&reply);
    }
    let head = node.skep.connect().request("HEAD", "/page.html", &[("Accept-Encoding", "br")]);
    assert_coding(&head, None);
    assert_eq!(node.compressions(), 0);

    let whole = ask(&[]);
    assert_coding(&whole, Some("br"));
    let tag = whole.header("etag").unwrap();
    for held in [tag, &format!("W/{tag}"), &format!("\"x\", {tag}"), plain_tag, "*"] {
        ask(&[("If-None-Match", held)]).assert_status(304);
    }
    ask(&[("If-None-Match", tag)]).assert_header("etag", tag);
    ask(&[("If-None-Match", "\"other\"")]).assert_status(200);
    ask(&[("If-Match", "\"other\"")]).assert_status(412);
    assert_coding(ask(&[("If-Match", tag)]).assert_status(200), Some("br"));
    assert_coding(ask(&[("If-Match", plain_tag)]).assert_status(200), None);
    let head = node.skep.connect().request("HEAD", "/page.html", &[("Accept-Encoding", "br")]);
    head.assert_header("content-length", &whole.body.len().to_string());
    assert_coding(&head, Some("br"));

    let part = |fields: &[(&str, &str)]| ask(&[&[("Range", "bytes=10-19")], fields].concat());
    for reply in [part(&[]), part(&[("If-Range", tag)])] {
        reply.assert_status(206).assert_header("etag", tag);
        assert_coding(&reply, Some("br"));
        assert_eq!(reply.body, &whole.body[10..20]);
    }
    let reply = part(&[("If-Range", plain_tag)]);
    assert_coding(reply.assert_status(206), None);
    assert_eq!(reply.body, &page[10..20]);
    // All variants have the same date, which does not identify the variant of the client's part.
    assert_eq!(part(&[("If-Range", date)]).assert_status(200).body, whole.body);
    assert_eq!(node.compressions(), 1);

    site.replace("page.html", text(2001));
    poll_until(PATIENCE, "the new version", || ask(&[]).body != whole.body);
    ask(&[("If-None-Match", tag)]).assert_status(200);
    assert!(node.by_curl("/page.html", "br") == text(2001));
}

#[test]
fn what_gains_nothing_is_sent_as_it_is() {
    let site = Site::new()
        .with("empty.html", "")
        .with("tiny.html", "tiny")
        .with("noise.html", noise(100_000))
        .with("image.png", text(400))
        .with("long.html", text(4000));
    let node = Node::with_files(&site, "size_bytes_max = \"100KiB\"");
    for name in ["empty.html", "tiny.html", "noise.html", "image.png", "long.html"] {
        for _ in 0..2 {
            let reply = node.get(&format!("/{name}"), "zstd, br, gzip");
            assert_coding(reply.assert_status(200), None);
            assert!(reply.body == std::fs::read(site.path(name)).unwrap(), "{name}");
        }
    }
    // It was tried once, and recorded as incompressible.
    assert_eq!((node.compressions(), node.skipped("useless")), (0, 1));
    assert_varies(&node.get("/noise.html", "br"));
}

#[test]
fn a_stored_response_is_computed_once_for_all_codings() {
    let (app, received) = app(|_, _| {
        let fields = "Cache-Control: max-age=60\r\nVary: Accept-Encoding\r\nETag: \"v1\"\r\n\
                      Content-Type: text/html\r\n";
        response(200, fields, text(3000))
    });
    let node = Node::with_app(&app, true, "");
    for coding in CODINGS {
        assert!(node.by_curl("/page", coding) == text(3000), "{coding}");
        let reply = node.get("/page", coding);
        assert_coding(&reply, Some(coding));
        assert_varies(&reply);
        assert!(reply.header("etag").unwrap().starts_with("\"v1-"), "{}", reply.head_text());
        assert!(reply.cache_status().starts_with("skep; hit"), "{}", reply.head_text());
    }
    // In turn, on a persistent connection.
    let mut client = node.skep.connect();
    for (accept, coding) in
        [("br", Some("br")), ("", None), ("gzip", Some("gzip")), ("zstd", Some("zstd"))].repeat(3)
    {
        let reply = client.request("GET", "/page", &[("Accept-Encoding", accept)]);
        assert_coding(&reply, coding);
        assert_eq!(reply.body.len() == text(3000).len(), coding.is_none());
    }
    assert_eq!(node.ask("/page", &[]).body, text(3000));
    assert_eq!(received.next().field("accept-encoding"), Some("identity"));
    received.assert_none();
    // A client that changes the page sends the tag that it received; the application knows only its own.
    let tag = node.get("/page", "br").header("etag").unwrap().to_owned();
    let tags = format!("\"v0\", {tag}");
    client.request("PUT", "/page", &[("If-Match", &tags)]).assert_status(200);
    assert_eq!(received.next().field("if-match"), Some("\"v0\", \"v1\""));
    assert_eq!(node.compressions(), 3);
}

#[test]
fn an_origin_is_compressed_as_a_file_is() {
    let (app, received) = app(|_, _| {
        let fields = "Cache-Control: max-age=60\r\nContent-Type: application/json\r\n";
        response(200, fields, text(3000))
    });
    let origin = app.address();
    let node = Node::start(&format!(
        "origins = \"http://{origin}\"\n[site.compress]\nenabled = true\ncodings = [\"br\"]"
    ));
    assert!(node.by_curl("/data", "gzip, br") == text(3000));
    let reply = node.get("/data", "gzip, br");
    assert_coding(&reply, Some("br"));
    assert_varies(&reply);
    assert_eq!(received.next().field("accept-encoding"), Some("identity"));
    received.assert_none();
    assert_eq!(node.compressions(), 1);
}

/// Responses of [`saying`] by path.
const LEFT_ALONE: &[(&str, &str)] = &[
    ("/coded", "Cache-Control: max-age=60\r\nContent-Encoding: gzip\r\n"),
    ("/no-transform", "Cache-Control: max-age=60, no-transform\r\n"),
    ("/digest", "Cache-Control: max-age=60\r\nRepr-Digest: sha-256=:AA==:\r\n"),
    ("/md5", "Cache-Control: max-age=60\r\nContent-MD5: AA==\r\n"),
];

const PRIVATE: &[(&str, &str)] = &[
    ("/private", "Cache-Control: private, max-age=60\r\n"),
    ("/cookie", "Set-Cookie: sid=1\r\n"),
    ("/plain", ""),
    ("/no-store", "Cache-Control: no-store\r\n"),
];

/// An application with these responses, all with the same text.
fn saying() -> (App, Received) {
    app(|request, _| {
        let target = request.line().split(' ').nth(1).unwrap();
        let known = LEFT_ALONE.iter().chain(PRIVATE).find(|(path, _)| *path == target);
        let fields = known.map_or("", |(_, fields)| fields);
        response(200, &format!("Content-Type: text/html\r\nETag: \"v1\"\r\n{fields}"), text(3000))
    })
}

#[test]
fn responses_that_compression_would_spoil_are_left_alone() {
    let (app, _received) = saying();
    for (cache, compress) in [(true, ""), (true, "private = true"), (false, "private = true")] {
        let node = Node::with_app(&app, cache, compress);
        for (path, _) in LEFT_ALONE {
            for _ in 0..2 {
                let reply = node.get(path, "zstd, br, gzip");
                assert_eq!(reply.assert_status(200).body, text(3000), "{path}");
                reply.assert_header("etag", "\"v1\"");
            }
        }
        assert_eq!(node.compressions(), 0, "{cache} {compress}");
    }
}

/// CVE-2013-3587 (BREACH).
#[test]
fn what_may_hold_a_secret_is_compressed_only_where_the_route_says_so() {
    let (app, _received) = saying();
    let safe = Node::with_app(&app, true, "");
    for (path, _) in PRIVATE {
        let reply = safe.get(path, "zstd, br, gzip");
        assert_coding(reply.assert_status(200), None);
        reply.assert_header("etag", "\"v1\"");
    }
    assert_eq!(safe.compressions(), 0);
    for cache in [true, false] {
        let node = Node::with_app(&app, cache, "private = true");
        for ((path, _), coding) in PRIVATE.iter().zip(CODINGS.iter().cycle()) {
            let reply = node.get(path, coding);
            assert_coding(reply.assert_status(200), Some(coding));
            assert_varies(&reply);
            // A response with a tag is stored, and compressed once, although each use needs the application's
            // validation.
            if !cache || *path != "/plain" {
                assert_eq!(reply.header("content-length"), None);
                reply.assert_header("etag", "W/\"v1\"");
            }
            assert!(reply.body.len() < text(3000).len() / 3);
            assert!(node.by_curl(path, coding) == text(3000), "{path} {coding}");
            // A cross-site page may be malicious; a request without the header is from a tool, or an old
            // browser.
            let of_others = [("Accept-Encoding", *coding), ("Sec-Fetch-Site", "cross-site")];
            assert_coding(&node.ask(path, &of_others), None);
            let plain = node.get(path, "identity");
            assert_eq!(plain.body, text(3000));
            assert_varies(&plain);
            // A client without support for chunks gets a streamed response uncompressed.
            let old =
                format!("GET {path} HTTP/1.0\r\nHost: old\r\nAccept-Encoding: {coding}\r\n\r\n");
            let of_old = (*path == "/plain" && cache).then_some(*coding);
            assert_coding(&node.skep.connect().send(old).response(), of_old);
        }
    }
}

/// If more is requested in turn than the cache holds, each variant has been evicted before its next request.
#[test]
fn a_variant_that_left_memory_is_made_again() {
    const FILES: usize = 40;
    let page =
        |number: usize| [format!("<h1>{number}</h1>").into_bytes(), noise_text(60_000)].concat();
    let names = (0..FILES).map(|number| (format!("{number}.html"), page(number)));
    let site = names.fold(Site::new(), |site, (name, bytes)| site.with(&name, bytes));
    let node = Node::with_files(&site, "[cache]\nsize_bytes_max = \"1MiB\"");
    let ask = |number: usize| node.get(&format!("/{number}.html"), "zstd");
    let first: Vec<_> = (0..FILES).map(ask).collect();
    for _ in 0..2 {
        for (number, first) in first.iter().enumerate() {
            let reply = ask(number);
            assert_coding(reply.assert_status(200), Some("zstd"));
            assert_eq!(reply.header("etag"), first.header("etag"));
            assert!(reply.body == first.body, "{number}");
        }
    }
    assert!(node.compressions() > FILES as u64, "{}", node.compressions());
    assert!(node.by_curl("/7.html", "zstd") == page(7));
    let held = node.metric("skep_cache_alive_bytes");
    assert!(held < 2 << 20, "{held} bytes in a cache of 1 MiB");
}

/// The highest level takes seconds; the first client gets plain bytes after one second.
#[test]
fn who_would_wait_for_long_gets_plain_bytes() {
    let page = noise_text(1_500_000);
    let site = Site::new().with("page.html", &page).with("small.html", text(400));
    let node = Node::with_files(&site, "codings = [\"br\"]\nbr_level = 11");
    let reply = node.get("/page.html", "br");
    assert_coding(reply.assert_status(200), None);
    assert_varies(&reply);
    assert!(reply.body == page);
    assert_eq!((node.skipped("late"), node.compressions()), (1, 0));
    // Meanwhile other requests are served, and the finished variant is available for the next client.
    node.get("/small.html", "identity").assert_status(200);
    let is_made = || node.get("/page.html", "br").header("content-encoding").is_some();
    poll_until(PATIENCE, "the variant", is_made);
    assert_eq!(node.compressions(), 1);
    assert!(node.by_curl("/page.html", "br") == page);
}

#[test]
fn an_error_page_is_compressed_as_the_file_that_it_is() {
    let site = Site::new().with("404.html", text(400));
    let root = site.root().display().to_string();
    let node = Node::start(&format!(
        "root = \"{root}\"\nerror_pages = {{ \"404\" = \"/404.html\" }}\n\
         [site.compress]\nenabled = true"
    ));
    let reply = node.get("/none", "gzip");
    assert_coding(reply.assert_status(404), Some("gzip"));
    assert_varies(&reply);
    assert!(reply.body.len() < text(400).len() / 3);
}

#[test]
fn a_reload_makes_no_variant_again() {
    let site = Site::new().with("page.html", text(400));
    let metrics = FreePort::claim();
    let settings = |gzip_level: u32, changed: &str| {
        let listen = metrics.address();
        format!(
            "headers = {{ X-Changed = \"{changed}\" }}\n[site.compress]\nenabled = true\n\
             gzip_level = {gzip_level}\n[metrics]\nlisten = \"{listen}\""
        )
    };
    let skep = Skep::node(site.root(), &settings(6, "no"));
    let get = || skep.connect().request("GET", "/page.html", &[("Accept-Encoding", "gzip")]);
    let made = || {
        let page = RawClient::connect(metrics.address()).get("/metrics").text();
        let name = "skep_compressions_total{coding=\"gzip\"} ";
        page.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
    };
    let before = get();
    for (level, changed, expected) in [(6, "yes", "1"), (1, "level", "2")] {
        skep.reconfigure(site.root(), &settings(level, changed));
        skep.signal(rustix::process::Signal::HUP);
        poll_until(PATIENCE, "the reload", || get().header("x-changed") == Some(changed));
        assert_coding(&get(), Some("gzip"));
        assert_eq!(made(), expected);
        assert_eq!(get().body == before.body, level == 6);
    }
}

#[test]
fn a_reload_switches_it_on_and_off() {
    let site = Site::new().with("page.html", text(400));
    let skep = Skep::node(site.root(), "");
    let get = || skep.connect().request("GET", "/page.html", &[("Accept-Encoding", "gzip")]);
    assert_coding(&get(), None);
    assert_eq!(get().header("vary"), None);
    for (settings, coding) in [("[site.compress]\nenabled = true", Some("gzip")), ("", None)] {
        skep.reconfigure(site.root(), settings);
        skep.signal(rustix::process::Signal::HUP);
        poll_until(PATIENCE, "the reload", || get().header("content-encoding") == coding);
    }
}
