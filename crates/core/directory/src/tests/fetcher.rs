//! Fetches of a segment, path by path; every fetch ends.

use proptest::prelude::*;
use skep_units::Now;
use skep_wire::cache::{LeaseId, PeerRefusal};

use crate::limits::{ASKS_MAX, GIVE_UP_MS, LATER_MS, LATERS_MAX, OVERLOADED_WAIT_MS};
use crate::{FetchAction, FetchEvent, FetchOutcome, Fetcher, ResolvedAnswer};

const BYTES: u32 = 1_000;
const LEASE: LeaseId = LeaseId(9);
const ASK: FetchAction<u8> = FetchAction::Ask;

fn begun() -> Fetcher<u8> {
    let mut fetcher = Fetcher::new(BYTES, Now(0));
    assert_eq!(fetcher.next(FetchEvent::Begin, Now(0)), ASK);
    fetcher
}

/// Checks the action after each event.
fn check(mut fetcher: Fetcher<u8>, steps: Vec<(FetchEvent<u8>, FetchAction<u8>)>) {
    for (event, action) in steps {
        assert_eq!(fetcher.next(event.clone(), Now(1)), action, "after {event:?}");
    }
}

fn have(holders: &[u8]) -> FetchEvent<u8> {
    FetchEvent::Answer(ResolvedAnswer::Have { holders: holders.to_vec() })
}

fn fetched(filled: u32, end: FetchOutcome) -> FetchEvent<u8> {
    FetchEvent::Fetched { filled, end }
}

fn from(peer: u8, from: u32) -> FetchAction<u8> {
    FetchAction::FetchFrom { peer, from, with_origin: false }
}

fn origin(from: u32) -> FetchAction<u8> {
    FetchAction::FillFromOrigin { from, lease: None }
}

const NOT_THERE: FetchOutcome = FetchOutcome::Refused(PeerRefusal::NotThere);
const OVERLOADED: FetchOutcome = FetchOutcome::Refused(PeerRefusal::Overloaded);

#[test]
fn holders_are_tried_in_turn() {
    check(
        begun(),
        vec![
            (have(&[1, 2]), from(1, 0)),
            (fetched(300, FetchOutcome::Lost), from(2, 300)),
            (fetched(BYTES, FetchOutcome::Whole), FetchAction::Done),
        ],
    );
    // No node serves it, and the directory is right: the origin is read.
    check(
        begun(),
        vec![
            (have(&[1, 2]), from(1, 0)),
            (fetched(0, OVERLOADED), from(2, 0)),
            (fetched(0, FetchOutcome::Lost), origin(0)),
            (FetchEvent::Filled { filled: BYTES }, FetchAction::Done),
        ],
    );
    // The directory is wrong, and is corrected.
    check(
        begun(),
        vec![
            (have(&[1]), from(1, 0)),
            (fetched(0, NOT_THERE), FetchAction::TellNotThere { peer: 1 }),
            (FetchEvent::Told, ASK),
            (
                FetchEvent::Answer(ResolvedAnswer::Grant { lease: LEASE }),
                FetchAction::FillFromOrigin { from: 0, lease: Some(LEASE) },
            ),
            (
                FetchEvent::Filled { filled: BYTES },
                FetchAction::TellEnded { lease: LEASE, is_whole: true },
            ),
            (FetchEvent::Told, FetchAction::Done),
        ],
    );
}

#[test]
fn whoever_waits_for_a_leader_goes_on_where_it_broke() {
    check(
        begun(),
        vec![
            (FetchEvent::Answer(ResolvedAnswer::Busy { leader: 1 }), from(1, 0)),
            (fetched(400, FetchOutcome::Lost), FetchAction::TellNotThere { peer: 1 }),
            (FetchEvent::Told, ASK),
            (
                FetchEvent::Answer(ResolvedAnswer::Grant { lease: LEASE }),
                FetchAction::FillFromOrigin { from: 400, lease: Some(LEASE) },
            ),
            (
                FetchEvent::Filled { filled: 500 },
                FetchAction::TellEnded { lease: LEASE, is_whole: false },
            ),
            (FetchEvent::Told, FetchAction::Failed),
        ],
    );
    let mut steps = vec![];
    for ask in 0..ASKS_MAX {
        steps.push((FetchEvent::Answer(ResolvedAnswer::Busy { leader: 1 }), from(1, 0)));
        let ms = OVERLOADED_WAIT_MS << ask;
        steps.push((fetched(0, OVERLOADED), FetchAction::Wait { ms }));
        steps.push((FetchEvent::Waited, if ask + 1 < ASKS_MAX { ASK } else { origin(0) }));
    }
    check(begun(), steps);
}

#[test]
fn whoever_is_told_to_ask_later_does_so_for_a_bounded_time() {
    let mut steps = vec![];
    for _ in 0..LATERS_MAX {
        steps.push((FetchEvent::Answer(ResolvedAnswer::Later), FetchAction::Wait { ms: LATER_MS }));
        steps.push((FetchEvent::Waited, ASK));
    }
    let known = [steps.clone(), vec![(have(&[1]), from(1, 0))]].concat();
    check(begun(), known);
    check(begun(), [steps, vec![(FetchEvent::Answer(ResolvedAnswer::Later), origin(0))]].concat());
}

