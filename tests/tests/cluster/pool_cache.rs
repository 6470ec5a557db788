//! The shared cache in front of pools, in a cluster: one computation for all nodes.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use skep_testclient::{BodyReader, Framing};
use skep_tests::app::{App, AppRequest, response};
use skep_tests::cache::CacheCluster;
use skep_tests::content::{self, assert_same};
use skep_tests::{PATIENCE, RawClient, Response, Site, poll_until};

pub(super) const NODES: usize = 4;

/// An application that reports its requests, and answers by the number of requests for the same target.
pub(super) fn app(
    answer: impl Fn(&AppRequest, usize) -> Vec<u8> + Send + Sync + 'static,
) -> (App, Receiver<AppRequest>) {
    let (tell, told) = sync_channel(64);
    let counts = Mutex::new(BTreeMap::<String, usize>::new());
    let app = App::answering(move |received| {
        let count = {
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(received.line().to_owned()).or_default();
            *count += 1;
            *count
        };
        // The test may have ended.
        let _ = tell.send(received.clone());
        answer(received, count)
    });
    (app, told)
}

pub(super) fn cluster(app: &App, cache: &str) -> CacheCluster {
    let lines = format!(
        "pool = \"app\"\n[site.cache]\nenabled = true\n{cache}\n[[pool]]\nname = \"app\"\n\
         [[pool.server]]\nname = \"s1\"\naddress = \"{}\"\n",
        app.address()
    );
    let cluster = CacheCluster::start_of(1, NODES, Site::new(), &lines, "");
    cluster.wait_up();
    cluster
}

pub(super) fn node(number: usize) -> String {
    format!("node-{number}")
}

/// A client of a node that has sent a request for `target`.
pub(super) fn asking(cluster: &CacheCluster, number: usize, target: &str) -> RawClient {
    let mut client = RawClient::connect(cluster.outer(&node(number)));
    client.ask(target);
    client
}

/// A gate that a test opens for all requests.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        let (_open, waited) =
            self.0.1.wait_timeout_while(open, PATIENCE, |is_open| !*is_open).unwrap();
        assert!(!waited.timed_out(), "the test opens it");
    }
}

/// A page in the language of the request.
fn in_language(request: &AppRequest, count: usize) -> Vec<u8> {
    let language = request.field("accept-language").unwrap_or("none");
    let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n";
    response(200, fields, format!("{language} {count}"))
}

fn ask_in(cluster: &CacheCluster, number: usize, language: &str) -> Response {
    let mut client = RawClient::connect(cluster.outer(&node(number)));
    client.request("GET", "/page", &[("Accept-Language", language)])
}

pub(super) fn is_hit(reply: &Response) -> bool {
    reply.cache_status().starts_with("skep; hit")
}

#[test]
fn one_computation_serves_a_cluster() {
    let gate = Gate::default();
    let shut = gate.clone();
    let (app, received) = app(move |_, count| {
        shut.pass();
        response(200, "Cache-Control: max-age=60\r\nX-App: 1\r\n", format!("answer {count}"))
    });
    let cluster = cluster(&app, "");
    let mut clients = vec![asking(&cluster, 1, "/page")];
    received.recv_timeout(PATIENCE).unwrap();
    for _ in 0..60 {
        clients.extend((1..=NODES).map(|number| asking(&cluster, number, "/page")));
    }
    gate.open();
    for client in &mut clients {
        let reply = client.response();
        assert_eq!((reply.status, reply.text().as_str()), (200, "answer 1"));
        reply.assert_header("x-app", "1");
    }
    for number in 1..=NODES {
        assert!(is_hit(&cluster.get(&node(number), "/page")));
    }
    assert!(received.try_recv().is_err(), "it was asked once");
}

