//! The table of counters and the per-thread set of their values.
//!
//! One table (`counter_table!` below) names each counter once: its variant, its field in a snapshot, and its
//! Prometheus family, label and help. A set has one writer, its thread; any thread may read. So an increment
//! is a plain load and store, without the lock prefix that `fetch_add` costs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::latency::Latency;
use crate::single_writer::bump;

/// The counters of one worker thread, on separate cache lines.
///
/// Only the owning thread may call the methods that write: two writers would lose counts (and nothing worse).
/// 128 bytes, because Intel's prefetcher fetches cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreCounters {
    counters: Counters,
    gauges: [AtomicU64; CoreGauge::ALL.len()],
    pub(crate) latency: Latency,
}

impl CoreCounters {
    /// Adds 1 to `counter`.
    pub fn inc(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `n` to `counter`; wraps after 2^64.
    pub fn add(&self, counter: Counter, n: u64) {
        bump(&self.counters.0[counter as usize], n);
    }

    /// Raises `gauge` by 1.
    pub fn gauge_inc(&self, gauge: CoreGauge) {
        self.gauge_move(gauge, 0, 1);
    }

    /// Lowers `gauge` by 1. One thread's share may be negative if another thread raised it; only the sum over
    /// all threads is meaningful.
    pub fn gauge_dec(&self, gauge: CoreGauge) {
        self.gauge_move(gauge, 1, 0);
    }

    /// Changes `gauge` by the difference from `from` to `to`.
    pub fn gauge_move(&self, gauge: CoreGauge, from: u64, to: u64) {
        bump(&self.gauges[gauge as usize], to.wrapping_sub(from));
    }

    /// Counts one request that took `total_us` microseconds from its first byte
    /// to the last byte of its reply.
    pub fn request_time_us(&self, total_us: u64) {
        self.latency.record(total_us);
    }

    /// This thread's own value of `counter`.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters.0[counter as usize].load(Relaxed)
    }

    /// This thread's own share of `gauge`: a wrapping number.
    pub fn gauge(&self, gauge: CoreGauge) -> u64 {
        self.gauges[gauge as usize].load(Relaxed)
    }

    /// Adds all of `other` to this set.
    pub(crate) fn absorb(&self, other: &Self) {
        for &counter in Counter::ALL {
            self.add(counter, other.get(counter));
        }
        for &gauge in CoreGauge::ALL {
            bump(&self.gauges[gauge as usize], other.gauge(gauge));
        }
        self.latency.absorb(&other.latency);
    }
}

/// Values that rise and fall, kept per thread and summed like counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreGauge {
    /// Currently open client connections.
    ConnectionsOpen,
    /// Requests whose reply isn't complete.
    RequestsInFlight,
    /// Bytes of replies that no socket has accepted yet.
    BytesOutstanding,
}

impl CoreGauge {
    /// Every gauge, in the order of its number.
    pub const ALL: &[Self] =
        &[Self::ConnectionsOpen, Self::RequestsInFlight, Self::BytesOutstanding];

    /// Prometheus name and help.
    pub(crate) fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::ConnectionsOpen => ("skep_connections_open", "Open client connections."),
            Self::RequestsInFlight => {
                ("skep_requests_in_flight", "Requests without a complete reply.")
            }
            Self::BytesOutstanding => {
                ("skep_bytes_outstanding", "Bytes of replies to clients that are not sent yet.")
            }
        }
    }
}

/// One Prometheus family: a name, its help, and the counters that are its samples.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// The label that distinguishes the samples; `None`: one sample without labels.
    pub(crate) label: Option<&'static str>,
    /// The counters, each with its value of the label ("" without one).
    pub(crate) samples: &'static [(Counter, &'static str)],
}

#[derive(Debug)]
struct Counters([AtomicU64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Counter::ALL.len()])
    }
}

