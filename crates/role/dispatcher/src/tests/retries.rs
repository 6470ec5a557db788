//! Which requests are retried, and which are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::rig::{Client, FakeNode, Rig, closed_port, config, ok};

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";

/// Answers the first request of each of the first `kept` connections, then reads another one and
/// closes silently.
fn forgetful(kept: usize, requests: &Arc<AtomicUsize>) -> FakeNode {
    let requests = Arc::clone(requests);
    FakeNode::new(move |number, mut wire| {
        let mut answered = 0;
        while wire.request().is_some() {
            requests.fetch_add(1, SeqCst);
            if number < kept && answered == 1 {
                return;
            }
            answered += 1;
            wire.send(ok("one"));
        }
    })
}

#[test]
fn a_kept_connection_that_dies_is_replaced_by_a_fresh_one() {
    let requests = Arc::default();
    let node = forgetful(1, &requests);
    let rig = Rig::new(&[&node], "retries_max = 0");
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "one");
    assert_eq!(client.get("/").text(), "one", "sent again to the same node");
    assert_eq!((node.connections(), requests.load(SeqCst)), (2, 3));
    let totals = rig.totals();
    assert_eq!((totals.upstream_retries, totals.upstream_failures), (0, 0));
    assert_eq!((rig.node("n1").state.as_str(), rig.node("n1").failures), ("up", 0));
}

#[test]
fn a_post_is_not_sent_twice() {
    let requests = Arc::default();
    let node = forgetful(1, &requests);
    let other = FakeNode::named("two");
    let rig = Rig::new(&[&node, &other], "");
    rig.dispatcher.group().drain("n2").unwrap();
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "one");
    rig.dispatcher.group().resume("n2").unwrap();
    rig.dispatcher.group().set_weight("n1", 2).unwrap();
    rig.dispatcher.group().drain("n2").unwrap();
    assert_eq!(client.ask(POST).status, 502);
    assert_eq!((requests.load(SeqCst), other.connections()), (2, 0));
}

#[test]
fn a_post_on_a_connection_known_to_be_dead_is_sent_once() {
    let node = FakeNode::new(|_, mut wire| {
        // One response per connection, then it closes without announcement.
        if wire.request().is_some() {
            wire.send(ok("one"));
        }
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    for _ in 0..20 {
        let reply = client.ask(POST);
        // The close may cross the request: the outcome is then unknown, and the response is 502.
        assert!(matches!(reply.status, 200 | 502));
    }
    assert_eq!(rig.totals().upstream_retries, 0);
}

#[test]
fn a_refused_node_is_out_at_once_and_any_request_goes_to_another() {
    let other = FakeNode::named("two");
    let dead = closed_port();
    let nodes = [("n1".to_owned(), dead), ("n2".to_owned(), other.address)];
    let rig = Rig::unchecked(&config(&nodes, ""));
    rig.all_up();
    let mut client = rig.client();
    for _ in 0..4 {
        assert_eq!(client.ask(POST).text(), "two");
    }
    let node = rig.node("n1");
    assert_eq!((node.state.as_str(), node.share_permille), ("down", 0));
    assert_eq!(node.reason.as_deref(), Some("connection refused"));
    let totals = rig.totals();
    assert_eq!((totals.upstream_connect_failures, totals.upstream_retries), (1, 1));
}

#[test]
fn a_node_that_dies_under_a_get_is_replaced_by_another() {
    let (broken, other) =
        (FakeNode::new(|_, mut wire| drop(wire.request())), FakeNode::named("two"));
    let rig = Rig::new(&[&broken, &other], "health.passive_failures_max = 2");
    let mut client = rig.client();
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "two");
    }
    assert_eq!(rig.node("n1").state, "down", "after so many failures");
    assert_eq!(rig.node("n1").reason.as_deref(), Some("requests failed: connection broken"));
    assert_eq!(rig.node("n1").failures, 2);
}

#[test]
fn a_request_that_breaks_every_node_takes_one_out_at_most() {
    let nodes: Vec<FakeNode> = (0..3)
        .map(|_| {
            FakeNode::new(|_, mut wire| {
                while wire.request().is_some_and(|(head, _)| !head.starts_with("GET /bad ")) {
                    wire.send(ok("good"));
                }
            })
        })
        .collect();
    let rig = Rig::new(&nodes.iter().collect::<Vec<_>>(), "retry_budget_percent = 100");
    for _ in 0..20 {
        assert_eq!(rig.get("/bad").status, 502);
    }
    let down = rig.dispatcher.status().nodes.iter().filter(|node| node.state == "down").count();
    assert_eq!(down, 1);
    for _ in 0..20 {
        assert_eq!(rig.get("/good").text(), "good");
    }
    assert!(rig.totals().upstream_spared > 0);
}

