//! Sealed datagrams: the handshake, and all datagrams that must be rejected.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use skep_units::{Now, Rng};

use super::datagram::{HEADER_BYTES, TAG_BYTES, VERSION};
use super::*;
use crate::limits::{DATAGRAM_BYTES_MAX, HELLO_ANSWER_INTERVAL_MS, KEY_CHARACTERS_MIN, PEERS_MAX};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn key() -> Key {
    Key::from_text(SECRET).unwrap()
}

fn endpoint(name: &str, incarnation: u64) -> Endpoint {
    Endpoint::new(&key(), "hive", name, incarnation)
}

fn is_live(opened: Result<OpenedDatagram<'_>, OpenError>) -> bool {
    matches!(opened, Ok(OpenedDatagram::Live { .. }))
}

fn is_hello(opened: Result<OpenedDatagram<'_>, OpenError>) -> bool {
    matches!(opened, Ok(OpenedDatagram::Hello { .. }))
}

/// Exchanges datagrams until both endpoints know each other.
fn meet(a: &mut Endpoint, b: &mut Endpoint, now: Now) {
    let hello = a.seal(b.own(), b"").unwrap();
    assert!(is_hello(b.open(now, &hello)));
    let answer = b.take_answer().unwrap();
    assert_eq!(answer.to, a.own());
    assert!(is_live(a.open(now, &answer.datagram)), "the answer echoes right");
    assert_eq!(a.take_answer(), None, "nobody answers an answer");
    let first = a.seal(b.own(), b"x").unwrap();
    assert!(is_live(b.open(now, &first)));
}

#[test]
fn two_machines_meet_with_one_answer_and_then_talk() {
    let (mut a, mut b) = (endpoint("a", 1_000), endpoint("b", 2_000));
    meet(&mut a, &mut b, Now(0));
    for (sequence, body) in [(3, &b"hello"[..]), (4, b""), (5, &[7; BODY_BYTES_MAX])] {
        let datagram = a.seal(b.own(), body).unwrap();
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
        let stamp = Stamp { incarnation: 1_000, sequence };
        let live = OpenedDatagram::Live { from: a.own(), stamp, body };
        assert_eq!(b.open(Now(1), &datagram), Ok(live));
        assert_eq!(b.open(Now(1), &datagram), Err(OpenError::Replayed));
    }
    let bytes = BODY_BYTES_MAX + 1;
    assert_eq!(a.seal(b.own(), &vec![0; bytes]), Err(BodyTooLong { bytes }));
}

#[test]
fn the_format_is_pinned_because_machines_must_agree() {
    let mut a = endpoint("a", 0x0102_0304_0506);
    let datagram = a.seal(PeerId(9), b"body").unwrap();
    assert_eq!(datagram.len(), HEADER_BYTES + 4 + TAG_BYTES);
    assert_eq!(datagram[0], VERSION);
    assert_eq!(datagram[17..25], 9_u64.to_le_bytes());
    assert_eq!(datagram[25..33], [6, 5, 4, 3, 2, 1, 0, 0]);
    assert_eq!(datagram[33..49], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&datagram[49..53], b"body");
    assert_eq!(skep_units::stable_hash(&datagram, 0), 5_786_678_104_143_847_281, "its tag");
}

#[test]
fn what_was_recorded_never_counts_again() {
    let (mut a, mut b) = (endpoint("a", 1_000), endpoint("b", 2_000));
    meet(&mut a, &mut b, Now(0));
    let recorded: Vec<Vec<u8>> = (0..100).map(|_| a.seal(b.own(), b"heartbeat").unwrap()).collect();
    for datagram in &recorded {
        assert!(is_live(b.open(Now(1), datagram)));
    }
    let replay_all = |receiver: &mut Endpoint| {
        for datagram in &recorded {
            assert!(!is_live(receiver.open(Now(2), datagram)));
        }
    };
    replay_all(&mut b);
    // The receiver restarts, and receives the recording before anything else.
    let mut b = endpoint("b", 2_001);
    replay_all(&mut b);
    // The recording did not lock out its true sender.
    let heartbeat = a.seal(b.own(), b"heartbeat").unwrap();
    assert!(is_hello(b.open(Now(50), &heartbeat)));
    let answer = b.take_answer().unwrap();
    // It is a hello for the sender, too: the sender knew the receiver's former incarnation.
    assert!(is_live(a.open(Now(50), &answer.datagram)));
    assert!(is_live(b.open(Now(51), &a.seal(b.own(), b"heartbeat").unwrap())));
    // The sender restarts: its earlier datagrams are stale.
    let mut a = endpoint("a", 1_001);
    meet(&mut a, &mut b, Now(100));
    let errors = recorded.iter().map(|datagram| b.open(Now(200), datagram));
    assert!(errors.into_iter().all(|opened| opened == Err(OpenError::StaleIncarnation)));
}

