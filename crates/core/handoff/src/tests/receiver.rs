//! The receiver, without a network.

use skep_units::Now;
use skep_wire::handoff::fragments::{Fragment, cut};
use skep_wire::handoff::lccp::{LccpCommand, RefuseCause};
use skep_wire::handoff::{HandoffId, SocketId};
use skep_wire::seal::PeerId;

use super::{info, message, name, socket};
use crate::limits::{MEMORY_MS, MOVES_IN_FLIGHT_MAX};
use crate::{OfferKey, OrderResult, Preparation, Receiver, ReceiverAction};

const DONOR: PeerId = PeerId(1);

fn id(number: u64) -> HandoffId {
    HandoffId { incarnation: 1_000, number }
}

fn key(number: u64) -> OfferKey {
    OfferKey { donor: DONOR, id: id(number) }
}

fn said(receiver: &mut Receiver) -> Vec<&'static str> {
    let word = |action: ReceiverAction| match action {
        ReceiverAction::Create(..) => "create",
        ReceiverAction::Start(..) => "start",
        ReceiverAction::Discard(..) => "discard",
        ReceiverAction::Reset(..) => "reset",
        ReceiverAction::Send(_, message) => name(&message.command),
        ReceiverAction::Serve(..) => "serve",
        ReceiverAction::Closed(..) => "closed",
    };
    receiver.actions().map(word).collect()
}

fn hear(
    receiver: &mut Receiver,
    now: u64,
    id: HandoffId,
    command: LccpCommand,
) -> Vec<&'static str> {
    receiver.heard(Now(now), DONOR, &message(id, command));
    said(receiver)
}

fn offer(socket: SocketId) -> LccpCommand {
    LccpCommand::Offer(socket, cut(&info(10).encode()).remove(0))
}

fn new() -> Receiver {
    Receiver::new(super::READY_MS)
}

/// A receiver that is ready at 1.
fn ready() -> Receiver {
    let mut receiver = new();
    assert_eq!(hear(&mut receiver, 0, id(1), offer(socket(1))), ["create"]);
    assert!(hear(&mut receiver, 0, id(1), offer(socket(1))).is_empty(), "it will be answered");
    receiver.prepared(Now(1), key(1), Preparation::Restored);
    assert_eq!(said(&mut receiver), ["READY"]);
    receiver
}

#[test]
fn a_move_as_it_should_be_and_the_same_again() {
    let mut receiver = ready();
    assert_eq!(hear(&mut receiver, 2, id(1), offer(socket(1))), ["READY"]);
    assert_eq!(hear(&mut receiver, 2, id(1), LccpCommand::Go(socket(1))), ["start"]);
    assert!(hear(&mut receiver, 2, id(1), LccpCommand::Go(socket(1))).is_empty());
    receiver.ordered(Now(3), key(1), OrderResult::Done);
    assert_eq!(said(&mut receiver), ["serve", "DONE"]);
    assert_eq!(hear(&mut receiver, 9, id(1), LccpCommand::Go(socket(1))), ["DONE"]);
    assert_eq!(hear(&mut receiver, 9, id(1), offer(socket(1))), ["DONE"]);
    assert!(hear(&mut receiver, 9, id(1), LccpCommand::Abort(socket(1))).is_empty());
    assert_eq!(receiver.counters().unexpected, 1);
    assert_eq!((receiver.counters().served, receiver.in_flight()), (1, 0));
}

#[test]
fn on_abort_the_socket_is_closed_without_a_packet() {
    let mut receiver = ready();
    assert_eq!(
        hear(&mut receiver, 2, id(1), LccpCommand::Abort(socket(1))),
        ["discard", "ABORTED"]
    );
    assert_eq!(hear(&mut receiver, 3, id(1), LccpCommand::Abort(socket(1))), ["ABORTED"]);
    assert_eq!(hear(&mut receiver, 3, id(1), offer(socket(1))), ["ABORTED"], "a late one");
    assert_eq!(receiver.in_flight(), 0);
}

#[test]
fn an_abort_may_come_before_its_offer_and_while_the_socket_is_made() {
    let mut receiver = new();
    assert_eq!(hear(&mut receiver, 0, id(1), LccpCommand::Abort(socket(1))), ["ABORTED"]);
    assert_eq!(hear(&mut receiver, 1, id(1), offer(socket(1))), ["ABORTED"]);
    assert_eq!(hear(&mut receiver, 2, id(2), offer(socket(1))), ["create"]);
    assert_eq!(hear(&mut receiver, 2, id(2), LccpCommand::Abort(socket(1))), ["ABORTED"]);
    assert_eq!(hear(&mut receiver, 2, id(3), offer(socket(1))), ["REFUSE"], "busy");
    receiver.prepared(Now(3), key(2), Preparation::Restored);
    assert_eq!(said(&mut receiver), ["discard"]);
    assert_eq!(hear(&mut receiver, 3, id(4), offer(socket(1))), ["create"]);
}

#[test]
fn without_a_word_of_the_donor_the_client_gets_an_rst() {
    let mut receiver = ready();
    let mut sent = Vec::new();
    while let Some(due) = receiver.next_due() {
        receiver.tick(due);
        sent.extend(said(&mut receiver).into_iter().map(|word| (due.0, word)));
    }
    let expected = (1..7).map(|at| (1 + 100 * at, "READY")).chain([(701, "reset")]);
    assert_eq!(sent, expected.collect::<Vec<_>>());
    assert_eq!(hear(&mut receiver, 702, id(1), LccpCommand::Go(socket(1))), ["GONE"], "too late");
    receiver.ordered(Now(703), key(1), OrderResult::Done);
    assert_eq!(said(&mut receiver), ["closed"]);
    assert_eq!(hear(&mut receiver, 725, id(1), LccpCommand::Go(socket(1))), ["GONE"]);
}

