//! Which origin is asked, over which connection, and how often.

use std::rc::Rc;

use super::rig::{
    Server, answer, closed_port, expire_all, fault, field, get, ok, patient, read, whole,
    with_origins,
};
use crate::{Ask, Fault, FaultKind, OriginError, OriginLimits, Origins};

#[test]
fn a_connection_carries_one_request_after_the_other() {
    let server = Server::answering(|head| ok("", head.split(' ').nth(1).unwrap().as_bytes()));
    let totals = with_origins(&[server.url() + "/base/"], patient(), async |origins| {
        for path in ["/a", "/b?c", "/"] {
            let (status, body) = get(&origins, &whole(path)).await.unwrap();
            assert_eq!((status, body), (200, format!("/base{path}").into_bytes()));
        }
        origins.counters().totals()
    });
    assert_eq!(server.connections(), 1);
    assert_eq!((totals.asked, totals.requests, totals.retries, totals.reused), (3, 3, 0, 2));
    assert_eq!(totals.body_bytes, 7 + 9 + 6);
}

#[test]
fn a_request_names_the_host_it_is_told_to() {
    let server = Server::keeping(ok("", b""));
    with_origins(&server.urls(), patient(), async |origins| {
        get(&origins, &whole("/")).await.unwrap();
        get(&origins, &Ask { host: Some("site.example"), ..whole("/") }).await.unwrap();
    });
    assert_eq!(field(&server.seen(), "host"), Some(server.address.to_string().as_str()));
    assert_eq!(field(&server.seen(), "host"), Some("site.example"));
}

#[test]
fn a_kept_connection_that_dies_under_a_request_costs_nothing() {
    let server = Server::new(|number, mut wire| {
        wire.request();
        wire.send(ok("", b"x"));
        // The first connection closes after it has received another request.
        if wire.request().is_some() && number > 0 {
            wire.send(ok("", b"y"));
            wire.hold();
        }
    });
    let limits = OriginLimits { attempts_max: 1, ..patient() };
    let totals = with_origins(&server.urls(), limits, async |origins| {
        for _ in 0..3 {
            assert_eq!(get(&origins, &whole("/")).await.unwrap().0, 200);
        }
        origins.counters().totals()
    });
    assert_eq!(server.connections(), 2);
    assert_eq!((totals.requests, totals.retries, totals.failures), (4, 1, [0; 12]));
}

#[test]
fn a_connection_closed_at_rest_is_replaced() {
    let server = Server::closing(ok("", b"x"));
    with_origins(&server.urls(), patient(), async |origins| {
        for _ in 0..5 {
            assert_eq!(get(&origins, &whole("/")).await.unwrap(), (200, b"x".to_vec()));
        }
    });
    assert_eq!(server.connections(), 5);
}

