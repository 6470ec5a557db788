//! The donor, without a network.

use skep_units::Now;
use skep_wire::handoff::HandoffId;
use skep_wire::handoff::lccp::{LccpCommand, RefuseCause};
use skep_wire::limits::HANDOFF_QUEUE_BYTES_MAX;
use skep_wire::seal::PeerId;

use super::{info, message, name, socket};
use crate::limits::MOVES_IN_FLIGHT_MAX;
use crate::{Donor, DonorAction, MoveOutcome, MoveTarget, NotBegun, OrderResult, StayCause};

const RECEIVER: PeerId = PeerId(2);
const TO: MoveTarget = MoveTarget { peer: RECEIVER, node: 2 };

/// The pending actions, as words.
fn said(donor: &mut Donor) -> Vec<String> {
    let word = |action: DonorAction| match action {
        DonorAction::Freeze(..) => "freeze".to_owned(),
        DonorAction::Redirect(..) => "redirect".to_owned(),
        DonorAction::Thaw(..) => "thaw".to_owned(),
        DonorAction::Reset(..) => "reset".to_owned(),
        DonorAction::Release(..) => "release".to_owned(),
        DonorAction::Send(to, message) => {
            assert_eq!(to, RECEIVER);
            name(&message.command).to_owned()
        }
        DonorAction::Ended(_, _, outcome) => format!("{outcome:?}"),
    };
    donor.actions().map(word).collect()
}

fn new() -> Donor {
    Donor::new(super::READY_MS, 1_000)
}

/// A donor whose offer was sent at 0.
fn offered() -> (Donor, HandoffId) {
    let mut donor = new();
    let id = donor.begin(socket(1), TO).unwrap();
    donor.frozen(Now(0), id, &info(10));
    assert_eq!(said(&mut donor), ["freeze", "OFFER"]);
    (donor, id)
}

/// A donor that ordered the redirect at 1.
fn committing() -> (Donor, HandoffId) {
    let (mut donor, id) = offered();
    donor.heard(Now(1), RECEIVER, &message(id, LccpCommand::Ready(socket(1))));
    assert_eq!(said(&mut donor), ["redirect"]);
    (donor, id)
}

/// A donor that redirected the flow at 1.
fn committed() -> (Donor, HandoffId) {
    let (mut donor, id) = committing();
    donor.ordered(Now(1), id, OrderResult::Done);
    assert_eq!(said(&mut donor), ["GO"]);
    (donor, id)
}

#[test]
fn a_move_as_it_should_be() {
    let (mut donor, id) = committed();
    donor.heard(Now(2), RECEIVER, &message(id, LccpCommand::Done(socket(1))));
    assert_eq!(said(&mut donor), ["release", "Moved"]);
    assert!(donor.is_idle() && donor.next_due().is_none());
    assert_eq!((donor.counters().begun, donor.counters().moved), (1, 1));
}

#[test]
fn an_offer_is_repeated_and_taken_back_after_its_time() {
    let (mut donor, id) = offered();
    let mut sent = Vec::new();
    while let Some(due) = donor.next_due().filter(|due| *due <= Now(51)) {
        donor.tick(due);
        sent.extend(said(&mut donor).into_iter().map(|word| (due.0, word)));
    }
    let words: Vec<_> = sent.iter().map(|(at, word)| (*at, word.as_str())).collect();
    assert_eq!(words, [(5, "OFFER"), (15, "OFFER"), (35, "OFFER"), (51, "thaw"), (51, "ABORT")]);
    // READY arrives nevertheless.
    donor.heard(Now(52), RECEIVER, &message(id, LccpCommand::Ready(socket(1))));
    assert_eq!(said(&mut donor), ["ABORT"]);
    donor.ordered(Now(53), id, OrderResult::Done);
    assert_eq!(said(&mut donor), ["Stays(Silent)"]);
    assert!(!donor.is_idle(), "the receiver has not understood");
    donor.tick(Now(56));
    assert_eq!(said(&mut donor), ["ABORT"]);
    donor.heard(Now(57), PeerId(9), &message(id, LccpCommand::Aborted(socket(1))));
    assert!(!donor.is_idle(), "another has");
    donor.heard(Now(57), RECEIVER, &message(id, LccpCommand::Aborted(socket(1))));
    assert!(donor.is_idle());
    donor.heard(Now(90), RECEIVER, &message(id, LccpCommand::Ready(socket(1))));
    assert_eq!(said(&mut donor), ["ABORT"], "a late offer was taken");
}

#[test]
fn no_redirect_is_ordered_after_the_deadline() {
    let (mut donor, id) = offered();
    donor.heard(Now(50), RECEIVER, &message(id, LccpCommand::Ready(socket(1))));
    assert_eq!(said(&mut donor), ["redirect"], "just in time");
    let (mut donor, id) = offered();
    donor.heard(Now(51), RECEIVER, &message(id, LccpCommand::Ready(socket(1))));
    assert_eq!(said(&mut donor), ["thaw", "ABORT"]);
}

