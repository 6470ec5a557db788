//! The state of a member that all workers share: a few atomics.
//!
//! Writers are the workers (loads, totals) and, under its lock, the group. All accesses are `Relaxed`, since the
//! numbers only influence selection, but for the eligibility, which decides whether a request is refused. It is one
//! atomic, written with `Release` and read with `Acquire`: a worker that sees a member closed also sees the set that
//! was published before.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use skep_policy::{NodeView, Work};
use skep_units::{NodeId, Now, ServerAddress, stable_hash};
use skep_wire::message::NodeLoad;

use crate::limits::{LATENCY_SMOOTHING, STDERR_LINES_PER_S};
use crate::members::cause::CAUSES;
use crate::members::reported::Reported;
use crate::members::settings::LoadMeasure;
use crate::members::status::GatewayStatus;

/// Number of low bits that count the lines of a second; the second is stored above them.
const STDERR_COUNT_BITS: u32 = 24;

/// One member, shared by all workers, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct SharedMember {
    pub(crate) id: NodeId,
    pub(crate) name: Arc<str>,
    pub(crate) name_hash: u64,
    pub(crate) address: ServerAddress,
    /// See [`Eligibility::to_bits`].
    eligibility: AtomicU32,
    /// A recent request to it failed: the next success is to be reported.
    suspect: AtomicBool,
    /// Whether the last CPING was not answered in time.
    silent: AtomicBool,
    /// Bound on concurrent requests and tunnels.
    requests_max: AtomicU32,
    /// The part of that bound that this process may use now; `u32::MAX` if this process counts
    /// alone.
    slots: AtomicU32,
    /// Requests of other processes to it, as far as reported.
    elsewhere: AtomicU32,
    /// Time at which a failure was last logged, in seconds; 0: never.
    told_s: AtomicU64,
    /// The second in which its standard error was last logged, and the number of lines in it.
    stderr: AtomicU64,
    /// The load of its address: a member with another name after a reload is the same server.
    pub(crate) load: Arc<Load>,
    pub(crate) reported: Reported,
    pub(crate) totals: MemberTotals,
}

/// A member's current load, as measured by this process.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Load {
    /// Requests sent and not completely answered yet.
    pub(crate) requests: Level,
    /// Upgraded connections.
    pub(crate) tunnels: AtomicU32,
    /// Bytes of announced reply bodies that have not arrived yet.
    pub(crate) bytes: Level,
}

/// The load that drains wait for and the status displays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CurrentLoad {
    pub(crate) requests: u32,
    /// Upgraded connections; in direct dispatch, idle ones.
    pub(crate) tunnels: u32,
    pub(crate) bytes: u64,
}

/// Which requests a member may get; by default, none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Eligibility {
    /// Thousandths of its share that are in effect now; 0: no new requests.
    pub(crate) share_permille: u16,
    /// It has not been checked yet.
    pub(crate) is_joining: bool,
    /// Only requests of its existing sessions are sent to it.
    pub(crate) is_draining: bool,
}

/// Bits of [`Eligibility::to_bits`], above the 16 of the share.
const JOINING: u32 = 1 << 16;
const DRAINING: u32 = 1 << 17;

/// A value that rises and falls, and its recent maximum.
#[derive(Debug, Default)]
pub(crate) struct Level {
    now: AtomicU64,
    most: AtomicU64,
}

/// A member's totals since it was added.
#[derive(Debug, Default)]
pub(crate) struct MemberTotals {
    pub(crate) requests: AtomicU64,
    /// Requests that did not end with a complete reply, by cause.
    pub(crate) failures: [AtomicU64; CAUSES.len()],
    /// Bytes of reply bodies.
    pub(crate) bytes: AtomicU64,
    pub(crate) gateway: GatewayTotals,
    /// Moving average of the time to answer, in microseconds.
    latency_us: AtomicU64,
}

/// Totals of a member that is not an HTTP server.
#[derive(Debug, Default)]
pub(crate) struct GatewayTotals {
    /// Connections that were checked before a request.
    pub(crate) pings: AtomicU64,
    /// Those of them that did not answer.
    pub(crate) pings_failed: AtomicU64,
    /// Request fields that were not passed on.
    pub(crate) fields_dropped: AtomicU64,
    /// Lines of standard error that were not logged.
    pub(crate) stderr_lines_dropped: AtomicU64,
    /// Bytes of standard error that did not fit into any logged line.
    pub(crate) stderr_bytes_dropped: AtomicU64,
}

