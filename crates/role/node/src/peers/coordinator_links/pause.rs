//! A process that stood still: what it has in memory may have been purged.
//!
//! A node that says nothing for a while counts as gone, and purges do not wait
//! for it. If it was only stopped, or starved of processors, it would go on to
//! serve as if nothing had been. So the thread of the links says ever again that
//! it runs; when it has not for a while, requests wait ([`Purges::is_in_step`])
//! until a coordinator has told what there was, or until there is none to tell.
//!
//! Invariant: the time that it takes until others count this node as gone is
//! longer than [`PAUSE_MS`] and the time between two words of it, together (the
//! compiler sees to it).

use skep_peer::stream::{LinkId, Outbox};
use skep_serve::monotonic_ms;
use skep_wire::cache::ToCoordinator;

use super::CoordinatorLinks;
use crate::limits::{PAUSE_MS, PAUSE_WAIT_MS};

/// What is known of pauses.
#[derive(Default)]
pub(super) struct Pause {
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

impl Pause {
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
