//! Sites by config: virtual hosts, listings, fallbacks, error pages, fields, redirects.

use skep_tests::{Response, Site, Skep};

fn get_as(skep: &Skep, host: &str, target: &str, fields: &str) -> Response {
    let mut client = skep.connect();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
    client.response()
}

fn get(skep: &Skep, target: &str) -> Response {
    skep.connect().get(target)
}

#[test]
fn hosts_have_sites_of_their_own_and_caches_keep_them_apart() {
    let site = Site::new()
        .with("default/f", "default")
        .with("one/f", "one")
        .with("any/f", "any")
        .with("one/only", "only one");
    let root = |name| site.path(name).display().to_string();
    let settings = format!(
        "hosts = [\"*\"]\n\
         [[site]]\nroot = \"{}\"\nhosts = [\"one.example\", \"127.0.0.1\"]\n\
         [[site]]\nroot = \"{}\"\nhosts = [\"*.any.example\"]\n",
        root("one"),
        root("any")
    );
    let skep = Skep::node(&site.path("default"), &settings);
    for _temperature in ["cold", "cached"] {
        for (host, body) in [
            ("one.example", "one"),
            ("ONE.Example", "one"),
            ("one.example:8080", "one"),
            ("one.example.", "one"),
            ("127.0.0.1", "one"),
            ("a.any.example", "any"),
            ("b.a.any.example", "any"),
            ("any.example", "default"),
            ("other", "default"),
            ("xone.example", "default"),
        ] {
            assert_eq!(get_as(&skep, host, "/f", "").text(), body, "{host}");
        }
    }
    get_as(&skep, "one.example", "/only", "").assert_status(200);
    get_as(&skep, "other", "/only", "").assert_status(404);
    let mut client = skep.connect();
    client.send("GET http://one.example/f HTTP/1.1\r\nHost: one.example\r\n\r\n");
    assert_eq!(client.response().text(), "one", "absolute form");
}

#[test]
fn a_host_without_a_site_is_refused_when_there_is_no_default() {
    let site = Site::new().with("f", "one");
    let skep = Skep::node(site.root(), "hosts = [\"one.example\"]");
    get_as(&skep, "one.example", "/f", "").assert_status(200);
    let response = get_as(&skep, "two.example", "/f", "");
    assert!(matches!(response.status, 404 | 421), "{}", response.head_text());
}

#[test]
fn listings_are_html_for_people_and_json_for_programs() {
    let site = Site::new()
        .with("sub/a.txt", "aaa")
        .with("sub/<b>&\"'.txt", "b")
        .with("sub/é x.txt", "c")
        .with("sub/.hidden", "secret")
        .with("sub/deeper/f", "f")
        .with("indexed/index.html", "the index");
    let skep = Skep::node(site.root(), "listing = true");
    let html = get(&skep, "/sub/");
    assert!(html.assert_status(200).header("content-type").unwrap().starts_with("text/html"));
    let text = html.text();
    assert!(text.contains("a.txt") && text.contains("deeper/"), "{text}");
    assert!(!text.contains(".hidden") && !text.contains("<b>"), "{text}");
    assert!(text.contains("%3Cb%3E"), "links are encoded: {text}");

    let json = get_as(&skep, "test", "/sub/", "Accept: application/json\r\n");
    assert!(json.header("content-type").unwrap().starts_with("application/json"));
    assert!(json.header("vary").unwrap().to_ascii_lowercase().contains("accept"));
    let json: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
    let text = json.to_string();
    for name in ["a.txt", "<b>&\\\"'.txt", "é x.txt", "deeper"] {
        assert!(text.contains(name), "{name} in {text}");
    }
    assert!(!text.contains("hidden"), "{text}");
    assert_eq!(get(&skep, "/indexed/").text(), "the index");
    get(&skep, "/none/").assert_status(404);
}

