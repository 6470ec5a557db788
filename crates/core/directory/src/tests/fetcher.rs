//! How a segment is got, way by way, and that every way ends.

use proptest::prelude::*;
use skep_units::Now;
use skep_wire::cache::{LeaseId, Refusal};

use crate::limits::{ASKS_MAX, GIVE_UP_MS, LATER_MS, LATERS_MAX, OVERLOADED_WAIT_MS};
use crate::{Action, End, Event, Fetcher, Reply};

const BYTES: u32 = 1_000;
const LEASE: LeaseId = LeaseId(9);
const ASK: Action<u8> = Action::Ask;

fn begun() -> Fetcher<u8> {
    let mut fetcher = Fetcher::new(BYTES, Now(0));
    assert_eq!(fetcher.next(Event::Begin, Now(0)), ASK);
    fetcher
}

/// What is said after each event.
fn check(mut fetcher: Fetcher<u8>, steps: Vec<(Event<u8>, Action<u8>)>) {
    for (event, action) in steps {
        assert_eq!(fetcher.next(event.clone(), Now(1)), action, "after {event:?}");
    }
}

fn have(holders: &[u8]) -> Event<u8> {
    Event::Answer(Reply::Have { holders: holders.to_vec() })
}

fn fetched(filled: u32, end: End) -> Event<u8> {
    Event::Fetched { filled, end }
}

fn from(peer: u8, from: u32) -> Action<u8> {
    Action::FetchFrom { peer, from, with_origin: false }
}

fn origin(from: u32) -> Action<u8> {
    Action::FillFromOrigin { from, lease: None }
}

const NOT_THERE: End = End::Refused(Refusal::NotThere);
const OVERLOADED: End = End::Refused(Refusal::Overloaded);

#[test]
fn holders_are_tried_in_turn() {
    check(
        begun(),
        vec![
            (have(&[1, 2]), from(1, 0)),
            (fetched(300, End::Lost), from(2, 300)),
            (fetched(BYTES, End::Whole), Action::Done),
        ],
    );
    // Nobody serves, and the directory is right: the origin must do.
    check(
        begun(),
        vec![
            (have(&[1, 2]), from(1, 0)),
            (fetched(0, OVERLOADED), from(2, 0)),
            (fetched(0, End::Lost), origin(0)),
            (Event::Filled { filled: BYTES }, Action::Done),
        ],
    );
    // The directory is wrong, and learns it.
    check(
        begun(),
        vec![
            (have(&[1]), from(1, 0)),
            (fetched(0, NOT_THERE), Action::TellNotThere { peer: 1 }),
            (Event::Told, ASK),
            (
                Event::Answer(Reply::Grant { lease: LEASE }),
                Action::FillFromOrigin { from: 0, lease: Some(LEASE) },
            ),
            (Event::Filled { filled: BYTES }, Action::TellEnded { lease: LEASE, is_whole: true }),
            (Event::Told, Action::Done),
        ],
    );
}

#[test]
fn whoever_waits_for_a_leader_goes_on_where_it_broke() {
    check(
        begun(),
        vec![
            (Event::Answer(Reply::Busy { leader: 1 }), from(1, 0)),
            (fetched(400, End::Lost), Action::TellNotThere { peer: 1 }),
            (Event::Told, ASK),
            (
                Event::Answer(Reply::Grant { lease: LEASE }),
                Action::FillFromOrigin { from: 400, lease: Some(LEASE) },
            ),
            (Event::Filled { filled: 500 }, Action::TellEnded { lease: LEASE, is_whole: false }),
            (Event::Told, Action::Failed),
        ],
    );
    let mut steps = vec![];
    for ask in 0..ASKS_MAX {
        steps.push((Event::Answer(Reply::Busy { leader: 1 }), from(1, 0)));
        let ms = OVERLOADED_WAIT_MS << ask;
        steps.push((fetched(0, OVERLOADED), Action::Wait { ms }));
        steps.push((Event::Waited, if ask + 1 < ASKS_MAX { ASK } else { origin(0) }));
    }
    check(begun(), steps);
}

#[test]
fn whoever_is_told_to_ask_later_does_so_for_a_bounded_time() {
    let mut steps = vec![];
    for _ in 0..LATERS_MAX {
        steps.push((Event::Answer(Reply::Later), Action::Wait { ms: LATER_MS }));
        steps.push((Event::Waited, ASK));
    }
    let known = [steps.clone(), vec![(have(&[1]), from(1, 0))]].concat();
    check(begun(), known);
    check(begun(), [steps, vec![(Event::Answer(Reply::Later), origin(0))]].concat());
}

