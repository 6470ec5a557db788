//! Every bound of the fuzzer, with unit and reason.

use std::time::Duration;

/// Number of concurrent cases, each on addresses of its own: peers wait more than they work.
pub(crate) const LANES: usize = 48;

/// Timeout of peers for a client or an origin, in milliseconds: far above the time of an answer here, and
/// short, since cases that run into it are common.
pub(crate) const PEER_TIMEOUT_MS: u64 = 1_000;

/// How long a client waits for a peer that does nothing. Longer than all of the peer's timeouts together, so
/// that it indicates a hang.
pub(crate) const HANG: Duration = Duration::from_secs(10);

/// Maximum number of requests of a case, not counting the last one: enough to see the effect of one request
/// on the next.
pub(crate) const REQUESTS_MAX: u64 = 4;

/// After one of this many mutated replies the origin's connection stays open: often enough to see what
/// follows on it, and rarely, since peers wait for what such replies do not contain.
pub(crate) const BENT_OPEN_ONE_IN: u64 = 4;

/// Maximum length of a body, in bytes: several reads of a peer.
pub(crate) const BODY_BYTES_MAX: u64 = 3_000;

/// Maximum number of an origin's replies per client connection: more requests than a case has are a finding,
/// and must not be answered forever.
pub(crate) const ANSWERS_MAX: usize = 20;

/// Maximum number of attempts to minimise a failing case.
pub(crate) const MINIMISE_STEPS_MAX: usize = 400;

/// Time limit for minimising: cases that wait for a peer's timeouts take a second each.
pub(crate) const MINIMISE: Duration = Duration::from_secs(15);

/// Number of findings after which a run ends: the first ones are sufficient.
pub(crate) const FINDINGS_MAX: usize = 12;

/// Percentage of cases that all three peers must accept: otherwise the fuzzer tests little but refusals.
pub(crate) const ACCEPTED_PERCENT_MIN: u64 = 50;

/// Number of times that a failing case is replayed: if it fails again, it is a finding.
pub(crate) const REPLAYS: usize = 3;

/// Maximum percentage of cases that may fail once but not again: otherwise the fuzzer drops real findings.
pub(crate) const UNSTEADY_PERCENT_MAX: u64 = 1;

/// Timeout for the start of a peer.
pub(crate) const START: Duration = Duration::from_secs(30);
