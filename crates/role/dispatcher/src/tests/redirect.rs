//! `redirect` mode: the targets of redirects.

use super::rig::{FakeNode, Rig, closed_port, config};

fn rig(service: &str) -> Rig {
    let nodes = [("n1".to_owned(), "127.0.0.1:8081".parse().unwrap())];
    let rig = Rig::unchecked(&config(&nodes, &format!("dispatch = \"redirect\"\n{service}")));
    rig.all_up();
    rig
}

#[test]
fn path_and_query_go_along_as_they_came() {
    let rig = rig("");
    let mut client = rig.client();
    for (target, expected) in [
        ("/", "/"),
        ("/a/b.html", "/a/b.html"),
        ("/a%20b/%2e%2e/c;d=e", "/a%20b/%2e%2e/c;d=e"),
        ("/a?b=c&d=%0d%0a", "/a?b=c&d=%0d%0a"),
        ("/a?", "/a?"),
        ("//evil.example/x", "//evil.example/x"),
        ("http://example.org/x?y", "/x?y"),
        ("http://example.org", "/"),
    ] {
        let reply = client.get(target);
        let location = format!("http://127.0.0.1:8081{expected}");
        assert_eq!((reply.status, reply.field("location")), (307, Some(&*location)), "{target}");
        assert_eq!(reply.field("cache-control"), Some("no-store"));
        assert_eq!(reply.field("content-length"), Some("0"));
        assert_eq!(reply.field("connection"), None);
    }
    let totals = rig.totals();
    assert_eq!((totals.redirects, totals.responses_3xx, totals.upstream_requests), (8, 8, 0));
    assert_eq!(rig.node("n1").requests, 8);
}

#[test]
fn every_method_is_redirected_with_or_without_a_body() {
    let rig = rig("redirect_status = 302\nnode_header = true");
    let mut client = rig.client();
    // When a client follows a 302, it may turn any method other than these into a GET.
    for (status, request) in [
        (302, "HEAD /x HTTP/1.1\r\nHost: example.org\r\n\r\n"),
        (
            302,
            "GET /x HTTP/1.1\r\nHost: example.org\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        ),
        (307, "DELETE /x HTTP/1.1\r\nHost: example.org\r\n\r\n"),
        (307, "POST /x HTTP/1.1\r\nHost: example.org\r\nContent-Length: 5\r\n\r\nhello"),
        (
            307,
            "PUT /x HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
    ] {
        let reply = client.ask(request);
        assert_eq!((reply.status, reply.field("x-skep-node")), (status, Some("n1")), "{request}");
        assert_eq!(reply.field("location"), Some("http://127.0.0.1:8081/x"));
    }
    assert_eq!(client.ask("OPTIONS * HTTP/1.1\r\nHost: example.org\r\n\r\n").status, 204);
}

#[test]
fn clients_are_sent_to_the_public_address() {
    let rig = rig("");
    let address = closed_port();
    rig.dispatcher.group().add("n2", address, 1, Some("www2.example.org:8080")).unwrap();
    rig.dispatcher.group().drain("n1").unwrap();
    rig.all_up();
    assert_eq!(rig.get("/x").field("location"), Some("http://www2.example.org:8080/x"));
}

#[test]
fn no_node_is_a_503() {
    let rig = rig("");
    rig.dispatcher.group().drain("n1").unwrap();
    let reply = rig.get("/");
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    assert_eq!((rig.totals().no_node, rig.totals().redirects), (1, 0));
}

#[test]
fn the_client_address_is_what_sticks() {
    let nodes: Vec<_> = (1..=5).map(|n| (format!("n{n}"), closed_port())).collect();
    let settings = "dispatch = \"redirect\"\npolicy = \"maglev-address\"";
    let rig = Rig::unchecked(&config(&nodes, settings));
    rig.all_up();
    let first = rig.get("/").field("location").unwrap().to_owned();
    for _ in 0..10 {
        assert_eq!(rig.get("/").field("location"), Some(&*first));
    }
}

#[test]
fn the_mode_changes_with_a_reload() {
    let node = FakeNode::named("one");
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "one");
    let nodes = [("n1".to_owned(), node.address)];
    rig.dispatcher.reload(&config(&nodes, "dispatch = \"redirect\""));
    assert_eq!(client.get("/").status, 307);
    rig.dispatcher.reload(&config(&nodes, "dispatch = \"proxy\""));
    assert_eq!(client.get("/").text(), "one");
}
