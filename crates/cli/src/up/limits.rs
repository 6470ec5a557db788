//! Every bound of `skep up`, with unit and reason.

/// Ports of nodes, below Linux's range for outgoing connections (32768 and
/// up), so that no client sits on the port of a node that is being restarted.
pub(super) const PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// Time in which all nodes must be up, in milliseconds: a loaded machine
/// starts processes slowly.
pub(super) const READY_MS: u64 = 60_000;

/// How often the dispatcher is asked whether all nodes are up, in milliseconds.
pub(super) const READY_POLL_MS: u64 = 50;

/// Time from one check of a node to the next, in milliseconds; shorter than by default, since a
/// user who kills a node is watching.
pub(super) const CHECK_MS: u64 = 500;

/// Time that requests in progress get to end, in milliseconds; shorter than by default, since the
/// user waits at the terminal.
pub(super) const DRAIN_MS: u64 = 5_000;

/// What a child may take to end beyond its drain before it is killed, in
/// milliseconds.
pub(super) const END_MS: u64 = 3_000;

/// Time in which the rest of what a child wrote before its end is read, in milliseconds: it is in
/// the pipe already.
pub(super) const LAST_WORDS_MS: u64 = 500;

/// Pause before a child that died is started again, in milliseconds; doubled
/// each time it dies young.
pub(super) const RESTART_MS: u64 = 100;

/// Longest such pause, in milliseconds.
pub(super) const RESTART_MS_MAX: u64 = 5_000;

/// A child that lived so long did not die young, in milliseconds.
pub(super) const YOUNG_MS: u64 = 10_000;

/// A line of a child's output is cut after so many bytes.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024;

/// Events of children that wait to be heard: one child has few.
pub(super) const EVENTS_MAX: usize = 64;
