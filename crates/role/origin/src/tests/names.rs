//! Names of origins: resolved once, and refreshed in the background.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};

use super::rig::{PATIENCE, Server, closed_port, fault, get, ok, patient, whole, with_lookup};
use crate::limits::ADDRESSES_MAX;
use crate::{Fault, OriginLimits};

fn urls() -> Vec<String> {
    vec!["http://files.test:81/".to_owned()]
}

/// A resolver that returns these addresses and counts its look-ups.
fn knowing(addresses: Vec<SocketAddr>) -> (crate::Lookup, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    let lookup: crate::Lookup = Arc::new(move |host, port| {
        assert_eq!((host, port), ("files.test", 81));
        counted.fetch_add(1, SeqCst);
        Ok(addresses.clone())
    });
    (lookup, count)
}

#[test]
fn a_name_is_looked_up_once_and_all_its_addresses_are_tried() {
    let server = Server::keeping(ok("Connection: close\r\n", b"x"));
    let (lookup, count) = knowing(vec![closed_port(), server.address]);
    with_lookup(&urls(), patient(), lookup, async |origins| {
        for _ in 0..3 {
            assert_eq!(get(&origins, &whole("/")).await.unwrap().1, b"x");
        }
    });
    assert_eq!(count.load(SeqCst), 1);
    assert!(server.seen().contains("\r\nHost: files.test:81\r\n"));
}

#[test]
fn of_many_addresses_the_first_ones_are_tried() {
    for (dead, is_reached) in [(ADDRESSES_MAX - 1, true), (ADDRESSES_MAX, false)] {
        let server = Server::keeping(ok("", b"x"));
        let mut addresses = vec![closed_port(); dead];
        addresses.push(server.address);
        let lookup = knowing(addresses).0;
        let got = with_lookup(&urls(), patient(), lookup, async |origins| {
            get(&origins, &whole("/")).await.is_ok()
        });
        assert_eq!(got, is_reached, "{dead} dead ones");
    }
}

#[test]
fn askers_at_once_share_a_lookup() {
    let server = Server::keeping(ok("", b"x"));
    let (lookup, count) = knowing(vec![server.address]);
    with_lookup(&urls(), patient(), lookup, async |origins| {
        let ask = whole("/");
        let (a, b) = tokio::join!(get(&origins, &ask), get(&origins, &ask));
        assert!(a.is_ok() && b.is_ok());
    });
    assert_eq!(count.load(SeqCst), 1);
}

#[test]
fn a_name_without_addresses_is_an_error_that_can_be_mended() {
    let server = Server::keeping(ok("", b"x"));
    let answers = Mutex::new(vec![Ok(vec![server.address]), Ok(vec![]), Err("no such name")]);
    let lookup: crate::Lookup =
        Arc::new(move |_, _| answers.lock().unwrap().pop().unwrap().map_err(io::Error::other));
    with_lookup(&urls(), patient(), lookup, async |origins| {
        let found = [fault(&origins, &whole("/")).await, fault(&origins, &whole("/")).await];
        let name = |why: &str| Fault::Name(why.to_owned());
        assert_eq!(found, [name("no such name"), name("the answer is empty")]);
        assert_eq!(get(&origins, &whole("/")).await.unwrap().1, b"x");
    });
}

#[test]
fn a_resolver_that_hangs_takes_nothing_away_that_was_known() {
    let server = Server::keeping(ok("", b"x"));
    let address = server.address;
    let (release, released) = mpsc::sync_channel::<()>(1);
    let released = Mutex::new(released);
    let count = AtomicUsize::new(0);
    let lookup: crate::Lookup = Arc::new(move |_, _| {
        if count.fetch_add(1, SeqCst) > 0 {
            released.lock().unwrap().recv_timeout(PATIENCE).ok();
        }
        Ok(vec![address])
    });
    // Known addresses expire at once.
    let limits = OriginLimits { names_fresh_ms: 0, ..patient() };
    with_lookup(&urls(), limits, lookup, async |origins| {
        for _ in 0..5 {
            assert_eq!(get(&origins, &whole("/")).await.unwrap().1, b"x");
        }
    });
    drop(release);
}

#[test]
fn a_first_lookup_has_a_time_limit() {
    let (release, released) = mpsc::sync_channel::<()>(1);
    let released = Mutex::new(released);
    let lookup: crate::Lookup = Arc::new(move |_, _| {
        released.lock().unwrap().recv_timeout(PATIENCE).ok();
        Ok(Vec::new())
    });
    let limits = OriginLimits { connect_timeout_ms: 1, ..patient() };
    with_lookup(&urls(), limits, lookup, async |origins| {
        assert_eq!(fault(&origins, &whole("/")).await, Fault::Name("no answer in time".to_owned()));
    });
    drop(release);
}