#[test]
fn what_one_node_stored_the_others_get_from_it_each_variant_once() {
    let (app, received) = app(in_language);
    let cluster = cluster(&app, "");
    let ask = |number: usize, language: &str| ask_in(&cluster, number, language);
    assert_eq!(ask(1, "de").text(), "de 1");
    received.recv_timeout(PATIENCE).unwrap();
    let from_peer = ask(2, "de");
    assert_eq!(from_peer.text(), "de 1");
    assert!(from_peer.cache_status().ends_with("; detail=peer"), "{}", from_peer.head_text());
    // Node 3 learns on which header fields the response depends, and requests its own variant.
    assert_eq!(ask(3, "en").text(), "en 2");
    received.recv_timeout(PATIENCE).unwrap();
    assert_eq!(ask(4, "en").text(), "en 2");
    assert_eq!(ask(1, "en").text(), "en 2");
    for (number, language, text) in [(2, "de", "de 1"), (3, "en", "en 2"), (4, "en", "en 2")] {
        let reply = ask(number, language);
        assert!(is_hit(&reply) && reply.text() == text, "{}", reply.head_text());
    }
    assert!(received.try_recv().is_err(), "each was asked for once");
}

#[test]
fn each_variant_is_found_by_its_own_name() {
    let (app, received) = app(in_language);
    let cluster = cluster(&app, "");
    let ask = |number: usize, language: &str| ask_in(&cluster, number, language).text();
    assert_eq!([ask(1, "de"), ask(1, "en")], ["de 1", "en 2"]);
    // The page, two variants, and their bodies.
    poll_until(PATIENCE, "the coordinator knows of all", || {
        cluster.coordinator("dispatcher-1")["segments"].as_u64() >= Some(5)
    });
    // Node 2 is informed of the latest variant, and thereby of the fields the page depends on.
    assert_eq!([ask(2, "fr"), ask(2, "de"), ask(2, "en")], ["fr 3", "de 1", "en 2"]);
    assert_eq!(received.try_iter().count(), 3);
}

#[test]
fn who_waits_on_other_nodes_for_what_is_private_is_released_at_once() {
    let gate = Gate::default();
    let shut = gate.clone();
    // All but the first are answered only after all have arrived.
    let here = Arc::new((Mutex::new(0), Condvar::new()));
    let (app, received) = app(move |_, count| {
        if count == 1 {
            shut.pass();
        } else {
            let mut came = here.0.lock().unwrap();
            *came += 1;
            here.1.notify_all();
            let (_came, waited) =
                here.1.wait_timeout_while(came, PATIENCE, |came| *came < NODES - 1).unwrap();
            assert!(!waited.timed_out(), "one of them waits for another");
        }
        response(200, "Cache-Control: private\r\n", format!("answer {count}"))
    });
    let cluster = cluster(&app, "");
    let mut leader = asking(&cluster, 1, "/page");
    received.recv_timeout(PATIENCE).unwrap();
    let others: Vec<_> = (2..=NODES).map(|number| asking(&cluster, number, "/page")).collect();
    gate.open();
    assert_eq!(leader.response().text(), "answer 1");
    let mut texts: Vec<_> = others.into_iter().map(|mut it| it.response().text()).collect();
    texts.sort();
    assert_eq!(texts, ["answer 2", "answer 3", "answer 4"]);
}

#[test]
fn purges_by_url_and_by_tag_reach_what_pools_sent() {
    let (app, _received) = app(|_, count| {
        let fields = "Cache-Control: max-age=60\r\nCache-Tag: shop\r\n";
        response(200, fields, format!("answer {count}"))
    });
    let cluster = cluster(&app, "");
    for (round, what) in [(1, "/page"), (2, "tag:shop"), (3, "/*")] {
        for number in 1..=NODES {
            let reply = cluster.get(&node(number), "/page");
            assert_eq!(reply.text(), format!("answer {round}"), "{what}: {}", reply.head_text());
        }
        assert_eq!(cluster.purge("dispatcher-1", &[what])["complete"], true, "{what}");
    }
}

#[test]
fn a_change_at_one_node_is_seen_at_all_when_its_client_has_the_answer() {
    let (app, _received) = app(|request, count| {
        let fields = "Cache-Control: max-age=60\r\n";
        match request.line().starts_with("POST") {
            true => response(204, "", ""),
            false => response(200, fields, format!("answer {count}")),
        }
    });
    let cluster = cluster(&app, "");
    for round in 1..=6 {
        for number in 1..=NODES {
            let reply = cluster.get(&node(number), "/page");
            assert_eq!(reply.text(), format!("answer {round}"), "{}", reply.head_text());
        }
        let changing = node(round % NODES + 1);
        let mut client = RawClient::connect(cluster.outer(&changing));
        client.request("POST", "/page", &[]).assert_status(204);
        // The other nodes are purged at about the same time as this one.
        let at_once = cluster.get(&changing, "/page");
        assert_eq!(at_once.text(), format!("answer {}", round + 1));
        for number in 1..=NODES {
            poll_until(PATIENCE, "the change", || {
                cluster.get(&node(number), "/page").text() == format!("answer {}", round + 1)
            });
        }
    }
}

