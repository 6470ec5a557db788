//! Files over `skep serve`: which are found, their metadata, what stays hidden, and what happens when they
//! change.

use std::path::Path;

use skep_tests::content::{self, assert_same};
use skep_tests::{Load, PATIENCE, Response, Site, Skep, poll_until};

const MIB: usize = 1024 * 1024;

fn serve(site: &Site) -> Skep {
    Skep::serve(site.root(), &["--cache-size", "32MiB"])
}

fn get(skep: &Skep, target: &str) -> Response {
    skep.connect().get(target)
}

#[test]
fn a_file_comes_with_what_describes_it() {
    let site = Site::new().with("hello.txt", "hello, world\n");
    let skep = serve(&site);
    let response = get(&skep, "/hello.txt");
    response.assert_status(200).assert_header("content-length", "13");
    assert_eq!(response.text(), "hello, world\n");
    assert!(response.header("content-type").unwrap().starts_with("text/plain"));
    response.assert_header("accept-ranges", "bytes");
    let etag = response.header("etag").unwrap();
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "{etag}");
    for date in ["date", "last-modified"] {
        let value = response.header(date).unwrap();
        assert!(value.len() == 29 && value.ends_with(" GMT"), "{date}: {value}");
    }
}

#[test]
fn head_is_get_without_the_body() {
    let site = Site::new().with("a.txt", "aaa").with_large("large", 5 * MIB);
    let skep = serve(&site);
    for target in ["/a.txt", "/large", "/none"] {
        let mut client = skep.connect();
        // From the second request on, the Cache-Status field is the same.
        client.get(target);
        let got = client.get(target);
        let headed = client.request("HEAD", target, &[]);
        let fields = |response: &Response| {
            let mut fields = response.headers.clone();
            fields.retain(|(name, _)| !name.eq_ignore_ascii_case("date"));
            fields
        };
        assert_eq!(headed.status, got.status);
        assert_eq!(fields(&headed), fields(&got), "{target}");
        client.get("/a.txt").assert_status(200);
    }
}

#[test]
fn folders_show_their_index() {
    let site = Site::new().with("index.html", "root").with("sub/index.html", "sub");
    let skep = serve(&site);
    assert_eq!(get(&skep, "/").assert_status(200).text(), "root");
    assert_eq!(get(&skep, "/?query").assert_status(200).text(), "root");
    assert_eq!(get(&skep, "/sub/").assert_status(200).text(), "sub");
    let html = get(&skep, "/sub/").header("content-type").unwrap().to_owned();
    assert!(html.starts_with("text/html"), "{html}");
}

#[test]
fn a_folder_without_its_slash_is_a_redirect() {
    let site = Site::new().with("sub/index.html", "sub");
    let skep = serve(&site);
    let response = get(&skep, "/sub?x=1");
    assert!(matches!(response.status, 301 | 308), "{}", response.head_text());
    assert!(response.header("location").unwrap().ends_with("/sub/?x=1"));
    // `//evil.example/` in Location would redirect the client to another host.
    let site = Site::new().with("evil.example/index.html", "x");
    let skep = serve(&site);
    let response = get(&skep, "//evil.example");
    if let Some(location) = response.header("location") {
        assert!(!location.starts_with("//"), "{location}");
    }
}

#[test]
fn folders_are_not_listed_unasked() {
    let site = Site::new().with("sub/secret.txt", "x");
    let skep = serve(&site);
    let response = get(&skep, "/sub/");
    assert!(matches!(response.status, 403 | 404), "{}", response.head_text());
    assert!(!response.text().contains("secret.txt"));
}

#[test]
fn what_is_not_there_is_404_and_the_connection_goes_on() {
    let site = Site::new().with("a.txt", "aaa").with("sub/index.html", "sub");
    let skep = serve(&site);
    let mut client = skep.connect();
    for target in ["/none", "/none/", "/a.txt/", "/a.txt/b", "/sub/none", "/A.TXT"] {
        client.get(target).assert_status(404);
    }
    client.get("/a.txt").assert_status(200);
}

