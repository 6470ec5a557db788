//! Tests of the pool against real listeners, on one real worker.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

use skep_serve::{Output, Workers};
use skep_units::SocketPath;

use super::*;

const LIMITS: PoolLimits =
    PoolLimits { connections_max: 2, idle_ms: 60_000, connect_timeout_ms: 5_000 };

/// Runs `test` on a worker with a pool of `limits` and waits for its end.
fn on_worker<F: Future<Output = ()>>(
    limits: PoolLimits,
    test: impl FnOnce(Rc<Worker>, Rc<ConnectionPool>) -> F + Send + 'static,
) {
    let workers = Workers::start(1).unwrap();
    let (done, ended) = std::sync::mpsc::sync_channel(1);
    workers.handles()[0].run(move |worker| {
        let worker = Rc::clone(worker);
        let pool = ConnectionPool::new(&worker, limits);
        tokio::task::spawn_local(async move {
            test(worker, pool).await;
            done.send(()).unwrap();
        });
    });
    // A panic of the test drops the sender.
    ended.recv().expect("the test ran to its end");
    workers.stop();
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn recv(lease: &PooledConn) -> Vec<u8> {
    let mut buffer = [0; 64];
    let n = lease.conn.recv(&mut buffer).await.unwrap();
    buffer[..n].to_vec()
}

async fn send(lease: &PooledConn, bytes: &[u8]) {
    let mut output = Output::default();
    output.copy(bytes);
    lease.conn.send(&mut output, 5_000).await.unwrap();
}

/// Waits until the runtime has learned of the event at the socket.
async fn settle(lease: &PooledConn) {
    std::future::poll_fn(|cx| {
        let mut nothing = [0; 1];
        match lease.conn.poll_recv(cx, &mut nothing) {
            std::task::Poll::Pending => std::task::Poll::Pending,
            ready => {
                assert_eq!(ready.map(Result::unwrap), std::task::Poll::Ready(0));
                std::task::Poll::Ready(())
            }
        }
    })
    .await;
}

#[test]
fn the_connection_used_last_is_reused_first() {
    on_worker(LIMITS, |_, pool| async move {
        let (listener, address) = listener();
        let first = pool.checkout(address).await.unwrap();
        let second = pool.checkout(address).await.unwrap();
        let (mut at_first, _) = listener.accept().unwrap();
        let (_at_second, _) = listener.accept().unwrap();
        assert!(!first.reused && !second.reused);
        second.give_back(&pool);
        first.give_back(&pool);
        assert_eq!(pool.counts(address), (0, 2));
        let again = pool.checkout(address).await.unwrap();
        assert!(again.reused && again.address() == address.into());
        at_first.write_all(b"for the first").unwrap();
        assert_eq!(recv(&again).await, b"for the first");
    });
}

#[test]
fn a_dropped_lease_closes_and_frees_its_place() {
    on_worker(LIMITS, |_, pool| async move {
        let (listener, address) = listener();
        let lease = pool.checkout(address).await.unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        assert_eq!(pool.counts(address), (1, 0));
        drop(lease);
        assert_eq!(pool.counts(address), (0, 0));
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0, "closed");
    });
}

#[test]
fn no_more_connections_than_allowed_and_the_idle_give_way() {
    on_worker(LIMITS, |_, pool| async move {
        let (_listener, address) = listener();
        let first = pool.checkout(address).await.unwrap();
        let second = pool.checkout(address).await.unwrap();
        let third = pool.checkout(address).await;
        assert!(matches!(third, Err(UpstreamError::PoolFull)));
        first.give_back(&pool);
        let fresh = pool.dial(address).await.unwrap();
        assert!(!fresh.reused, "the idle one was closed for it");
        assert_eq!(pool.counts(address), (2, 0));
        drop((second, fresh));
        pool.set_limits(PoolLimits { connections_max: 1, ..LIMITS });
        let only = pool.checkout(address).await.unwrap();
        pool.set_limits(PoolLimits { connections_max: 0, ..LIMITS });
        only.give_back(&pool);
        assert_eq!(pool.counts(address), (0, 0), "above the new bound: closed");
    });
}

#[test]
fn a_connection_that_the_node_closed_or_spoke_on_is_not_reused() {
    on_worker(LIMITS, |_, pool| async move {
        let (listener, address) = listener();
        let closed = pool.checkout(address).await.unwrap();
        drop(listener.accept().unwrap());
        settle(&closed).await;
        closed.give_back(&pool);
        let fresh = pool.checkout(address).await.unwrap();
        assert!(!fresh.reused);

        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"one").unwrap();
        assert_eq!(recv(&fresh).await, b"one");
        peer.write_all(b"unasked").unwrap();
        // The bytes are in the socket; only the kernel is asked.
        while !fresh.conn.probe_stale() {
            std::thread::yield_now();
        }
        fresh.give_back(&pool);
        assert_eq!(pool.counts(address), (0, 1));
        // The runtime sees the bytes when it next polls the kernel.
        while let Some(lease) = pool.reuse(address) {
            lease.give_back(&pool);
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.counts(address), (0, 0));
    });
}

