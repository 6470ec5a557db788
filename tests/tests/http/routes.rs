//! Routes: paths of one site with their own folder or origins.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use skep_tests::origin::{Answer, Asked, Origin};
use skep_tests::{PATIENCE, Site, Skep, poll_until};

/// A site of files with a route to an origin; `more` follows in the route's table.
fn node(site: &Site, origin: &Origin, more: &str) -> Skep {
    let route = format!("[[site.route]]\npath = \"/api/*\"\n{}\n{more}", origin.line());
    Skep::node(site.root(), &format!("cache_control = \"max-age=60\"\n{route}"))
}

fn echo(asked: &Asked) -> Answer {
    Answer::new(200, "Cache-Control: max-age=100\r\nETag: \"1\"\r\n", &asked.target)
}

#[test]
fn a_folder_and_an_origin_are_one_site() {
    let site = Site::new().with("index.html", "home").with("api/file", "never").with("a b", "file");
    let origin = Origin::start(echo);
    let skep = node(&site, &origin, "");
    let mut client = skep.connect();
    for temperature in ["cold", "cached"] {
        for (target, body) in [
            ("/", "home"),
            ("/api/file", "/api/file"),
            ("/api/x?q=1", "/api/x?q=1"),
            ("/api/a%2Fb", "/api/a%2Fb"),
            ("/%61pi/y", "/api/y"),
            ("/x/../api/z", "/api/z"),
            ("/a%20b?ignored", "file"),
            ("//a%20b", "file"),
        ] {
            let reply = client.get(target);
            assert_eq!(reply.assert_status(200).text(), body, "{target} {temperature}");
        }
    }
    // Each with its own cache rules.
    client.get("/").assert_header("cache-control", "max-age=60");
    let reply = client.get("/api/x?q=1");
    reply.assert_header("cache-control", "max-age=100").assert_header("cache-status", "skep; hit");
    assert_eq!(origin.asked().len(), 5);
    // A folder with that name is not below the route.
    client.get("/api").assert_status(301).assert_header("location", "/api/");
    client.get("/apiary").assert_status(404);
}

#[test]
fn no_spelling_leads_around_a_route() {
    let site = Site::new().with("api/secret", "secret").with("b", "b");
    let origin = Origin::start(|_| Answer::new(403, "", "no"));
    let skep = node(&site, &origin, "");
    for target in [
        "/api/secret",
        "/%61%70%69/secret",
        "//api/secret",
        "/api//secret",
        "/./api/./secret",
        "/x/../api/secret",
        "/api/secret?",
        "/api/%73ecret",
        "http://test/api/secret",
    ] {
        assert_eq!(skep.connect().get(target).status, 403, "{target}");
    }
    // As interpreted by an origin, these are below /api/; as paths of files, they are not.
    for target in ["/api//../b", "/api/x//../../b"] {
        let mut client = skep.connect();
        assert_eq!(client.get(target).status, 400, "{target}");
        client.assert_closed();
    }
    assert_eq!(skep.connect().get("/b").text(), "b");
}

#[test]
fn each_route_has_rules_of_its_own() {
    let site = Site::new()
        .with("www/.hidden", "hidden")
        .with("www/x.bin", "www")
        .with("files/files/.hidden", "shown")
        .with("files/files/a/f", "f")
        .with("app/app/index.html", "app")
        .with("bin/x.bin", "bin");
    let root = |name| site.path(name).display().to_string();
    let routes = format!(
        "headers = {{ \"X-Site\" = \"site\", \"X-Both\" = \"site\" }}\n\
         [[site.route]]\npath = \"/files/*\"\nroot = \"{}\"\nlisting = true\ndotfiles = true\n\
         headers = {{ \"X-Both\" = \"route\" }}\n\
         [[site.route]]\npath = \"/app/*\"\nroot = \"{}\"\nspa_fallback = \"/app/index.html\"\n\
         [[site.route]]\npath = \"*.bin\"\nroot = \"{}\"\ncache_control = \"no-store\"\n",
        root("files"),
        root("app"),
        root("bin"),
    );
    let skep = Skep::node(&site.path("www"), &routes);
    let get = |target: &str| skep.connect().get(target);
    get("/.hidden").assert_status(404).assert_header("x-both", "site");
    get("/files/a/").assert_status(200).assert_header("x-both", "route");
    get("/files/a").assert_status(301).assert_header("x-site", "site");
    assert_eq!(get("/files/.hidden").text(), "shown");
    assert_eq!(get("/app/any/where").assert_status(200).text(), "app");
    get("/other/where").assert_status(404);
    assert_eq!(get("/x.bin").assert_header("cache-control", "no-store").text(), "bin");
    let mut client = skep.connect();
    let options = client.request("OPTIONS", "/files/a/", &[]);
    options.assert_status(204).assert_header("x-both", "route");
    client.request("DELETE", "/app/x", &[]).assert_status(405).assert_header("x-both", "site");
}

