//! Questions of workers that wait for the answer of a coordinator.

use std::collections::HashMap;

use skep_peer::stream::LinkId;
use tokio::sync::oneshot;

/// Gets the answer; `None`: it counts as no answer.
pub(in crate::peers) type Asker<A> = oneshot::Sender<Option<A>>;

pub(super) struct Questions<A> {
    open: HashMap<u64, (LinkId, Asker<A>)>,
    next: u64,
}

impl<A> Default for Questions<A> {
    fn default() -> Self {
        Self { open: HashMap::new(), next: 0 }
    }
}

impl<A> Questions<A> {
    /// A question is asked on a link; returns its number.
    pub(super) fn ask(&mut self, link: LinkId, asker: Asker<A>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, (link, asker));
        number
    }

    /// Passes an answer on; returns whether anybody waited for it.
    pub(super) fn answered(&mut self, link: LinkId, number: u64, answer: Option<A>) -> bool {
        let open = self.open.remove(&number).filter(|(asked_on, _)| *asked_on == link);
        open.is_some_and(|(_, asker)| asker.send(answer).is_ok())
    }

    /// Nothing more comes on this link.
    pub(super) fn link_lost(&mut self, link: LinkId) {
        let lost = self.open.extract_if(|_, (asked_on, _)| *asked_on == link);
        lost.for_each(|(_, (_, asker))| drop(asker.send(None)));
    }

    /// Drops questions whose askers have gone.
    pub(super) fn forget_closed(&mut self) {
        self.open.retain(|_, (_, asker)| !asker.is_closed());
    }
}
