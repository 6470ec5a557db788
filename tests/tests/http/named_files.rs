//! Files that an application names instead of sending a body: X-Accel-Redirect and X-Sendfile.

use std::sync::mpsc::{Receiver, sync_channel};

use skep_tests::app::{App, AppConn, AppRequest, response};
use skep_tests::{FreePort, PATIENCE, RawClient, Response, Site, Skep, poll_until};

use super::pools::pool_lines;

/// An application that answers as its requests specify: `X-Answer` contains fields separated by `|`,
/// `X-Status` the status, and `X-Body` the body.
fn app() -> (App, Receiver<AppRequest>) {
    let (tell, told) = sync_channel(256);
    let app = App::answering(move |asked| {
        let _ = tell.send(asked.clone());
        let of = |name| asked.field(name).unwrap_or_default();
        let fields: String = of("x-answer")
            .split('|')
            .filter(|it| !it.is_empty())
            .map(|line| format!("{}\r\n", line.trim()))
            .collect();
        response(of("x-status").parse().unwrap_or(200), &fields, of("x-body"))
    });
    (app, told)
}

struct Rig {
    skep: Skep,
    metrics: FreePort,
    files: Site,
    _app: App,
    told: Receiver<AppRequest>,
}

const PDF: &[u8] = b"0123456789abcdefghij";

impl Rig {
    /// Starts a node with a pool that may name files below `files` as `/protected`.
    fn new(of_site: &str) -> Self {
        Self::with(of_site, "")
    }

    fn with(of_site: &str, of_pool: &str) -> Self {
        let (app, told) = app();
        let files = Site::new().with("a.pdf", PDF).with("b c/d.txt", "text").with(".hidden", "h");
        files.write("long", PDF.repeat(100));
        files.link("out", "/etc/hostname");
        files.link("in", "a.pdf");
        let metrics = FreePort::claim();
        let (listen, root) = (metrics.address(), files.root().display());
        let pool = pool_lines(of_pool, &[(app.address(), "")]);
        let skep = Skep::node_of(&format!(
            "pool = \"app\"\nheaders = {{ \"X-Site\" = \"1\" }}\n{of_site}\n[site.forward]\n\
             sendfile_root = \"{root}\"\nsendfile_path = \"/protected/\"\n\
             [metrics]\nlisten = \"{listen}\"\n{pool}"
        ));
        Self { skep, metrics, files, _app: app, told }
    }

    fn counted(&self, result: &str) -> u64 {
        let text = RawClient::connect(self.metrics.address()).get("/metrics").text();
        let line = format!("skep_pool_files_total{{pool=\"app\",result=\"{result}\"}} ");
        text.lines().find_map(|it| it.strip_prefix(&line)).expect(&line).parse().unwrap()
    }

    /// Returns the reply to a GET with `fields`, which the application answers with `answer`.
    fn get(&self, fields: &[(&str, &str)], answer: &str) -> Response {
        ask(&mut self.skep.connect(), "GET", fields, answer)
    }

    fn sendfile(&self, name: &str) -> String {
        format!("X-Sendfile: {}/{name}", self.files.root().display())
    }
}

fn ask(client: &mut RawClient, method: &str, fields: &[(&str, &str)], answer: &str) -> Response {
    let mut text = format!("{method} /download HTTP/1.1\r\nHost: a\r\nX-Answer: {answer}\r\n");
    fields.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    client.send(text + "\r\n");
    client.try_response_to(method).unwrap()
}

/// Asserts that the client does not learn where files are.
fn assert_names_nothing(reply: &Response) {
    for gone in ["x-accel-redirect", "x-sendfile", "x-accel-limit-rate"] {
        assert_eq!(reply.header(gone), None, "{gone} in {}", reply.head_text());
    }
}

