//! Handshakes and frames: valid bytes are accepted, however they are split; invalid bytes are
//! refused with a reason, and nothing panics.

use proptest::prelude::*;
use skep_wire::cache::frame::{FRAME_HEAD_BYTES, PING, checksum, write_frame};
use skep_wire::cache::peer::chunk_end;
use skep_wire::cache::{
    FrameDecoder, FrameError, FrameHead, Handshake, HelloError, Identity, Purpose, Reason,
};
use skep_wire::limits::PEER_CHUNK_BYTES;
use skep_wire::message::Name;
use skep_wire::seal::Key;

const KEY: &str = "a secret of thirty-two characters";
const OTHER_KEY: &str = "another secret of this many letters";

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn identity(key: &str, cluster: &str, own: &str) -> Identity {
    Identity::new(&Key::from_text(key).unwrap(), cluster, &name(own))
}

fn client(identity: &Identity) -> Handshake {
    Handshake::client(identity, Purpose::Link, None, [1; 32])
}

fn server(identity: &Identity) -> Handshake {
    Handshake::server(identity, Purpose::Link, [2; 32])
}

/// The results of a handshake on both sides.
type Ends = (Result<(), HelloError>, Result<(), HelloError>);

/// Runs the exchange between the two sides; `spoil` may change the messages in transit, which are
/// numbered.
fn talk(
    client: &mut Handshake,
    server: &mut Handshake,
    spoil: impl Fn(usize, &mut Vec<u8>),
) -> Ends {
    let mut ends = (Ok(()), Ok(()));
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    for turn in 0.. {
        let mut said = client.output();
        spoil(2 * turn, &mut said);
        to_server.extend(said);
        feed(server, &mut to_server, &mut ends.1);
        let mut said = server.output();
        if server.wants() == 0 && ends.1.is_ok() {
            said.extend(Handshake::welcome());
        }
        spoil(2 * turn + 1, &mut said);
        to_client.extend(said);
        feed(client, &mut to_client, &mut ends.0);
        if turn == 2 || ends.0.is_err() {
            return ends;
        }
    }
    unreachable!("turns end");
}

fn feed(side: &mut Handshake, bytes: &mut Vec<u8>, end: &mut Result<(), HelloError>) {
    while end.is_ok() && side.wants() > 0 && bytes.len() >= side.wants() {
        let taken: Vec<u8> = bytes.drain(..side.wants()).collect();
        *end = side.take(&taken);
    }
}

#[test]
fn who_holds_the_key_gets_to_know_the_other() {
    let (a, b) = (identity(KEY, "hive", "a"), identity(KEY, "hive", "b"));
    let mut client = Handshake::client(&a, Purpose::Fetch, Some(name("b")), [1; 32]);
    let mut server = Handshake::server(&b, Purpose::Fetch, [2; 32]);
    assert_eq!((client.other(), server.other()), (None, None));
    assert_eq!(talk(&mut client, &mut server, |_, _| ()), (Ok(()), Ok(())));
    assert_eq!((client.other(), server.other()), (Some(&name("b")), Some(&name("a"))));
    assert_eq!((client.wants(), server.wants()), (0, 0));
}

#[test]
fn handshakes_of_different_builds_agree() {
    let (a, b) = (identity(KEY, "hive", "a"), identity(KEY, "hive", "b"));
    let (said, hex) = (std::cell::RefCell::new(Vec::new()), |bytes: &[u8]| {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    });
    talk(&mut client(&a), &mut server(&b), |_, bytes| said.borrow_mut().push(bytes.clone()))
        .0
        .unwrap();
    let said = said.into_inner();
    assert_eq!((said[0].len(), said[1].len(), said[2].len()), (107, 131, 32));
    assert_eq!(hex(&said[0][..12]), "02012aa742e2378564d20101");
    assert_eq!(hex(&said[1][99..107]), "f384248627a4534b");
    assert_eq!(hex(&said[2][..8]), "76e237b5569d4f5c");
}

