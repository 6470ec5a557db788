//! Fetches between nodes over loopback: one worker is both nodes, or one of them is a socket that sends what
//! the test specifies.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rig::{BYTES, CHUNK, Rig, content, kind, on_worker};
use crate::support::*;
use skep_peer::stream::{FETCH_BUFFER_BYTES, PeerError, PeerPool, StreamCount, StreamCounts};
use skep_wire::cache::frame::PING;
use skep_wire::cache::{
    FrameError, Handshake, HelloError, PeerRefusal, PeerReply, PeerRequest, Purpose, Reason,
    SegmentName,
};

/// Fetches a segment from an offset; returns what was received, and the error that ended it.
async fn take(
    pool: &Rc<PeerPool>,
    address: SocketAddr,
    kind: u8,
    from: u32,
) -> Result<Vec<u8>, (Vec<u8>, PeerError)> {
    let fetching = pool.fetch(address, &fetch(kind, from)).await;
    let mut fetching = fetching.map_err(|error| (Vec::new(), error))?;
    let (mut taken, mut buffer) = (Vec::new(), vec![0; FETCH_BUFFER_BYTES]);
    loop {
        assert_eq!(fetching.position() as usize, from as usize + taken.len());
        match fetching.next_chunk(&mut buffer).await {
            Ok(0) => return Ok(taken),
            Ok(bytes) => taken.extend_from_slice(&buffer[..bytes]),
            Err(error) => {
                let again = fetching.next_chunk(&mut buffer).await;
                assert!(matches!(again, Err(PeerError::Closed)), "{again:?}");
                return Err((taken, error));
            }
        }
    }
}

/// The same, from the rig's own node.
async fn take_from(rig: &Rig, kind: u8, from: u32) -> Result<Vec<u8>, (Vec<u8>, PeerError)> {
    take(&rig.pool, rig.address, kind, from).await
}

fn segment(kind: u8) -> SegmentName {
    SegmentName([kind; 16])
}

fn fetch(kind: u8, from: u32) -> PeerRequest {
    PeerRequest::Fetch { name: segment(kind), bytes: BYTES, from, origin: None }
}

#[test]
fn segments_come_whole_from_any_offset_and_home() {
    on_worker(|rig| async move {
        for kind in [kind::HEAP, kind::FILE, kind::GROWING] {
            for from in [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 7, BYTES - 1] {
                let taken = take_from(&rig, kind, from).await.unwrap();
                assert!(taken == content()[from as usize..], "{kind} from {from}");
            }
        }
        assert_eq!(rig.pool.connections(rig.address), (0, 1), "one connection for all");
        assert_eq!(rig.answering.of(StreamCount::Greeted), 1);
        let chunks = rig.asking.of(StreamCount::ChunksTaken);
        assert_eq!(chunks, rig.answering.of(StreamCount::ChunksSent));
        assert_eq!(chunks, 3 * (6 + 6 + 6 + 5 + 3 + 1));
        assert_eq!(rig.sources.count.get(), 0, "all given back");
    });
}

#[test]
fn a_thousand_exchanges_on_one_connection() {
    on_worker(|rig| async move {
        let name = segment(9);
        for number in 0..1_000_u32 {
            match number % 4 {
                0 => {
                    let head =
                        rig.pool.ask(rig.address, &PeerRequest::Head { name, place: None }).await;
                    let expected = PeerReply::Head { fresh_ms: 7, head: name.0.to_vec() };
                    assert_eq!(head.unwrap(), expected);
                }
                1 => {
                    let offer = PeerRequest::Offer { name, bytes: 5, chances: 1 };
                    let taken = rig.pool.ask(rig.address, &offer).await;
                    assert_eq!(taken.unwrap(), PeerReply::Taken);
                }
                2 => {
                    let (taken, why) = take_from(&rig, kind::ABSENT, 0).await.unwrap_err();
                    assert!(taken.is_empty());
                    assert!(matches!(why, PeerError::Refused(PeerRefusal::NotThere)), "{why}");
                }
                _ => {
                    let from = BYTES - 2_000 + number;
                    let taken = take_from(&rig, (number / 4 % 3) as u8, from).await.unwrap();
                    assert!(taken == content()[from as usize..], "{number}");
                }
            }
        }
        assert_eq!(rig.answering.of(StreamCount::Greeted), 1);
        assert_eq!(rig.answering.of(StreamCount::Answered), 1_000);
    });
}