#[test]
fn a_file_is_sent_in_place_of_the_body() {
    let rig = Rig::new("");
    for named in ["X-Accel-Redirect: /protected/a.pdf?x=1".to_owned(), rig.sendfile("a.pdf")] {
        let reply = rig.get(
            &[("X-Body", "of the application")],
            &format!(
                "{named}|Content-Type: application/x-own|Content-Disposition: attachment|\
                 Set-Cookie: a=1|Set-Cookie: b=2|Cache-Control: max-age=5|X-Own: 1|\
                 X-Accel-Limit-Rate: 5|ETag: \"own\"|Last-Modified: Mon, 01 Jan 2001 00:00:00 GMT|\
                 Vary: Cookie|X-Site: 2|Connection: X-Hop|X-Hop: 1"
            ),
        );
        assert_eq!((reply.status, &*reply.body), (200, PDF));
        for (name, value) in [
            ("content-type", "application/x-own"),
            ("content-disposition", "attachment"),
            ("cache-control", "max-age=5"),
            ("content-length", "20"),
            ("accept-ranges", "bytes"),
            ("cache-status", "skep; fwd=bypass"),
            ("vary", "Cookie"),
            ("x-own", "1"),
            ("x-site", "1"),
        ] {
            assert_eq!(reply.header_all(name).collect::<Vec<_>>(), [value], "{name}");
        }
        assert_eq!(reply.header_all("set-cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
        // The file's, not the application's.
        for name in ["etag", "last-modified"] {
            let values: Vec<_> = reply.header_all(name).collect();
            assert!(values.len() == 1 && !values[0].contains("own") && !values[0].contains("2001"));
        }
        assert_eq!(reply.header("x-hop"), None);
        assert_names_nothing(&reply);
    }
    // Fields that the application omits are the file's; a shared cache stores nothing without permission.
    let plain = rig.get(&[], "X-Accel-Redirect: /protected/b%20c/d.txt");
    assert_eq!((plain.status, plain.text().as_str()), (200, "text"));
    plain.assert_header("content-type", "text/plain; charset=utf-8");
    plain.assert_header("cache-control", "private");
    let expires = rig.get(&[], &format!("{}|Expires: 0", rig.sendfile("in")));
    assert_eq!((expires.header("cache-control"), &*expires.body), (None, PDF));
    // The client may receive the last byte before it is counted.
    poll_until(PATIENCE, "all are counted", || rig.counted("sent") == 4);
}

#[test]
fn conditions_ranges_and_methods_are_answered_by_the_file() {
    let rig = Rig::new("");
    let named = "X-Accel-Redirect: /protected/a.pdf|Content-Type: a/b|Set-Cookie: a=1";
    let whole = rig.get(&[], named);
    let tag = whole.header("etag").unwrap().to_owned();
    let part = rig.get(&[("Range", "bytes=2-5")], named);
    assert_eq!((part.status, part.text().as_str()), (206, "2345"));
    part.assert_header("content-range", "bytes 2-5/20").assert_header("set-cookie", "a=1");
    let long = "X-Accel-Redirect: /protected/long|Content-Type: a/b";
    let parts = rig.get(&[("Range", "bytes=0-1,1500-1501")], long);
    assert_eq!(parts.status, 206);
    assert!(parts.header("content-type").unwrap().starts_with("multipart/byteranges"));
    assert_eq!(parts.text().matches("Content-Type: a/b").count(), 2, "{}", parts.text());
    let unchanged = rig.get(&[("If-None-Match", &tag)], named);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    unchanged.assert_header("etag", &tag).assert_header("set-cookie", "a=1");
    // An application that handles ranges itself, and does not send the part.
    let own = rig.get(
        &[("Range", "bytes=2-5"), ("X-Status", "206")],
        &format!("{named}|Content-Range: bytes 0-9/99"),
    );
    assert_eq!((own.status, own.header("content-range")), (206, Some("bytes 2-5/20")));

    let mut client = rig.skep.connect();
    let head = ask(&mut client, "HEAD", &[], named);
    assert_eq!((head.status, head.header("content-length")), (200, Some("20")));
    // A POST has taken effect: its conditions were the application's to check.
    client.send(format!(
        "POST /x HTTP/1.1\r\nHost: a\r\nX-Answer: {named}\r\nIf-None-Match: {tag}\r\n\
         Range: bytes=2-5\r\nContent-Length: 4\r\n\r\nbody"
    ));
    let posted = client.response();
    assert_eq!((posted.status, &*posted.body), (200, PDF));
    assert_eq!(ask(&mut client, "GET", &[], named).status, 200);
    for reply in [whole, part, parts, unchanged, own, head, posted] {
        assert_names_nothing(&reply);
    }
}

#[test]
fn what_the_client_gets_in_place_of_the_file_has_the_fields_of_the_application_all_the_same() {
    let rig = Rig::with("", "sticky.by = \"cookie\"");
    let named = "Content-Type: a/b|Set-Cookie: a=1|X-Own: 1|Cache-Control: max-age=60|\
                 Content-Disposition: attachment|Content-Security-Policy: none";
    for (file, field, status) in [
        ("a.pdf", ("Range", "bytes=50-"), 416),
        ("a.pdf", ("If-Match", "\"other\""), 412),
        ("gone", ("X-Any", "1"), 404),
        ("../a.pdf", ("X-Any", "1"), 502),
        ("out", ("X-Any", "1"), 403),
    ] {
        let reply = rig.get(&[field], &format!("X-Accel-Redirect: /protected/{file}|{named}"));
        assert_eq!(reply.status, status, "{}", reply.head_text());
        let cookies: Vec<_> = reply.header_all("set-cookie").collect();
        assert!(cookies.len() == 2 && cookies[0] == "a=1", "{status}: {cookies:?}");
        assert!(cookies[1].starts_with("skep-app="), "{status}: {cookies:?}");
        for (name, value) in [
            ("x-own", Some("1")),
            ("x-site", Some("1")),
            ("content-security-policy", Some("none")),
            ("cache-status", Some("skep; fwd=bypass")),
            // Not storable, whatever holds for the file; and no field of the file.
            ("cache-control", Some("no-store")),
            ("content-type", Some("text/plain; charset=utf-8")),
            ("content-disposition", None),
        ] {
            let found: Vec<_> = reply.header_all(name).collect();
            assert_eq!(found, Vec::from_iter(value), "{status}: {name}");
        }
        assert_names_nothing(&reply);
    }
}

#[test]
fn what_is_not_in_the_folder_is_not_sent() {
    let rig = Rig::new("error_pages = { 404 = \"/sorry\" }");
    let etc = "X-Sendfile: /etc/hostname";
    let up = rig.sendfile("../a.pdf");
    for (answer, status, why) in [
        ("X-Accel-Redirect: /other/a.pdf", 502, "it does not begin with `sendfile_path`"),
        ("X-Accel-Redirect: /protected/../a.pdf", 502, "it does not begin with"),
        ("X-Accel-Redirect: /protected/%2e%2e/%2e%2e/etc/hostname", 502, ""),
        ("X-Accel-Redirect: @named", 502, "it is no path"),
        ("X-Accel-Redirect: /protected/a%2Fb", 502, "it is no path"),
        (etc, 502, "it does not begin with `sendfile_path`, or `sendfile_root`"),
        (&up, 502, "it does not begin with"),
        ("X-Sendfile: a.pdf", 502, "it is no path"),
        ("X-Sendfile: /a|X-Sendfile: /b", 502, "more than one file is named"),
        ("X-Accel-Redirect: /protected/gone", 404, "not found"),
        ("X-Accel-Redirect: /protected/", 404, ""),
        ("X-Accel-Redirect: /protected/b%20c", 404, ""),
        ("X-Accel-Redirect: /protected/.hidden", 404, ""),
        // Symbolic links must stay below the folder.
        ("X-Accel-Redirect: /protected/out", 403, ""),
    ] {
        let reply = rig.get(&[], &format!("{answer}|Set-Cookie: a=1"));
        assert_eq!(reply.status, status, "{answer}: {}", reply.head_text());
        assert_names_nothing(&reply);
        let all = format!("{}{}", reply.head_text(), reply.text());
        let root = rig.files.root().display().to_string();
        assert!(!all.contains(&root) && !all.contains("hostname"), "{answer}: {all}");
        // At most one line per second: the first contains the reason.
        if answer == "X-Accel-Redirect: /other/a.pdf" {
            let line = "pool app: the application names the file \"/other/a.pdf\": ";
            poll_until(PATIENCE, line, || {
                rig.skep.stderr_text().lines().any(|it| it.contains(line) && it.contains(why))
            });
        }
    }
    assert_eq!((rig.counted("refused"), rig.counted("missing")), (9, 5));
    assert_eq!(rig.counted("sent"), 0);
    // The server is not blamed.
    assert_eq!(rig.get(&[], "X-Accel-Redirect: /protected/a.pdf").status, 200);
}

#[test]
fn only_a_success_names_a_file_and_only_an_application() {
    let rig = Rig::new("");
    for status in ["201", "404", "500", "304"] {
        let answer = format!("{}|X-Own: 1", rig.sendfile("a.pdf"));
        let body = if status == "304" { "" } else { "own" };
        let reply = rig.get(&[("X-Status", status), ("X-Body", body)], &answer);
        assert_eq!((reply.status.to_string().as_str(), reply.text().as_str()), (status, body));
        reply.assert_header("x-own", "1");
        assert_names_nothing(&reply);
    }
    while rig.told.try_recv().is_ok() {}
    // A client that sets mappings as a proxy would (CVE-2025-61780).
    let maps = [
        ("X-Sendfile-Type", "X-Accel-Redirect"),
        ("X-Accel-Mapping", "/=/protected/"),
        ("X-Accel-Redirect", "/protected/a.pdf"),
        ("X-Sendfile", "/etc/passwd"),
    ];
    rig.get(&maps, "X-Own: 1").assert_status(200);
    let asked = rig.told.recv_timeout(PATIENCE).unwrap();
    maps.iter().for_each(|(name, _)| assert_eq!(asked.field(name), None, "{name}"));
    // No path leads to the folder.
    for path in ["/protected/a.pdf", "/a.pdf"] {
        let reply = rig.skep.connect().get(path);
        assert_eq!((reply.status, reply.body.len()), (200, 0), "the application's answer");
    }
}

#[test]
fn without_a_folder_the_fields_are_as_any_other() {
    let (app, told) = app();
    let pool = pool_lines("", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n{pool}"));
    let fields = [("X-Body", "own"), ("X-Accel-Mapping", "/=/x/")];
    let reply = ask(&mut skep.connect(), "GET", &fields, "X-Accel-Redirect: /a|X-Sendfile: /b");
    assert_eq!((reply.status, reply.text().as_str()), (200, "own"));
    reply.assert_header("x-accel-redirect", "/a").assert_header("x-sendfile", "/b");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().field("x-accel-mapping"), Some("/=/x/"));
}

#[test]
fn a_cache_keeps_no_response_that_names_a_file() {
    let cache = "[site.cache]\nenabled = true\n";
    let (app, told) =
        app_that_says("X-Accel-Redirect: /protected/a.pdf\r\nCache-Control: max-age=60\r\n");
    let files = Site::new().with("a.pdf", PDF);
    let pool = pool_lines("", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\n{cache}[site.forward]\nsendfile_root = \"{}\"\n\
         sendfile_path = \"/protected\"\n{pool}",
        files.root().display()
    ));
    let mut client = skep.connect();
    for _ in 0..3 {
        let reply = client.get("/x");
        assert_eq!((reply.status, &*reply.body), (200, PDF));
        reply.assert_header("cache-control", "max-age=60");
        assert!(reply.cache_status().starts_with("skep; fwd="), "{}", reply.cache_status());
        assert_names_nothing(&reply);
        told.recv_timeout(PATIENCE).expect("each request is the application's");
    }
    let mut ranged = skep.connect();
    ranged.send("GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n");
    let part = ranged.response();
    assert_eq!((part.status, part.text().as_str()), (206, "12"));
    told.recv_timeout(PATIENCE).unwrap();
    assert!(told.try_recv().is_err(), "it was asked once");
}

/// An application that answers all requests with 200 and `fields`.
fn app_that_says(fields: &'static str) -> (App, Receiver<()>) {
    let (tell, told) = sync_channel(64);
    let app = App::answering(move |_| {
        let _ = tell.send(());
        response(200, fields, "")
    });
    (app, told)
}

#[test]
fn a_page_that_becomes_a_file_is_refreshed_away() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let app = App::answering(move |_| {
        match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            // Stale at once, and revalidated in the background after the next reply.
            0 => response(200, "Cache-Control: max-age=0, stale-while-revalidate=60\r\n", "page"),
            _ => response(200, "X-Accel-Redirect: /a.pdf\r\nCache-Control: max-age=60\r\n", ""),
        }
    });
    let files = Site::new().with("a.pdf", PDF);
    let pool = pool_lines("", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\n[site.cache]\nenabled = true\n[site.forward]\nsendfile_root = \"{}\"\n{pool}",
        files.root().display()
    ));
    let mut client = skep.connect();
    assert_eq!(client.get("/x").text(), "page");
    poll_until(PATIENCE, "the file takes the page's place", || {
        let reply = client.get("/x");
        assert_names_nothing(&reply);
        assert!(reply.text() == "page" || &*reply.body == PDF, "{}", reply.text());
        &*reply.body == PDF
    });
}

