//! Operator commands: adding and removing nodes, weights, policies, reloads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use super::rig::{Client, FakeNode, Rig, closed_port, config, wait_until};
use skep_proxy::{GroupControlError, MemberSource};

use crate::{Dispatcher, NoSuchService};

fn names(rig: &Rig) -> Vec<String> {
    rig.dispatcher.status().nodes.into_iter().map(|node| node.name).collect()
}

fn filed(nodes: &[(&str, SocketAddr)]) -> Vec<(String, SocketAddr)> {
    nodes.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect()
}

#[test]
fn errors_say_what_would_have_been_right() {
    let nodes = filed(&[("alpha", closed_port()), ("beta", closed_port())]);
    let rig = Rig::unchecked(&config(&nodes, ""));
    let dispatcher = &rig.dispatcher;
    let error = dispatcher.group().drain("alhpa").unwrap_err().to_string();
    assert_eq!(
        error,
        "service web has no node \"alhpa\"; did you mean \"alpha\"?; its nodes: alpha, beta"
    );
    let GroupControlError::UnknownMember { did_you_mean, .. } =
        dispatcher.group().resume("zzz").unwrap_err()
    else {
        panic!("another error");
    };
    assert_eq!(did_you_mean, None);
    assert!(
        dispatcher
            .group()
            .set_policy("round-robbin")
            .unwrap_err()
            .to_string()
            .contains("round-robin")
    );
    let mut steered = config(&nodes, "");
    steered.services[0].dispatch = skep_config::DispatchMode::Direct;
    let direct = Dispatcher::new(&steered, "web", 1).unwrap();
    let told = direct.group().set_policy("maglev-url").unwrap_err().to_string();
    assert!(told.contains("nobody reads requests") && told.contains("maglev-address"), "{told}");
    assert!(dispatcher.group().set_weight("beta", 0).is_err());
    let unspecified: SocketAddr = "0.0.0.0:80".parse().unwrap();
    let unspecified = dispatcher.group().add("gamma", unspecified, 1, None);
    assert!(matches!(unspecified, Err(GroupControlError::BadAddress(_))));
    for public in ["a b", "a\r\nX: y", "a:0", "http://a", ""] {
        let refused = dispatcher.group().add("gamma", closed_port(), 1, Some(public));
        assert!(matches!(refused, Err(GroupControlError::BadPublicAddress(_))), "{public:?}");
    }
    let twin = dispatcher.group().add("gamma", nodes[0].1, 1, None).unwrap_err().to_string();
    assert!(twin.contains("is the address of node \"alpha\" already"), "{twin}");
    let none = Dispatcher::new(&config(&nodes, ""), "nope", 1).err();
    assert_eq!(none, Some(NoSuchService("nope".into())));
}