impl GatewayTotals {
    pub(crate) fn status(&self) -> GatewayStatus {
        GatewayStatus {
            pings: self.pings.load(Relaxed),
            pings_failed: self.pings_failed.load(Relaxed),
            fields_dropped: self.fields_dropped.load(Relaxed),
            stderr_lines_dropped: self.stderr_lines_dropped.load(Relaxed),
            stderr_bytes_dropped: self.stderr_bytes_dropped.load(Relaxed),
        }
    }
}

impl Eligibility {
    /// Whether it gets new sessions, or may soon get them.
    pub(crate) fn is_in(self) -> bool {
        self.share_permille > 0 || self.is_joining
    }

    /// Whether it keeps its existing sessions.
    pub(crate) fn keeps_sessions(self) -> bool {
        self.is_in() || self.is_draining
    }

    /// All that either permits.
    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            share_permille: self.share_permille.max(other.share_permille),
            is_joining: self.is_joining || other.is_joining,
            is_draining: self.is_draining || other.is_draining,
        }
    }

    fn from_bits(bits: u32) -> Self {
        Self {
            share_permille: bits as u16,
            is_joining: bits & JOINING != 0,
            is_draining: bits & DRAINING != 0,
        }
    }

    fn to_bits(self) -> u32 {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        u32::from(self.share_permille)
            | flag(self.is_joining, JOINING)
            | flag(self.is_draining, DRAINING)
    }
}

impl SharedMember {
    /// `load` is the current load of that address, if there was a member before.
    pub(crate) fn new(id: NodeId, name: Arc<str>, address: ServerAddress, load: Arc<Load>) -> Self {
        Self {
            id,
            // The hash that `core/cluster` uses: equal on every machine.
            name_hash: stable_hash(name.as_bytes(), 0),
            name,
            address,
            eligibility: AtomicU32::new(0),
            suspect: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            requests_max: AtomicU32::new(u32::MAX),
            slots: AtomicU32::new(u32::MAX),
            elsewhere: AtomicU32::new(0),
            told_s: AtomicU64::new(0),
            stderr: AtomicU64::new(0),
            load,
            reported: Reported::default(),
            totals: MemberTotals::default(),
        }
    }

    /// Thousandths of its share that are in effect now; 0: no new requests.
    pub(crate) fn share_permille(&self) -> u16 {
        self.eligibility().share_permille
    }