/// The source of a page that an application generates must not be served as the index of a folder.
#[test]
fn index_files_and_listings_keep_to_their_route() {
    let site = Site::new()
        .with("sub/index.php", "<?php secret")
        .with("sub/index.txt", "text")
        .with("list/page.php", "<?php secret")
        .with("list/file", "file");
    let origin = Origin::start(|_| Answer::new(200, "", "made"));
    let settings = format!(
        "index = [\"index.php\", \"index.txt\"]\nlisting = true\n\
         [[site.route]]\npath = \"*.php\"\n{}\n",
        origin.line()
    );
    let skep = Skep::node(site.root(), &settings);
    for _ in 0..2 {
        assert_eq!(skep.connect().get("/sub/index.php").text(), "made");
        assert_eq!(skep.connect().get("/sub/").text(), "text");
        let listing = skep.connect().get("/list/").text();
        assert!(listing.contains("file") && !listing.contains("page.php"), "{listing}");
    }
}

#[test]
fn a_fallback_that_is_missing_is_a_404_with_its_page() {
    let site = Site::new().with("404.html", "not here");
    let settings = "spa_fallback = \"/none.html\"\nerror_pages = { \"404\" = \"/404.html\" }";
    let skep = Skep::node(site.root(), settings);
    assert_eq!(skep.connect().get("/any/where").assert_status(404).text(), "not here");
}

#[test]
fn error_pages_and_redirects_are_the_sites() {
    let site = Site::new().with("www/404.html", "not here").with("pages/pages/5.html", "sorry");
    let origin = Origin::start(|asked| match asked.target.as_str() {
        "/api/none" => Answer::new(404, "", "of the origin"),
        _ => Answer::new(500, "", "of the origin"),
    });
    let settings = format!(
        "error_pages = {{ \"404\" = \"/404.html\", \"500\" = \"/pages/5.html\" }}\n\
         [[site.redirect]]\nfrom = \"/api/old\"\nto = \"/api/new\"\n\
         [[site.route]]\npath = \"/api/*\"\n{}\n\
         [[site.route]]\npath = \"/pages/*\"\nroot = \"{}\"\n",
        origin.line(),
        site.path("pages").display(),
    );
    let skep = Skep::node(&site.path("www"), &settings);
    let get = |target: &str| skep.connect().get(target);
    for _ in 0..2 {
        assert_eq!(get("/none").assert_status(404).text(), "not here");
        assert_eq!(get("/api/none").assert_status(404).text(), "not here");
        assert_eq!(get("/api/fails").assert_status(500).text(), "sorry");
    }
    get("/api/old").assert_status(301).assert_header("location", "/api/new");
}

#[test]
fn a_purge_names_a_path_whatever_its_route() {
    let site = Site::new().with("file", "1");
    let number = AtomicU32::new(0);
    let origin = Origin::start(move |_| {
        let body = number.fetch_add(1, Ordering::Relaxed).to_string();
        Answer::new(200, "Cache-Control: max-age=100\r\n", body)
    });
    let skep = node(&site, &origin, "");
    let seen = || {
        let mut client = skep.connect();
        (client.get("/api/x?a").text(), client.get("/api/y").text())
    };
    let found = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    assert_eq!((seen(), seen()), (found("0", "1"), found("0", "1")));
    let purge = |what: &str| assert_eq!(skep.command(&["purge", what]).code, Some(0));
    purge("/api/x?a");
    assert_eq!(seen(), found("2", "1"));
    purge("/file");
    assert_eq!(seen(), found("2", "1"));
    purge("/%61pi/*");
    assert_eq!(seen(), found("3", "4"));
}

#[test]
fn fresh_for_as_long_as_its_own_route_says() {
    let site = Site::new();
    let origin = Origin::start(|asked| Answer::new(200, "ETag: \"1\"\r\n", &asked.target));
    let line = origin.line();
    let settings = format!(
        "[[site.route]]\npath = \"/long/*\"\n{line}\n[site.route.fetch]\nfresh_ms = \"1h\"\n\
         [[site.route]]\npath = \"/none/*\"\n{line}\n[site.route.fetch]\nfresh_ms = 0\n"
    );
    let skep = Skep::node(site.root(), &settings);
    let mut client = skep.connect();
    for target in ["/long/x", "/none/x"] {
        (0..3).for_each(|_| _ = client.get(target).assert_status(200));
    }
    let count = |target: &str| origin.asked().iter().filter(|it| it.target == target).count();
    assert_eq!((count("/long/x"), count("/none/x")), (1, 3));
}

#[test]
fn a_reload_moves_routes_and_a_wrong_one_changes_nothing() {
    let site = Site::new().with("www/api/f", "file").with("www/g", "www").with("other/g", "other");
    let origin = Origin::start(echo);
    let skep = node(&site, &origin, "");
    let get = |target: &str| skep.connect().get(target).text();
    assert_eq!(get("/api/f"), "/api/f");
    let moved = |root: &str| {
        skep.reconfigure(
            &site.path("www"),
            &format!("[[site.route]]\npath = \"/g\"\nroot = \"{root}\"\n"),
        );
        skep.signal(Signal::HUP);
    };
    moved(&site.path("other").display().to_string());
    poll_until(PATIENCE, "the new routes are in force", || get("/api/f") == "file");
    assert_eq!(get("/g"), "other");
    moved("/no/such/folder");
    poll_until(PATIENCE, "the log tells", || skep.stderr_text().contains("/no/such/folder"));
    assert_eq!((get("/g"), get("/api/f")), ("other".to_owned(), "file".to_owned()));
}