#[test]
fn what_is_refused_stays() {
    let refused = LccpCommand::Refuse(socket(1), RefuseCause::Full);
    for (command, cause) in [
        (refused, StayCause::Refused(RefuseCause::Full)),
        (LccpCommand::Gone(socket(1)), StayCause::Gone),
    ] {
        let (mut donor, id) = offered();
        donor.heard(Now(1), RECEIVER, &message(id, command));
        assert_eq!(said(&mut donor), ["thaw"]);
        donor.ordered(Now(1), id, OrderResult::Done);
        assert_eq!(said(&mut donor), [format!("{:?}", MoveOutcome::Stays(cause))]);
        assert!(donor.is_idle());
    }
    let (mut donor, id) = committing();
    donor.ordered(Now(1), id, OrderResult::Refused);
    assert_eq!(said(&mut donor), ["thaw", "ABORT"]);
    donor.ordered(Now(1), id, OrderResult::Done);
    assert_eq!(said(&mut donor), ["Stays(NotRedirected)"]);
}

#[test]
fn what_cannot_be_frozen_or_is_too_much_is_not_offered() {
    let mut donor = new();
    let id = donor.begin(socket(1), TO).unwrap();
    donor.not_frozen(Now(0), id, StayCause::NotFrozen);
    assert_eq!(said(&mut donor), ["freeze", "thaw"]);
    donor.ordered(Now(1), id, OrderResult::Done);
    assert_eq!(said(&mut donor), ["Stays(NotFrozen)"]);
    let id = donor.begin(socket(1), TO).unwrap();
    donor.frozen(Now(2), id, &info(HANDOFF_QUEUE_BYTES_MAX + 1));
    assert_eq!(said(&mut donor), ["freeze", "thaw"]);
    donor.ordered(Now(3), id, OrderResult::Done);
    assert_eq!(said(&mut donor), ["Stays(Unsuitable)"]);
    assert!(donor.is_idle());
}

#[test]
fn go_is_repeated_until_the_receiver_must_be_dead() {
    let (mut donor, id) = committed();
    let mut sent = 0;
    while let Some(due) = donor.next_due().filter(|due| *due <= Now(801)) {
        donor.tick(due);
        let words = said(&mut donor);
        assert_eq!(words, ["GO"], "{due:?}");
        sent += 1;
    }
    assert!(sent >= 10, "{sent} times");
    donor.tick(Now(802));
    assert_eq!(said(&mut donor), ["reset"]);
    donor.ordered(Now(803), id, OrderResult::Done);
    assert_eq!(said(&mut donor), ["Closed"]);
    assert!(donor.is_idle());
}

#[test]
fn a_connection_that_the_receiver_does_not_know_is_closed() {
    let (mut donor, id) = committed();
    donor.heard(Now(2), RECEIVER, &message(id, LccpCommand::Gone(socket(1))));
    assert_eq!(said(&mut donor), ["reset"]);
}

#[test]
fn while_the_answer_to_a_redirect_is_awaited_nothing_is_said() {
    for (result, then) in
        [(OrderResult::Done, vec!["GO"]), (OrderResult::Refused, vec!["thaw", "ABORT"])]
    {
        let (mut donor, id) = committing();
        donor.heard(Now(4), RECEIVER, &message(id, LccpCommand::Ready(socket(1))));
        donor.tick(Now(500));
        assert!(said(&mut donor).is_empty(), "it is not known yet");
        assert_eq!(donor.next_due(), None);
        donor.ordered(Now(501), id, result);
        assert_eq!(said(&mut donor), then);
    }
}

#[test]
fn a_connection_that_cannot_be_thawed_is_closed() {
    let (mut donor, id) = committing();
    donor.ordered(Now(2), id, OrderResult::Refused);
    donor.ordered(Now(3), id, OrderResult::Refused);
    assert_eq!(said(&mut donor), ["thaw", "ABORT", "reset"]);
    donor.ordered(Now(4), id, OrderResult::Done);
    assert_eq!(said(&mut donor), ["Closed"]);
}

#[test]
fn messages_of_others_and_of_other_moves_change_nothing() {
    let (mut donor, id) = offered();
    let ready = LccpCommand::Ready(socket(1));
    donor.heard(Now(1), PeerId(9), &message(id, ready.clone()));
    donor.heard(Now(1), RECEIVER, &message(HandoffId { number: 7, ..id }, ready.clone()));
    donor.heard(Now(1), RECEIVER, &message(HandoffId { incarnation: 7, ..id }, ready));
    donor.heard(Now(1), RECEIVER, &message(id, LccpCommand::Ready(socket(2))));
    donor.heard(Now(1), RECEIVER, &message(id, LccpCommand::Done(socket(1))));
    donor.heard(Now(1), RECEIVER, &message(id, LccpCommand::Go(socket(1))));
    assert!(said(&mut donor).is_empty());
    assert_eq!(donor.counters().unexpected, 1);
}

#[test]
fn moves_in_flight_are_bounded_one_for_each_connection() {
    let mut donor = new();
    for port in 0..MOVES_IN_FLIGHT_MAX as u16 {
        assert!(donor.begin(socket(port), TO).is_ok());
    }
    assert_eq!(donor.begin(socket(0), TO), Err(NotBegun::Busy));
    assert_eq!(donor.begin(socket(60_000), TO), Err(NotBegun::Full));
    assert_eq!(donor.counters().full, 1);
}
