//! Outstanding work of connections and replies, in the gauges of their worker: open connections,
//! unfinished requests, bytes that no socket has taken yet. However a connection ends, even by a
//! panic, its share is removed from the gauges.
//!
//! Replies that are made from memory and taken by the socket at once are not counted: they are
//! complete before a gauge could be read.

use skep_telemetry::{CoreCounters, CoreGauge, Counter};

/// An open connection, while this exists.
pub(crate) struct Open<'c> {
    counters: &'c CoreCounters,
    closed: Counter,
}

impl<'c> Open<'c> {
    pub(crate) fn new(counters: &'c CoreCounters) -> Self {
        counters.gauge_inc(CoreGauge::ConnectionsOpen);
        // A connection that is dropped before its end was recorded panicked, or its worker was
        // stopped.
        Self { counters, closed: Counter::ClosedError }
    }

    /// Records the end of the connection, for the reason in `counter`.
    pub(crate) fn close(mut self, counter: Counter) {
        self.closed = counter;
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.counters.gauge_dec(CoreGauge::ConnectionsOpen);
        self.counters.inc(self.closed);
    }
}

/// A request whose reply is not complete, while this exists.
pub(crate) struct Unfinished<'c>(&'c CoreCounters);

impl<'c> Unfinished<'c> {
    pub(crate) fn new(counters: &'c CoreCounters) -> Self {
        counters.gauge_inc(CoreGauge::RequestsInFlight);
        Self(counters)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.gauge_dec(CoreGauge::RequestsInFlight);
    }
}

/// Bytes of a reply that are to be sent; zero once this is dropped.
pub(crate) struct Owed<'c> {
    counters: &'c CoreCounters,
    bytes: u64,
}

impl<'c> Owed<'c> {
    pub(crate) fn new(counters: &'c CoreCounters) -> Self {
        Self { counters, bytes: 0 }
    }

    /// Adds bytes that are about to be written.
    pub(crate) fn announce(&mut self, bytes: u64) {
        self.set(self.bytes.saturating_add(bytes));
    }

    /// Records that a socket took `bytes`, and that `left` bytes of those written remain.
    pub(crate) fn paid(&mut self, bytes: u64, left: u64) {
        self.set(self.bytes.saturating_sub(bytes).max(left));
    }

    /// Sets the bytes left.
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes != self.bytes {
            self.counters.gauge_move(CoreGauge::BytesOutstanding, self.bytes, bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_falls_as_it_is_paid_and_ends_with_the_reply() {
        let counters = CoreCounters::default();
        let bytes = || counters.gauge(CoreGauge::BytesOutstanding);
        let mut owed = Owed::new(&counters);
        owed.announce(1_000);
        assert_eq!(bytes(), 1_000);
        owed.paid(400, 100);
        assert_eq!(bytes(), 600, "announced and not written yet");
        owed.paid(100, 700);
        assert_eq!(bytes(), 700, "written without having been announced");
        owed.paid(900, 0);
        assert_eq!(bytes(), 0);
        owed.announce(5);
        drop(owed);
        assert_eq!(bytes(), 0);
    }

    #[test]
    fn a_connection_counts_until_it_is_closed_and_once_as_what_closed_it() {
        let counters = CoreCounters::default();
        let open = || counters.gauge(CoreGauge::ConnectionsOpen);
        let first = Open::new(&counters);
        let second = Open::new(&counters);
        assert_eq!(open(), 2);
        first.close(Counter::ClosedIdle);
        drop(second);
        assert_eq!(open(), 0);
        let closed = [Counter::ClosedIdle, Counter::ClosedError].map(|it| counters.get(it));
        assert_eq!(closed, [1, 1], "who dropped it does not say why it ended");
    }

    #[test]
    fn a_request_counts_until_it_is_finished() {
        let counters = CoreCounters::default();
        let unfinished = Unfinished::new(&counters);
        assert_eq!(counters.gauge(CoreGauge::RequestsInFlight), 1);
        drop(unfinished);
        assert_eq!(counters.gauge(CoreGauge::RequestsInFlight), 0);
    }
}