/// Rows: `"name" "help" [by "label"] { Variant field [= "label value"]; ... }`.
macro_rules! counter_table {
    ($($name:literal $help:literal $(by $label:literal)? {
        $($variant:ident $field:ident $(= $value:literal)?;)+
    })+) => {
        /// What can be counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter {
            $($(#[doc = concat!($help $(, " (", $value, ")")?)] $variant,)+)+
        }

        impl Counter {
            /// Every counter, in the order of its number.
            pub const ALL: &[Self] = &[$($(Self::$variant,)+)+];
        }

        /// Sums over all threads of a process since it started.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Totals {
            $($(#[doc = concat!($help $(, " (", $value, ")")?)] pub $field: u64,)+)+
        }

        impl Totals {
            /// The value of `counter`.
            pub fn get(&self, counter: Counter) -> u64 {
                match counter { $($(Counter::$variant => self.$field,)+)+ }
            }

            pub(crate) fn absorb(&mut self, core: &CoreCounters) {
                $($(self.$field = self.$field.wrapping_add(core.get(Counter::$variant));)+)+
            }
        }

        pub(crate) const FAMILIES: &[Family] = &[$(Family {
            name: $name,
            help: $help,
            label: counter_table!(@label $($label)?),
            samples: &[$((Counter::$variant, concat!($($value)?)),)+],
        },)+];
    };
    (@label) => { None };
    (@label $label:literal) => { Some($label) };
}

counter_table! {
    "skep_connections_accepted_total" "Client connections accepted." {
        ConnectionsAccepted connections_accepted;
    }
    "skep_connections_taken_over_total" "Client connections that other nodes accepted and handed off to this one." {
        ConnectionsTakenOver connections_taken_over;
    }
    "skep_connections_refused_total" "Client connections refused, by the limit that was reached." by "reason" {
        RefusedTotal refused_total = "total";
        RefusedAddress refused_address = "address";
        RefusedDescriptors refused_descriptors = "descriptors";
        RefusedOverload refused_overload = "overload";
        RefusedDraining refused_draining = "draining";
    }
    "skep_connections_closed_total" "Client connections closed, by reason." by "reason" {
        ClosedClient closed_client = "client";
        ClosedIdle closed_idle = "idle";
        ClosedLifetime closed_lifetime = "lifetime";
        ClosedHeadTimeout closed_head_timeout = "head_timeout";
        ClosedBodySlow closed_body_slow = "body_slow";
        ClosedWriteStall closed_write_stall = "write_stall";
        ClosedSendSlow closed_send_slow = "send_slow";
        ClosedReject closed_reject = "reject";
        ClosedError closed_error = "error";
        ClosedDraining closed_draining = "draining";
        ClosedMoved closed_moved = "moved";
    }
    "skep_requests_total" "Requests with a valid head." {
        Requests requests;
    }
    "skep_responses_total" "Replies started, by status class." by "class" {
        Responses1xx responses_1xx = "1xx";
        Responses2xx responses_2xx = "2xx";
        Responses3xx responses_3xx = "3xx";
        Responses4xx responses_4xx = "4xx";
        Responses5xx responses_5xx = "5xx";
    }
    "skep_rejects_total" "Requests rejected by the HTTP engine before a handler, by status." by "status" {
        Reject400 reject_400 = "400";
        Reject408 reject_408 = "408";
        Reject413 reject_413 = "413";
        Reject414 reject_414 = "414";
        Reject417 reject_417 = "417";
        Reject431 reject_431 = "431";
        Reject501 reject_501 = "501";
        Reject503 reject_503 = "503";
        Reject505 reject_505 = "505";
        RejectOther reject_other = "other";
    }
    "skep_slow_replies_total" "Replies sent by copying because the client is slow." {
        SlowReplies slow_replies;
    }
    "skep_pins_refused_total" "Replies sent by copying, or refused, because replies to the client's address already pin the maximum of memory." {
        PinsRefused pins_refused;
    }
    "skep_received_bytes_total" "Bytes read from clients." {
        ReceivedBytes received_bytes;
    }
    "skep_sent_bytes_total" "Bytes written to clients." {
        SentBytes sent_bytes;
    }
    "skep_cache_requests_total" "Requests by cache result." by "result" {
        CacheHit cache_hit = "hit";
        CacheFill cache_fill = "fill";
        CacheFillJoined cache_fill_joined = "fill_joined";
        CacheRevalidated cache_revalidated = "revalidated";
        CacheStreamed cache_streamed = "streamed";
        CachePeerHit cache_peer_hit = "peer_hit";
        CachePeerJoined cache_peer_joined = "peer_joined";
    }
    "skep_cache_refreshes_total" "Background refreshes of stored responses of pools, by reason: stale, or requested often and soon stale." by "why" {
        RefreshStale refresh_stale = "stale";
        RefreshAhead refresh_ahead = "ahead";
    }
    "skep_cluster_cache_total" "Segments requested from the cluster, by outcome." by "outcome" {
        ClusterPeerHit cluster_peer_hit = "peer_hit";
        ClusterOwner cluster_owner = "owner";
        ClusterOrigin cluster_origin = "origin";
        ClusterRemoteFill cluster_remote_fill = "remote_fill";
        ClusterFailed cluster_failed = "failed";
        ClusterSilent cluster_silent = "silent";
        ClusterDirectoryError cluster_directory_error = "directory_error";
        ClusterRefused cluster_refused = "refused";
        ClusterLost cluster_lost = "lost";
    }
    "skep_cluster_cache_offers_total" "Sole and primary replicas offered to other nodes on eviction, by outcome." by "outcome" {
        ClusterPassedOn cluster_passed_on = "taken";
        ClusterNotPassedOn cluster_not_passed_on = "not_taken";
    }
    "skep_cluster_cache_bytes_total" "Bytes fetched or filled into memory, by source." by "from" {
        ClusterPeerBytes cluster_peer_bytes = "peer";
        ClusterOriginBytes cluster_origin_bytes = "origin";
    }
    "skep_peer_requests_total" "Requests from other nodes, by outcome." by "outcome" {
        PeerServed peer_served = "served";
        PeerNotThere peer_not_there = "not_there";
        PeerOverloaded peer_overloaded = "overloaded";
        PeerTakenOver peer_taken_over = "taken_over";
    }
    "skep_peer_sent_bytes_total" "Bytes of segments sent to other nodes." {
        PeerSentBytes peer_sent_bytes;
    }
    "skep_compressions_total" "Variants compressed and kept, and responses compressed while they were passed on, by coding." by "coding" {
        CompressionsBr compressions_br = "br";
        CompressionsGzip compressions_gzip = "gzip";
        CompressionsZstd compressions_zstd = "zstd";
    }
    "skep_compression_input_bytes_total" "Input bytes of compression, by coding." by "coding" {
        CompressionInputBr compression_input_br = "br";
        CompressionInputGzip compression_input_gzip = "gzip";
        CompressionInputZstd compression_input_zstd = "zstd";
    }
    "skep_compression_output_bytes_total" "Output bytes of compression, by coding." by "coding" {
        CompressionOutputBr compression_output_br = "br";
        CompressionOutputGzip compression_output_gzip = "gzip";
        CompressionOutputZstd compression_output_zstd = "zstd";
    }
    "skep_compressions_skipped_total" "Compressions given up, by cause." by "cause" {
        CompressionsUseless compressions_useless = "useless";
        CompressionsBusy compressions_busy = "busy";
        CompressionsMemory compressions_memory = "memory";
        CompressionsSource compressions_source = "source";
        CompressionsLate compressions_late = "late";
    }
    "skep_cache_too_large_total" "Segments fetched but not cached because they are larger than the cache." {
        CacheTooLarge cache_too_large;
    }
    "skep_fields_dropped_total" "Request fields dropped because of `_` in their names." {
        FieldsDropped fields_dropped;
    }
    "skep_disk_reads_total" "File reads, by method." by "way" {
        DiskReadNowait disk_read_nowait = "nowait";
        DiskReadPool disk_read_pool = "pool";
    }
    "skep_fetch_errors_total" "Error replies sent because the bytes could not be fetched, by source of the failure." by "cause" {
        FetchErrorsFile fetch_errors_file = "file";
        FetchErrorsOrigin fetch_errors_origin = "origin";
        FetchErrorsPeer fetch_errors_peer = "peer";
        FetchErrorsConnection fetch_errors_connection = "connection";
        FetchErrorsMemory fetch_errors_memory = "memory";
        FetchErrorsLost fetch_errors_lost = "lost";
        FetchErrorsAbandoned fetch_errors_abandoned = "abandoned";
    }
    "skep_replies_cut_total" "Replies cut short because the rest could not be fetched, by source of the failure." by "cause" {
        RepliesCutFile replies_cut_file = "file";
        RepliesCutOrigin replies_cut_origin = "origin";
        RepliesCutPeer replies_cut_peer = "peer";
        RepliesCutConnection replies_cut_connection = "connection";
        RepliesCutMemory replies_cut_memory = "memory";
        RepliesCutLost replies_cut_lost = "lost";
        RepliesCutAbandoned replies_cut_abandoned = "abandoned";
    }
    "skep_upstream_requests_total" "Requests sent to nodes, retries included." {
        UpstreamRequests upstream_requests;
    }
    "skep_upstream_connects_total" "Connection attempts to nodes." {
        UpstreamConnects upstream_connects;
    }
    "skep_upstream_connect_failures_total" "Failed connection attempts to nodes." {
        UpstreamConnectFailures upstream_connect_failures;
    }
    "skep_upstream_reused_total" "Requests sent on an idle connection." {
        UpstreamReused upstream_reused;
    }
    "skep_upstream_retries_total" "Requests retried on another node." {
        UpstreamRetries upstream_retries;
    }
    "skep_upstream_retry_budget_exhausted_total" "Retries not sent because the retry budget was exhausted." {
        UpstreamRetryBudgetExhausted upstream_retry_budget_exhausted;
    }
    "skep_upstream_spared_total" "Times that consecutive failures did not eject a node because ejection was not allowed." {
        UpstreamSpared upstream_spared;
    }
    "skep_upstream_failures_total" "Requests to nodes without a complete reply." {
        UpstreamFailures upstream_failures;
    }
    "skep_upstream_timeouts_total" "Requests to nodes that timed out." {
        UpstreamTimeouts upstream_timeouts;
    }
    "skep_slow_passes_cut_total" "Uncacheable replies cut off because too many clients of one address were slow to receive such replies." {
        SlowPassesCut slow_passes_cut;
    }
    "skep_redirects_total" "Requests answered with a redirect to a node." {
        Redirects redirects;
    }
    "skep_no_node_total" "Requests refused because no node was available." {
        NoNode no_node;
    }
    "skep_upgrades_total" "Connections upgraded to tunnels (WebSocket and other upgrades)." {
        Upgrades upgrades;
    }
    "skep_log_lines_total" "Access log lines, by fate." by "fate" {
        LogLines log_lines = "written";
        LogDropped log_dropped = "dropped";
    }
    "skep_log_write_errors_total" "Failed writes to the access log." {
        LogWriteErrors log_write_errors;
    }
    "skep_reloads_total" "Config reloads, by outcome." by "outcome" {
        ReloadsOk reloads_ok = "ok";
        ReloadsRefused reloads_refused = "refused";
    }
}

impl Counter {
    /// The counter for a reply with `status`.
    pub fn response(status: u16) -> Self {
        match status / 100 {
            1 => Self::Responses1xx,
            2 => Self::Responses2xx,
            3 => Self::Responses3xx,
            4 => Self::Responses4xx,
            _ => Self::Responses5xx,
        }
    }

    /// The counter for a request that the engine refused with `status`.
    pub fn reject(status: u16) -> Self {
        match status {
            400 => Self::Reject400,
            408 => Self::Reject408,
            413 => Self::Reject413,
            414 => Self::Reject414,
            417 => Self::Reject417,
            431 => Self::Reject431,
            501 => Self::Reject501,
            503 => Self::Reject503,
            505 => Self::Reject505,
            _ => Self::RejectOther,
        }
    }
}

impl Totals {
    /// The number of requests refused by the engine, with any status.
    pub fn rejects(&self) -> u64 {
        self.family("skep_rejects_total")
    }

    /// The number of connections refused, by any limit.
    pub fn refused(&self) -> u64 {
        self.family("skep_connections_refused_total")
    }

    /// The number of requests answered from this node's memory, with or without prior validation.
    pub fn cache_hits(&self) -> u64 {
        self.cache_hit + self.cache_revalidated
    }

    /// The number of requests that were looked up in memory.
    pub fn cache_lookups(&self) -> u64 {
        self.family("skep_cache_requests_total")
    }

    fn family(&self, name: &str) -> u64 {
        let samples = FAMILIES.iter().filter(|f| f.name == name).flat_map(|f| f.samples);
        samples.map(|&(counter, _)| self.get(counter)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_table() {
        for (number, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter as usize, number);
        }
        for (number, &gauge) in CoreGauge::ALL.iter().enumerate() {
            assert_eq!(gauge as usize, number);
        }
        let in_families: usize = FAMILIES.iter().map(|f| f.samples.len()).sum();
        assert_eq!(in_families, Counter::ALL.len());
    }

    #[test]
    fn labels_are_there_exactly_when_needed_and_never_twice() {
        for family in FAMILIES {
            let mut values: Vec<_> = family.samples.iter().map(|s| s.1).collect();
            assert_eq!(family.label.is_none(), values == [""], "{}", family.name);
            values.sort_unstable();
            values.dedup();
            assert_eq!(values.len(), family.samples.len(), "{}", family.name);
            let same_name = FAMILIES.iter().filter(|f| f.name == family.name).count();
            assert_eq!(same_name, 1, "{}", family.name);
        }
    }

    #[test]
    fn each_counter_adds_to_its_own_total_only() {
        for &counter in Counter::ALL {
            let core = CoreCounters::default();
            core.inc(counter);
            core.add(counter, 2);
            let mut totals = Totals::default();
            totals.absorb(&core);
            for &other in Counter::ALL {
                assert_eq!(totals.get(other), if other == counter { 3 } else { 0 });
            }
        }
    }

    #[test]
    fn status_codes_find_their_counters() {
        assert_eq!(Counter::response(101), Counter::Responses1xx);
        assert_eq!(Counter::response(204), Counter::Responses2xx);
        assert_eq!(Counter::response(304), Counter::Responses3xx);
        assert_eq!(Counter::response(404), Counter::Responses4xx);
        assert_eq!(Counter::response(503), Counter::Responses5xx);
        assert_eq!(Counter::reject(431), Counter::Reject431);
        assert_eq!(Counter::reject(421), Counter::RejectOther);
    }

    #[test]
    fn sums_of_families() {
        let core = CoreCounters::default();
        core.inc(Counter::RefusedTotal);
        core.add(Counter::RefusedDraining, 4);
        core.inc(Counter::Reject431);
        let mut totals = Totals::default();
        totals.absorb(&core);
        assert_eq!((totals.refused(), totals.rejects()), (5, 1));
    }

    #[test]
    fn whatever_the_memory_did_it_was_asked() {
        let core = CoreCounters::default();
        core.add(Counter::CacheHit, 10);
        core.add(Counter::CacheRevalidated, 20);
        core.inc(Counter::CachePeerHit);
        core.add(Counter::CachePeerJoined, 2);
        core.add(Counter::CacheFill, 3);
        let mut totals = Totals::default();
        totals.absorb(&core);
        assert_eq!((totals.cache_hits(), totals.cache_lookups()), (30, 36));
    }

    #[test]
    fn sets_of_two_threads_share_no_cache_line() {
        assert_eq!(align_of::<CoreCounters>(), 128);
        assert_eq!(size_of::<CoreCounters>() % 128, 0);
    }
}