#[test]
fn types_by_extension() {
    let types = [
        ("a.html", "text/html"),
        ("a.HTML", "text/html"),
        ("a.css", "text/css"),
        ("a.js", "text/javascript"),
        ("a.mjs", "text/javascript"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.jpeg", "image/jpeg"),
        ("a.webp", "image/webp"),
        ("a.avif", "image/avif"),
        ("a.wasm", "application/wasm"),
        ("a.woff2", "font/woff2"),
        ("a.mp4", "video/mp4"),
        ("a.pdf", "application/pdf"),
        ("a.xml", "xml"),
        ("a.tar.gz", "application/gzip"),
        ("a.unknown", "application/octet-stream"),
        ("noextension", "application/octet-stream"),
    ];
    let site = types.iter().fold(Site::new(), |site, (name, _)| site.with(name, "x"));
    let skep = serve(&site);
    let mut client = skep.connect();
    for (name, expected) in types {
        let response = client.get(&format!("/{name}"));
        let found = response.assert_status(200).header("content-type").unwrap();
        assert!(found.contains(expected), "{name}: {found}");
        assert!(!found.starts_with("text/") || found.contains("utf-8"), "{name}: {found}");
    }
}

#[test]
fn other_methods_are_405_and_name_those_allowed() {
    let site = Site::new().with("a.txt", "aaa");
    let skep = serve(&site);
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
        let response = skep.connect().request(method, "/a.txt", &[]);
        assert!(matches!(response.status, 405 | 501), "{method}: {}", response.head_text());
        if response.status == 405 {
            let allowed = response.header("allow").unwrap();
            assert!(allowed.contains("GET") && allowed.contains("HEAD"), "{allowed}");
        }
    }
    assert_eq!(get(&skep, "/a.txt").text(), "aaa");
}

#[test]
fn names_with_spaces_accents_and_signs() {
    let site = Site::new()
        .with("a b.txt", "space")
        .with("é.txt", "accent")
        .with("100%.txt", "percent")
        .with("a+b;c,d.txt", "signs")
        .with("x/y z/ü", "deep");
    let skep = serve(&site);
    let mut client = skep.connect();
    assert_eq!(client.get("/a%20b.txt").assert_status(200).text(), "space");
    assert_eq!(client.get("/%C3%A9.txt").assert_status(200).text(), "accent");
    assert_eq!(client.get("/100%25.txt").assert_status(200).text(), "percent");
    assert_eq!(client.get("/a+b;c,d.txt").assert_status(200).text(), "signs");
    assert_eq!(client.get("/x/y%20z/%c3%bc").assert_status(200).text(), "deep");
    assert_eq!(client.get("/a%2Bb%3Bc%2Cd.txt").assert_status(200).text(), "signs");
    client.get("/a%2520b.txt").assert_status(404);
}

#[test]
fn nothing_outside_of_the_root_and_nothing_hidden() {
    let site = Site::new()
        .with("public/a.txt", "public")
        .with("secret.txt", "secret")
        .with("public/.env", "secret")
        .with("public/.git/config", "secret")
        .with("public/.well-known/security.txt", "public");
    site.link("public/out.txt", "../secret.txt");
    site.link("public/up", "..");
    site.link("public/absolute.txt", site.path("secret.txt"));
    site.link("public/within.txt", "a.txt");
    let skep = Skep::serve(&site.path("public"), &[]);
    let mut client = skep.connect();
    for target in [
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/x/../.git/config",
        "/out.txt",
        "/up/secret.txt",
        "/absolute.txt",
        "/..%2fsecret.txt",
        "/../secret.txt",
        "/up/public/a.txt",
    ] {
        let response = skep.connect().get(target);
        assert!(matches!(response.status, 400 | 403 | 404), "{target}: {}", response.head_text());
        assert!(!response.text().contains("secret"), "{target}");
    }
    assert_eq!(client.get("/.well-known/security.txt").assert_status(200).text(), "public");
    assert_eq!(client.get("/within.txt").assert_status(200).text(), "public");
}

#[test]
fn what_is_no_file_is_not_opened() {
    let site = Site::new().with("a.txt", "aaa");
    let fifo = std::process::Command::new("mkfifo").arg(site.path("fifo")).status().unwrap();
    assert!(fifo.success());
    let socket = std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    let skep = serve(&site);
    for target in ["/fifo", "/socket"] {
        let response = get(&skep, target);
        assert!(matches!(response.status, 403 | 404), "{target}: {}", response.head_text());
    }
    assert_eq!(get(&skep, "/a.txt").text(), "aaa");
    drop(socket);
}

#[test]
fn sizes_around_every_boundary_arrive_whole() {
    let sizes = [
        0,
        1,
        4095,
        4096,
        4097,
        65_535,
        65_536,
        65_537,
        MIB,
        4 * MIB - 1,
        4 * MIB,
        4 * MIB + 1,
        9 * MIB + 123,
        // Larger than the cache.
        50 * MIB + 1,
    ];
    let site = sizes.iter().fold(Site::new(), |site, s| site.with_large(&format!("{s}"), *s));
    let skep = serve(&site);
    let mut client = skep.connect();
    for _temperature in ["cold", "cached"] {
        for size in sizes {
            let response = client.get(&format!("/{size}"));
            response.assert_status(200).assert_header("content-length", &size.to_string());
            assert_same(&response.body, &content::version(1, size));
        }
    }
}