#[test]
fn who_has_no_connection_to_spare_blames_nobody() {
    let named = [
        have(&[1, 2]),
        Event::Answer(Reply::Busy { leader: 1 }),
        Event::NoAnswer { owner: Some(1) },
    ];
    for named in named {
        let mut fetcher = begun();
        for _ in 0..LATERS_MAX {
            assert!(matches!(fetcher.next(named.clone(), Now(0)), Action::FetchFrom { .. }));
            assert_eq!(
                fetcher.next(fetched(0, End::Crowded), Now(0)),
                Action::Wait { ms: LATER_MS }
            );
            assert_eq!(fetcher.next(Event::Waited, Now(0)), ASK);
        }
        assert!(matches!(fetcher.next(named.clone(), Now(0)), Action::FetchFrom { .. }));
        assert_eq!(fetcher.next(fetched(0, End::Crowded), Now(0)), origin(0));
    }
}

#[test]
fn in_silence_the_owner_does_it_or_we_do() {
    let owner = Action::FetchFrom { peer: 3, from: 0, with_origin: true };
    check(
        begun(),
        vec![
            (Event::NoAnswer { owner: Some(3) }, owner),
            (fetched(100, OVERLOADED), origin(100)),
            (Event::Filled { filled: 200 }, Action::Failed),
        ],
    );
    check(begun(), vec![(Event::NoAnswer { owner: None }, origin(0))]);
    // Who is taken for the owner sends nobody on.
    let mut owner = Fetcher::for_peer(BYTES, Now(0));
    owner.next(Event::Begin, Now(0));
    check(owner, vec![(Event::NoAnswer { owner: Some(3) }, origin(0))]);
}

#[test]
fn circles_of_waiting_are_not_begun() {
    let mut fetcher = begun();
    assert!(ASK.fill_source().unwrap().may_serve(&1));
    let source = fetcher.next(have(&[1, 2]), Now(0)).fill_source().unwrap();
    assert!(!source.may_serve(&1) && source.may_serve(&2));
    let mut fetcher = begun();
    let source = fetcher.next(Event::NoAnswer { owner: Some(1) }, Now(0)).fill_source().unwrap();
    assert!(!source.may_serve(&1) && !source.may_serve(&2));
    let source = fetcher.next(fetched(0, End::Lost), Now(0)).fill_source().unwrap();
    assert!(source.may_serve(&1) && source.may_serve(&2));
}

#[test]
fn after_its_time_nothing_new_begins() {
    let mut fetcher = begun();
    fetcher.next(Event::Answer(Reply::Busy { leader: 1 }), Now(0));
    fetcher.next(fetched(1, End::Lost), Now(GIVE_UP_MS));
    assert_eq!(fetcher.next(Event::Told, Now(GIVE_UP_MS)), Action::Failed);
}

/// An event that may follow an action, by chance.
fn result(action: Action<u8>, chance: u64, filled: &mut u32) -> Option<Event<u8>> {
    let more = (*filled + (chance >> 8) as u32 % 300).min(BYTES);
    Some(match action {
        Action::Ask => match chance % 7 {
            0 => Event::NoAnswer { owner: None },
            1 => Event::NoAnswer { owner: Some(4) },
            2 => Event::Answer(Reply::Busy { leader: 1 }),
            3 => Event::Answer(Reply::Grant { lease: LEASE }),
            4 => Event::Answer(Reply::Later),
            _ => have(&[2, 3][..(chance as usize >> 4) % 3]),
        },
        Action::FetchFrom { from, .. } => {
            assert_eq!(from, *filled);
            *filled = more;
            let mismatch = End::Refused(Refusal::Mismatch);
            let ends = [NOT_THERE, OVERLOADED, End::Lost, mismatch, End::Crowded];
            let end = if more == BYTES { End::Whole } else { ends[chance as usize % 5] };
            fetched(more, end)
        }
        Action::FillFromOrigin { from, .. } => {
            assert_eq!(from, *filled);
            *filled = if chance.is_multiple_of(3) { more } else { BYTES };
            Event::Filled { filled: *filled }
        }
        Action::TellNotThere { .. } | Action::TellEnded { .. } => Event::Told,
        Action::Wait { .. } => Event::Waited,
        Action::Done | Action::Failed => return None,
    })
}

proptest! {
    #[test]
    fn every_fetch_ends_and_tells_of_its_lease(chances in prop::collection::vec(any::<u64>(), 60)) {
        let mut fetcher = Fetcher::new(BYTES, Now(0));
        let (mut event, mut filled, mut lease) = (Event::Begin, 0, None);
        let mut chances = chances.into_iter();
        loop {
            let action = fetcher.next(event, Now(0));
            match action {
                Action::FillFromOrigin { lease: granted, .. } => {
                    lease = granted;
                }
                Action::TellEnded { lease: ended, is_whole } => {
                    assert_eq!((lease.take(), is_whole), (Some(ended), filled == BYTES));
                }
                Action::Done | Action::Failed => {
                    assert_eq!((lease, action == Action::Done), (None, filled == BYTES));
                }
                _ => {}
            }
            let chance = chances.next().expect("it ends in fewer steps");
            let Some(next) = result(action, chance, &mut filled) else { break };
            event = next;
        }
    }
}