#[test]
fn a_machine_whose_clock_went_back_finds_its_way() {
    let (mut a, mut b) = (endpoint("a", 5_000), endpoint("b", 2_000));
    meet(&mut a, &mut b, Now(0));
    let mut a = endpoint("a", 70);
    let heartbeat = a.seal(b.own(), b"heartbeat").unwrap();
    assert_eq!(b.open(Now(100), &heartbeat), Err(OpenError::StaleIncarnation));
    let answer = b.take_answer().unwrap();
    assert!(is_hello(a.open(Now(100), &answer.datagram)));
    assert_eq!(a.incarnation(), 5_001);
    let heartbeat = a.seal(b.own(), b"heartbeat").unwrap();
    assert!(is_live(b.open(Now(150), &heartbeat)), "and b was known from the answer");
}

#[test]
fn hellos_are_answered_at_most_once_in_a_while() {
    let (mut a, mut b) = (endpoint("a", 1_000), endpoint("b", 2_000));
    let mut answers = 0;
    for ms in 0..1_000 {
        let hello = a.seal(b.own(), b"").unwrap();
        assert!(is_hello(b.open(Now(ms), &hello)));
        answers += usize::from(b.take_answer().is_some());
    }
    assert_eq!(answers as u64, 1_000 / HELLO_ANSWER_INTERVAL_MS);
}

#[test]
fn refusals_by_reason() {
    let mut b = endpoint("b", 2_000);
    let good = endpoint("a", 1_000).seal(b.own(), b"body").unwrap();
    let other_key = Key::from_text(&"x".repeat(KEY_CHARACTERS_MIN)).unwrap();
    let sealed = |mut sender: Endpoint, to: &str| sender.seal(PeerId::of(to), b"body").unwrap();
    let changed = |at: usize, byte: u8| {
        let mut datagram = good.clone();
        datagram[at] = byte;
        datagram
    };
    for (what, datagram, reason) in [
        ("nothing", vec![], OpenError::TooShort),
        ("a version and no more", vec![VERSION], OpenError::TooShort),
        ("all but a byte", good[..HEADER_BYTES + TAG_BYTES - 1].to_vec(), OpenError::TooShort),
        ("too much", vec![VERSION; DATAGRAM_BYTES_MAX + 1], OpenError::TooLong),
        ("another version", changed(0, VERSION + 1), OpenError::Version),
        (
            "another cluster",
            sealed(Endpoint::new(&key(), "other", "a", 1_000), "b"),
            OpenError::ForeignCluster,
        ),
        ("for another", sealed(endpoint("a", 1_000), "c"), OpenError::Misaddressed),
        ("from ourselves", sealed(endpoint("b", 1_000), "b"), OpenError::Misaddressed),
        (
            "another key",
            sealed(Endpoint::new(&other_key, "hive", "a", 1_000), "b"),
            OpenError::BadTag,
        ),
        ("another body", changed(HEADER_BYTES, b'x'), OpenError::BadTag),
        ("another sequence", changed(33, 200), OpenError::BadTag),
        ("another echo", changed(41, 200), OpenError::BadTag),
        ("cut short", good[..good.len() - 1].to_vec(), OpenError::BadTag),
    ] {
        assert_eq!(b.open(Now(0), &datagram), Err(reason), "{what}");
        assert_eq!(b.take_answer(), None, "{what}");
        assert!(!reason.name().is_empty() && !reason.to_string().is_empty());
    }
    assert!(is_hello(b.open(Now(0), &good)), "and the good one is good");
    assert!(OpenError::ALL.iter().enumerate().all(|(at, reason)| *reason as usize == at));
}

#[test]
fn channels_do_not_accept_each_other() {
    let of = |channel, name: &str, at| Endpoint::of(channel, &key(), "hive", name, at);
    let (mut a, mut b) = (of(Channel::Handoff, "a", 1_000), of(Channel::Handoff, "b", 2_000));
    meet(&mut a, &mut b, Now(0));
    let mut heartbeats = of(Channel::Heartbeats, "b", 2_000);
    let datagram = a.seal(b.own(), b"go").unwrap();
    assert_eq!(heartbeats.open(Now(1), &datagram), Err(OpenError::BadTag));
    assert!(is_live(b.open(Now(1), &datagram)));
}

