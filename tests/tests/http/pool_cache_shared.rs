//! The shared cache in front of pools: which requests wait for others, and what a change invalidates.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};

use skep_tests::app::{App, response};
use skep_tests::{FreePort, PATIENCE, RawClient, Skep, poll_until};

use super::pool_cache::{app, assert_hit, node};
use super::pools::{Gate, pool_lines};
use super::slow::value;

/// Clients that have just sent a request for `/`.
fn asking(skep: &Skep, clients: usize) -> Vec<RawClient> {
    let ask = |_| {
        let mut client = skep.connect();
        client.ask("/");
        client
    };
    (0..clients).map(ask).collect()
}

#[test]
fn one_computation_serves_all_who_wait_also_if_its_client_leaves() {
    for leaves in [false, true] {
        let gate = Gate::default();
        let shut = gate.clone();
        let (app, received) = app(move |_, count| {
            shut.pass();
            response(200, "Cache-Control: max-age=60\r\n", format!("answer {count}"))
        });
        // With one thread, each request is waiting before a client's disconnect is noticed.
        let metrics = FreePort::claim();
        let listen = format!("[metrics]\nlisten = \"{}\"", metrics.address());
        let skep = node(&app, &format!("[machine]\nthreads = 1\n{listen}"));
        let mut leader = asking(&skep, 1);
        received.next();
        let others = asking(&skep, 8);
        let in_flight = || value(&metrics, "skep_requests_in_flight");
        poll_until(PATIENCE, "all have asked", || in_flight() == 9.0);
        if leaves {
            leader.clear();
        }
        gate.open();
        for mut client in leader.into_iter().chain(others) {
            assert_eq!(client.response().text(), "answer 1");
        }
        received.assert_none();
    }
}

#[test]
fn a_client_that_leaves_alone_frees_its_place_at_the_server() {
    let (closed, closes) = sync_channel(1);
    let (asked, asks) = sync_channel(1);
    let app = App::start(move |conn| {
        if let Some(request) = conn.request() {
            match request.line().contains("/silent") {
                true => {
                    let _ = asked.try_send(());
                    conn.wait_for_end();
                }
                false => _ = conn.send(response(200, "Cache-Control: max-age=60\r\n", "page")),
            }
            // The test may have ended.
            let _ = closed.try_send(());
        }
    });
    let pool = pool_lines("queue_timeout_ms = \"1m\"", &[(app.address(), "connections_max = 1")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n[site.cache]\nenabled = true\n{pool}"));
    let mut leaver = skep.connect();
    leaver.ask("/silent");
    // Counted by requests, not connections: a health check may have one.
    asks.recv_timeout(PATIENCE).unwrap();
    drop(leaver);
    closes.recv_timeout(PATIENCE).unwrap();
    assert_eq!(skep.connect().get("/other").text(), "page");
}

/// A counter of requests received.
#[derive(Clone, Default)]
struct Crowd(Arc<(Mutex<usize>, Condvar)>);

impl Crowd {
    /// Waits until all `size` requests of the wave of request `count` have arrived; the first one was alone.
    fn wait(&self, count: usize, size: usize) {
        let (here, came) = &*self.0;
        let mut here = here.lock().unwrap();
        *here += 1;
        came.notify_all();
        let wanted = (count - 2) / size * size + size;
        while *here < wanted {
            let (guard, waited) = came.wait_timeout(here, PATIENCE).unwrap();
            assert!(!waited.timed_out(), "{} of {wanted} requests came", *guard);
            here = guard;
        }
    }
}

#[test]
fn who_waited_for_what_is_private_asks_at_once_and_nobody_waits_again() {
    const OTHERS: usize = 6;
    let (gate, all) = (Gate::default(), Crowd::default());
    let shut = gate.clone();
    let (app, received) = app(move |_, count| {
        match count {
            1 => shut.pass(),
            // Each is answered only when all have arrived: none of them waits for another.
            _ => all.wait(count, OTHERS),
        }
        response(200, "Cache-Control: private\r\n", format!("answer {count}"))
    });
    let skep = node(&app, "");
    let mut leader = asking(&skep, 1).remove(0);
    received.next();
    let others = asking(&skep, OTHERS);
    gate.open();
    assert_eq!(leader.response().text(), "answer 1");
    let mut texts: Vec<_> = others.into_iter().map(|mut it| it.response().text()).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), OTHERS, "each has its own: {texts:?}");
    // Once this is known, no request waits for another.
    let marked = asking(&skep, OTHERS);
    for mut client in marked {
        assert_eq!(client.response().cache_status(), "skep; fwd=uri-miss; detail=private");
    }
}