#[test]
fn many_at_once_each_have_their_own_connection() {
    on_worker(|rig| async move {
        let rig = Rc::new(rig);
        let fetches: Vec<_> = (0..20_u8)
            .map(|number| {
                let rig = Rc::clone(&rig);
                tokio::task::spawn_local(
                    async move { take_from(&rig, number % 3, 0).await.unwrap() },
                )
            })
            .collect();
        for fetch in fetches {
            assert!(fetch.await.unwrap() == content());
        }
        assert_eq!(rig.pool.connections(rig.address), (0, 20));
    });
}

#[test]
fn where_all_connections_are_in_use_the_other_node_is_not_blamed() {
    on_worker(|rig| async move {
        let mut under_way = Vec::new();
        for _ in 0..64 {
            under_way.push(rig.pool.fetch(rig.address, &fetch(kind::SLOW, 0)).await.unwrap());
        }
        let refused = rig.pool.fetch(rig.address, &fetch(kind::HEAP, 0)).await;
        assert!(refused.is_err_and(|error| !error.blames_node()));
        drop(under_way);
        assert!(take_from(&rig, kind::HEAP, 0).await.unwrap() == content());
        let late = rig.pool.fetch(rig.address, &fetch(kind::STUCK, 0)).await;
        assert!(late.is_err_and(|error| error.blames_node()));
    });
}

#[test]
fn a_slow_source_is_waited_for() {
    on_worker(|rig| async move {
        let taken = take_from(&rig, kind::SLOW, 0).await.unwrap();
        assert!(taken == content());
        assert_eq!(rig.pool.connections(rig.address), (0, 1), "and the connection kept");
    });
}

#[test]
fn a_source_that_fails_leaves_what_was_right() {
    on_worker(|rig| async move {
        let (taken, why) = take_from(&rig, kind::FAILING, 0).await.unwrap_err();
        assert!(taken == content()[..2 * CHUNK as usize]);
        assert!(matches!(why, PeerError::Closed), "{why}");
        assert_eq!(rig.pool.connections(rig.address), (0, 0), "that connection is done");
        assert!(take_from(&rig, kind::HEAP, 2 * CHUNK).await.is_ok(), "elsewhere it goes on");
    });
}

#[test]
fn a_corrupt_chunk_is_found_and_not_taken() {
    on_worker(|rig| async move {
        let (taken, why) = take_from(&rig, kind::CORRUPT, 0).await.unwrap_err();
        assert!(taken == content()[..CHUNK as usize]);
        assert!(matches!(why, PeerError::Frame(FrameError::Checksum)), "{why}");
        assert_eq!(rig.asking.of(StreamCount::Garbled), 1);
        assert_eq!(rig.pool.connections(rig.address), (0, 0));
    });
}

#[test]
fn who_answers_never_is_late() {
    on_worker(|rig| async move {
        let (taken, why) = take_from(&rig, kind::STUCK, 0).await.unwrap_err();
        assert!(taken.is_empty() && matches!(why, PeerError::Late), "{why}");
    });
}

#[test]
fn a_fetch_that_is_dropped_ends_at_both_ends() {
    on_worker(|rig| async move {
        let mut fetching = rig.pool.fetch(rig.address, &fetch(kind::SLOW, 0)).await.unwrap();
        let mut buffer = vec![0; FETCH_BUFFER_BYTES];
        assert_eq!(fetching.next_chunk(&mut buffer).await.unwrap(), CHUNK as usize);
        assert_eq!((rig.pool.connections(rig.address), rig.sources.count.get()), ((1, 0), 1));
        drop(fetching);
        assert_eq!(rig.pool.connections(rig.address), (0, 0));
        // The other end notices it when it sends a keepalive.
        while rig.sources.count.get() > 0 {
            rig.sources.fewer.notified().await;
        }
    });
}