#[test]
fn drain_resume_add_and_remove_under_load_lose_nothing() {
    let (one, two, three) =
        (FakeNode::named("one"), FakeNode::named("two"), FakeNode::named("three"));
    let rig = Rig::new(&[&one, &two], "policy = \"power-of-two\"");
    rig.start_checks();
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (address, is_over) = (rig.address, Arc::clone(&is_over));
            let answered = Arc::clone(&answered);
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                while !is_over.load(SeqCst) {
                    let reply =
                        client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
                    assert_eq!(reply.status, 200);
                    answered.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let some_more = || {
        let goal = answered.load(SeqCst) + 200;
        wait_until("more answers", || answered.load(SeqCst) >= goal);
    };
    for _ in 0..3 {
        some_more();
        rig.dispatcher.group().drain("n1").unwrap();
        wait_until("drained", || rig.node("n1").state == "drained");
        let requests = rig.node("n1").requests;
        some_more();
        assert_eq!(rig.node("n1").requests, requests, "none after the drain");
        rig.dispatcher.group().resume("n1").unwrap();
        rig.dispatcher.group().add("n3", three.address, 1, None).unwrap();
        wait_until("n3 is up", || rig.node("n3").state == "up");
        some_more();
        assert!(rig.node("n1").requests > requests, "some after the resume");
        rig.dispatcher.group().remove("n3", 10_000).unwrap();
        wait_until("n3 is gone", || names(&rig) == ["n1", "n2"]);
    }
    is_over.store(true, SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!((rig.totals().upstream_failures, rig.totals().responses_5xx), (0, 0));
}

#[test]
fn a_reload_brings_in_what_the_file_says_anew() {
    let (one, two, three) = (closed_port(), closed_port(), closed_port());
    let rig = Rig::unchecked(&config(&filed(&[("n1", one), ("n2", two)]), "policy = \"random\""));
    let reload = |nodes: &[(&str, SocketAddr)], service: &str| {
        rig.dispatcher.reload(&config(&filed(nodes), service));
        rig.dispatcher.group().tick();
    };
    rig.dispatcher.group().set_policy("power-of-two").unwrap();
    rig.dispatcher.group().set_weight("n1", 5).unwrap();
    rig.dispatcher.group().add("x1", three, 3, None).unwrap();
    rig.dispatcher.group().drain("n2").unwrap();
    // The file changes something else: run-time changes stay.
    reload(&[("n1", one), ("n2", two)], "policy = \"random\"\nnode_header = true");
    let status = rig.dispatcher.status();
    assert_eq!(status.policy, "power-of-two");
    assert_eq!(names(&rig), ["n1", "n2", "x1"]);
    assert_eq!((rig.node("n1").weight, rig.node("x1").source), (5, MemberSource::Api));
    assert!(rig.node("n2").state.starts_with("drain"));
    // The file changes the same settings: it takes precedence.
    reload(&[("n2", two)], "policy = \"round-robin\"");
    assert_eq!(rig.dispatcher.status().policy, "round-robin");
    assert_eq!(names(&rig), ["n2", "x1"], "n1 was idle and is gone");
    // A node removed at run time does not return until the file was without it.
    rig.dispatcher.group().remove("n2", 0).unwrap();
    reload(&[("n2", two)], "policy = \"round-robin\"");
    assert_eq!(names(&rig), ["x1"]);
    reload(&[("n9", closed_port())], "policy = \"round-robin\"");
    reload(&[("n2", two)], "policy = \"round-robin\"");
    assert_eq!(names(&rig), ["x1", "n2"]);
}

#[test]
fn a_reload_moves_addresses_between_names() {
    let (one, two, three) = (closed_port(), closed_port(), closed_port());
    let rig = Rig::unchecked(&config(&filed(&[("n1", one), ("n2", two)]), ""));
    rig.dispatcher.group().add("x1", three, 1, None).unwrap();
    rig.dispatcher.reload(&config(&filed(&[("n1", two), ("n2", one), ("x1", three)]), ""));
    assert_eq!((rig.node("n1").address, rig.node("n2").address), (two.into(), one.into()));
    assert_eq!(rig.node("x1").source, MemberSource::Config, "the file has taken it over");
    rig.dispatcher.reload(&config(&filed(&[("n3", three)]), ""));
    assert_eq!(rig.node("n3").address, three.into());
}

/// A node that is renamed, and one that is replaced.
#[test]
fn old_nodes_serve_until_workers_see_the_new_ones() {
    let (one, two) = (FakeNode::named("one"), FakeNode::named("two"));
    for replaced_by in [one.address, two.address] {
        let rig = Rig::new(&[&one], "");
        let config = config(&filed(&[("n9", replaced_by)]), "");
        let spec = crate::service::spec(&config, &config.services[0]);
        let reply = rig.dispatcher.group().while_reloading(spec, || rig.get("/"));
        assert_eq!(reply.status, 200);
    }
}

/// At each moment one of the nodes is open; a worker never finds both closed.
#[test]
fn while_two_nodes_change_places_no_request_is_refused() {
    let (one, two) = (FakeNode::named("one"), FakeNode::named("two"));
    for (service, status) in [("", 200), ("dispatch = \"redirect\"", 307)] {
        let rig = Rig::new(&[&one, &two], service);
        let (group, is_over) = (rig.dispatcher.group(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client = rig.client();
                    while !is_over.load(SeqCst) {
                        assert_eq!(client.get("/").status, status);
                    }
                });
            }
            for _ in 0..2_000 {
                group.drain("n2").unwrap();
                group.resume("n2").unwrap();
                group.drain("n1").unwrap();
                group.resume("n1").unwrap();
            }
            is_over.store(true, SeqCst);
        });
    }
}

/// More than have room together: the old ones leave at once.
#[test]
fn a_reload_replaces_more_than_half_of_the_nodes_that_may_be() {
    let address = |number: usize| SocketAddr::from(([127, 0, 0, 1], 10_000 + number as u16));
    let named = |numbers: std::ops::Range<usize>| {
        numbers.map(|number| (format!("n{number}"), address(number))).collect::<Vec<_>>()
    };
    let rig = Rig::unchecked(&config(&named(0..600), ""));
    rig.dispatcher.reload(&config(&named(600..1_200), ""));
    let wanted: Vec<_> = named(600..1_200).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names(&rig), wanted);
}

#[test]
fn a_reload_leaves_an_idle_node_until_workers_no_longer_see_it() {
    let (one, two) = (FakeNode::named("one"), FakeNode::named("two"));
    let rig = Rig::new(&[&one, &two], "");
    rig.dispatcher.reload(&config(&filed(&[("n1", one.address)]), ""));
    assert_eq!(rig.node("n2").state, "removing");
    rig.dispatcher.group().tick();
    assert_eq!(names(&rig), ["n1"]);
}

#[test]
fn a_hundred_reloads_under_load_fail_no_request() {
    let (one, two) = (FakeNode::named("one"), FakeNode::named("two"));
    let rig = Rig::new(&[&one, &two], "");
    let address = rig.address;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let client = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        let mut answered = 0;
        while !over.load(SeqCst) || answered < 100 {
            assert_eq!(client.get("/").status, 200);
            answered += 1;
        }
    });
    let nodes = filed(&[("n1", one.address), ("n2", two.address)]);
    for round in 0..100 {
        let policy = skep_config::POLICY_NAMES[round % skep_config::POLICY_NAMES.len()];
        let retries = round % 3;
        let service = format!("policy = \"{policy}\"\nretries_max = {retries}\nnode_header = true");
        rig.dispatcher.reload(&config(&nodes, &service));
        assert_eq!(rig.dispatcher.status().policy, policy);
    }
    is_over.store(true, SeqCst);
    client.join().unwrap();
    assert_eq!(rig.totals().responses_5xx, 0);
}

#[test]
fn a_config_without_the_service_changes_nothing() {
    let node = FakeNode::named("one");
    let rig = Rig::new(&[&node], "");
    rig.dispatcher.reload(&skep_config::Config::default());
    assert_eq!(rig.get("/").text(), "one");
}
