//! Every bound of the fuzzer, with unit and reason.

use std::time::Duration;

/// Cases at once, each on addresses of its own: peers wait more than they work.
pub(crate) const LANES: usize = 48;

/// Time in which a peer gives up a client or an origin, in milliseconds: far above
/// what an answer takes here, and short, for cases that wait for it are common.
pub(crate) const PEER_TIMEOUT_MS: u64 = 1_000;

/// How long a client waits for a peer that does nothing. Above the peer's own times
/// together, so that it marks a hang.
pub(crate) const HANG: Duration = Duration::from_secs(10);

/// Requests of a case at most, the last one not counted: enough for what one request
/// does to the next.
pub(crate) const REQUESTS_MAX: u64 = 4;

/// Of so many bent replies one leaves the origin's connection open: enough to see what
/// follows on it, and few, for peers wait for what such replies do not say.
pub(crate) const BENT_OPEN_ONE_IN: u64 = 4;

/// Bytes of a body at most: several reads of a peer.
pub(crate) const BODY_BYTES_MAX: u64 = 3_000;

/// Replies of an origin to one connection of a client at most: more requests than a
/// case has are a finding, and not to be answered for ever.
pub(crate) const ANSWERS_MAX: usize = 20;

/// Attempts to make a failing case smaller.
pub(crate) const MINIMISE_STEPS_MAX: usize = 400;

/// Time for them: cases that wait for a peer's timeouts take a second each.
pub(crate) const MINIMISE: Duration = Duration::from_secs(15);

/// Findings after which a run ends: the first ones tell enough.
pub(crate) const FINDINGS_MAX: usize = 12;

/// Of a hundred cases so many must be accepted by all three, or the fuzzer looks at
/// little but refusals.
pub(crate) const ACCEPTED_PERCENT_MIN: u64 = 50;

/// Times that a case is played again when it fails: what comes out once more is a finding.
pub(crate) const REPLAYS: usize = 3;

/// Of a hundred cases so many at most may fail once and not again, or the fuzzer drops
/// what it should tell.
pub(crate) const UNSTEADY_PERCENT_MAX: u64 = 1;

/// Time for a peer to start.
pub(crate) const START: Duration = Duration::from_secs(30);