#[test]
fn what_an_application_says_beside_the_file_is_ignored() {
    // A body without an end, and a truncated one.
    let app = App::start(|conn: &mut AppConn| {
        while let Some(asked) = conn.request() {
            let framing = match asked.line() {
                line if line.contains("/chunks") => {
                    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
                }
                line if line.contains("/hold") => "Transfer-Encoding: chunked\r\n\r\n",
                _ => "Content-Length: 1000\r\n\r\nhello",
            };
            conn.send(format!("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /a.pdf\r\n{framing}"));
            if asked.line().contains("/hold") {
                conn.wait_for_end();
            } else if asked.line().contains("/break") {
                return;
            }
        }
    });
    let files = Site::new().with("a.pdf", PDF);
    let pool = pool_lines("stall_timeout_ms = 300", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\n[site.forward]\nsendfile_root = \"{}\"\n{pool}",
        files.root().display()
    ));
    let began = std::time::Instant::now();
    for path in ["/x", "/break", "/chunks", "/chunks/break", "/hold"] {
        let reply = skep.connect().get(path);
        assert_eq!((reply.status, &*reply.body), (200, PDF), "{path}");
    }
    // Well below the timeout of a head, which is a minute.
    assert!(began.elapsed().as_secs() < 30);
}

#[test]
fn a_file_is_sent_as_soon_as_it_is_named() {
    // The rest of the response arrives after the client has the file, and before another request.
    let (release, released) = sync_channel::<()>(0);
    let released = std::sync::Mutex::new(released);
    let (tell, told) = sync_channel(16);
    let app = App::start(move |conn: &mut AppConn| {
        while let Some(asked) = conn.request() {
            let kind = if asked.line().contains("/events") { "text/event-stream" } else { "a/b" };
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: {kind}\r\n\
                 X-Accel-Redirect: /a.pdf\r\n\r\n"
            ));
            if asked.line().contains("/works") {
                released.lock().unwrap().recv().unwrap();
                conn.send("5\r\nhello\r\n0\r\n\r\n");
            } else {
                conn.wait_for_end();
            }
            let _ = tell.send(());
        }
    });
    let files = Site::new().with("a.pdf", PDF);
    let metrics = FreePort::claim();
    let pool = pool_lines("", &[(app.address(), "connections_max = 1")]);
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\n[site.forward]\nsendfile_root = \"{}\"\n[metrics]\nlisten = \"{}\"\n{pool}",
        files.root().display(),
        metrics.address()
    ));
    let mut client = skep.connect();
    for path in ["/works", "/events/works", "/works"] {
        let reply = client.get(path);
        assert_eq!((reply.status, &*reply.body), (200, PDF), "{path}");
        release.send(()).unwrap();
        told.recv_timeout(PATIENCE).unwrap();
    }
    // An application that continues to work is not waited for by the client, nor for long by the node.
    for path in ["/hold", "/events/hold"] {
        let reply = client.get(path);
        assert_eq!((reply.status, &*reply.body), (200, PDF), "{path}");
        told.recv_timeout(PATIENCE).expect("its connection is closed");
    }
    // It occupies its server until then, and does not count as a failure.
    let page = RawClient::connect(metrics.address()).get("/metrics").text();
    let failures = page.lines().filter(|it| it.starts_with("skep_pool_server_failures_total"));
    assert!(
        failures.clone().count() > 0 && failures.clone().all(|it| it.ends_with(" 0")),
        "{page}"
    );
    assert!(!skep.stderr_text().contains("stalled"), "{}", skep.stderr_text());
}

