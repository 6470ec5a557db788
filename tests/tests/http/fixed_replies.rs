//! Replies defined by the config: texts, small files, refusals, redirects.

use rustix::process::Signal;
use skep_tests::{PATIENCE, Site, Skep, poll_until};

fn route(path: &str, lines: &str) -> String {
    format!("[[site.route]]\npath = \"{path}\"\n{lines}\n")
}

#[test]
fn a_route_may_be_a_text_or_a_small_file() {
    let site = Site::new().with("www/f", "f").with("page.html", "<p>closed</p>");
    let settings = [
        route("/robots.txt", "cache_control = \"max-age=60\"\nreply.status = 200\nreply.body = \"User-agent: *\\nDisallow: /\\n\""),
        route("/none", "reply.status = 204"),
        route("/gone/*", "reply.status = 410"),
        route(
            "/app/*",
            &format!(
                "headers = {{ \"Retry-After\" = \"120\" }}\n[site.route.reply]\nstatus = 503\n\
                 file = \"{}\"\ncontent_type = \"text/html\"",
                site.path("page.html").display()
            ),
        ),
    ]
    .concat();
    let skep = Skep::node(&site.path("www"), &settings);
    let mut client = skep.connect();
    for _ in 0..2 {
        let robots = client.get("/robots.txt");
        assert_eq!(robots.assert_status(200).text(), "User-agent: *\nDisallow: /\n");
        robots.assert_header("content-type", "text/plain; charset=utf-8");
        robots.assert_header("cache-control", "max-age=60").assert_header("content-length", "26");
    }
    client.send("HEAD /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.try_response_to("HEAD").unwrap();
    head.assert_status(200).assert_header("content-length", "26");
    assert_eq!(client.get("/none").assert_status(204).header("content-length"), None);
    assert_eq!(client.get("/gone/x").assert_status(410).text(), "410 Gone\n");
    for method in ["GET", "POST", "DELETE", "OPTIONS", "PATCH"] {
        let reply = client.request(method, "/app/a%2Fb", &[]);
        assert_eq!(reply.assert_status(503).text(), "<p>closed</p>", "{method}");
        reply.assert_header("retry-after", "120").assert_header("content-type", "text/html");
        assert_eq!(reply.header("cache-control"), None);
    }
    // A request's body does not interfere with the next request.
    client.send("POST /app/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    client.response().assert_status(503);
    assert_eq!(client.get("/f").assert_status(200).text(), "f");
}

#[test]
fn a_route_or_a_site_may_be_a_redirect() {
    let site = Site::new().with("f", "f");
    let settings = [
        route("/old/*", "reply.status = 308\nreply.location = \"https://new.example/app/*\""),
        route("*.asp", "reply.status = 302\nreply.location = \"/gone.html\""),
        route(
            "/login",
            "methods = [\"POST\"]\nreply.status = 307\nreply.location = \"https://id.example/\"",
        ),
        "[[site]]\nhosts = [\"www.example.org\"]\n[site.reply]\nstatus = 301\n\
         location = \"https://example.org/*\"\n"
            .to_owned(),
    ]
    .concat();
    let skep = Skep::node(site.root(), &settings);
    let mut client = skep.connect();
    for (method, target, status, location) in [
        ("GET", "/old/a%2Fb?q=1", 308, "https://new.example/app/a%2Fb?q=1"),
        ("POST", "/old/", 308, "https://new.example/app/"),
        // Two slashes would redirect to another host.
        ("GET", "/old///evil.example/", 308, "https://new.example/app/evil.example/"),
        ("GET", "/old/%0D%0ASet-Cookie:x", 308, "https://new.example/app/%0D%0ASet-Cookie:x"),
        ("GET", "/x/y.asp?q=1", 302, "/gone.html"),
        ("POST", "/login", 307, "https://id.example/"),
    ] {
        let reply = client.request(method, target, &[]);
        reply.assert_status(status).assert_header("location", location);
        assert_eq!(reply.text(), "");
    }
    client.get("/login").assert_status(404);
    let www = "GET /a/b?c HTTP/1.1\r\nHost: www.example.org\r\n\r\n";
    let reply = client.send(www).response();
    reply.assert_status(301).assert_header("location", "https://example.org/a/b?c");
}

#[test]
fn a_reply_without_a_body_has_the_page_of_its_status() {
    let site = Site::new().with("sorry.html", "sorry");
    let settings = format!(
        "error_pages = {{ \"503\" = \"/sorry.html\" }}\n{}{}",
        route("/app/*", "reply.status = 503"),
        route("/own/*", "reply.status = 503\nreply.body = \"own\""),
    );
    let skep = Skep::node(site.root(), &settings);
    assert_eq!(skep.connect().get("/app/x").assert_status(503).text(), "sorry");
    assert_eq!(skep.connect().get("/own/x").assert_status(503).text(), "own");
}

#[test]
fn a_reload_reads_files_anew_and_names_one_that_is_missing() {
    let site = Site::new().with("www/f", "f").with("page", "one");
    let lines = |file: &str| {
        let path = site.path(file);
        route("/x", &format!("reply.status = 200\nreply.file = \"{}\"", path.display()))
    };
    let skep = Skep::node(&site.path("www"), &lines("page"));
    let get = || skep.connect().get("/x").text();
    assert_eq!(get(), "one");
    site.replace("page", "two");
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "the file was read again", || get() == "two");
    skep.reconfigure(&site.path("www"), &lines("missing"));
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "the log names it", || skep.stderr_text().contains("for a fixed reply"));
    assert_eq!(get(), "two");
}