#[test]
fn a_donor_that_has_started_again_will_not_say_a_word() {
    let mut receiver = ready();
    let next = HandoffId { incarnation: 2_000, number: 1 };
    assert_eq!(hear(&mut receiver, 9, next, offer(socket(2))), ["reset", "create"]);
    assert!(hear(&mut receiver, 9, id(1), LccpCommand::Go(socket(1))).is_empty());
    assert_eq!(receiver.counters().stale, 1);
}

#[test]
fn a_connection_that_cannot_be_started_is_closed() {
    let mut receiver = ready();
    hear(&mut receiver, 2, id(1), LccpCommand::Go(socket(1)));
    receiver.ordered(Now(24), key(1), OrderResult::Refused);
    assert_eq!(said(&mut receiver), ["reset"], "it can neither be served nor be left");
}

#[test]
fn go_for_what_is_not_known_is_answered_with_gone_for_good() {
    let mut receiver = new();
    assert_eq!(hear(&mut receiver, 0, id(1), LccpCommand::Go(socket(1))), ["GONE"]);
    assert_eq!(hear(&mut receiver, 1, id(1), offer(socket(1))), ["GONE"]);
    assert_eq!(hear(&mut receiver, 2, id(2), offer(socket(1))), ["create"]);
    assert_eq!(
        hear(&mut receiver, 2, id(2), LccpCommand::Go(socket(1))),
        ["GONE"],
        "of a process before"
    );
    receiver.prepared(Now(3), key(2), Preparation::Restored);
    assert_eq!(said(&mut receiver), ["discard"]);
}

#[test]
fn offers_are_refused_by_cause() {
    let refusal = |receiver: &mut Receiver, id: HandoffId, socket: SocketId| {
        receiver.heard(Now(0), DONOR, &message(id, offer(socket)));
        let actions: Vec<_> = receiver.actions().collect();
        match actions.as_slice() {
            [ReceiverAction::Send(_, message)] => match message.command {
                LccpCommand::Refuse(_, cause) => Some(cause),
                _ => None,
            },
            _ => None,
        }
    };
    let mut receiver = new();
    assert_eq!(refusal(&mut receiver, id(1), socket(1)), None);
    assert_eq!(refusal(&mut receiver, id(2), socket(1)), Some(RefuseCause::Busy));
    for port in 2..=MOVES_IN_FLIGHT_MAX as u16 {
        assert_eq!(refusal(&mut receiver, id(10 + u64::from(port)), socket(port)), None);
    }
    assert_eq!(refusal(&mut receiver, id(3), socket(60_000)), Some(RefuseCause::Full));
    receiver.set_open(false);
    assert_eq!(refusal(&mut receiver, id(4), socket(60_001)), Some(RefuseCause::NotServing));
    assert_eq!(refusal(&mut receiver, id(3), socket(60_000)), Some(RefuseCause::Full), "as before");
    receiver.prepared(Now(1), key(1), Preparation::NotRestored);
    assert_eq!(said(&mut receiver), ["discard", "REFUSE"]);
    receiver.prepared(Now(1), key(12), Preparation::NotCreated);
    assert_eq!(said(&mut receiver), ["REFUSE"], "the flow may be blocked for another move");
    receiver.prepared(Now(1), key(13), Preparation::NoRoom);
    assert_eq!(said(&mut receiver), ["REFUSE"]);
    assert_eq!(refusal(&mut receiver, id(13), socket(3)), Some(RefuseCause::Full), "no room");

    let mut receiver = new();
    let garbage = Fragment { index: 0, count: 1, bytes: [7; 60].as_slice().into() };
    assert_eq!(hear(&mut receiver, 0, id(1), LccpCommand::Offer(socket(1), garbage)), ["REFUSE"]);
    hear(&mut receiver, 0, id(2), offer(socket(1)));
    receiver.prepared(Now(51), key(2), Preparation::Restored);
    assert_eq!(said(&mut receiver), ["discard", "REFUSE"], "the donor has given up");
    assert_eq!(receiver.in_flight(), 0);
}

#[test]
fn fragments_may_come_in_any_order_but_not_for_ever() {
    let fragments = cut(&info(5_000).encode());
    let mut receiver = new();
    let (last, first) = fragments.split_last().unwrap();
    for fragment in first.iter().rev() {
        let command = LccpCommand::Offer(socket(1), fragment.clone());
        assert!(hear(&mut receiver, 0, id(1), command).is_empty());
        let command = LccpCommand::Offer(socket(2), fragment.clone());
        assert!(hear(&mut receiver, 0, id(2), command).is_empty());
    }
    let command = LccpCommand::Offer(socket(1), last.clone());
    assert_eq!(hear(&mut receiver, 50, id(1), command), ["create"]);
    receiver.tick(Now(51));
    assert_eq!(said(&mut receiver), ["REFUSE"]);
    let command = LccpCommand::Offer(socket(2), last.clone());
    assert_eq!(hear(&mut receiver, 52, id(2), command), ["REFUSE"]);
}

#[test]
fn what_was_forgotten_is_not_taken_however_late() {
    let mut receiver = ready();
    hear(&mut receiver, 2, id(1), LccpCommand::Go(socket(1)));
    receiver.ordered(Now(3), key(1), OrderResult::Done);
    said(&mut receiver);
    let later = 3 + MEMORY_MS;
    receiver.tick(Now(later));
    assert_eq!(hear(&mut receiver, later, id(1), offer(socket(1))), ["REFUSE"]);
    assert_eq!(hear(&mut receiver, later, id(1), LccpCommand::Go(socket(1))), ["GONE"]);
    assert_eq!(hear(&mut receiver, later, id(2), offer(socket(1))), ["create"]);
}