#[test]
fn a_connection_goes_on_behind_a_body_that_nobody_reads() {
    let app = App::start(|conn: &mut AppConn| {
        while conn.request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /a.pdf\r\nContent-Length: 5\r\n\r\n");
            conn.send("hello");
        }
    });
    let files = Site::new().with("a.pdf", PDF);
    // The next request waits until the server is free.
    let server = [(app.address(), "connections_max = 1")];
    let pool = pool_lines("health.interval_ms = \"1h\"", &server);
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\n[site.forward]\nsendfile_root = \"{}\"\n{pool}",
        files.root().display()
    ));
    let mut client = skep.connect();
    assert_eq!(client.get("/x").status, 200);
    let before = app.connections();
    for _ in 0..20 {
        let reply = client.get("/x");
        assert_eq!((reply.status, &*reply.body), (200, PDF));
    }
    assert_eq!(app.connections(), before, "its connection is used again");
}

#[test]
fn a_session_begins_with_a_file_and_links_are_followed_where_the_site_says_so() {
    let (app, _told) = app_that_says("X-Accel-Redirect: /out\r\nCache-Control: max-age=5\r\n");
    let target = Site::new().with("a", "linked");
    let files = Site::new();
    files.link("out", target.path("a"));
    let pool = pool_lines("sticky.by = \"cookie\"", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\nsymlinks = \"follow\"\n[site.forward]\nsendfile_root = \"{}\"\n{pool}",
        files.root().display()
    ));
    let mut client = skep.connect();
    let first = client.get("/x");
    assert_eq!((first.status, first.text().as_str()), (200, "linked"));
    let cookie = first.header("set-cookie").expect("the session's").split(';').next().unwrap();
    assert!(cookie.starts_with("skep-app="), "{cookie}");
    assert!(first.header_all("cache-control").any(|it| it.contains("private")));
    let next = client.request("GET", "/x", &[("Cookie", cookie)]);
    assert_eq!((next.text().as_str(), next.header("set-cookie")), ("linked", None));
    next.assert_header("cache-control", "max-age=5");
}