#[test]
fn the_cache_says_what_it_did() {
    let site = Site::new().with("a.txt", "aaa").with_large("large", 64 * MIB);
    let skep = serve(&site);
    let mut client = skep.connect();
    let first = client.get("/a.txt");
    let status = first.header("cache-status").unwrap();
    assert!(status.contains("fwd=") && !status.contains("hit"), "{status}");
    poll_until(PATIENCE, "a.txt is a hit", || {
        client.get("/a.txt").header("cache-status").unwrap().contains("; hit")
    });
    // RFC 9211: a list of caches, each beginning with its name.
    let hit = client.get("/a.txt");
    let status = hit.header("cache-status").unwrap();
    let (name, _) = status.split_once(';').unwrap();
    assert!(!name.is_empty() && !name.contains(' '), "{status}");
    assert_same(&client.get("/large").body, &content::version(1, 64 * MIB));
    let status = client.get("/a.txt");
    assert!(status.header("cache-status").unwrap().contains("; hit"), "a large file emptied it");
}

#[test]
fn the_cache_stays_within_its_size() {
    const FILES: usize = 64;
    let site = (0..FILES).fold(Site::new(), |site, n| site.with_large(&format!("{n}"), MIB));
    let skep = Skep::serve(site.root(), &["--cache-size", "8MiB", "--threads", "1"]);
    let mut client = skep.connect();
    client.get("/0").assert_status(200);
    let before = skep.rss_bytes();
    for n in 0..FILES {
        assert_same(&client.get(&format!("/{n}")).body, &content::version(1, MIB));
    }
    let grown = skep.rss_bytes().saturating_sub(before);
    assert!(grown < 24 * MIB as u64, "grew by {grown} bytes with a cache of 8 MiB");
}

#[test]
fn a_replaced_file_is_noticed_and_no_reply_is_a_mixture() {
    const LEN: usize = 300_000;
    let site = Site::new().with_large("f", LEN);
    let skep = serve(&site);
    assert_eq!(content::version_of(&get(&skep, "/f").body), Ok(1));
    let load = Load::on(skep.address()).threads(2).get_checked("/f", |response| {
        let whole = response.status == 200 && response.body.len() == LEN;
        whole.then_some(()).ok_or("not whole")?;
        content::version_of(&response.body).map(|_| ())
    });
    let running = load.start();
    for version in 2..12 {
        site.replace("f", content::version(version, LEN));
        poll_until(PATIENCE, "the new version shows", || {
            content::version_of(&get(&skep, "/f").body) == Ok(version)
        });
    }
    running.stop().assert_clean();
}

#[test]
fn etag_and_date_change_with_the_file() {
    let site = Site::new().with("f", "one");
    let skep = serve(&site);
    let old = get(&skep, "/f");
    site.replace("f", "two");
    poll_until(PATIENCE, "the new version shows", || get(&skep, "/f").text() == "two");
    let new = get(&skep, "/f");
    assert_ne!(old.header("etag"), new.header("etag"));
}

#[test]
fn files_come_into_being_grow_and_go() {
    let site = Site::new().with("a.txt", "aaa");
    let skep = serve(&site);
    get(&skep, "/late.txt").assert_status(404);
    site.write("late.txt", "here");
    poll_until(PATIENCE, "a new file shows", || get(&skep, "/late.txt").text() == "here");
    site.write("late.txt", "here and longer");
    poll_until(PATIENCE, "a rewritten file shows", || {
        get(&skep, "/late.txt").text() == "here and longer"
    });
    site.remove("late.txt");
    poll_until(PATIENCE, "a deleted file is gone", || get(&skep, "/late.txt").status == 404);
    site.write("late.txt", "again");
    poll_until(PATIENCE, "it is there again", || get(&skep, "/late.txt").text() == "again");
}

#[test]
fn a_file_deep_in_new_folders_shows_and_goes_with_a_renamed_folder() {
    let site = Site::new().with("a.txt", "aaa");
    let skep = serve(&site);
    site.write("new/deep/f.txt", "deep");
    poll_until(PATIENCE, "it shows", || get(&skep, "/new/deep/f.txt").text() == "deep");
    std::fs::rename(site.path("new"), site.path("moved")).unwrap();
    poll_until(PATIENCE, "the old name is gone", || get(&skep, "/new/deep/f.txt").status == 404);
    assert_eq!(get(&skep, "/moved/deep/f.txt").text(), "deep");
}

fn encoded(skep: &Skep, target: &str, accept: &str) -> Response {
    skep.connect().request("GET", target, &[("Accept-Encoding", accept)])
}