#[test]
fn what_is_stale_at_one_node_is_validated_by_the_others() {
    let (app, received) = app(|request, count| match request.field("if-none-match") {
        Some("\"v\"") => b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\nX-App: 304\r\n\r\n".to_vec(),
        _ => response(200, "Cache-Control: no-cache\r\nETag: \"v\"\r\n", format!("answer {count}")),
    });
    let cluster = cluster(&app, "");
    assert_eq!(cluster.get(&node(1), "/page").text(), "answer 1");
    assert_eq!(received.recv_timeout(PATIENCE).unwrap().field("if-none-match"), None);
    for number in 2..=NODES {
        let reply = cluster.get(&node(number), "/page");
        assert_eq!((reply.status, reply.text().as_str()), (200, "answer 1"), "node {number}");
        // The body is from the first node; the header fields are updated.
        reply.assert_header("x-app", "304");
        let status = reply.cache_status();
        assert!(status.starts_with("skep; fwd=stale; fwd-status=304"), "{}", reply.head_text());
        let asked = received.recv_timeout(PATIENCE).unwrap();
        assert_eq!(asked.field("if-none-match"), Some("\"v\""), "node {number}");
    }
}

#[test]
fn what_is_stale_at_one_node_is_used_by_the_others_where_that_is_allowed() {
    let (app, received) = app(|request, count| {
        let fields = match request.line().contains("/errors") {
            _ if count > 1 => return response(503, "", "failed"),
            true => "Cache-Control: max-age=0, stale-if-error=60\r\n",
            false => "Cache-Control: max-age=0, stale-while-revalidate=60\r\n",
        };
        response(200, fields, format!("answer {count}"))
    });
    let cluster = cluster(&app, "");
    for (path, how) in [("/errors", "; detail=stale-if-error"), ("/refreshed", "; detail=peer")] {
        assert_eq!(cluster.get(&node(1), path).text(), "answer 1");
        let stale = cluster.get(&node(2), path);
        assert_eq!((stale.status, stale.text().as_str()), (200, "answer 1"), "{path}");
        assert!(stale.cache_status().ends_with(how), "{}", stale.head_text());
        // If an error may follow, the application is asked first; otherwise concurrently with the stale
        // reply.
        (0..2).for_each(|_| drop(received.recv_timeout(PATIENCE).expect("it is asked")));
    }
}

#[test]
fn what_credentials_brought_for_all_is_known_to_other_nodes() {
    let (app, received) = app(|_, count| {
        response(200, "Cache-Control: public, max-age=60\r\n", format!("answer {count}"))
    });
    let cluster = cluster(&app, "");
    let mut client = RawClient::connect(cluster.outer(&node(1)));
    let reply = client.request("GET", "/page", &[("Authorization", "Basic eA==")]);
    assert_eq!(reply.text(), "answer 1");
    poll_until(PATIENCE, "the coordinator knows of the page and its bytes", || {
        cluster.coordinator("dispatcher-1")["segments"].as_u64() >= Some(2)
    });
    let from_peer = cluster.get(&node(2), "/page");
    assert_eq!(from_peer.text(), "answer 1");
    assert!(from_peer.cache_status().ends_with("; detail=peer"), "{}", from_peer.head_text());
    assert_eq!(received.try_iter().count(), 1);
}