#[test]
fn a_node_does_not_fetch_from_itself() {
    on_worker(|rig| async move {
        let pool = PeerPool::new(&rig.worker, &identity("b"), &rig.asking);
        let asked =
            pool.ask(rig.address, &PeerRequest::Head { name: segment(0), place: None }).await;
        let refused = matches!(asked, Err(PeerError::Hello(HelloError::Here(Reason::Name))));
        assert!(refused, "{asked:?}");
        let stranger =
            PeerPool::new(&rig.worker, &identity_of(OTHER_KEY, "hive", "a"), &rig.asking);
        let asked =
            stranger.ask(rig.address, &PeerRequest::Head { name: segment(0), place: None }).await;
        let refused = matches!(asked, Err(PeerError::Hello(HelloError::Here(Reason::Proof))));
        assert!(refused, "{asked:?}");
    });
}

#[test]
fn strangers_of_many_addresses_keep_no_node_from_fetching() {
    /// More than the number of permits, and less than the limit of descriptors per process.
    const STRANGERS: usize = 700;
    on_worker(|rig| async move {
        let (address, has_ended) = (rig.address, Arc::new(AtomicBool::new(false)));
        let ends = Arc::clone(&has_ended);
        let strangers = std::thread::spawn(move || {
            // They lose their permits after a while, and others follow.
            let mut open = VecDeque::new();
            for number in (0..16).cycle().take_while(|_| !ends.load(Ordering::Relaxed)) {
                open.push_back(connect_from([127, 0, 1, 1 + number], address));
                if open.len() > STRANGERS {
                    open.pop_front();
                }
            }
        });
        let refused = async {
            while rig.answering.refused_here(Reason::Full) == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("all permits of strangers are taken");
        let taken = take_from(&rig, kind::FILE, 0).await.unwrap();
        assert!(taken == content());
        has_ended.store(true, Ordering::Relaxed);
        // The last of them may wait until this worker accepts another one.
        while !strangers.is_finished() {
            tokio::task::yield_now().await;
        }
        strangers.join().unwrap();
    });
}

/// Runs `other` as the requested node, and fetches a segment from it.
fn fetch_from(
    other: impl FnOnce(TcpListener) + Send + 'static,
    check: impl FnOnce(Vec<u8>, PeerError, &Rig) + Send + 'static,
) {
    let (listener, address) = listener();
    let other = std::thread::spawn(move || other(listener));
    on_worker(move |rig| async move {
        let (taken, why) = take(&rig.pool, address, kind::HEAP, 0).await.unwrap_err();
        check(taken, why, &rig);
        assert_eq!(rig.pool.connections(address), (0, 0));
    });
    other.join().unwrap();
}

/// Answers the first request with `bytes`, and then waits for the end of the stream.
fn answers(bytes: Vec<u8>) -> impl FnOnce(TcpListener) + Send + 'static {
    move |listener| {
        let mut stream = server(&listener, Purpose::Fetch, "b");
        assert_eq!(PeerRequest::decode(&read_frame(&mut stream)), Ok(fetch(kind::HEAP, 0)));
        stream.write_all(&bytes).unwrap();
        read_to_close(&mut stream);
    }
}

fn coming(chunks: &[&[u8]]) -> Vec<u8> {
    let frames = chunks.iter().flat_map(|chunk| frame(chunk));
    frame(&PeerReply::Coming.encode()).into_iter().chain(frames).collect()
}