#[test]
fn who_has_no_connection_to_spare_blames_nobody() {
    let named = [
        have(&[1, 2]),
        FetchEvent::Answer(ResolvedAnswer::Busy { leader: 1 }),
        FetchEvent::NoAnswer { owner: Some(1) },
    ];
    for named in named {
        let mut fetcher = begun();
        for _ in 0..LATERS_MAX {
            assert!(matches!(fetcher.next(named.clone(), Now(0)), FetchAction::FetchFrom { .. }));
            assert_eq!(
                fetcher.next(fetched(0, FetchOutcome::Crowded), Now(0)),
                FetchAction::Wait { ms: LATER_MS }
            );
            assert_eq!(fetcher.next(FetchEvent::Waited, Now(0)), ASK);
        }
        assert!(matches!(fetcher.next(named.clone(), Now(0)), FetchAction::FetchFrom { .. }));
        assert_eq!(fetcher.next(fetched(0, FetchOutcome::Crowded), Now(0)), origin(0));
    }
}

#[test]
fn in_silence_the_owner_does_it_or_we_do() {
    let owner = FetchAction::FetchFrom { peer: 3, from: 0, with_origin: true };
    check(
        begun(),
        vec![
            (FetchEvent::NoAnswer { owner: Some(3) }, owner),
            (fetched(100, OVERLOADED), origin(100)),
            (FetchEvent::Filled { filled: 200 }, FetchAction::Failed),
        ],
    );
    check(begun(), vec![(FetchEvent::NoAnswer { owner: None }, origin(0))]);
    // A node that is assumed to be the owner forwards the request to no other.
    let mut owner = Fetcher::for_peer(BYTES, Now(0));
    owner.next(FetchEvent::Begin, Now(0));
    check(owner, vec![(FetchEvent::NoAnswer { owner: Some(3) }, origin(0))]);
}

#[test]
fn circles_of_waiting_are_not_begun() {
    let mut fetcher = begun();
    assert!(ASK.fill_source().unwrap().may_serve(&1));
    let source = fetcher.next(have(&[1, 2]), Now(0)).fill_source().unwrap();
    assert!(!source.may_serve(&1) && source.may_serve(&2));
    let mut fetcher = begun();
    let source =
        fetcher.next(FetchEvent::NoAnswer { owner: Some(1) }, Now(0)).fill_source().unwrap();
    assert!(!source.may_serve(&1) && !source.may_serve(&2));
    let source = fetcher.next(fetched(0, FetchOutcome::Lost), Now(0)).fill_source().unwrap();
    assert!(source.may_serve(&1) && source.may_serve(&2));
}

#[test]
fn after_its_time_nothing_new_begins() {
    let mut fetcher = begun();
    fetcher.next(FetchEvent::Answer(ResolvedAnswer::Busy { leader: 1 }), Now(0));
    fetcher.next(fetched(1, FetchOutcome::Lost), Now(GIVE_UP_MS));
    assert_eq!(fetcher.next(FetchEvent::Told, Now(GIVE_UP_MS)), FetchAction::Failed);
}

/// A random event that may follow an action.
fn result(action: FetchAction<u8>, chance: u64, filled: &mut u32) -> Option<FetchEvent<u8>> {
    let more = (*filled + (chance >> 8) as u32 % 300).min(BYTES);
    Some(match action {
        FetchAction::Ask => match chance % 7 {
            0 => FetchEvent::NoAnswer { owner: None },
            1 => FetchEvent::NoAnswer { owner: Some(4) },
            2 => FetchEvent::Answer(ResolvedAnswer::Busy { leader: 1 }),
            3 => FetchEvent::Answer(ResolvedAnswer::Grant { lease: LEASE }),
            4 => FetchEvent::Answer(ResolvedAnswer::Later),
            _ => have(&[2, 3][..(chance as usize >> 4) % 3]),
        },
        FetchAction::FetchFrom { from, .. } => {
            assert_eq!(from, *filled);
            *filled = more;
            let mismatch = FetchOutcome::Refused(PeerRefusal::Mismatch);
            let ends = [NOT_THERE, OVERLOADED, FetchOutcome::Lost, mismatch, FetchOutcome::Crowded];
            let end = if more == BYTES { FetchOutcome::Whole } else { ends[chance as usize % 5] };
            fetched(more, end)
        }
        FetchAction::FillFromOrigin { from, .. } => {
            assert_eq!(from, *filled);
            *filled = if chance.is_multiple_of(3) { more } else { BYTES };
            FetchEvent::Filled { filled: *filled }
        }
        FetchAction::TellNotThere { .. } | FetchAction::TellEnded { .. } => FetchEvent::Told,
        FetchAction::Wait { .. } => FetchEvent::Waited,
        FetchAction::Done | FetchAction::Failed => return None,
    })
}

proptest! {
    #[test]
    fn every_fetch_ends_and_tells_of_its_lease(chances in prop::collection::vec(any::<u64>(), 60)) {
        let mut fetcher = Fetcher::new(BYTES, Now(0));
        let (mut event, mut filled, mut lease) = (FetchEvent::Begin, 0, None);
        let mut chances = chances.into_iter();
        loop {
            let action = fetcher.next(event, Now(0));
            match action {
                FetchAction::FillFromOrigin { lease: granted, .. } => {
                    lease = granted;
                }
                FetchAction::TellEnded { lease: ended, is_whole } => {
                    assert_eq!((lease.take(), is_whole), (Some(ended), filled == BYTES));
                }
                FetchAction::Done | FetchAction::Failed => {
                    assert_eq!((lease, action == FetchAction::Done), (None, filled == BYTES));
                }
                _ => {}
            }
            let chance = chances.next().expect("it ends in fewer steps");
            let Some(next) = result(action, chance, &mut filled) else { break };
            event = next;
        }
    }
}