    /// Whether the next success is to be reported.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Relaxed)
    }

    pub(crate) fn set_suspect(&self, suspect: bool) {
        self.suspect.store(suspect, Relaxed);
    }

    /// Whether it must answer a CPING before each request, since it did not answer the last one.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Relaxed)
    }

    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Relaxed);
    }

    /// Whether it may get requests soon, since it has not been checked yet.
    pub(crate) fn is_joining(&self) -> bool {
        self.eligibility().is_joining
    }

    /// Whether it gets new sessions, or may soon get them.
    pub(crate) fn is_in(&self) -> bool {
        self.eligibility().is_in()
    }

    /// Whether it keeps its existing sessions.
    pub(crate) fn keeps_sessions(&self) -> bool {
        self.eligibility().keeps_sessions()
    }

    /// Whether a request of its sessions can be sent now; otherwise the request waits.
    pub(crate) fn can_begin(&self) -> bool {
        !self.is_full() && !self.is_joining()
    }

    /// Whether only requests of its existing sessions are sent to it.
    pub(crate) fn is_draining(&self) -> bool {
        self.eligibility().is_draining
    }

    pub(crate) fn eligibility(&self) -> Eligibility {
        Eligibility::from_bits(self.eligibility.load(Acquire))
    }

    pub(crate) fn set_eligibility(&self, eligibility: Eligibility) {
        self.eligibility.store(eligibility.to_bits(), Release);
    }

    /// Bound on concurrent requests and tunnels.
    pub(crate) fn requests_max(&self) -> u32 {
        self.requests_max.load(Relaxed)
    }

    pub(crate) fn set_requests_max(&self, requests_max: u32) {
        self.requests_max.store(requests_max, Relaxed);
    }

    /// The part of that bound that this process may use now.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.load(Relaxed).min(self.requests_max())
    }

    pub(crate) fn set_slots(&self, slots: u32) {
        self.slots.store(slots, Relaxed);
    }

    /// Requests of other processes to it.
    pub(crate) fn elsewhere(&self) -> u32 {
        self.elsewhere.load(Relaxed)
    }

    pub(crate) fn set_elsewhere(&self, requests: u32) {
        self.elsewhere.store(requests, Relaxed);
    }

    /// Counts a request that is sent to it; false, without counting, if it is full.
    pub(crate) fn try_begin(&self) -> bool {
        let before = self.load.requests.rise(1);
        let has_room =
            before + u64::from(self.load.tunnels.load(Relaxed)) < u64::from(self.slots());
        if !has_room {
            self.load.requests.fall(1);
        }
        has_room
    }

    /// Whether this process has as many requests there as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.in_use() >= u64::from(self.slots())
    }

    /// Requests and tunnels there, by this process.
    pub(crate) fn in_use(&self) -> u64 {
        self.load.in_use()
    }

    /// Whether a failure may be logged: at most one per second.
    pub(crate) fn may_tell(&self, now: Now) -> bool {
        let now_s = now.0 / 1000 + 1;
        self.told_s.swap(now_s, Relaxed) != now_s
    }

    /// Counts a line of its standard error; returns whether the line may be logged, and how many
    /// lines of an earlier second were not.
    pub(crate) fn may_log_stderr(&self, now: Now) -> (bool, u64) {
        let now_s = now.0 / 1000 + 1;
        let next = |packed: u64| match packed >> STDERR_COUNT_BITS == now_s {
            true => packed + 1,
            false => (now_s << STDERR_COUNT_BITS) + 1,
        };
        let before = self.stderr.update(Relaxed, Relaxed, next);
        let counted = before & ((1 << STDERR_COUNT_BITS) - 1);
        match before >> STDERR_COUNT_BITS == now_s {
            true => (counted < STDERR_LINES_PER_S, 0),
            false => (true, counted.saturating_sub(STDERR_LINES_PER_S)),
        }
    }

    /// The current load as measured by this process, or as the member reports it.
    pub(crate) fn current(&self, source: LoadMeasure) -> CurrentLoad {
        if source == LoadMeasure::Reported {
            return self.reported.last().map(CurrentLoad::reported).unwrap_or_default();
        }
        CurrentLoad {
            requests: narrow(self.load.requests.now()),
            tunnels: self.load.tunnels.load(Relaxed),
            bytes: self.load.bytes.now(),
        }
    }

    /// Moving average of the response time, in microseconds; 0: no response yet.
    pub(crate) fn latency_us(&self) -> u64 {
        self.totals.latency_us.load(Relaxed)
    }

    /// Adds one response to the average. Two workers may overwrite each other's update, which
    /// changes the average only a little.
    pub(crate) fn record_latency_us(&self, latency_us: u64) {
        let average = match self.latency_us() {
            0 => latency_us,
            old => (old * (LATENCY_SMOOTHING - 1) + latency_us) / LATENCY_SMOOTHING,
        };
        // 0 means "none": a response within a microsecond counts as one.
        self.totals.latency_us.store(average.max(1), Relaxed);
    }

    /// Copies the values that change with every request into `view`; reports are due every
    /// `interval_ms`.
    pub(crate) fn refresh(&self, view: &mut NodeView, now: Now, interval_ms: u64) {
        let (requests, bytes) = (&self.load.requests, &self.load.bytes);
        self.reported
            .catch_up(|| Work { requests: requests.take_most(), bytes: bytes.take_most() });
        let share = self.share_permille();
        view.eligible = share > 0 && !self.is_full();
        view.slow_start_permille = share.max(1);
        let own = Work { requests: requests.now(), bytes: bytes.now() };
        let seen = own.plus(self.reported.at(now, interval_ms));
        view.outstanding_requests = narrow(seen.requests).saturating_add(self.elsewhere());
        view.connections =
            view.outstanding_requests.saturating_add(self.load.tunnels.load(Relaxed));
        view.outstanding_bytes = seen.bytes;
        let rates = self.reported.rates(now);
        view.link_bytes_per_s = rates.link_bytes_per_s;
        view.fetch_bytes_per_s = rates.fetch_bytes_per_s;
    }
}

