//! `skep pool test`: sends a request to one server, and shows the answer.

use skep_tests::app::{App, response};
use skep_tests::{FreePort, Skep};

use super::pools::pool_lines;

fn node(app: &App) -> Skep {
    let dead = FreePort::claim();
    let servers = [(app.address(), ""), (dead.address(), "")];
    Skep::node_of(&format!("pool = \"app\"\n{}", pool_lines("health.host = \"inner\"", &servers)))
}

fn test(skep: &Skep, arguments: &[&str]) -> (Option<i32>, String, String) {
    let done = skep.command(&[&["pool", "test", "app"], arguments].concat());
    (done.code, done.stdout, done.stderr)
}

#[test]
fn one_server_is_asked_and_its_answer_is_shown_with_its_times() {
    let app = App::answering(|request| {
        let host = request.field("host").unwrap_or("none").to_owned();
        match request.line() {
            "GET /odd HTTP/1.1" => {
                response(200, "", "x\u{202e}y\u{200b}z \u{e9}\u{301}\"\u{9b}31m")
            }
            "GET /fails HTTP/1.1" => response(503, "", "no"),
            "GET /chunked?a=1 HTTP/1.1" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
                X-Odd: \x9b31m\r\n\r\n3\r\nab\x1b\r\n2\r\ncd\r\n0\r\n\r\n"
                .to_vec(),
            "GET /early HTTP/1.1" => {
                b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n".to_vec()
            }
            line => response(200, "X-App: 1\r\n", format!("{line} of {host}")),
        }
    });
    let skep = node(&app);
    let (code, shown, _) = test(&skep, &["s1"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.starts_with(&format!("s1 at {}: GET /\nconnected ", app.address())), "{shown}");
    for line in ["status 200, 23 bytes", "  X-App: 1", "GET / HTTP/1.1 of inner"] {
        assert!(
            shown.lines().any(|it| it.eq_ignore_ascii_case(line)),
            "{line} is missing in {shown}"
        );
    }
    let (_, shown, _) = test(&skep, &["s1", "--path", "/x?y", "--host", "shop.example"]);
    assert!(shown.ends_with("\nGET /x?y HTTP/1.1 of shop.example\n"), "{shown}");
    let (code, shown, _) = test(&skep, &["s1", "--path", "/chunked?a=1"]);
    assert_eq!(code, Some(0));
    assert!(shown.contains("status 200, 5 bytes") && shown.ends_with("\nab.cd\n"), "{shown:?}");
    let (_, shown, _) = test(&skep, &["s1", "--path", "/early"]);
    assert!(shown.contains("status 204, 0 bytes"), "{shown}");
    // Bidirectional controls and zero-width characters: they hide or reorder the text around them.
    let (_, shown, _) = test(&skep, &["s1", "--path", "/odd"]);
    assert!(shown.ends_with("\nx.y.z \u{e9}\u{301}\".31m\n"), "{shown:?}");
    let (_, json, _) = test(&skep, &["s1", "--path", "/odd", "--json"]);
    assert!(json.contains("x\\u202ey\\u200bz \u{e9}") && json.contains("\\u009b31m"), "{json:?}");
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parsed["body"], "x\u{202e}y\u{200b}z \u{e9}\u{301}\"\u{9b}31m");
    let (code, _, error) = test(&skep, &["s1", "--path", "/fails"]);
    assert!(code == Some(1) && error.contains("s1 answered 503"), "{error}");
    // With the pool's health check, which only connects.
    let (code, shown, _) = test(&skep, &["s1", "--health"]);
    assert!(code == Some(0) && shown.starts_with(&format!("s1 at {}: a check\n", app.address())));
    assert!(shown.ends_with("\ncheck: good\n") && !shown.contains("status"), "{shown}");
    let (code, _, error) = test(&skep, &["s2", "--health"]);
    assert!(code == Some(1) && error.contains("the check fails: connection refused"), "{error}");
    let (_, json, _) = test(&skep, &["s1", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["status"], &json["error"]), (&200.into(), &serde_json::Value::Null));
    // A drained server is tested all the same, and the test is not counted.
    skep.command(&["pool", "drain", "app", "s1"]);
    assert_eq!(test(&skep, &["s1"]).0, Some(0));
    let listed = skep.command(&["pool", "list", "--json"]).stdout;
    assert!(!listed.contains("\"requests_total\": 1"), "{listed}");
}

#[test]
fn what_is_wrong_with_a_server_is_said() {
    let app = App::start(|conn| match conn.head().as_deref().map(|head| head.split(' ').nth(1)) {
        Some(Some("/silent")) => conn.wait_for_end(),
        Some(Some("/interim")) => while conn.send("HTTP/1.1 103 Early Hints\r\n\r\n") {},
        Some(Some("/garbage")) => _ = conn.send("SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        Some(Some("/cut")) => _ = conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        Some(Some("/endless")) => {
            conn.send("HTTP/1.1 200 OK\r\n\r\n");
            while conn.send([b'x'; 65_536]) {}
        }
        _ => {}
    });
    let skep = node(&app);
    let error = |arguments: &[&str]| {
        let (code, shown, error) = test(&skep, arguments);
        assert!(code != Some(0), "{shown}");
        (shown, error)
    };
    assert!(error(&["s2"]).1.contains("connection refused"));
    let (shown, silent) = error(&["s1", "--path", "/silent", "--timeout", "300ms"]);
    assert!(silent.contains("no whole answer within 300 ms") && shown.contains("connected"));
    assert!(error(&["s1", "--path", "/nothing"]).1.contains("ended before the answer"));
    error(&["s1", "--path", "/garbage"]);
    assert!(error(&["s1", "--path", "/interim"]).1.contains("too many interim responses"));
    let (shown, cut) = error(&["s1", "--path", "/cut"]);
    assert!(cut.contains("ended inside the answer") && shown.contains("status 200, 3 bytes"));
    let (code, shown, _) = test(&skep, &["s1", "--path", "/endless"]);
    assert!(code == Some(0) && shown.contains(" bytes and more"), "{shown}");
    assert!(error(&["s3"]).1.contains("did you mean"));
    for arguments in [
        ["s1", "--path", "/a b"],
        ["s1", "--path", "/a\r\nX: 1"],
        ["s1", "--path", "x"],
        ["s1", "--host", "a\r\nb"],
        ["s1", "--timeout", "1h"],
    ] {
        assert!(error(&arguments).1.contains("expected"), "{arguments:?}");
    }
}