#[test]
fn nonsense_for_an_answer_is_an_error() {
    let chunk = content()[..CHUNK as usize].to_vec();
    let coming_then = |bytes: &[u8]| [coming(&[&chunk]), bytes.to_vec()].concat();
    fetch_from(answers(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), |taken, why, rig| {
        assert!(taken.is_empty());
        assert!(matches!(why, PeerError::Frame(FrameError::TooLong { .. })), "{why}");
        assert_eq!(rig.asking.of(StreamCount::Garbled), 1);
    });
    fetch_from(answers(frame(&[200; 10])), |_, why, _| {
        assert!(matches!(why, PeerError::NotAMessage(_)), "{why}");
    });
    fetch_from(answers(frame(&PeerReply::Taken.encode())), |_, why, _| {
        assert!(matches!(why, PeerError::Unexpected), "{why}");
    });
    let refused = frame(&PeerReply::Refused(PeerRefusal::Overloaded).encode());
    fetch_from(answers([refused, vec![0]].concat()), |_, why, _| {
        assert!(matches!(why, PeerError::Unexpected), "{why}");
    });
    fetch_from(answers(coming(&[&chunk, &chunk[..5]])), |taken, why, _| {
        let short = FrameError::NotThatLong { bytes: 5, expected: CHUNK };
        assert_eq!(taken.len(), CHUNK as usize);
        assert!(matches!(why, PeerError::Frame(error) if error == short), "{why}");
    });
    fetch_from(answers(coming_then(&[255; 8])), |taken, why, _| {
        assert_eq!(taken.len(), CHUNK as usize);
        assert!(matches!(why, PeerError::Frame(FrameError::NotThatLong { .. })), "{why}");
    });
    fetch_from(answers(coming_then(&[0, 0, 0, 0, 0, 0, 0, 1])), |_, why, _| {
        assert!(matches!(why, PeerError::Frame(FrameError::Checksum)), "{why}");
    });
}

#[test]
fn who_stops_in_the_middle_is_late_or_gone() {
    let chunk = content()[..CHUNK as usize].to_vec();
    let half = [coming(&[&chunk]), frame(&chunk)[..100].to_vec()].concat();
    fetch_from(answers(half.clone()), |taken, why, _| {
        assert_eq!(taken.len(), CHUNK as usize);
        assert!(matches!(why, PeerError::Late), "{why}");
    });
    let goes = move |listener: TcpListener| {
        let mut stream = server(&listener, Purpose::Fetch, "b");
        read_frame(&mut stream);
        stream.write_all(&half).unwrap();
    };
    fetch_from(goes, |taken, why, _| {
        assert_eq!(taken.len(), CHUNK as usize);
        assert!(matches!(why, PeerError::Closed | PeerError::Io(_)), "{why}");
    });
    let silent = |listener: TcpListener| {
        read_to_close(&mut accept(&listener));
    };
    fetch_from(silent, |_, why, _| assert!(matches!(why, PeerError::Late), "{why}"));
    fetch_from(drop, |_, why, _| {
        let refused = matches!(why, PeerError::Connect(_));
        assert!(refused || matches!(why, PeerError::Io(_) | PeerError::Closed), "{why}");
    });
}

#[test]
fn a_connection_that_died_in_the_pool_is_made_again() {
    let (listener, address) = listener();
    let (closed, is_closed) = std::sync::mpsc::sync_channel(1);
    let name = segment(1);
    let reply = PeerReply::Head { fresh_ms: 0, head: Vec::new() };
    let said = frame(&reply.encode());
    let other = std::thread::spawn(move || {
        let mut first = server(&listener, Purpose::Fetch, "b");
        read_frame(&mut first);
        first.write_all(&said).unwrap();
        // Reads the second request, and closes without a reply.
        read_frame(&mut first);
        drop(first);
        let mut second = server(&listener, Purpose::Fetch, "b");
        read_frame(&mut second);
        second.write_all(&said).unwrap();
        // Closes while the connection is idle.
        drop(second);
        closed.send(()).unwrap();
        let mut third = server(&listener, Purpose::Fetch, "b");
        read_frame(&mut third);
        third.write_all(&said).unwrap();
        read_to_close(&mut third);
    });
    on_worker(move |rig| async move {
        let head = PeerRequest::Head { name, place: None };
        assert_eq!(rig.pool.ask(address, &head).await.unwrap(), reply);
        assert_eq!(rig.pool.ask(address, &head).await.unwrap(), reply);
        is_closed.recv().unwrap();
        assert_eq!(rig.pool.ask(address, &head).await.unwrap(), reply);
        assert_eq!(rig.asking.of(StreamCount::Greeted), 3);
    });
    other.join().unwrap();
}