/// Outside the root nothing is revealed, not even a size.
#[test]
fn listings_name_what_a_request_gets_and_nothing_else() {
    let site = Site::new()
        .with("root/sub/a.txt", "aaa")
        .with("root/sub/50% +;=é.txt", "b")
        .with("root/sub/back\\slash", "c")
        .with("root/sub/new\nline", "d")
        .with("root/in/f", "in")
        .with("out/secret", "seventeen bytes..");
    let links = [
        ("file-in", "../in/f"),
        ("folder-in", "../in"),
        ("file-out", "../../out/secret"),
        ("folder-out", "../../out"),
        ("absolute", "/etc/shadow"),
        ("dangling", "nothing"),
        ("loop", "loop"),
        ("zero", "/dev/zero"),
    ];
    links.iter().for_each(|(name, target)| site.link(&format!("root/sub/{name}"), target));
    let names_of = |settings: &str| -> Vec<String> {
        let skep = Skep::node(&site.path("root"), &format!("listing = true\n{settings}"));
        let html = get(&skep, "/sub/").text();
        let json = get_as(&skep, "test", "/sub/", "Accept: application/json\r\n");
        let json: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
        let links = html.split("href=\"./").skip(1).map(|rest| rest.split('"').next().unwrap());
        let mut client = skep.connect();
        for link in links.clone() {
            client.get(&format!("/sub/{link}")).assert_status(200);
        }
        let names = json.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap());
        let names: Vec<_> = names.map(str::to_owned).collect();
        assert_eq!(names.len(), links.count(), "{html}");
        names
    };
    let plain = ["50% +;=é.txt", "a.txt"];
    assert_eq!(names_of("symlinks = \"refuse\""), plain);
    assert_eq!(names_of(""), ["folder-in", plain[0], plain[1], "file-in"]);
    let all = names_of("symlinks = \"follow\"");
    assert!(
        all.iter().any(|name| name == "file-out") && all.iter().any(|name| name == "folder-out")
    );
    for never in ["dangling", "loop", "zero"] {
        assert!(!all.iter().any(|name| name == never), "{never}");
    }
}

#[test]
fn single_page_applications_get_their_page_for_every_path() {
    let site = Site::new().with("app.html", "the app").with("app.js", "code");
    let skep = Skep::node(site.root(), "spa_fallback = \"/app.html\"");
    for target in ["/", "/users/42", "/users/42?tab=1", "/deep/er/"] {
        let response = get(&skep, target);
        assert_eq!(response.assert_status(200).text(), "the app", "{target}");
        assert!(response.header("content-type").unwrap().starts_with("text/html"));
    }
    assert_eq!(get(&skep, "/app.js").text(), "code");
    assert!(get(&skep, "/../etc").status == 400, "refusals stay refusals");
}

#[test]
fn a_page_for_what_is_missing_does_not_hide_the_redirect_of_its_own_path() {
    let site = Site::new().with("app.html", "the app");
    let redirect = "[[site.redirect]]\nfrom = \"/app.html\"\nto = \"/\"\n";
    let settings = format!("spa_fallback = \"/app.html\"\n{redirect}");
    let skep = Skep::node(site.root(), &settings);
    // One connection, as each worker has its own cache of look-ups.
    let mut client = skep.connect();
    for _ in 0..3 {
        client.get("/app.html").assert_status(301);
        assert_eq!(client.get("/users/42").assert_status(200).text(), "the app");
    }
}

#[test]
fn error_pages_have_the_status_of_the_error() {
    let site = Site::new().with("404.html", "<h1>not here</h1>").with("a.txt", "aaa");
    let skep = Skep::node(site.root(), "error_pages = { \"404\" = \"/404.html\" }");
    for _temperature in ["cold", "cached"] {
        let response = get(&skep, "/none");
        assert_eq!(response.assert_status(404).text(), "<h1>not here</h1>");
        assert!(response.header("content-type").unwrap().starts_with("text/html"));
    }
    // Conditions and ranges apply to the requested object, not to the error page.
    let etag = get(&skep, "/404.html").header("etag").unwrap().to_owned();
    for fields in [format!("If-None-Match: {etag}\r\n"), "Range: bytes=0-3\r\n".to_owned()] {
        get_as(&skep, "test", "/none", &fields).assert_status(404);
    }
    let head = skep.connect().request("HEAD", "/none", &[]);
    head.assert_status(404).assert_header("content-length", "17");
    get(&skep, "/a.txt").assert_status(200);
}