#[test]
fn each_difference_is_refused_with_its_reason() {
    use HelloError::{Here, There};
    let a = identity(KEY, "hive", "a");
    let mut to_nobody = Handshake::client(&a, Purpose::Link, Some(name("c")), [1; 32]);
    let fetch = Handshake::client(&a, Purpose::Fetch, None, [1; 32]);
    let foreign = client(&identity(KEY, "swarm", "a"));
    for (mut client, reason) in [(fetch, Reason::Purpose), (foreign, Reason::Cluster)] {
        let ends = talk(&mut client, &mut server(&identity(KEY, "hive", "b")), |_, _| ());
        assert_eq!(ends, (Err(There(reason)), Err(Here(reason))));
        assert_eq!(client.other(), None);
    }
    let mut server_b = server(&identity(KEY, "hive", "b"));
    let ends = talk(&mut to_nobody, &mut server_b, |_, _| ());
    assert_eq!(ends, (Err(Here(Reason::Name)), Ok(())));
    assert_eq!(server_b.other(), None, "which the client has not let it know");
    // A client with another key is the first to see that the server's key differs.
    let mut stranger = client(&identity(OTHER_KEY, "hive", "a"));
    let ends = talk(&mut stranger, &mut server(&identity(KEY, "hive", "b")), |_, _| ());
    assert_eq!(ends, (Err(Here(Reason::Proof)), Ok(())));
    let ends = talk(&mut client(&a), &mut server(&identity(KEY, "hive", "b")), |turn, said| {
        if turn == 0 {
            said[0] = 1;
        }
    });
    assert_eq!(ends, (Err(There(Reason::Version)), Err(Here(Reason::Version))));
}

#[test]
fn a_proof_is_of_no_use_elsewhere() {
    let b = identity(KEY, "hive", "b");
    let proof_for = |nonce_of_client: [u8; 32]| {
        // The server as an oracle: it proves its identity to any client.
        let mut oracle = Handshake::server(&b, Purpose::Link, [2; 32]);
        let hello = Handshake::client(&b, Purpose::Link, None, nonce_of_client).output();
        oracle.take(&hello[..1]).unwrap();
        oracle.take(&hello[1..]).unwrap();
        let said = oracle.output();
        said[said.len() - 32..].to_vec()
    };
    // The attacker sends what `b` itself would send, with the same nonces: only the side differs.
    let mut victim = Handshake::server(&b, Purpose::Link, [2; 32]);
    let hello = Handshake::client(&b, Purpose::Link, None, [1; 32]).output();
    victim.take(&hello[..1]).unwrap();
    victim.take(&hello[1..]).unwrap();
    let reflected = victim.take(&proof_for([1; 32]));
    assert_eq!(reflected, Err(HelloError::Here(Reason::Proof)));
    assert!(victim.output().ends_with(&Handshake::refusal(Reason::Proof)));
    // Recorded from an earlier stream: the nonce differs.
    let recorded = std::cell::RefCell::new(Vec::new());
    let a = identity(KEY, "hive", "a");
    let ends = talk(&mut client(&a), &mut server(&b), |turn, said| {
        if turn == 2 {
            *recorded.borrow_mut() = said.clone();
        }
    });
    assert_eq!(ends, (Ok(()), Ok(())));
    assert_eq!(recorded.borrow().len(), 32);
    let mut later = Handshake::server(&b, Purpose::Link, [3; 32]);
    let ends = talk(&mut client(&a), &mut later, |turn, said| {
        if turn == 2 {
            said.clone_from(&recorded.borrow());
        }
    });
    assert_eq!(ends.1, Err(HelloError::Here(Reason::Proof)));
}

