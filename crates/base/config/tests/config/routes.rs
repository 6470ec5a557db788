//! Routes: their conditions, and their fixed replies.

use skep_config::Config;

use crate::errors::{BASE, only};

fn reply(path: &str, lines: &str) -> String {
    format!("{BASE}[[site.route]]\npath = '{path}'\n[site.route.reply]\n{lines}\n")
}

#[test]
fn routes_with_conditions_hide_nothing() {
    let route = |lines: &str| format!("[[site.route]]\n{lines}\nroot = '/srv'\n");
    let with = |routes: &[&str]| {
        let routes: String = routes.iter().map(|lines| route(lines)).collect();
        format!("{BASE}{routes}")
    };
    let post = "path = '/a/*'\nmethods = 'POST'";
    let canary = "path = '/*'\nmatch_headers = { X-Canary = '1', Accept = 'text/*', A = '*' }";
    let config = Config::parse("test", &with(&[canary, post, "path = '/a/*'", post])).unwrap_err();
    assert_eq!(config.errors.len(), 1, "{config}");
    let text = with(&[canary, post, "path = '/a/b'", "path = '/a/*'"]);
    let config = Config::parse("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
    assert_eq!(
        only(&with(&["path = '/a/*'", post])),
        "10:8 Duplicate site.route.path / a path that no earlier route matches / \"/a/*\" behind \
         \"/a/*\" / the first route that matches answers: move this one up"
    );
    assert_eq!(
        only(&with(&[post, post])),
        "11:8 Duplicate site.route.path / a path that no earlier route matches / \"/a/*\" behind \
         \"/a/*\" / -"
    );
    let value = "the value of a header field, the beginning of one and `*`, or `*`";
    for (lines, told) in [
        ("methods = 'post'", "8:11 WrongType site.route.methods / a method such as \"POST\" / \"post\" / in capital letters".to_owned()),
        ("match_headers = { A = '*b' }", format!("8:23 WrongType site.route.match_headers / {value} / \"*b\" / `*` can only be its end")),
        ("match_headers = { 'A b' = '*' }", "8:19 WrongType site.route.match_headers / the name of a header field / \"A b\" / names of header fields are letters, digits and `-`".to_owned()),
        ("match_headers = { A = '*', a = '1' }", "8:28 Duplicate site.route.match_headers / each name once / \"a\" / -".to_owned()),
    ] {
        assert_eq!(only(&with(&[&format!("path = '/a'\n{lines}")])), told);
    }
}

#[test]
fn fixed_replies_are_whole() {
    let redirect = "status = 301\nlocation = 'https://a.example/*'";
    for text in [
        reply("/a/*", redirect),
        reply("/a", "status = 503"),
        reply("/a", "status = 200\nbody = \"\"\"\na\n\tb\"\"\""),
    ] {
        let config = Config::parse("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
    }
}

#[test]
fn replies_that_contradict_themselves_are_refused() {
    let at = "site.route.reply";
    for (path, lines, told) in [
        (
            "/a",
            "body = 'a'",
            format!(
                "8:1 Missing {at} / a `status` / none / status = 200 is that of a text or file"
            ),
        ),
        (
            "/a",
            "status = 200\nbody = 'a'\nfile = 'b'",
            format!("11:8 Contradiction {at}.file / a `body` or a `file` / both / -"),
        ),
        (
            "/a",
            "status = 204\nbody = 'a'",
            format!(
                "9:10 Contradiction {at}.status / a status with a body / 204 / this one never has a body (RFC 9110 15)"
            ),
        ),
        (
            "/a",
            "status = 304",
            format!(
                "9:10 Contradiction {at}.status / another status / 304 / this one never has a body (RFC 9110 15)"
            ),
        ),
    ] {
        assert_eq!(only(&reply(path, lines)), told);
    }
}

#[test]
fn redirects_lead_somewhere_and_a_route_has_one_source() {
    let redirect = "status = 301\nlocation = 'https://a.example/*'";
    let at = "site.route.reply";
    for (path, lines, told) in [
        (
            "/a",
            "status = 302",
            format!(
                "9:10 Contradiction {at}.status / a `location` beside a redirect / none / location = \"https://example.org/*\""
            ),
        ),
        (
            "/a",
            "status = 200\nlocation = '/b'",
            format!(
                "9:10 Contradiction {at}.status / 301, 302, 303, 307 or 308 / 200 / only these lead to a `location`"
            ),
        ),
        (
            "/a",
            redirect,
            format!(
                "10:12 Contradiction {at}.location / no `*`, as `path` has not one at its end only / \"https://a.example/*\" / -"
            ),
        ),
        (
            "/a*b*",
            redirect,
            format!(
                "10:12 Contradiction {at}.location / no `*`, as `path` has not one at its end only / \"https://a.example/*\" / -"
            ),
        ),
        (
            "/a",
            "status = 100",
            format!("9:10 OutOfRange {at}.status / an HTTP status from 200 to 599 / 100 / -"),
        ),
        (
            "/a",
            "status = 200\nbody = \"a\\rb\"",
            format!(
                "10:8 WrongType {at}.body / a text / \"a\\rb\" / no control characters but line ends and tabs"
            ),
        ),
    ] {
        assert_eq!(only(&reply(path, lines)), told);
    }
    let both = format!("{BASE}[[site.route]]\npath = '/a'\nroot = '/srv'\nreply.status = 503\n");
    assert_eq!(
        only(&both),
        "9:1 Contradiction site.route.reply / a `root`, `origins`, a `pool` or a `reply` / two of them / a \
         [[site.route]] of its own can have the other"
    );
}

#[test]
fn compression_that_compresses_nothing_is_refused() {
    let with = |lines: &str| format!("{BASE}[site.compress]\n{lines}\n");
    let text = with("enabled = true\ncodings = ['gzip', 'zstd']\ntypes = 'application/*+json'");
    let config = Config::parse("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
    for (lines, told) in [
        (
            "codings = 'deflate'",
            "7:11 WrongType site.compress.codings / \"zstd\", \"br\" or \"gzip\" / \"deflate\" / -",
        ),
        (
            "types = 'Text/HTML; charset=utf-8'",
            "7:9 WrongType site.compress.types / a media type such as \"text/css\" or \"text/*\" / \
             \"Text/HTML; charset=utf-8\" / two names in small letters with one `/` between, without \
             parameters",
        ),
        (
            "enabled = true\ncodings = []",
            "8:11 Contradiction site.compress.codings / at least one coding / none / enabled = false \
             switches it off",
        ),
        (
            "enabled = true\nsize_bytes_min = '1MiB'\nsize_bytes_max = '2KiB'",
            "8:18 Contradiction site.compress.size_bytes_min / at most `size_bytes_max`, 2KiB / 1MiB / -",
        ),
    ] {
        assert_eq!(only(&with(lines)), told);
    }
    let text = reply("/a", "status = 503\n[site.route.compress]\nenabled = true");
    assert_eq!(
        only(&text),
        "11:11 Contradiction site.route.compress.enabled / no `compress`, because there is a `reply` / one / \
         it is for what is long: files and applications"
    );
}
