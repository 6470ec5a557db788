//! URLs and cookies of an application, rewritten to the client's view.

use skep_tests::app::{App, response};
use skep_tests::{Response, Skep};

use super::pools::pool_lines;

/// An application whose response has the header line given in hexadecimal in the request's query.
fn app() -> App {
    App::answering(|request| {
        let query = request.head.split([' ', '?']).nth(2).unwrap_or_default().as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let line: Vec<u8> = query.chunks(2).map(byte).collect();
        response(302, &format!("{}\r\n", String::from_utf8(line).unwrap()), "")
    })
}

fn ask(skep: &Skep, path: &str, line: &str) -> Response {
    let line: String = line.bytes().map(|byte| format!("{byte:02x}")).collect();
    let head = format!("GET {path}?{line} HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    skep.connect().send(head).response()
}

#[test]
fn redirects_and_cookies_of_an_application_lead_to_its_route() {
    let app = app();
    let pool = pool_lines("", &[(app.address(), "")]);
    let route = |path: &str, forward: &str| {
        format!(
            "[[site.route]]\npath = \"{path}/*\"\npool = \"app\"\n[site.route.forward]\n{forward}\n"
        )
    };
    let lines = [
        "pool = \"app\"\n".to_owned(),
        route("/app", "strip_prefix = \"/app\"\ncookie_domain = \"shop.example\""),
        route("/v", "strip_prefix = \"/v\"\nadd_prefix = \"/v1\"\nhost = \"app.internal\""),
        route("/raw", "strip_prefix = \"/raw\"\nrewrite_responses = false"),
        route(
            "/more",
            "rewrite_responses = false\nresponse_prefixes = { \"/a\" = \"/more/a\" }\n\
             application_hosts = \"www.internal:81\"",
        ),
        pool,
    ];
    let skep = Skep::node_of(&lines.concat());
    let own = format!("Location: http://{}/x", app.address());
    for (path, line, field, wanted) in [
        ("/app/x", "Location: /login?a=/b", "location", "/app/login?a=/b"),
        ("/app/x", "Location: http://shop.example/", "location", "http://shop.example/app/"),
        ("/app/x", "Location: http://other.example/", "location", "http://other.example/"),
        ("/app/x", &own, "location", "/app/x"),
        ("/app/x", "Refresh: 1; url=/y", "refresh", "1; url=/app/y"),
        ("/app/x", "Content-Location: /y", "content-location", "/app/y"),
        (
            "/app/x",
            "Set-Cookie: s=/; Path=/; Domain=x",
            "set-cookie",
            "s=/; Path=/app; Domain=shop.example",
        ),
        ("/v/x", "Location: http://app.internal/v1/y", "location", "/v/y"),
        ("/v/x", "Set-Cookie: s=1; path=/v1/", "set-cookie", "s=1; path=/v"),
        ("/v/x", "Location: /y", "location", "/y"),
        ("/raw/x", "Location: /y", "location", "/y"),
        ("/more/x", "Location: http://www.internal:81/a/b", "location", "/more/a/b"),
        ("/x", "Location: /y", "location", "/y"),
    ] {
        let reply = ask(&skep, path, line);
        reply.assert_status(302);
        assert_eq!(reply.header(field), Some(wanted), "{path}: {line}");
    }
}
