//! Requests with bodies on connections that move: an application receives the whole body, whichever node
//! answers.

use std::net::SocketAddr;

use skep_lab::load::Pattern;
use skep_testclient::{HOST, request_bytes, request_with_body};
use skep_tests::app::{App, AppConn, response};
use skep_tests::direct::{DirectCluster, SHORT, Setup};

use super::moving::{CLIENT, Elsewhere, path_of, wait_moving};
use super::{by_url, moved};

/// Port of the application.
const APP_PORT: u16 = 8_000;

const APP_MACHINE: &str = "client-2";

/// Lengths of bodies: none, within the bytes that are handed off, at their limit, and more than socket
/// buffers hold.
const LENGTHS: [usize; 6] = [0, 1, 9_000, 16 * 1024, 70_000, 3_000_000];

/// Echoes each body.
fn echo(conn: &mut AppConn) {
    while let Some(received) = conn.request() {
        let fields = "Cache-Control: no-store\r\n";
        if !conn.send(response(200, fields, &received.body)) {
            return;
        }
    }
}

fn body(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pattern { seed: 9 }.fill(0, &mut bytes);
    bytes
}

/// Encodes a request as a client that does not know the length.
fn chunked(target: &str, body: &[u8]) -> Vec<u8> {
    let fields = [HOST, ("Transfer-Encoding", "chunked")];
    let mut bytes = request_bytes("POST", target, &fields);
    for chunk in body.chunks(5_000) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// Starts at a node that is not to answer: checks the application's reply, and the next request of the
/// connection.
#[track_caller]
fn exchange(cluster: &DirectCluster, request: &[u8], body: &[u8], is_slow: bool, follow: &str) {
    let mut it = Elsewhere::connect(cluster, cluster.vip(), "node-2");
    let mut sender = it.client.stream().try_clone().unwrap();
    std::thread::scope(|scope| {
        // Concurrently with the reply: neither side reads everything first.
        scope.spawn(move || {
            let pieces = if is_slow { request.len().div_ceil(4).max(1) } else { request.len() };
            for piece in request.chunks(pieces) {
                std::io::Write::write_all(&mut sender, piece).unwrap();
                if is_slow {
                    std::thread::sleep(std::time::Duration::from_millis(30));
                }
            }
        });
        let response = it.client.try_response_to("POST").unwrap();
        let node = response.assert_status(200).header("x-skep-node").unwrap().to_owned();
        assert!(it.may_answer(&node), "{node}");
        assert_eq!(response.body.len(), body.len());
        assert!(response.body == body, "another body of {} bytes", body.len());
    });
    it.client.ask(follow);
    it.assert_short();
}

#[test]
fn bodies_arrive_whole_whoever_answers() {
    let setup = by_url(2);
    let Some(cluster) = DirectCluster::prepare(setup) else { return };
    let address: SocketAddr = (cluster.machine(APP_MACHINE).ipv4(), APP_PORT).into();
    let app = cluster.machine(APP_MACHINE).run(|| App::start_at(address, echo)).unwrap();
    cluster.reconfigure(|setup: &mut Setup| {
        setup.site = format!(
            "[[site.route]]\npath = \"/app/*\"\npool = \"app\"\n[[pool]]\nname = \"app\"\n\
             [[pool.server]]\nname = \"s\"\naddress = \"{address}\"\n"
        );
    });
    cluster.run_all();
    cluster.wait_serving();
    wait_moving(&cluster);
    let follow = path_of(&cluster, "node-2");
    // The policy hashes the host and the path without the query.
    let number = follow.rsplit('?').next().unwrap().to_owned();
    assert!(follow.starts_with(SHORT.0));
    let before = moved(&cluster);
    let mut exchanges = 0;
    for len in LENGTHS {
        let body = body(len);
        // Some of these paths belong to node-2.
        for target in (0..4).map(|it| format!("/app/{number}-{it}")) {
            for is_slow in [false, true] {
                let request = request_with_body("POST", &target, &[HOST], &body);
                exchange(&cluster, &request, &body, is_slow, &follow);
                exchange(&cluster, &chunked(&target, &body), &body, is_slow, &follow);
                exchanges += 2;
            }
        }
    }
    let moves = moved(&cluster) - before;
    skep_tests::direct::figure(&format!("{moves} of {exchanges} connections with bodies moved"));
    assert!(moves >= 4.0, "{moves}");
    // In its network namespace, where it can wake itself.
    cluster.machine(APP_MACHINE).run(move || drop(app)).unwrap();
    assert!(cluster.ask(CLIENT, cluster.vip(), SHORT.0).is_ok());
}
