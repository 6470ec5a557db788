//! Malicious clients of the cache in front of pools that target the pages of other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use skep_tests::app::{App, response};
use skep_tests::{PATIENCE, Skep, poll_until};

use super::pool_cache::{app, assert_hit, node};
use super::pools::{Gate, pool_lines, pool_of};

#[test]
fn changes_of_what_no_purge_can_name_take_nothing_out() {
    let (app, received) = app(|request, count| {
        let what = request.line().split(' ').next().unwrap().to_owned();
        response(200, "Cache-Control: max-age=60\r\n", format!("{what} {count}"))
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    assert_eq!(client.get("/page").text(), "GET 1");
    received.next();
    // As many invalidated prefixes as are kept exactly; one more would invalidate a folder, or everything.
    for number in 0..300 {
        let long = format!("/contact?{number}{}", "x".repeat(4_200));
        client.request("POST", &long, &[]).assert_status(200);
        received.next();
    }
    assert_hit(&client.get("/page"), "GET 1");
    // Nor are they stored.
    let long = format!("/contact?{}", "x".repeat(4_200));
    for count in 1..=2 {
        let reply = client.get(&long);
        assert_eq!(reply.text(), format!("GET {count}"));
        assert_eq!(reply.cache_status(), "skep; fwd=bypass; detail=url-too-long");
    }
}

#[test]
fn cookies_that_applications_read_in_their_own_way_answer_nobody_else() {
    let (app, received) = app(|request, _| {
        let page = request.field("cookie").unwrap_or("nothing").to_owned();
        response(200, "Cache-Control: max-age=60\r\n", page)
    });
    let skep = node(&app, "key_cookies = [\"my_lang\"]\ncookies_ignored = [\"_ga*\"]\n");
    let mut client = skep.connect();
    for cookie in [
        "my_lang =evil",
        "my_lang=de; my_lang =evil",
        "_ga=1 my_lang=evil",
        "my.lang=evil",
        "my[lang=evil; my_lang=de",
        "MY_LANG=evil",
        "_ga=\"1; my_lang=evil\"",
    ] {
        let reply = client.request("GET", "/", &[("Cookie", cookie)]);
        let told = (reply.text(), reply.cache_status());
        assert_eq!(told, (cookie.into(), "skep; fwd=bypass; detail=key-cookie"));
        received.next();
    }
    for cookie in ["my_lang=de", "my_lang=de; _ga=GA1.2.3"] {
        let reply = client.request("GET", "/", &[("Cookie", cookie)]);
        assert_eq!(reply.text(), "my_lang=de", "{}", reply.head_text());
    }
    received.next();
    assert_eq!(client.get("/").text(), "nothing");
    received.next();
    received.assert_none();
}

/// One client's session is at a server without free slots: it waits, while others get the page from another
/// server.
#[test]
fn who_waits_for_the_server_of_a_session_keeps_no_others_waiting() {
    let gate = Gate::default();
    let server = |name: &'static str| {
        let gate = gate.clone();
        App::answering(move |request| match request.line().contains("/hold") {
            true => {
                gate.pass();
                response(200, "", name)
            }
            false => response(200, "Cache-Control: max-age=60\r\n", name),
        })
    };
    let servers = ["s1", "s2"].map(server);
    let places = servers.each_ref().map(|it| (it.address(), "connections_max = 1"));
    let pool = pool_lines("policy = \"round-robin\"\nqueue_timeout_ms = 60000", &places);
    let sticky = "[pool.sticky]\nby = \"field-hash\"\nfield = \"X-User\"\n";
    let skep =
        Skep::node_of(&format!("pool = \"app\"\n[site.cache]\nenabled = true\n{pool}{sticky}"));
    // One user per server.
    let mut client = skep.connect();
    let mut user_of = |name: &str| {
        let users = (0..64).map(|user| format!("u{user}"));
        let at = |user: &String| {
            let path = format!("/who/{user}");
            client.request("GET", &path, &[("X-User", user)]).text() == name
        };
        users.into_iter().find(at).unwrap()
    };
    let users = ["s1", "s2"].map(&mut user_of);
    let held = |user: &str| {
        let mut client = skep.connect();
        client.send(format!(
            "GET /hold/{user} HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\nAuthorization: x\r\n\r\n"
        ));
        client
    };
    let mut holder = held(&users[0]);
    let in_work = || pool_of(&skep)["servers"][0]["connections"] == 1;
    poll_until(PATIENCE, "the server of the first has no room", in_work);
    let mut attacker = skep.connect();
    attacker.send(format!("GET /page HTTP/1.1\r\nHost: a\r\nX-User: {}\r\n\r\n", users[0]));
    poll_until(PATIENCE, "it waits", || pool_of(&skep)["queued_requests"] == 1);
    // The same page, for a user of the other server.
    let victim = skep.connect().request("GET", "/page", &[("X-User", &users[1])]);
    victim.assert_status(200);
    assert_eq!(victim.text(), "s2", "{}", victim.head_text());
    gate.open();
    holder.try_response_to("GET").unwrap().assert_status(200);
    attacker.try_response_to("GET").unwrap().assert_status(200);
}

const CACHE_CONTROL: &str =
    "Cache-Control: max-age=4, stale-while-revalidate=600, stale-if-error=600\r\n";

/// A failing application does not receive a request for each hit of a response that is stale or nearly so.
#[test]
fn a_failing_application_meets_no_more_than_a_refresh_a_second() {
    for (settings, soft_purge) in
        [("", true), ("refresh_ahead_percent = 90\nrefresh_hits_min = 1\n", false)]
    {
        for answers in [true, false] {
            let asked = Arc::<AtomicUsize>::default();
            let count = Arc::clone(&asked);
            let app = App::start(move |conn| {
                while conn.request().is_some() {
                    let reply = match count.fetch_add(1, Ordering::SeqCst) {
                        0 => response(200, CACHE_CONTROL, "page"),
                        _ if answers => response(503, "", "busy"),
                        _ => break,
                    };
                    conn.send(reply);
                }
                conn.reset();
            });
            let skep = node(&app, settings);
            let mut client = skep.connect();
            client.get("/").assert_status(200);
            if soft_purge {
                assert_eq!(skep.command(&["purge", "--soft", "/*"]).code, Some(0));
            }
            // Long enough to reach 90 % of the lifetime, and for some revalidations to fail.
            let begun = Instant::now();
            poll_until(PATIENCE, "a refresh has failed", || {
                assert_eq!(client.get("/").text(), "page");
                asked.load(Ordering::SeqCst) > 1
            });
            for _ in 0..2_000 {
                assert_eq!(client.get("/").text(), "page");
            }
            // A request is retried once if the connection ends without an answer.
            let asked_max = 3 * (2 + begun.elapsed().as_secs() as usize);
            let asked = asked.load(Ordering::SeqCst);
            assert!(asked <= asked_max, "{asked}, {answers} {settings:?}");
        }
    }
}

/// Nor does one whose answer to the revalidating client may not be stored.
#[test]
fn an_answer_for_one_client_alone_is_not_asked_for_with_each_hit() {
    let (app, received) = app(|_, count| {
        response(200, if count == 1 { CACHE_CONTROL } else { "" }, format!("page {count}"))
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    let with_cookie = [("Cookie", "a=b")];
    client.request("GET", "/", &with_cookie).assert_status(200);
    received.next();
    assert_eq!(skep.command(&["purge", "--soft", "/*"]).code, Some(0));
    let begun = Instant::now();
    assert_eq!(client.request("GET", "/", &with_cookie).text(), "page 1");
    received.next();
    for _ in 0..500 {
        assert_eq!(client.request("GET", "/", &with_cookie).text(), "page 1");
    }
    let further = std::iter::from_fn(|| received.try_next()).count();
    assert!(further <= 1 + begun.elapsed().as_secs() as usize, "{further}");
}