#[test]
fn an_answer_that_says_close_ends_its_connection() {
    let server = Server::keeping(ok("Connection: close\r\n", b"x"));
    with_origins(&server.urls(), patient(), async |origins| {
        get(&origins, &whole("/")).await.unwrap();
        get(&origins, &whole("/")).await.unwrap();
    });
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_body_left_unread_ends_its_connection() {
    let server = Server::keeping(ok("", &[7; 100_000]));
    with_origins(&server.urls(), patient(), async |origins| {
        drop(origins.open(&whole("/")).await.unwrap());
        assert_eq!(get(&origins, &whole("/")).await.unwrap().1, [7; 100_000]);
    });
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_broken_connection_is_tried_again_a_bounded_number_of_times() {
    let once = Server::new(|number, mut wire| {
        wire.request();
        if number > 0 {
            wire.send(ok("", b"x"));
        }
    });
    let never = Server::closing("HTTP/1.1 2");
    with_origins(&once.urls(), patient(), async |origins| {
        assert_eq!(get(&origins, &whole("/")).await.unwrap().0, 200);
        assert_eq!(origins.counters().totals().failed(FaultKind::Broken), 1);
    });
    with_origins(&never.urls(), patient(), async |origins| {
        assert_eq!(fault(&origins, &whole("/")).await, Fault::Broken);
        assert_eq!(origins.counters().totals().retries, 2);
    });
    assert_eq!(never.connections(), 3);
}

#[test]
fn a_500_goes_to_the_next_origin_and_is_soon_forgotten() {
    let bad = Server::keeping(answer("500 Oops", "", b"bad"));
    let good = Server::keeping(ok("", b"good"));
    with_origins(&[bad.url(), good.url()], patient(), async |origins| {
        for _ in 0..2 {
            assert_eq!(get(&origins, &whole("/")).await.unwrap(), (200, b"good".to_vec()));
        }
        assert_eq!(origins.counters().totals().failed(FaultKind::Status), 2);
    });
    assert_eq!((bad.unseen(), good.unseen()), (2, 2), "one path may be bad and others good");
}

#[test]
fn an_origin_that_is_out_of_order_is_avoided() {
    let bad = Server::keeping(answer("503 Not now", "", b""));
    let good = Server::keeping(ok("", b"good"));
    let down = format!("http://{}", closed_port());
    with_origins(&[down, bad.url(), good.url()], patient(), async |origins| {
        for _ in 0..3 {
            assert_eq!(get(&origins, &whole("/")).await.unwrap().1, b"good");
        }
        let totals = origins.counters().totals();
        assert_eq!((totals.failed(FaultKind::Connect), totals.failed(FaultKind::Status)), (1, 1));
    });
    assert_eq!((bad.unseen(), good.unseen()), (1, 3));
}

#[test]
fn when_all_are_out_of_order_the_last_answer_counts() {
    let bad = Server::keeping(answer("503 Not now", "Retry-After: 9\r\n", b"bad"));
    let down = format!("http://{}", closed_port());
    with_origins(&[down.clone(), bad.url()], patient(), async |origins| {
        assert_eq!(get(&origins, &whole("/")).await.unwrap(), (503, b"bad".to_vec()));
    });
    with_origins(&[down], patient(), async |origins| {
        let error = get(&origins, &whole("/")).await.unwrap_err();
        assert!(matches!(&error.fault, Fault::Connect(why) if why == "connection refused"));
        assert!(error.to_string().starts_with("origin http://127.0.0.1:"));
    });
}

/// The result of a request whose deadline passes while `silent` has it.
async fn get_late(origins: &Rc<Origins>, silent: &Server) -> Result<(u16, Vec<u8>), OriginError> {
    let ask = whole("/");
    let expire = async {
        while silent.unseen() == 0 {
            tokio::task::yield_now().await;
        }
        expire_all(origins);
    };
    tokio::join!(get(origins, &ask), expire).0
}

#[test]
fn an_origin_that_does_not_answer_in_time_is_left() {
    let silent = Server::new(|_, mut wire| wire.hold());
    let urls = silent.urls();
    let silent = with_origins(&urls, patient(), async move |origins| {
        assert_eq!(get_late(&origins, &silent).await.unwrap_err().fault, Fault::Late);
        assert_eq!(origins.counters().totals().requests, 1, "its twin would be as late");
        silent
    });
    let good = Server::keeping(ok("", b"good"));
    let urls = [silent.url(), good.url()];
    with_origins(&urls, patient(), async move |origins| {
        assert_eq!(get_late(&origins, &silent).await.unwrap().1, b"good");
    });
}

#[test]
fn no_more_connections_than_allowed() {
    let server = Server::keeping(ok("", &[7; 100_000]));
    let limits = OriginLimits { connections_max: 1, busy_wait_ms: 1, ..patient() };
    with_origins(&server.urls(), limits, async |origins| {
        let first = origins.open(&whole("/")).await.unwrap();
        assert!(matches!(fault(&origins, &whole("/")).await, Fault::Busy(_)));
        drop(first);
        assert_eq!(get(&origins, &whole("/")).await.unwrap().0, 200);
    });
}

#[test]
fn who_finds_all_connections_in_use_waits_for_one() {
    let server = Server::keeping(ok("", &[7; 100_000]));
    let limits = OriginLimits { connections_max: 1, ..patient() };
    with_origins(&server.urls(), limits, async |origins| {
        let mut first = origins.open(&whole("/")).await.unwrap();
        let second = tokio::task::spawn_local({
            let origins = Rc::clone(&origins);
            async move { get(&origins, &whole("/")).await }
        });
        // It reads as far as it can.
        tokio::task::yield_now().await;
        assert_eq!(read(&mut first.body).await.unwrap().len(), 100_000);
        assert_eq!(second.await.unwrap().unwrap().1.len(), 100_000);
    });
    assert_eq!(server.connections(), 1);
}

#[test]
fn what_is_no_answer_is_refused() {
    for (reply, reason) in [
        ("SSH-2.0-x\r\n\r\n", "status-line"),
        ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bare-lf"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "content-length-repeated",
        ),
        ("HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "unasked-switch"),
    ] {
        let server = Server::closing(reply);
        let found = with_origins(&server.urls(), patient(), async |origins| {
            fault(&origins, &whole("/")).await
        });
        assert_eq!(found, Fault::Malformed(reason), "{reply}");
    }
    let hints = "HTTP/1.1 103 Early Hints\r\n\r\n";
    for (count, is_taken) in [(8, true), (9, false)] {
        let reply = [hints.repeat(count).into_bytes(), ok("", b"x")].concat();
        let server = Server::closing(reply);
        with_origins(&server.urls(), patient(), async move |origins| {
            assert_eq!(get(&origins, &whole("/")).await.is_ok(), is_taken);
        });
    }
}

#[test]
fn a_path_that_is_none_is_not_sent() {
    let server = Server::keeping(ok("", b""));
    with_origins(&server.urls(), patient(), async |origins| {
        let found = fault(&origins, &whole("/a\r\nX: y")).await;
        assert_eq!(found, Fault::Ask("the path is no request target"));
        assert_eq!(get(&origins, &whole("/")).await.unwrap().0, 200);
    });
    assert_eq!(server.unseen(), 1);
}