#[test]
fn sidecars_are_chosen_by_what_the_client_accepts() {
    let site = Site::new()
        .with("a.js", "plain")
        .with("a.js.br", "as br")
        .with("a.js.zst", "as zstd")
        .with("a.js.gz", "as gzip")
        .with("only.css", "plain")
        .with("only.css.gz", "as gzip")
        .with("none.txt", "plain")
        .with("orphan.txt.gz", "as gzip");
    let skep = serve(&site);
    let cases = [
        ("/a.js", "", "plain", None),
        ("/a.js", "gzip", "as gzip", Some("gzip")),
        ("/a.js", "gzip, br", "as br", Some("br")),
        ("/a.js", "gzip, deflate, br, zstd", "as br", Some("br")),
        ("/a.js", "GZIP", "as gzip", Some("gzip")),
        ("/a.js", "br;q=0.1, gzip;q=0.9", "as gzip", Some("gzip")),
        ("/a.js", "br;q=0, gzip;q=0, zstd", "as zstd", Some("zstd")),
        ("/a.js", "*", "as br", Some("br")),
        ("/a.js", "*;q=0.5, br;q=0", "as zstd", Some("zstd")),
        ("/a.js", "identity", "plain", None),
        ("/a.js", "deflate", "plain", None),
        ("/a.js", "br;q=0", "plain", None),
        ("/only.css", "br", "plain", None),
        ("/only.css", "br, gzip", "as gzip", Some("gzip")),
        ("/none.txt", "br, gzip", "plain", None),
    ];
    for (target, accept, body, coding) in cases {
        let response = encoded(&skep, target, accept);
        response.assert_status(200);
        let found = (response.text(), response.header("content-encoding"));
        assert_eq!(found, (body.to_owned(), coding), "{target} for {accept:?}");
    }
    encoded(&skep, "/orphan.txt", "gzip").assert_status(404);
    let direct = encoded(&skep, "/a.js.gz", "gzip");
    assert_eq!(direct.header("content-encoding"), None, "the file itself is asked for");
}

#[test]
fn variants_vary_have_etags_of_their_own_and_the_plain_type() {
    let site = Site::new().with("a.js", "plain").with("a.js.gz", "as gzip").with("b.js", "b");
    let skep = serve(&site);
    let (plain, gzip) = (encoded(&skep, "/a.js", "identity"), encoded(&skep, "/a.js", "gzip"));
    for response in [&plain, &gzip] {
        let vary = response.header("vary").unwrap();
        assert!(vary.eq_ignore_ascii_case("accept-encoding"), "{vary}");
        assert!(response.header("content-type").unwrap().starts_with("text/javascript"));
    }
    assert_ne!(plain.header("etag"), gzip.header("etag"));
    let fields = [("Accept-Encoding", "gzip"), ("If-None-Match", gzip.header("etag").unwrap())];
    let not_modified = skep.connect().request("GET", "/a.js", &fields);
    not_modified.assert_status(304);
    assert!(not_modified.header("vary").is_some());
}

#[test]
fn a_sidecar_that_comes_later_is_used_and_an_orphan_goes() {
    let site = Site::new().with("a.js", "plain");
    let skep = serve(&site);
    assert_eq!(encoded(&skep, "/a.js", "gzip").text(), "plain");
    site.write("a.js.gz", "as gzip");
    poll_until(PATIENCE, "the sidecar is used", || {
        encoded(&skep, "/a.js", "gzip").text() == "as gzip"
    });
    site.remove("a.js");
    poll_until(PATIENCE, "both are gone", || encoded(&skep, "/a.js", "gzip").status == 404);
}

#[test]
fn many_clients_get_the_right_bytes() {
    let names = (0..50).map(|n| (format!("f{n}"), 1 + n * n * 50)).collect::<Vec<_>>();
    let site = names.iter().enumerate().fold(Site::new(), |site, (n, (name, len))| {
        site.with(name, content::version(n as u32, *len))
    });
    let skep = serve(&site);
    let load = names.iter().enumerate().fold(Load::on(skep.address()), |load, (n, (name, len))| {
        load.get(&format!("/{name}"), content::version(n as u32, *len))
    });
    load.clone().threads(8).run(20_000).assert_clean();
    load.threads(8).without_keep_alive().run(2_000).assert_clean();
}

#[test]
fn the_root_may_be_a_link_or_relative() {
    let site = Site::new().with("real/a.txt", "aaa");
    site.link("link", "real");
    let skep = Skep::serve(&site.path("link"), &[]);
    assert_eq!(get(&skep, "/a.txt").assert_status(200).text(), "aaa");
    let relative = Path::new("tests");
    assert!(relative.is_dir(), "cargo runs tests in their package's folder");
    let skep = Skep::serve(relative, &[]);
    get(&skep, "/http/files.rs").assert_status(200);
}