/// The counters of the service after it has served a socket that behaves as `other` specifies.
fn serve_to(other: impl FnOnce(SocketAddr) + Send + 'static) -> Arc<StreamCounts> {
    let counts = Arc::new(std::sync::Mutex::new(None));
    let found = Arc::clone(&counts);
    on_worker(move |rig| async move {
        let address = rig.address;
        let (done, is_done) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            other(address);
            done.send(()).unwrap();
        });
        is_done.await.expect("what the other expects is so");
        assert!(take_from(&rig, kind::HEAP, 0).await.is_ok(), "others are served");
        *found.lock().unwrap() = Some(rig.answering);
    });
    counts.lock().unwrap().take().unwrap()
}

#[test]
fn askers_that_make_no_sense_are_closed() {
    let counts = serve_to(|address| {
        let mut stranger = connect(address);
        let hello = Handshake::client(&identity("n"), Purpose::Link, None, [1; 32]);
        assert_eq!(greet(&mut stranger, hello), Err(HelloError::There(Reason::Purpose)));
        let mut noise = connect(address);
        noise.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(read_to_close(&mut noise), Handshake::refusal(Reason::Version));
        assert_eq!(read_to_close(&mut connect(address)), b"", "silent");
        let mut wrong = frame(&fetch(0, 0).encode());
        *wrong.last_mut().unwrap() ^= 1;
        let offset_beyond = frame(&fetch(0, BYTES).encode());
        for bytes in [wrong, vec![255; 8], frame(&[77; 5]), offset_beyond, PING.to_vec()] {
            let mut stream = client(address, Purpose::Fetch, "n");
            stream.write_all(&bytes).unwrap();
            assert_eq!(read_to_close(&mut stream), b"", "{bytes:?}");
        }
        // Begins a request and does not complete it.
        let mut late = client(address, Purpose::Fetch, "n");
        late.write_all(&frame(&fetch(0, 0).encode())[..9]).unwrap();
        assert_eq!(read_to_close(&mut late), b"");
    });
    assert_eq!(counts.of(StreamCount::Garbled), 5);
    assert_eq!(counts.refused_here(Reason::Version), 1);
    assert_eq!(counts.refused_here(Reason::Purpose), 1);
}

#[test]
fn requests_that_come_in_pieces_or_together_are_answered_in_order() {
    serve_to(|address| {
        let mut stream: TcpStream = client(address, Purpose::Fetch, "n");
        let head =
            |number: u8| frame(&PeerRequest::Head { name: segment(number), place: None }.encode());
        for byte in head(1) {
            stream.write_all(&[byte]).unwrap();
        }
        stream.write_all(&[head(2), head(3)].concat()).unwrap();
        for number in 1..=3 {
            let reply = PeerReply::decode(&read_frame(&mut stream)).unwrap();
            assert_eq!(reply, PeerReply::Head { fresh_ms: 7, head: vec![number; 16] });
        }
    });
}

/// Not a test: prints the speed on this machine. `--ignored --nocapture`, in release.
#[test]
#[ignore = "prints figures"]
fn figures() {
    const ROUNDS: u32 = 20_000;
    for (text, kind, bytes) in [
        ("heap, whole", kind::HEAP, BYTES),
        ("file, whole", kind::FILE, BYTES),
        ("heap, 1 KiB", kind::HEAP, 1_024),
    ] {
        on_worker(move |rig| async move {
            let mut buffer = vec![0; FETCH_BUFFER_BYTES];
            let request = fetch(kind, BYTES - bytes);
            let (began, cpu) = (std::time::Instant::now(), cpu_s());
            for _ in 0..ROUNDS {
                let mut fetching = rig.pool.fetch(rig.address, &request).await.unwrap();
                while fetching.next_chunk(&mut buffer).await.unwrap() > 0 {}
            }
            let (took, cpu) = (began.elapsed().as_secs_f64(), cpu_s() - cpu);
            let mib = f64::from(ROUNDS) * f64::from(bytes) / 1_048_576.0;
            let each_us = cpu * 1e6 / f64::from(ROUNDS);
            println!(
                "{text}: {:.0} MiB/s, {:.0} us of CPU per MiB, {each_us:.1} us per fetch",
                mib / took,
                cpu * 1e6 / mib
            );
        });
    }
}

fn cpu_s() -> f64 {
    let used = rustix::time::clock_gettime_dynamic(rustix::time::DynamicClockId::Known(
        rustix::time::ClockId::ProcessCPUTime,
    ));
    let used = used.unwrap();
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