#[test]
fn what_a_node_says_too_late_oddly_or_in_part_takes_no_node_out() {
    let nodes = [(); 2].map(|()| {
        FakeNode::new(|_, mut wire| {
            if let Some((head, _)) = wire.request() {
                match head.split(' ').nth(1) {
                    Some("/late") => _ = wire.rest(),
                    Some("/odd") => _ = wire.send("HTTP/1.1 200 OK\r\nA\r\n\r\n"),
                    _ => _ = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"),
                }
            }
        })
    });
    let settings = "response_timeout_ms = 1000\nhealth.passive_failures_max = 1";
    let rig = Rig::new(&nodes.iter().collect::<Vec<_>>(), settings);
    for _ in 0..2 {
        assert_eq!(rig.get("/late").status, 504);
        assert_eq!(rig.get("/odd").status, 502);
        let mut client = rig.client();
        assert!(client.send("GET /short HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.rest();
    }
    let nodes = rig.dispatcher.status().nodes;
    assert!(nodes.iter().all(|node| node.state == "up" && node.failures > 0), "{nodes:?}");
}

#[test]
fn good_answers_between_failures_keep_a_node_up() {
    let count = AtomicUsize::new(0);
    let flaky = FakeNode::new(move |_, mut wire| {
        while wire.request().is_some() {
            if count.fetch_add(1, SeqCst) % 2 == 1 {
                return;
            }
            wire.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let rig = Rig::new(&[&flaky], "health.passive_failures_max = 2");
    let mut client = rig.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").status, 200);
        assert_eq!(client.get("/").status, 502);
    }
    assert_eq!(rig.node("n1").state, "up");
}

#[test]
fn all_nodes_refusing_is_a_503_that_says_when_to_come_back() {
    let nodes = [("n1".to_owned(), closed_port()), ("n2".to_owned(), closed_port())];
    let rig = Rig::unchecked(&config(&nodes, ""));
    assert_eq!(rig.get("/").status, 503, "nobody has passed a check yet");
    rig.all_up();
    let reply = rig.get("/");
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    assert_eq!(rig.totals().no_node, 2);
}

#[test]
fn retries_stop_at_their_number() {
    let nodes: Vec<_> = (1..=4).map(|n| (format!("n{n}"), closed_port())).collect();
    let rig = Rig::unchecked(&config(&nodes, "retries_max = 1"));
    rig.all_up();
    assert_eq!(rig.get("/").status, 503);
    let down = rig.dispatcher.status().nodes.iter().filter(|node| node.state == "down").count();
    assert_eq!((down, rig.totals().upstream_retries), (2, 1));
}

#[test]
fn retries_stop_when_the_budget_is_spent() {
    let broken = || FakeNode::new(|_, mut wire| drop(wire.request()));
    let (one, two) = (broken(), broken());
    let settings = "retry_budget_percent = 0\nhealth.passive_failures_max = 1000";
    let rig = Rig::new(&[&one, &two], settings);
    let mut client = rig.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").status, 502);
    }
    let totals = rig.totals();
    assert_eq!((totals.upstream_retries, totals.upstream_retry_budget_exhausted), (0, 5));
    assert_eq!(one.connections() + two.connections(), 5);
}

#[test]
fn a_node_killed_under_load_fails_no_idempotent_request() {
    let nodes: Vec<FakeNode> = ["one", "two", "three"].map(FakeNode::named).into();
    let rig = Rig::new(&nodes.iter().collect::<Vec<_>>(), "policy = \"random\"");
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (address, answered) = (rig.address, Arc::clone(&answered));
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..250 {
                    assert_eq!(client.get("/").status, 200);
                    answered.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let mut nodes = nodes.into_iter();
    super::rig::wait_until("some requests", || answered.load(SeqCst) > 300);
    nodes.next().unwrap().kill();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(answered.load(SeqCst), 2_000);
    assert_eq!(rig.totals().responses_5xx, 0);
}