impl CurrentLoad {
    fn reported(load: NodeLoad) -> Self {
        Self {
            requests: narrow(load.requests_in_flight),
            // Idle connections are flows as well: a drain waits for them.
            tunnels: narrow(load.connections.saturating_sub(load.requests_in_flight)),
            bytes: load.bytes_outstanding,
        }
    }

    /// Connections in use, for which a drain waits.
    pub(crate) fn in_use(self) -> u32 {
        self.requests.saturating_add(self.tunnels)
    }
}

impl Load {
    /// Requests and tunnels.
    pub(crate) fn in_use(&self) -> u64 {
        self.requests.now() + u64::from(self.tunnels.load(Relaxed))
    }
}

impl Level {
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Returns the value before.
    pub(crate) fn rise(&self, by: u64) -> u64 {
        let before = self.now.fetch_add(by, Relaxed);
        let now = before + by;
        // Usually only a load: otherwise all workers would contend for the cache line.
        if now > self.most.load(Relaxed) {
            self.most.fetch_max(now, Relaxed);
        }
        before
    }

    pub(crate) fn fall(&self, by: u64) {
        self.now.fetch_sub(by, Relaxed);
    }

    /// The maximum since the last call.
    fn take_most(&self) -> u64 {
        self.most.swap(self.now(), Relaxed)
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::node_reports::ReportCell;

    fn address() -> ServerAddress {
        std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into()
    }

    fn view() -> NodeView {
        NodeView::idle(NodeId(0), 0, 1)
    }

    #[test]
    fn an_eligibility_is_read_as_written() {
        for share_permille in [0, 1, 1_000, u16::MAX] {
            for (is_joining, is_draining) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                let it = Eligibility { share_permille, is_joining, is_draining };
                assert_eq!(Eligibility::from_bits(it.to_bits()), it);
            }
        }
    }

    #[test]
    fn a_report_tells_of_others_until_it_is_old() {
        let member = SharedMember::new(NodeId(0), "n".into(), address(), Arc::default());
        let cell = Arc::<ReportCell>::default();
        member.reported.follow(Arc::clone(&cell));
        let hear = |now: u64, requests_in_flight: u64, bytes_outstanding: u64| {
            let load = NodeLoad { requests_in_flight, bytes_outstanding, ..NodeLoad::default() };
            assert!(cell.write(Now(now), None, &load));
        };
        let mut view = view();
        let mut seen = |now: u64| {
            member.refresh(&mut view, Now(now), 100);
            (view.outstanding_requests, view.connections, view.outstanding_bytes)
        };
        member.load.requests.rise(5);
        member.load.tunnels.store(2, Relaxed);
        member.load.bytes.rise(500);
        assert_eq!(seen(1_000), (5, 7, 500), "its own view");
        member.load.requests.fall(3);
        hear(1_000, 9, 400);
        assert_eq!(seen(1_000), (6, 8, 500), "five of the nine may have been ours");
        member.reported.sent_on();
        assert_eq!(seen(1_500), (7, 9, 500), "and one that was sent there since");
        assert_eq!(seen(1_501), (2, 4, 500), "stale: its own view alone");
        hear(1_600, 9, 0);
        assert_eq!(seen(1_600), (9, 11, 500), "two were the most of ours since then");
    }

    #[test]
    fn standard_error_is_logged_up_to_a_rate() {
        let member = SharedMember::new(NodeId(0), "n".into(), address(), Arc::default());
        for line in 0..STDERR_LINES_PER_S + 5 {
            assert_eq!(member.may_log_stderr(Now(9_000)), (line < STDERR_LINES_PER_S, 0));
        }
        assert_eq!(member.may_log_stderr(Now(10_500)), (true, 5));
        assert_eq!(member.may_log_stderr(Now(10_999)), (true, 0));
    }

    #[test]
    fn the_average_begins_at_the_first_answer_and_follows() {
        let member = SharedMember::new(NodeId(0), "n".into(), address(), Arc::default());
        assert_eq!(member.latency_us(), 0);
        member.record_latency_us(1_000);
        assert_eq!(member.latency_us(), 1_000);
        for _ in 0..200 {
            member.record_latency_us(2_000);
        }
        assert!((1_900..=2_000).contains(&member.latency_us()), "{}", member.latency_us());
        member.record_latency_us(0);
        assert!(member.latency_us() > 0);
    }
}