#[test]
fn what_is_confirmed_and_whose_bytes_are_lost_is_made_anew() {
    let gate = Gate::default();
    let shut = gate.clone();
    let (app, received) = app(move |request, count| match request.field("if-none-match") {
        Some(_) => {
            shut.pass();
            b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\n\r\n".to_vec()
        }
        None => {
            response(200, "Cache-Control: no-cache\r\nETag: \"v\"\r\n", format!("answer {count}"))
        }
    });
    let mut cluster = cluster(&app, "");
    assert_eq!(cluster.get(&node(1), "/page").text(), "answer 1");
    received.recv_timeout(PATIENCE).unwrap();
    let mut client = asking(&cluster, 2, "/page");
    assert_eq!(received.recv_timeout(PATIENCE).unwrap().field("if-none-match"), Some("\"v\""));
    // The only node with the body.
    cluster.kill(&node(1));
    gate.open();
    let reply = client.response();
    assert_eq!((reply.status, reply.text().as_str()), (200, "answer 3"), "{}", reply.head_text());
    assert_eq!(received.recv_timeout(PATIENCE).unwrap().field("if-none-match"), None);
}

/// A server of `/BYTES` in chunks, which withholds the end of each body until the gate is open.
fn streaming(gate: &Gate) -> (App, Receiver<()>) {
    let (tell, told) = sync_channel(64);
    let shut = gate.clone();
    let app = App::start(move |conn| {
        while let Some(request) = conn.request() {
            let bytes: usize =
                request.line()["GET /".len()..].split(' ').next().unwrap().parse().unwrap();
            let body = content::version(1, bytes);
            let (begin, end) = body.split_at(bytes - 10);
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n{:x}\r\n",
                begin.len()
            ));
            conn.send(begin);
            let _ = tell.send(());
            shut.pass();
            conn.send("\r\na\r\n");
            conn.send(end);
            conn.send("\r\n0\r\n\r\n");
        }
    });
    (app, told)
}

#[test]
fn what_streams_at_one_node_is_whole_at_all_with_its_end() {
    const BYTES: usize = 2_000_000;
    let gate = Gate::default();
    let (app, told) = streaming(&gate);
    let cluster = cluster(&app, "");
    let whole = content::version(1, BYTES);
    let mut leader = asking(&cluster, 1, "/2000000");
    let head = leader.try_head().unwrap();
    assert!(head.cache_status().ends_with("; stored"), "{}", head.head_text());
    let mut reader = BodyReader::new(Framing::Chunked);
    let mut body = Vec::new();
    let mut read_until = |bytes: usize, body: &mut Vec<u8>| {
        while body.len() < bytes {
            let read = leader.try_read_some().unwrap();
            reader.read(&read, body).unwrap();
        }
    };
    read_until(BYTES - 10, &mut body);
    told.recv_timeout(PATIENCE).unwrap();
    let mut others: Vec<_> = (0..3)
        .flat_map(|_| (1..=NODES).map(|number| asking(&cluster, number, "/2000000")))
        .collect();
    gate.open();
    read_until(BYTES, &mut body);
    assert_same(&body, &whole);
    for client in &mut others {
        assert_same(&client.response().assert_status(200).body, &whole);
    }
    for number in 1..=NODES {
        let reply = cluster.get(&node(number), "/2000000");
        assert!(is_hit(&reply), "{}", reply.head_text());
        assert_same(&reply.body, &whole);
    }
    assert!(told.try_recv().is_err(), "it was asked once");
}

#[test]
fn who_waits_on_other_nodes_for_what_is_too_long_is_released_before_its_end() {
    let gate = Gate::default();
    let (app, told) = streaming(&gate);
    let cluster = cluster(&app, "");
    let clients: Vec<_> = (1..=NODES).map(|number| asking(&cluster, number, "/5000000")).collect();
    // All clients read concurrently, as only one response is complete while it is copied.
    let readers = clients.into_iter().map(|mut client| thread::spawn(move || client.response()));
    let readers: Vec<_> = readers.collect();
    (0..NODES).for_each(|_| told.recv_timeout(PATIENCE).expect("each has it asked"));
    gate.open();
    for reader in readers {
        let reply = reader.join().unwrap();
        assert_same(&reply.assert_status(200).body, &content::version(1, 5_000_000));
    }
    let url = "http://test/5000000";
    let explained = cluster.skep("dispatcher-1", &["cache", "explain", "--direct", url]);
    assert!(explained.stdout.contains("too-long"), "{}", explained.stdout);
}