#[test]
fn moves_may_overtake_each_other_by_thousands() {
    let of = |name: &str, at| Endpoint::of(Channel::Handoff, &key(), "hive", name, at);
    let (mut a, mut b) = (of("a", 1_000), of("b", 2_000));
    meet(&mut a, &mut b, Now(0));
    let mut sealed: Vec<_> = (0..4_000).map(|_| a.seal(b.own(), b"x").unwrap()).collect();
    sealed.reverse();
    assert!(sealed.iter().all(|datagram| is_live(b.open(Now(1), datagram))));
    assert!(sealed.iter().all(|datagram| b.open(Now(2), datagram) == Err(OpenError::Replayed)));
}

#[test]
fn machines_are_bounded() {
    let mut b = endpoint("b", 2_000);
    for number in 0..PEERS_MAX {
        let hello = endpoint(&format!("a{number}"), 1).seal(b.own(), b"").unwrap();
        assert!(is_hello(b.open(Now(0), &hello)));
    }
    let hello = endpoint("one-more", 1).seal(b.own(), b"").unwrap();
    assert_eq!(b.open(Now(0), &hello), Err(OpenError::TooManyPeers));
}

#[test]
fn keys_want_length_and_hide_themselves() {
    let characters = KEY_CHARACTERS_MIN - 1;
    let error = Key::from_text(&format!("  {}\n", "x".repeat(characters))).unwrap_err();
    assert_eq!(error, KeyError { characters });
    assert!(error.to_string().contains("openssl rand -hex 32"), "{error}");
    assert!(Key::from_text(&"é".repeat(KEY_CHARACTERS_MIN)).is_ok(), "characters, not bytes");
    assert_eq!(format!("{:?}", key()), "Key(..)");
    let mut trimmed = Endpoint::new(&key(), "hive", "a", 1);
    let padded = Key::from_text(&format!("\t{SECRET}\r\n")).unwrap();
    let mut padded = Endpoint::new(&padded, "hive", "a", 1);
    assert_eq!(trimmed.seal(PeerId(1), b"x"), padded.seal(PeerId(1), b"x"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn bytes_of_anybody_never_count_and_never_panic(
        datagram in proptest::collection::vec(any::<u8>(), 0..1_500),
        is_versioned: bool,
    ) {
        let (mut a, mut b) = (endpoint("a", 1_000), endpoint("b", 2_000));
        meet(&mut a, &mut b, Now(0));
        let mut datagram = datagram;
        if let (true, Some(first)) = (is_versioned, datagram.first_mut()) {
            *first = VERSION;
        }
        prop_assert!(b.open(Now(1), &datagram).is_err());
        prop_assert_eq!(b.take_answer(), None);
    }

    #[test]
    fn a_changed_datagram_never_counts(seed: u64, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut a, mut b) = (endpoint("a", 1_000), endpoint("b", 2_000));
        meet(&mut a, &mut b, Now(0));
        let good = a.seal(b.own(), &body).unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..20 {
            let mut bad = good.clone();
            for _ in 0..=rng.below(4) {
                let at = rng.below(bad.len() as u64 + 1) as usize;
                match rng.below(4) {
                    0 if at < bad.len() => bad[at] ^= 1 << rng.below(8),
                    1 => bad.truncate(at),
                    2 => bad.insert(at, rng.next_u64() as u8),
                    _ => bad.rotate_left(at),
                }
            }
            prop_assert!(bad == good || b.open(Now(1), &bad).is_err());
        }
        prop_assert!(is_live(b.open(Now(1), &good)), "and none of it spoiled the good one");
    }

    #[test]
    fn each_datagram_counts_once_in_any_order(seed: u64) {
        let (mut a, mut b) = (endpoint("a", 1_000), endpoint("b", 2_000));
        meet(&mut a, &mut b, Now(0));
        let mut rng = Rng::new(seed);
        let sealed: Vec<Vec<u8>> = (0..60).map(|_| a.seal(b.own(), b"x").unwrap()).collect();
        let mut counted = vec![0; sealed.len()];
        for _ in 0..400 {
            let at = rng.below(sealed.len() as u64) as usize;
            counted[at] += u64::from(is_live(b.open(Now(1), &sealed[at])));
        }
        prop_assert!(counted.iter().all(|times| *times <= 1), "{:?}", counted);
    }
}
