//! Results of one seed, or of many.

use std::fmt;

use skep_sim::SeedTotals;

/// Counters of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) seeds: u64,
    pub(crate) events: u64,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) fills: u64,
    pub(crate) resumed: u64,
    pub(crate) unleased: u64,
    pub(crate) origin_chunks: u64,
    pub(crate) peer_chunks: u64,
    pub(crate) takeovers: u64,
    pub(crate) directory_errors: u64,
    pub(crate) expired: u64,
    /// Sole replicas that another node took, replicas that a node promoted, and offers that no node
    /// took.
    pub(crate) taken: u64,
    pub(crate) promoted: u64,
    pub(crate) not_taken: u64,
    /// Segments that no node holds any more.
    pub(crate) sole_lost: u64,
    /// Heads that a node received from another.
    pub(crate) peer_heads: u64,
    /// Answers about files that named a holder, that no node has it, or that were uncertain.
    pub(crate) files_found: u64,
    pub(crate) files_nobody: u64,
    pub(crate) files_unsure: u64,
    /// Purges that all linked nodes acknowledged, and purges with a new stamp.
    pub(crate) purges: u64,
    pub(crate) purged_again: u64,
    /// Purges that some node was reported not to have acknowledged.
    pub(crate) purges_incomplete: u64,
    pub(crate) wait_ms_max: u64,
}

impl Totals {
    /// What must happen at times, but did not.
    pub(crate) fn never(&self) -> Vec<&'static str> {
        let Self { served, fills, resumed, unleased, peer_chunks, .. } = *self;
        let counts = [
            ("client served", served),
            ("fill", fills),
            ("fill at an offset", resumed),
            ("fill without a lease", unleased),
            ("chunk of a peer", peer_chunks),
            ("takeover", self.takeovers),
            ("directory error", self.directory_errors),
            ("lease expired", self.expired),
            ("sole replica taken", self.taken),
            ("replica promoted", self.promoted),
            ("offer that nobody took", self.not_taken),
            ("head from a peer", self.peer_heads),
            ("file found", self.files_found),
            ("file that nobody has", self.files_nobody),
            ("file that somebody may have", self.files_unsure),
            ("purge", self.purges),
            ("purge with a new stamp", self.purged_again),
            ("purge that did not reach all in time", self.purges_incomplete),
        ];
        counts.iter().filter(|(_, count)| *count == 0).map(|(what, _)| *what).collect()
    }
}

impl SeedTotals for Totals {
    fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.served += other.served;
        self.failed += other.failed;
        self.fills += other.fills;
        self.resumed += other.resumed;
        self.unleased += other.unleased;
        self.origin_chunks += other.origin_chunks;
        self.peer_chunks += other.peer_chunks;
        self.takeovers += other.takeovers;
        self.directory_errors += other.directory_errors;
        self.expired += other.expired;
        self.taken += other.taken;
        self.promoted += other.promoted;
        self.not_taken += other.not_taken;
        self.sole_lost += other.sole_lost;
        self.peer_heads += other.peer_heads;
        self.files_found += other.files_found;
        self.files_nobody += other.files_nobody;
        self.files_unsure += other.files_unsure;
        self.purges += other.purges;
        self.purged_again += other.purged_again;
        self.purges_incomplete += other.purges_incomplete;
        self.wait_ms_max = self.wait_ms_max.max(other.wait_ms_max);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, events, served, failed, fills, resumed, unleased, .. } = self;
        let Self { origin_chunks, peer_chunks, takeovers, directory_errors, expired, .. } = self;
        let Self { taken, promoted, not_taken, sole_lost, wait_ms_max, .. } = self;
        let Self { peer_heads, purges, purged_again, .. } = self;
        let Self { files_found, files_nobody, files_unsure, .. } = self;
        write!(
            f,
            "{seeds} seeds, {events} events, {served} clients served, {failed} not; {fills} fills \
             ({resumed} of them at an offset, {unleased} without a lease), {origin_chunks} chunks \
             of the origin, {peer_chunks} of peers; {takeovers} takeovers, {directory_errors} \
             directory errors, {expired} leases expired; {taken} sole replicas taken, {promoted} \
             replicas promoted, {not_taken} offers in vain, {sole_lost} sole replicas lost; \
             {peer_heads} heads from peers, {purges} purges acknowledged by all, {purged_again} \
             new stamps; {files_found} files found, {files_nobody} at no node, {files_unsure} not \
             certain; at most {wait_ms_max} ms of waiting"
        )
    }
}
