//! A netguard that was started by a daemon as its child, and what it does once that daemon is
//! gone.
//!
//! A killed daemon leaves its virtual addresses on the machine. If another dispatcher takes
//! over, both machines have them, and only netguard can release those of this one. It therefore
//! lingers until that is done, until another netguard of its name starts, or until it is asked to
//! end. If no other machine can take the addresses, it does not linger, and they stay.

use std::time::Instant;

use crate::error::NetguardError;
use crate::limits::{LINGER_LOOK, SILENCE_MAX};
use crate::{Netguard, dispatch};

/// The daemon that started this netguard.
pub trait Leash {
    /// Whether that daemon is gone.
    fn is_over(&self) -> bool;

    /// Waits for `time`. Returns whether this process was asked to end, before or meanwhile.
    fn wait(&mut self, time: std::time::Duration) -> bool;
}

impl Netguard {
    /// Accepts orders from the daemon that started it. The socket is removed as soon as that
    /// daemon connects: the next daemon has a netguard of its own.
    pub fn listen_on_leash(mut self, leash: &mut impl Leash) -> Result<(), NetguardError> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let failed = |error| NetguardError::Socket { path: listener.path().to_owned(), error };
        let visit = loop {
            let visit = listener.accept(LINGER_LOOK).map_err(failed)?;
            if visit.is_some() || leash.is_over() {
                break visit;
            }
        };
        drop(listener);
        if let Some(visit) = visit {
            self.serve(visit);
        }
        self.linger(leash);
        Ok(())
    }

    /// Waits until another machine has the virtual addresses that the daemon left on this one,
    /// and releases them.
    fn linger(&mut self, leash: &mut impl Leash) {
        // These are needed only for orders.
        (self.dispatch, self.node, self.handoffs) = (None, None, None);
        if !self.has_left_addresses() {
            return;
        }
        tracing::warn!(
            "the dispatcher has ended without releasing its virtual addresses: netguard stays, and \
             releases them as soon as another machine has them, in {} s at the earliest",
            SILENCE_MAX.as_secs()
        );
        let mut last = Instant::now();
        while !leash.wait(LINGER_LOOK) && self.has_left_addresses() {
            if last.elapsed() >= SILENCE_MAX {
                self.release_if_abandoned();
                last = Instant::now();
            }
        }
    }

    /// Whether this machine has virtual addresses that another one may take over, and this
    /// netguard is responsible for releasing them.
    fn has_left_addresses(&mut self) -> bool {
        self.plan.has_other_dispatcher
            && !self.is_replaced()
            && dispatch::is_here(&self.plan)
            // On an error it checks again later.
            && dispatch::held(&self.plan, &mut self.netif).map_or(true, |held| !held.is_empty())
    }
}
