//! The retry budget: limits retries, so that they do not overload a cluster that
//! is already failing.
//!
//! A token bucket whose tokens expire (Finagle's `RetryBudget`): each request deposits a fraction
//! of a retry, each retry withdraws one; both expire after 10 s; a reserve lets quiet services
//! retry, too. Hence in the 10 s before any granted retry: retries <= requests * ratio +
//! floor_per_s * 10.
//!
//! The tokens expire, instead of stopping at a fixed cap, because a node that
//! dies under load fails all its requests in flight at once: the allowed burst
//! must grow with the traffic.

use skep_units::Now;

use crate::limits::{RETRY_SLOTS, RETRY_WINDOW_MS};

/// Settings of the retry budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudgetSettings {
    /// Retries for each 1000 requests.
    pub ratio_permille: u32,
    /// Retries per second that are always allowed, on average over 10 s.
    pub floor_per_s: u32,
}

impl Default for RetryBudgetSettings {
    /// 20 % and 10 per second, as in Finagle and linkerd.
    fn default() -> Self {
        Self { ratio_permille: 200, floor_per_s: 10 }
    }
}

/// Counts requests and grants retries.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    settings: RetryBudgetSettings,
    /// Thousandths of a retry: deposits minus withdrawals, by time slot.
    slots: [i64; RETRY_SLOTS],
    /// Index of the newest slot, counted from time 0.
    newest: u64,
    /// Sum of `slots`.
    balance: i64,
}

impl RetryBudget {
    /// A budget without requests.
    pub fn new(settings: RetryBudgetSettings) -> Self {
        Self { settings, slots: [0; RETRY_SLOTS], newest: 0, balance: 0 }
    }

    /// A request arrived that is not a retry.
    pub fn on_request(&mut self, now: Now) {
        self.add(now, i64::from(self.settings.ratio_permille));
    }

    /// Withdraws one retry; returns whether it may be made.
    pub fn try_retry(&mut self, now: Now) -> bool {
        self.expire(now);
        let reserve = u64::from(self.settings.floor_per_s) * RETRY_WINDOW_MS;
        if self.balance.saturating_add_unsigned(reserve) < ONE_RETRY {
            return false;
        }
        self.add(now, -ONE_RETRY);
        true
    }

    fn add(&mut self, now: Now, tokens: i64) {
        self.expire(now);
        let slot = &mut self.slots[(self.newest % RETRY_SLOTS as u64) as usize];
        *slot += tokens;
        self.balance += tokens;
        self.check_invariants();
    }

    /// Expires slots that have left the window. A `now` before the newest slot counts as the
    /// newest.
    fn expire(&mut self, now: Now) {
        let current = now.0 / (RETRY_WINDOW_MS / RETRY_SLOTS as u64);
        let gone = current.saturating_sub(self.newest).min(RETRY_SLOTS as u64);
        for step in 1..=gone {
            let slot = &mut self.slots[((self.newest + step) % RETRY_SLOTS as u64) as usize];
            self.balance -= std::mem::take(slot);
        }
        self.newest = self.newest.max(current);
    }

    fn check_invariants(&self) {
        let sum = self.slots.iter().sum::<i64>();
        debug_assert_eq!(self.balance, sum, "the sum is kept up to date");
    }
}

/// One retry, in the unit of `slots`.
const ONE_RETRY: i64 = 1_000;
