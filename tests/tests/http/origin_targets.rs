//! The targets that origins receive, and the names under which responses are stored: the client's target and
//! no other (RFC 3986, section 6.2.2).

use skep_tests::origin::{Answer, FRESH, Origin};
use skep_tests::{Site, Skep};

/// An origin that answers with the target it received.
fn echo() -> Origin {
    Origin::start(|asked| Answer::of(asked, asked.target.as_bytes(), "\"v\"", FRESH))
}

#[test]
fn an_origin_is_asked_for_the_bytes_that_the_client_sent_and_each_is_an_object_of_its_own() {
    let origin = echo();
    let skep = origin.node("");
    let mut client = skep.connect();
    let targets = [
        "/a+b",
        "/a%2Bb",
        "/a;b",
        "/a%3Bb",
        "/a&b",
        "/a%26b",
        "/a=b",
        "/a%3Db",
        "/a@b",
        "/a%40b",
        "/a/b",
        "/a%2Fb",
        "/a//b",
        "//a/b",
        "/a/b/",
        "/a/b//",
        "/a%20b",
        "/a%25b",
        "/a%252Fb",
        "/%C3%A9",
        "/a%0Ab",
        "/a%3Fb",
        "/a|b",
        "/a%7Cb",
        "/a;v=1/b",
        "/a..;b/c",
        "/...;b/c",
        "/..%2Fa",
        "/a+b?q=a%2bb+c//d",
        "/a%2Bb?q=a%2bb+c//d",
    ];
    for target in targets {
        assert_eq!(client.get(target).assert_status(200).text(), target);
        let hit = client.get(target);
        assert_eq!((hit.text().as_str(), hit.cache_status()), (target, "skep; hit"));
    }
    let asked: Vec<_> = origin.asked().into_iter().map(|asked| asked.target).collect();
    assert_eq!(asked, targets);
}

#[test]
fn spellings_that_the_rfc_calls_the_same_are_one_object() {
    let origin = echo();
    let skep = origin.node("");
    let mut client = skep.connect();
    let spellings = [
        ("/%61-%2d%2E%5f%7e", "/a--._~"),
        ("/a%2bb", "/a%2Bb"),
        ("/a%2fb", "/a%2Fb"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/x/../y", "/y"),
        ("/x/%2e%2E/./y", "/y"),
        ("/x//../y", "/x/y"),
        ("/x/..", "/"),
        ("/y/.", "/y/"),
        ("http://test/a/../y?%61", "/y?%61"),
    ];
    for (target, same) in spellings {
        assert_eq!(client.get(target).text(), same, "{target}");
        assert_eq!(client.get(same).cache_status(), "skep; hit", "{target}");
    }
}

#[test]
fn what_origins_could_read_in_another_way_is_refused() {
    let origin = echo();
    let skep = origin.node("");
    for target in [
        "/a%00",
        "/a%5Cb",
        "/a%5cb",
        "/a\\b",
        "/..;/b",
        "/a/..;/b",
        "/a/..;v=1/b",
        "/a/..;",
        "/.;/b",
        "/a/.;v",
        "/a/..%3B/b",
        "/a/%2e%2E;/b",
        "/a%2",
        "/a%zz",
        "/..",
        "//../..",
    ] {
        let response = skep.connect().get(target);
        assert_eq!(response.status, 400, "{target}: {}", response.head_text());
    }
    assert!(origin.asked().is_empty(), "{:?}", origin.asked());
}

#[test]
fn a_purge_hits_what_is_kept_under_the_target_in_all_its_spellings() {
    let origin =
        Origin::counting(|n, asked| Answer::of(asked, n.to_string().as_bytes(), "\"v\"", FRESH));
    let skep = origin.node("");
    let mut client = skep.connect();
    for (purged, kept) in [
        ("/a%2Bb", "/a%2Bb"),
        ("/a%2bb", "/a%2Bb?q"),
        ("/c%2Fd", "/c%2Fd"),
        ("/e//f", "/e//f"),
        ("//e//f", "//e//f"),
        ("/e/f", "/e//f"),
        ("/%7Cg", "/|g"),
        ("/h%2B*", "/h%2Bi"),
        ("/j/*", "/j//k"),
        ("http://test/l%3Bm?q=%2B*", "/l%3Bm?q=%2Bx"),
    ] {
        let before = client.get(kept).text();
        assert_eq!(client.get(kept).text(), before);
        let what = if kept.ends_with("?q") { &format!("{purged}?q") } else { purged };
        let done = skep.command(&["purge", what]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_ne!(client.get(kept).text(), before, "{purged} did not hit {kept}");
    }
    // A different path stays different: an encoded slash is no separator.
    let before = client.get("/n%2Fo").text();
    assert_eq!(skep.command(&["purge", "/n/o", "/n/*"]).code, Some(0));
    assert_eq!(client.get("/n%2Fo").text(), before);
}

#[test]
fn what_moved_is_found_in_any_spelling_and_sent_on_as_it_came() {
    let moved = "[[site.redirect]]\nfrom = \"/old/*\"\nto = \"/new/*\"\n\
        [[site.redirect]]\nfrom = \"/one%20a+b\"\nto = \"/two\"\n\
        [[site.redirect]]\nfrom = \"/up*\"\nto = \"/*\"\n\
        [[site.redirect]]\nfrom = \"/out/*\"\nto = \"https://other.example/*\"\n";
    let origin = echo();
    let site = Site::new().with("f", "f");
    let location = |skep: &Skep, target: &str| {
        let response = skep.connect().get(target);
        response.assert_status(301).header("location").unwrap_or_default().to_owned()
    };
    for skep in [origin.node(moved), Skep::node(site.root(), moved)] {
        for (target, expected) in [
            ("/old/a%2Bb", "/new/a%2Bb"),
            ("/old/a+b", "/new/a+b"),
            ("/%6Fld/a%3bb", "/new/a%3Bb"),
            ("//old//a", "/new/a"),
            ("/old/x/../a", "/new/a"),
            ("/one%20a+b", "/two"),
            ("/one%20a%2Bb", "/two"),
            ("/out/a%3Fb", "https://other.example/a%3Fb"),
            // Not to another server, whatever follows.
            ("/up/evil.example/", "/evil.example/"),
            ("/up//evil.example/", "/evil.example/"),
        ] {
            assert_eq!(location(&skep, target), expected, "{target}");
        }
    }
    assert!(origin.asked().is_empty(), "{:?}", origin.asked());
    assert_eq!(location(&origin.node(moved), "/out/a//b%2Fc"), "https://other.example/a//b%2Fc");
}

#[test]
fn pages_of_the_operator_are_read_as_paths_are() {
    let pages = "error_pages = { 404 = \"/e%20%2B.html\" }\n";
    let site = Site::new().with("e +.html", "own");
    let skep = Skep::node(site.root(), pages);
    assert_eq!(skep.connect().get("/none").assert_status(404).text(), "own");
    let origin = Origin::start(|asked| match asked.target.as_str() {
        "/e%20%2B.html" => Answer::of(asked, b"own", "\"v\"", FRESH),
        _ => Answer::new(404, FRESH, "other"),
    });
    assert_eq!(origin.node(pages).connect().get("/none").assert_status(404).text(), "own");
}
