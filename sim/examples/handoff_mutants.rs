//! Known bugs, put back into a copy of `core/handoff`: seeds of its simulation (`tests/sim`) must find each
//! of them.
//!
//! `cargo run -p skep-sim --example handoff_mutants` makes the copy (which takes a minute), and prints the
//! seed that finds each bug; `... -- 3 7` tries only the third and the seventh bug. The seeds change with
//! every change of the simulation. On 2026-11-26 these seeds found the bugs, in the order of the list: 746,
//! 30, 0, 10, 52, 30, 0, 74, 128, 0, 0, 10, 6, 12.
//!
//! For the meaning of `@` in [`Mutant::to`] see [`Mutants`].
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use skep_sim::{Mutant, Mutants};

/// Number of seeds among which a bug must be found. `cargo test` runs that many.
const SEEDS: u64 = 12_000;

const MUTANTS: &[Mutant] = &[
    Mutant {
        what: "the donor redirects after its deadline",
        file: "donor/mod.rs",
        from: "State::Offered { retry, .. } if retry.age_ms(now) > self.ready_ms => {",
        to: "State::Offered { retry, .. } if !@ && retry.age_ms(now) > self.ready_ms => {",
    },
    Mutant {
        what: "the donor waits for READY without end",
        file: "donor/mod.rs",
        from: "State::Offered { retry, .. } if retry.age_ms(now) > ready_ms => {",
        to: "State::Offered { retry, .. } if !@ && retry.age_ms(now) > ready_ms => {",
    },
    Mutant {
        what: "the receiver starts as it is ready",
        file: "receiver/mod.rs",
        from: "                self.set_state(key, State::Ready { retry });",
        to: "                self.set_state(key, State::Ready { retry });\n                if @ {\n                    \
             self.set_state(key, State::Starting);\n                    \
             self.actions.push_back(ReceiverAction::Start(key, socket));\n                }",
    },
    Mutant {
        what: "the receiver forgets an ABORT",
        file: "receiver/mod.rs",
        from: "            Some(State::Ready { .. }) => {\n                self.actions.push_back(ReceiverAction::Discard(key, socket));",
        to: "            Some(State::Ready { .. }) if @ => {}\n            Some(State::Ready { .. }) => {\n                self.actions.push_back(ReceiverAction::Discard(key, socket));",
    },
    Mutant {
        what: "GO is said once",
        file: "donor/mod.rs",
        from: "            MoveState::Committed { retry } => {\n                if retry.is_due(now) {",
        to: "            MoveState::Committed { retry } => {\n                if retry.is_due(now) && !@ {",
    },
    Mutant {
        what: "a donor that hears nothing after GO waits for ever",
        file: "donor/mod.rs",
        from: "MoveState::Committed { retry } if retry.age_ms(now) > GO_MS => self.reset(id),",
        to: "MoveState::Committed { retry } if !@ && retry.age_ms(now) > GO_MS => self.reset(id),",
    },
    Mutant {
        what: "an offer that comes twice is created twice",
        file: "receiver/mod.rs",
        from: "                self.set_state(key, State::Creating { since });",
        to: "                if !@ {\n                    self.set_state(key, State::Creating { since });\n                }",
    },
    Mutant {
        what: "a late offer is taken after its ABORT",
        file: "receiver/mod.rs",
        from: "            None => return self.answer_unknown(now, key, socket, Answer::Aborted),",
        to: "            None if @ => return self.send(key, Command::Aborted(socket)),\n            None => return self.answer_unknown(now, key, socket, Answer::Aborted),",
    },
    Mutant {
        what: "a receiver without a word of the donor waits for ever",
        file: "receiver/mod.rs",
        from: "State::Ready { retry } if retry.age_ms(now) >= UNDECIDED_MS => {",
        to: "State::Ready { retry } if !@ && retry.age_ms(now) >= UNDECIDED_MS => {",
    },
    Mutant {
        what: "ABORT is said although the flow may be redirected",
        file: "donor/mod.rs",
        from: "                self.set_state(id, MoveState::Committing);",
        to: "                if @ {\n                    self.abort(now, id);\n                }\n                self.set_state(id, MoveState::Committing);",
    },
    Mutant {
        what: "GO is said before the flow is redirected",
        file: "donor/mod.rs",
        from: "                self.actions.push_back(DonorAction::Redirect(id, socket, to.node));",
        to: "                self.actions.push_back(DonorAction::Redirect(id, socket, to.node));\n                if @ {\n                    self.send(to.peer, id, Command::Go(socket));\n                }",
    },
    Mutant {
        what: "a connection that cannot be redirected is not thawed",
        file: "donor/mod.rs",
        from: "                self.stay(now, id, StayCause::NotRedirected, OfferState::Aborted);",
        to: "                if !@ {\n                    self.stay(now, id, StayCause::NotRedirected, OfferState::Aborted);\n                }",
    },
    Mutant {
        what: "the receiver forgets its last answer at once",
        file: "receiver/memory.rs",
        from: "        self.forget(now);",
        to: "        self.forget(if @ { now.plus_ms(MEMORY_MS) } else { now });",
    },
    Mutant {
        what: "the donor lets go of its descriptor at the redirect",
        file: "donor/mod.rs",
        from: "        self.set_state(id, MoveState::Committed { retry });",
        to: "        if @ {\n            self.actions.push_back(DonorAction::Release(id, socket));\n        }\n        self.set_state(id, MoveState::Committed { retry });",
    },
];

const OF_HANDOFF: Mutants<'_> =
    Mutants { package: "skep-handoff", source: "crates/core/handoff/src", all: MUTANTS };

fn main() -> std::io::Result<()> {
    OF_HANDOFF.find_all(SEEDS, |_, _| {})
}

#[test]
fn each_has_its_place() {
    OF_HANDOFF.changed_files().unwrap();
}
