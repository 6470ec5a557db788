//! Pauses of the process: its memory may contain what was purged during a suspension.
//!
//! A silent node counts as gone after a while, and purges do not wait for it. If it was only
//! suspended, or starved of CPU time, it would continue to serve purged objects. The thread of the
//! links therefore records periodically that it runs. If it has not done so for a while, requests
//! wait ([`Purges::is_in_step`]) until a coordinator has sent the missed purges, or until no
//! coordinator is left.
//!
//! Invariant: other machines count this node as gone later than [`PAUSE_MS`] plus the
//! report interval (checked at compile time).

use skep_peer::stream::{LinkId, Outbox};
use skep_serve::monotonic_ms;
use skep_wire::cache::ToCoordinator;

use super::CoordinatorLinks;
use crate::limits::{PAUSE_MS, PAUSE_WAIT_MS};

/// The state of the detection of pauses.
#[derive(Default)]
pub(super) struct StallDetector {
    /// Time of the last check, while there is a link.
    looked_ms: Option<u64>,
    questions: u64,
    after: Option<After>,
}

/// A pause has ended, and missed purges are still to be received.
struct After {
    /// Time after which requests no longer wait for a coordinator.
    gives_up_ms: u64,
    /// The question sent on links that may have ended meanwhile.
    question: u64,
    /// The links on which the question was sent.
    links: Vec<LinkId>,
}

impl StallDetector {
    /// Handles the answer to a question.
    pub(super) fn in_step(&mut self, question: u64) {
        self.after.take_if(|after| after.question == question);
    }

    /// Whether purges missed in a pause may still be unknown.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.after.is_some()
    }

    /// All known purges have been received on a link; the link is new if no question was sent on
    /// it.
    pub(super) fn welcomed(&mut self, link: LinkId) {
        self.after.take_if(|after| !after.links.contains(&link));
    }
}

impl CoordinatorLinks {
    /// Records that this thread runs, or detects that it has not run for a while.
    pub(super) fn look_for_pause(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        let now_ms = monotonic_ms();
        let looked_ms = self.pause.looked_ms.take();
        // Without a link, no purge waits for this node.
        self.pause.looked_ms = (!self.links.is_empty()).then_some(now_ms);
        if looked_ms.is_some_and(|looked_ms| now_ms - looked_ms >= PAUSE_MS) {
            tracing::info!("this process was paused; checking for missed purges");
            self.pause.questions += 1;
            let question = self.pause.questions;
            outbox.send_all(&ToCoordinator::AmInStep { question });
            let links = self.links.keys().copied().collect();
            let gives_up_ms = now_ms + PAUSE_WAIT_MS;
            self.pause.after = Some(After { gives_up_ms, question, links });
        }
        self.pause.after.take_if(|after| now_ms >= after.gives_up_ms);
        if self.pause.after.is_none() {
            self.purges.in_step_until(now_ms + PAUSE_MS);
        }
    }
}
