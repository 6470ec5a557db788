//! Routes that apply only to requests with certain methods or header fields.

use skep_tests::app::{App, response};
use skep_tests::origin::{Answer, Origin};
use skep_tests::{Site, Skep};

/// A server that answers with its name and the request line.
fn named(name: &'static str) -> App {
    App::answering(move |received| response(200, "", format!("{name}: {}", received.line())))
}

/// Returns a `[[pool]]` with one server.
fn pool(name: &str, app: &App) -> String {
    let address = app.address();
    format!("[[pool]]\nname = \"{name}\"\n[[pool.server]]\nname = \"s\"\naddress = \"{address}\"\n")
}

#[test]
fn a_route_may_demand_methods_and_fields() {
    let site = Site::new().with("api/x", "file");
    let [writes, canary, beta] = ["writes", "canary", "beta"].map(named);
    let route = |lines: &str| format!("[[site.route]]\npath = \"/api/*\"\n{lines}\n");
    let skep = Skep::node(
        site.root(),
        &[
            route("methods = [\"POST\", \"PUT\"]\npool = \"writes\""),
            route(
                "match_headers = { \"X-Canary\" = \"*\", \"X-Group\" = \"b*\" }\npool = \"canary\"",
            ),
            route("match_headers = { \"X-Group\" = \"beta\" }\npool = \"beta\""),
            pool("writes", &writes),
            pool("canary", &canary),
            pool("beta", &beta),
        ]
        .concat(),
    );
    let mut client = skep.connect();
    // Twice: conditions also apply to objects in memory.
    for (method, fields, got) in [
        ("GET", &[][..], "file"),
        ("POST", &[], "writes: POST /api/x HTTP/1.1"),
        ("PUT", &[("X-Group", "beta")], "writes: PUT /api/x HTTP/1.1"),
        ("GET", &[("X-Group", "beta")], "beta: GET /api/x HTTP/1.1"),
        ("GET", &[("x-group", "beta"), ("x-canary", "")], "canary: GET /api/x HTTP/1.1"),
        ("GET", &[("X-Group", "alpha"), ("X-Group", "beta")], "beta: GET /api/x HTTP/1.1"),
        ("GET", &[("X-Group", "Beta")], "file"),
        ("GET", &[("X-Group", "betas")], "file"),
        ("GET", &[("X-Group", "betas"), ("X-Canary", "1")], "canary: GET /api/x HTTP/1.1"),
        ("GET", &[("X-Canary", "1")], "file"),
        ("GET", &[], "file"),
    ] {
        let reply = client.request(method, "/api/x", fields);
        assert_eq!(reply.assert_status(200).text(), got, "{method} {fields:?}");
    }
    // For a method without a condition, the site's folder is used.
    client.request("DELETE", "/api/x", &[]).assert_status(405);
    // Vary informs shared caches which fields the conditions depend on.
    let vary = |target: &str, fields: &[(&str, &str)]| {
        let reply = skep.connect().request("GET", target, fields);
        reply.header_all("vary").collect::<Vec<_>>().join(", ")
    };
    assert!(vary("/api/x", &[]).contains("X-Canary, X-Group"));
    assert!(vary("/api/x", &[("X-Group", "beta")]).contains("X-Canary, X-Group"));
    assert!(!vary("/api/x", &[("X-Group", "beta")]).contains("X-Group, X-Canary, X-Group"));
}

#[test]
fn every_request_with_a_field_may_have_a_route() {
    let (site, canary) = (Site::new().with("sub/index.html", "old"), named("canary"));
    let settings = format!(
        "[[site.route]]\npath = \"/*\"\nmatch_headers = {{ \"X-Canary\" = \"1\" }}\n\
         pool = \"canary\"\n{}",
        pool("canary", &canary)
    );
    let skep = Skep::node(site.root(), &settings);
    let mut client = skep.connect();
    for _ in 0..2 {
        assert_eq!(client.get("/sub/").assert_status(200).text(), "old");
        let reply = client.request("GET", "/sub/", &[("X-Canary", "1")]);
        assert_eq!(reply.text(), "canary: GET /sub/ HTTP/1.1");
    }
}

/// The same rules as for routes without conditions, for the requests that meet them.
#[test]
fn no_spelling_leads_around_a_route_with_conditions() {
    let (guarded, open) = (named("guarded"), named("open"));
    let settings = format!(
        "pool = \"open\"\n[[site.route]]\npath = \"/internal/*\"\nmethods = [\"POST\"]\n\
         pool = \"guarded\"\n{}{}",
        pool("guarded", &guarded),
        pool("open", &open),
    );
    let skep = Skep::node_of(&settings);
    for spelled in ["/internal%2Fx", "/internal;a/x", "/a/..%2Finternal/x"] {
        skep.connect().request("POST", spelled, &[]).assert_status(400);
        let reply = skep.connect().get(spelled);
        assert!(reply.assert_status(200).text().starts_with("open: GET"), "{spelled}");
    }
    for spelled in ["/%69nternal/x", "//internal/x", "/a/../internal/x"] {
        let reply = skep.connect().request("POST", spelled, &[]);
        assert!(reply.assert_status(200).text().starts_with("guarded: POST"), "{spelled}");
    }
}

/// A cached folder does not determine whether a request for the index file would use another route: then it
/// is not shown.
#[test]
fn index_files_and_listings_are_not_those_of_a_route_with_conditions() {
    let site = Site::new()
        .with("sub/index.php", "<?php secret")
        .with("sub/index.txt", "text")
        .with("list/page.php", "<?php secret")
        .with("list/file", "file");
    let origin = Origin::start(|_| Answer::new(200, "", "made"));
    let with = |condition: &str| {
        let settings = format!(
            "index = [\"index.php\", \"index.txt\"]\nlisting = true\n\
             [[site.route]]\npath = \"*.php\"\n{condition}\n{}\n",
            origin.line()
        );
        Skep::node(site.root(), &settings)
    };
    let skep = with("match_headers = { \"X-Run\" = \"1\" }");
    for _ in 0..2 {
        let run = skep.connect().request("GET", "/sub/index.php", &[("X-Run", "1")]);
        assert_eq!(run.text(), "made");
        assert_eq!(skep.connect().get("/sub/").text(), "text");
        let listing = skep.connect().get("/list/").text();
        assert!(listing.contains("file") && !listing.contains("page.php"), "{listing}");
    }
    // Files are never requested by POST, so this condition does not matter.
    let skep = with("methods = [\"POST\"]");
    assert_eq!(skep.connect().get("/sub/").text(), "<?php secret");
}

/// Two routes with one path, selected by a field: a response of one must not answer for the other.
#[test]
fn routes_of_one_path_keep_their_copies_apart() {
    let [one, two] = ["one", "two"].map(|name| {
        Origin::start(move |_| Answer::new(200, "Cache-Control: max-age=100\r\n", name))
    });
    let settings = format!(
        "{}\n[[site.route]]\npath = \"/x/*\"\nmatch_headers = {{ \"X-Two\" = \"*\" }}\n{}\n",
        one.line(),
        two.line()
    );
    let skep = Skep::node_of(&settings);
    let mut client = skep.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/x/y").text(), "one");
        assert_eq!(client.request("GET", "/x/y", &[("X-Two", "")]).text(), "two");
    }
    assert_eq!((one.asked().len(), two.asked().len()), (1, 1));
}
