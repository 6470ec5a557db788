//! Connections that move to another node, and those that arrive from one.

use std::rc::Rc;
use std::sync::Arc;

use skep_serve::{Conn, TimeoutCause};
use skep_telemetry::Counter;

use super::client::{get, post};
use super::rig::{Rig, admission};
use crate::{Arrival, Destination, EngineSettings};

#[test]
fn a_connection_that_stays_is_answered_here() {
    let rig = Rig::new();
    let mut client = rig.client();
    let request = get("/elsewhere:1/reply:2");
    client.send(&request);
    let length = request.len();
    let departing = format!("Departing({length}/{length})");
    rig.until_state(&client, &departing);
    assert!(rig.seen().is_empty(), "nobody answers yet");
    rig.shared.gate.add_permits(1);
    assert_eq!(client.reply().unwrap().body, b"ab");
    rig.until_state(&client, "Resting");
    let (pipelined, slow) = (format!("Pipelined({length})"), format!("Slow({length}/{length})"));
    assert_eq!(rig.states(&client), ["New", &departing, &pipelined, &slow, "Answering", "Resting"]);
}

#[test]
fn a_connection_that_leaves_is_closed_here_and_goes_on_there() {
    let rig = Rig::new();
    let mut client = rig.client();
    // The part of the body that was read moves with the connection.
    client.send(post("/elsewhere:2/read:3/reply:2", b"abc"));
    rig.shared.gate.add_permits(1);
    rig.until_state(&client, "Closing(ClosedMoved)");
    assert_eq!(rig.get(Counter::ClosedMoved), 1);
    assert!(rig.seen().is_empty());
    let (socket, received) = rig.shared.left.lock().unwrap().pop().unwrap();
    let peer = client.address();
    rig.on_engine(move |worker, engine| {
        let permit = admission().admit(peer.ip()).unwrap();
        let conn = Conn::taken_over(worker, socket, peer, permit).unwrap();
        let arrival = Arrival { received, moves: 1, accepted_by: Arc::from("n2") };
        tokio::task::spawn_local(Rc::clone(engine).take_over(conn, arrival));
    });
    assert_eq!(client.reply().unwrap().body, b"ab");
    assert_eq!(rig.seen()[0].body, b"abc");
    // It does not move again.
    assert_eq!(client.ask(get("/elsewhere:2/reply:1")).body, b"a");
}

#[test]
fn a_request_behind_others_stays() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send([get("/quick:1"), get("/elsewhere:2/reply:2")].concat());
    assert_eq!(client.reply().unwrap().body, b"a");
    assert_eq!(client.reply().unwrap().body, b"ab");
    assert!(rig.shared.left.lock().unwrap().is_empty());
}

#[test]
fn an_idle_connection_that_nobody_takes_ends_as_any_other() {
    for idle_to in [None, Some(Destination(1))] {
        let rig = Rig::with(EngineSettings { idle_ms: 500, ..EngineSettings::default() });
        *rig.shared.idle_to.lock().unwrap() = idle_to;
        // A connection that is queried often, since its node is drained.
        rig.shared.gate.add_permits(100_000);
        rig.on_worker(|worker| {
            let of = Rc::downgrade(worker);
            worker.on_tick(move || {
                let worker = of.upgrade();
                worker.inspect(|it| it.deadlines().expire_idle(TimeoutCause::Evacuate)).is_some()
            });
        });
        let mut client = rig.client();
        assert_eq!(client.ask(get("/quick:1")).body, b"a");
        rig.until_state(&client, "Closing(ClosedIdle)");
    }
}