#[test]
fn an_error_page_that_is_missing_leaves_a_plain_one() {
    let site = Site::new().with("a.txt", "aaa");
    let skep = Skep::node(site.root(), "error_pages = { \"404\" = \"/nowhere.html\" }");
    get(&skep, "/none").assert_status(404);
    get(&skep, "/a.txt").assert_status(200);
}

#[test]
fn fields_of_the_site_are_on_every_response() {
    let site = Site::new().with("a.txt", "aaa");
    let settings = "headers = { \"X-Frame-Options\" = \"DENY\", \"X-Two\" = \"2\" }\n\
        cache_control = \"max-age=60\"";
    let skep = Skep::node(site.root(), settings);
    let ok = get(&skep, "/a.txt");
    ok.assert_status(200).assert_header("cache-control", "max-age=60");
    let etag = ok.header("etag").unwrap();
    let not_modified = skep.connect().request("GET", "/a.txt", &[("If-None-Match", etag)]);
    not_modified.assert_status(304).assert_header("cache-control", "max-age=60");
    let missing = get(&skep, "/none");
    assert_eq!(missing.assert_status(404).header("cache-control"), None);
    let part = skep.connect().request("GET", "/a.txt", &[("Range", "bytes=0-0")]);
    for response in [&ok, &not_modified, &missing, part.assert_status(206)] {
        response.assert_header("x-frame-options", "DENY").assert_header("x-two", "2");
    }
}

#[test]
fn what_moved_is_redirected() {
    let site = Site::new().with("new/a.txt", "aaa").with("old/a.txt", "shadowed");
    let settings = "[[site.redirect]]\nfrom = \"/exact\"\nto = \"/new/a.txt\"\n\
        [[site.redirect]]\nfrom = \"/old/*\"\nto = \"/new/*\"\nstatus = 308\n\
        [[site.redirect]]\nfrom = \"/out/*\"\nto = \"https://other.example/*\"\nstatus = 302\n";
    let skep = Skep::node(site.root(), settings);
    let cases = [
        ("/exact", 301, "/new/a.txt"),
        ("/old/a.txt", 308, "/new/a.txt"),
        ("/out/x/y", 302, "https://other.example/x/y"),
    ];
    for (target, status, location) in cases {
        let response = get(&skep, target);
        let found = response.assert_status(status).header("location").unwrap();
        assert!(found == location || found.ends_with(&format!("://test{location}")), "{found}");
    }
    get(&skep, "/exact/").assert_status(404);
    get(&skep, "/new/a.txt").assert_status(200);
    // No part of the request can start a new header field.
    let response = get(&skep, "/out/%0d%0aSet-Cookie:x=1");
    assert!(response.header("set-cookie").is_none(), "{}", response.head_text());
}

#[test]
fn dotfiles_and_links_may_be_allowed() {
    let site = Site::new().with("root/.env", "shown").with("outside.txt", "outside");
    site.link("root/out.txt", "../outside.txt");
    let skep = Skep::node(&site.path("root"), "dotfiles = true\nsymlinks = \"follow\"");
    assert_eq!(get(&skep, "/.env").assert_status(200).text(), "shown");
    assert_eq!(get(&skep, "/out.txt").assert_status(200).text(), "outside");
    get(&skep, "/../outside.txt").assert_status(400);
}

#[test]
fn links_may_be_refused_altogether() {
    let site = Site::new().with("a.txt", "aaa").with("sub/b.txt", "b");
    site.link("within.txt", "a.txt");
    site.link("folder", "sub");
    let skep = Skep::node(site.root(), "symlinks = \"refuse\"");
    get(&skep, "/a.txt").assert_status(200);
    for target in ["/within.txt", "/folder/b.txt"] {
        let response = get(&skep, target);
        assert!(matches!(response.status, 403 | 404), "{target}: {}", response.head_text());
    }
}

#[test]
fn sidecars_may_be_off() {
    let site = Site::new().with("a.js", "plain").with("a.js.gz", "as gzip");
    let skep = Skep::node(site.root(), "precompressed = false");
    let response = get_as(&skep, "test", "/a.js", "Accept-Encoding: gzip\r\n");
    assert_eq!(response.text(), "plain");
}