#[test]
fn idle_connections_are_closed_in_time() {
    let brief = PoolLimits { idle_ms: 0, ..LIMITS };
    on_worker(brief, |_, pool| async move {
        let (listener, address) = listener();
        let lease = pool.checkout(address).await.unwrap();
        let (peer, _) = listener.accept().unwrap();
        send(&lease, b"x").await;
        lease.give_back(&pool);
        // Ends when the tick closes the connection.
        let mut peer = async_peer(peer);
        let mut sink = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut peer, &mut sink).await.unwrap();
        assert_eq!(sink, b"x");
        assert_eq!(pool.counts(address), (0, 0));
        assert!(pool.slots.borrow().is_empty(), "nothing is kept of an unused address");
    });
}

#[test]
fn a_closed_address_takes_nothing_back() {
    on_worker(LIMITS, |_, pool| async move {
        let (_listener, address) = listener();
        let before = pool.checkout(address).await.unwrap();
        pool.checkout(address).await.unwrap().give_back(&pool);
        assert_eq!(pool.counts(address), (1, 1));
        pool.close_address(address);
        assert_eq!(pool.counts(address), (1, 0));
        before.give_back(&pool);
        assert_eq!(pool.counts(address), (0, 0));
        pool.checkout(address).await.unwrap().give_back(&pool);
        assert_eq!(pool.counts(address), (0, 1), "the address itself goes on");
    });
}

#[test]
fn a_refused_connection_says_so_and_frees_its_place() {
    on_worker(LIMITS, |_, pool| async move {
        let (listener, address) = listener();
        drop(listener);
        let refused = pool.checkout(address).await;
        assert!(matches!(refused, Err(UpstreamError::Refused)));
        assert_eq!(pool.counts(address), (0, 0));
    });
}

#[test]
fn a_node_that_does_not_answer_times_out() {
    let brief = PoolLimits { connect_timeout_ms: 1, ..LIMITS };
    on_worker(brief, |_, pool| async move {
        // A full accept queue drops later SYNs: nobody answers.
        let socket = short_listener();
        let address = socket.local_addr().unwrap();
        let mut filling = Vec::new();
        let timed_out = loop {
            match pool.dial(address).await {
                Ok(lease) => {
                    filling.push(lease.conn);
                    assert!(filling.len() < 64, "a queue of one fills up");
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(timed_out, UpstreamError::ConnectTimeout), "{timed_out}");
    });
}

/// A listener whose queue holds one connection.
fn short_listener() -> TcpListener {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(1).unwrap();
    socket.into()
}

fn async_peer(peer: TcpStream) -> tokio::net::TcpStream {
    peer.set_nonblocking(true).unwrap();
    tokio::net::TcpStream::from_std(peer).unwrap()
}

#[test]
fn a_job_that_has_nothing_to_do_any_more_is_gone() {
    on_worker(LIMITS, |worker, _| async move {
        let held = Rc::new(());
        let mut runs = 0;
        let by_job = Rc::clone(&held);
        worker.on_tick(move || {
            let _ = &by_job;
            runs += 1;
            runs < 2
        });
        while Rc::strong_count(&held) > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
}

fn at(path: &std::path::Path) -> ServerAddress {
    ServerAddress::Unix(SocketPath::new(path).unwrap())
}

#[test]
fn unix_sockets_are_as_addresses_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let (address, missing) = (at(&path), at(&folder.path().join("b.sock")));
    let listener = UnixListener::bind(&path).unwrap();
    on_worker(LIMITS, move |_, pool| async move {
        let lease = pool.checkout(address).await.unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        send(&lease, b"ping").await;
        let mut buffer = [0; 4];
        peer.read_exact(&mut buffer).unwrap();
        peer.write_all(&buffer).unwrap();
        assert_eq!(recv(&lease).await, b"ping");
        lease.give_back(&pool);
        let lease = pool.checkout(address).await.unwrap();
        assert!(lease.reused);
        drop(peer);
        settle(&lease).await;
        lease.give_back(&pool);
        assert!(pool.reuse(address).is_none(), "it is stale");
        let none = pool.checkout(missing).await.map(|_| ());
        assert!(matches!(none, Err(UpstreamError::NoSocket)), "{none:?}");
        drop(listener);
        let refused = pool.checkout(address).await.map(|_| ());
        assert!(matches!(refused, Err(UpstreamError::Refused)), "{refused:?}");
    });
}

/// The kernel returns EAGAIN then, and reports no event when there is room.
#[test]
fn a_full_backlog_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    let address = at(&path);
    let limits = PoolLimits { connections_max: 3, ..LIMITS };
    on_worker(limits, move |_, pool| async move {
        let _first = pool.dial(address).await.unwrap();
        let second = {
            let pool = Rc::clone(&pool);
            tokio::task::spawn_local(async move { pool.dial(address).await.map(|_| ()) })
        };
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "there is no room");
        socket.accept().unwrap();
        second.await.unwrap().unwrap();
        pool.set_limits(PoolLimits { connect_timeout_ms: 30, ..limits });
        let late = pool.dial(address).await.map(|_| ());
        assert!(matches!(late, Err(UpstreamError::ConnectTimeout)), "{late:?}");
    });
}