#[test]
fn a_private_page_that_is_asked_for_often_says_nothing_of_other_pages() {
    const CLIENTS: usize = 8;
    let gate = Gate::default();
    let shut = gate.clone();
    let (app, received) = app(move |asked, count| {
        if asked.line().contains("/private") {
            return response(200, "Cache-Control: private\r\n", "one's own");
        }
        shut.pass();
        response(200, "Cache-Control: max-age=60\r\n", format!("answer {count}"))
    });
    let metrics = FreePort::claim();
    let listen = format!("[metrics]\nlisten = \"{}\"", metrics.address());
    let skep = node(&app, &format!("[machine]\nthreads = 1\n{listen}"));
    let mut client = skep.connect();
    // More often than the limit of private pages after which a whole route stops waiting.
    for _ in 0..30 {
        assert_eq!(client.get("/private").text(), "one's own");
        received.next();
    }
    let clients = asking(&skep, CLIENTS);
    let in_flight = || value(&metrics, "skep_requests_in_flight");
    poll_until(PATIENCE, "all have asked", || in_flight() == CLIENTS as f64);
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().text(), "answer 1");
    }
}

#[test]
fn a_response_that_may_be_stored_ends_the_mark() {
    let (app, received) = app(|_, count| {
        let fields = if count == 1 { "" } else { "Cache-Control: max-age=60\r\n" };
        response(200, fields, format!("answer {count}"))
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    assert_eq!(client.get("/").cache_status(), "skep; fwd=uri-miss; detail=nothing-to-reuse");
    assert_eq!(client.get("/").text(), "answer 2");
    assert_hit(&client.get("/"), "answer 2");
    (0..2).for_each(|_| _ = received.next());
    received.assert_none();
}

#[test]
fn behind_a_request_that_fails_the_next_one_leads() {
    let gate = Gate::default();
    let shut = gate.clone();
    let (tell, told) = sync_channel(64);
    let app = App::start(move |conn| {
        while let Some(request) = conn.request() {
            tell.send(()).unwrap();
            if request.field("x-break").is_some() {
                shut.pass();
                return;
            }
            conn.send(response(200, "Cache-Control: max-age=60\r\n", "answer"));
        }
    });
    let skep = node(&app, "");
    let mut breaking = skep.connect();
    breaking.send("GET / HTTP/1.1\r\nHost: test\r\nX-Break: 1\r\n\r\n");
    told.recv_timeout(PATIENCE).unwrap();
    let others = asking(&skep, 8);
    gate.open();
    breaking.response().assert_status(502);
    for mut client in others {
        assert_eq!(client.response().assert_status(200).text(), "answer");
    }
    told.recv_timeout(PATIENCE).unwrap();
    assert!(told.try_recv().is_err(), "one of the others asked, for all of them");
}

#[test]
fn that_no_server_is_up_is_so_for_all_who_ask() {
    let app = App::start(|_| {});
    let pool = super::pools::pool_lines("", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n[site.cache]\nenabled = true\n{pool}"));
    drop(app);
    let mut client = skep.connect();
    skep_tests::poll_until(PATIENCE, "it is down", || client.get("/a").status == 503);
    let refused = client.get("/b");
    refused.assert_status(503).assert_header("retry-after", "1");
    assert_eq!(refused.cache_status(), "skep; fwd=miss; detail=no-answer");
}

#[test]
fn who_waited_for_a_response_to_other_fields_gets_one_of_its_own() {
    let gate = Gate::default();
    let shut = gate.clone();
    let (app, received) = app(move |request, count| {
        if count == 1 {
            shut.pass();
        }
        let language = request.field("accept-language").unwrap();
        let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n";
        response(200, fields, language)
    });
    let skep = node(&app, "");
    let ask = |language: &str| {
        let mut client = skep.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: test\r\nAccept-Language: {language}\r\n\r\n"));
        client
    };
    let leader = ask("de");
    received.next();
    let others: Vec<_> = ["en", "de", "en", "fr"].into_iter().map(|it| (it, ask(it))).collect();
    gate.open();
    for (language, mut client) in others.into_iter().chain([("de", leader)]) {
        assert_eq!(client.response().text(), language);
    }
    let mut asked = [received.next(), received.next()]
        .map(|it| it.field("accept-language").unwrap().to_owned());
    asked.sort();
    assert_eq!(asked, ["en", "fr"], "one for each");
    received.assert_none();
}

#[test]
fn an_unsafe_request_makes_its_url_and_what_it_names_stale() {
    let (app, received) = app(|request, count| {
        let fields = "Cache-Control: max-age=60\r\n";
        match request.line().split(' ').collect::<Vec<_>>()[..] {
            ["POST", "/page?b=2&a=1", _] => {
                response(303, "Location: /list\r\nContent-Location: other\r\n", "")
            }
            ["POST", "/fails", _] => response(500, "", ""),
            ["POST", "/group", _] => response(204, "Cache-Group-Invalidation: \"g\"\r\n", ""),
            _ if request.line().contains("/tagged") => response(
                200,
                &format!("{fields}Cache-Groups: \"g\"\r\n"),
                format!("answer {count}"),
            ),
            _ => response(200, fields, format!("answer {count}")),
        }
    });
    let skep = node(&app, "query_sorted = true");
    let mut client = skep.connect();
    let paths = ["/page?a=1&b=2", "/list", "/other", "/tagged", "/fails"];
    let all = |client: &mut RawClient| paths.map(|path| client.get(path).text());
    assert_eq!(all(&mut client), ["answer 1"; 5]);
    assert_eq!(all(&mut client), ["answer 1"; 5]);
    // In another spelling and order.
    client.request("POST", "/./%70age?b=2&a=1", &[]).assert_status(303);
    client.request("POST", "/fails", &[]).assert_status(500);
    let now = ["answer 2", "answer 2", "answer 2", "answer 1", "answer 1"];
    assert_eq!(all(&mut client), now);
    client.request("POST", "/group", &[]).assert_status(204);
    assert_eq!(all(&mut client), ["answer 2", "answer 2", "answer 2", "answer 2", "answer 1"]);
    (0..12).for_each(|_| _ = received.next());
    received.assert_none();
}

#[test]
fn an_unsafe_request_to_one_route_makes_what_others_stored_stale() {
    let (app, _received) =
        app(|_, count| response(200, "Cache-Control: max-age=60\r\n", format!("answer {count}")));
    let pool = pool_lines("", &[(app.address(), "")]);
    // Writes have a separate route, which stores nothing.
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\n[site.cache]\nenabled = true\nquery_ignored = [\"utm_*\"]\n\
         [[site.route]]\npath = \"/*\"\nmethods = [\"POST\"]\npool = \"app\"\n\
         [site.route.cache]\nenabled = false\n{pool}"
    ));
    let mut client = skep.connect();
    assert_eq!(client.get("/page?id=1").text(), "answer 1");
    assert_hit(&client.get("/page?id=1&utm_source=x"), "answer 1");
    let posted = client.request("POST", "/page?utm_source=y&id=1", &[]);
    assert_eq!((posted.status, posted.cache_status()), (200, "skep; fwd=bypass"));
    assert_eq!(client.get("/page?id=1").text(), "answer 2");
}

#[test]
fn what_was_asked_for_before_a_change_is_not_found_after_it() {
    let gate = Gate::default();
    let shut = gate.clone();
    let (app, received) = app(move |request, count| {
        if request.line().starts_with("GET") && count == 1 {
            shut.pass();
        }
        response(200, "Cache-Control: max-age=60\r\n", format!("answer {count}"))
    });
    let skep = node(&app, "");
    let mut before = asking(&skep, 1).remove(0);
    received.next();
    let mut client = skep.connect();
    client.request("POST", "/", &[]).assert_status(200);
    received.next();
    // Not joined with the earlier request either.
    assert_eq!(client.get("/").text(), "answer 2");
    gate.open();
    // Nor does a new reply use its response.
    assert_eq!(before.response().text(), "answer 2");
    assert_hit(&client.get("/"), "answer 2");
}