proptest! {
    #[test]
    fn no_changed_byte_goes_through(message in 0_usize..3, place: usize, flip in 1_u8..) {
        let (a, b) = (identity(KEY, "hive", "a"), identity(KEY, "hive", "b"));
        let (mut client, mut server) = (client(&a), server(&b));
        let ends = talk(&mut client, &mut server, |turn, said| {
            if turn == message && !said.is_empty() {
                let bytes = said.len();
                said[place % bytes] ^= flip;
            }
        });
        let both = ends.0.is_ok() && ends.1.is_ok();
        let both_named = client.other() == Some(&name("b")) && server.other() == Some(&name("a"));
        prop_assert!(!(both && both_named), "{ends:?}");
    }

    #[test]
    fn garbage_is_no_handshake(garbage in prop::collection::vec(any::<u8>(), 0..400), lucky: bool) {
        let b = identity(KEY, "hive", "b");
        let begin = if lucky { client(&b).output() } else { Vec::new() };
        for mut side in [client(&b), server(&b)] {
            let mut bytes = [begin.clone(), garbage.clone()].concat();
            let mut end = Ok(());
            feed(&mut side, &mut bytes, &mut end);
            prop_assert!(side.other().is_none());
        }
    }

    #[test]
    fn frames_come_back_however_the_stream_is_cut(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        cuts in prop::collection::vec(1_usize..200, 1..50),
    ) {
        let mut stream = Vec::new();
        payloads.iter().for_each(|payload| write_frame(&mut stream, payload));
        let (mut frames, mut found) = (FrameDecoder::new(300), Vec::new());
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            frames.push(piece);
            while let Some(payload) = frames.next_payload().unwrap() {
                found.push(payload.to_vec());
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(frames.is_empty());
        prop_assert_eq!(found, payloads);
    }

    #[test]
    fn a_changed_frame_is_never_taken_for_what_was_sent(
        payload in prop::collection::vec(any::<u8>(), 1..200),
        place: usize,
        bit in 0..8_u32,
    ) {
        let mut stream = Vec::new();
        write_frame(&mut stream, &payload);
        let place = place % stream.len();
        stream[place] ^= 1_u8 << bit;
        let mut frames = FrameDecoder::new(250);
        frames.push(&stream);
        // A length that increased waits for more bytes; all other changes are detected now.
        match frames.next_payload() {
            Ok(None) => prop_assert!(place < 4),
            Ok(Some(taken)) => prop_assert!(false, "taken: {taken:?}"),
            Err(_) => {}
        }
    }

    #[test]
    fn garbage_is_never_kept_beyond_a_frame(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..40),
    ) {
        let mut frames = FrameDecoder::new(100);
        for piece in &pieces {
            frames.push(piece);
            loop {
                match frames.next_payload() {
                    Ok(Some(payload)) => prop_assert!(payload.len() <= 100),
                    Ok(None) => break,
                    Err(_) => return Ok(()),
                }
            }
        }
        prop_assert!(frames.into_rest().len() < 100 + FRAME_HEAD_BYTES);
    }

    #[test]
    fn chunks_cover_a_segment_and_end_on_the_grid(bytes in 1_u32..=4 << 20, from: u32) {
        let (mut at, mut chunks) = (from % bytes, 0);
        while at < bytes {
            let end = chunk_end(at, bytes);
            prop_assert!(end > at && end - at <= PEER_CHUNK_BYTES);
            prop_assert!(end == bytes || end.is_multiple_of(PEER_CHUNK_BYTES));
            (at, chunks) = (end, chunks + 1);
        }
        prop_assert!(chunks <= 64 + 1);
    }
}

#[test]
fn frames_are_what_the_page_says() {
    // RFC 3720, B.4: 32 bytes of ones.
    assert_eq!(checksum(&[0xff; 32]), 0x62a8_ab43);
    let mut stream = Vec::new();
    write_frame(&mut stream, &[0xff; 32]);
    assert_eq!(stream[..8], [32, 0, 0, 0, 0x43, 0xab, 0xa8, 0x62]);
    assert_eq!(FrameHead::of(b"").to_bytes(), PING);
    let mut frames = FrameDecoder::new(31);
    frames.push(&stream[..8]);
    let too_long = Err(FrameError::TooLong { bytes: 32, bytes_max: 31 });
    assert_eq!(frames.next_payload(), too_long);
    assert_eq!(frames.next_payload(), too_long, "and stays so");
}
