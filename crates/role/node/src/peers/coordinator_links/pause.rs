//! A process that was suspended: what it has in memory may have been purged.
//!
//! A silent node counts as gone after a while, and purges do not wait for it. If it was
//! only stopped, or starved of processors, it would continue to serve what was purged.
//! So the thread of the links reports periodically that it runs. When it has not for a
//! while, requests wait ([`Purges::is_in_step`]) until a coordinator has sent the purges
//! that were missed, or until no coordinator is left.
//!
//! Invariant: other machines count this node as gone later than [`PAUSE_MS`] plus the
//! report interval (checked at compile time).

use skep_peer::stream::{LinkId, Outbox};
use skep_serve::monotonic_ms;
use skep_wire::cache::ToCoordinator;

use super::CoordinatorLinks;
use crate::limits::{PAUSE_MS, PAUSE_WAIT_MS};

/// What is known of pauses.
#[derive(Default)]
pub(super) struct StallDetector {
    /// The last look, while there was a link.
    looked_ms: Option<u64>,
    questions: u64,
    after: Option<After>,
}

/// A pause is over and not made good.
struct After {
    /// No coordinator need be waited for any longer.
    gives_up_ms: u64,
    /// What was asked on links that may have ended meanwhile.
    question: u64,
    /// Those links.
    links: Vec<LinkId>,
}

impl StallDetector {
    /// The answer to a question.
    pub(super) fn in_step(&mut self, question: u64) {
        self.after.take_if(|after| after.question == question);
    }

    /// A link was told all that is known; it is new if it was not asked.
    pub(super) fn welcomed(&mut self, link: LinkId) {
        self.after.take_if(|after| !after.links.contains(&link));
    }
}

impl CoordinatorLinks {
    /// Says that this thread runs, or finds that it did not.
    pub(super) fn look_for_pause(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        let now_ms = monotonic_ms();
        let looked_ms = self.pause.looked_ms.take();
        // Without a link nobody waits for this node to purge.
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
