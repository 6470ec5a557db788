//! An operator's settings of a group, in the form read on the request path.

use std::sync::Arc;

use skep_cluster::{MembershipSettings, RetryBudgetSettings};
use skep_comparison::ArmSpec;
use skep_spool::BodyBuffers;
use skep_units::ServerAddress;
use skep_upstream::PoolLimits;

use crate::limits::RETRY_FLOOR_PER_S;
use crate::members::protocol::MemberProtocol;
use crate::members::session::Sticky;

/// The terms used to an operator for a group and its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupWords {
    /// Such as `service`.
    pub group: &'static str,
    /// Such as `node`.
    pub member: &'static str,
}

/// The config of a group.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    pub settings: GroupSettings,
    pub members: Vec<MemberSpec>,
}

/// The specification of a member, by a config or a command.
#[derive(Clone, Debug)]
pub struct MemberSpec {
    pub name: String,
    /// The address to connect to.
    pub address: ServerAddress,
    /// Its weight under weighted policies.
    pub weight: u32,
    /// Its address for clients.
    pub authority: String,
    /// Bound on concurrent requests and tunnels; `u32::MAX`: none.
    pub requests_max: u32,
    /// The part of that bound that this process may use; `None`: set by
    /// [`Group::set_slots`](crate::Group::set_slots), 0 until then.
    pub slots: Option<u32>,
}

/// A group's settings; replaced as a whole on a reload.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    pub protocol: MemberProtocol,
    /// Name of the policy in force.
    pub policy: String,
    /// The policies that are allowed, and the reason why no others are.
    pub policies: (&'static [&'static str], &'static str),
    /// The arms of an A/B test of policies; empty: no test.
    pub arms: Vec<ArmSpec>,
    /// Whether members determine clients' arms themselves, by the hash of their addresses, and count.
    pub arms_by_hash: bool,
    /// The reason why no A/B test is possible, if so.
    pub no_comparison: Option<&'static str>,
    /// Bytes of memory that each member has for the requests of one worker; 0: unknown.
    pub memory_bytes: u64,
    /// Whether members fetch from each other's memory what they lack.
    pub have_cluster_cache: bool,
    /// The source of object sizes for policies.
    pub sizes: SizeSource,
    /// The source of a member's current load.
    pub loads: LoadMeasure,
    /// Whether a client that closes its side while it waits counts as gone, so that its request is
    /// cancelled.
    pub gives_up: bool,
    /// How bodies wait for slow clients without occupying slots of members; `None`: they are not buffered.
    pub buffering: Option<Buffering>,
    /// Whether replies name their member, in `X-Skep-Node`.
    pub names_member: bool,
    /// Number of other members to which an idempotent request is sent after a failure.
    pub retries_max: u32,
    pub retry_budget: RetryBudgetSettings,
    /// Time limit from the end of a request to the head of its response.
    pub response_timeout_ms: u64,
    /// Time limit without a byte in either direction, while the member has to send or receive.
    pub stall_timeout_ms: u64,
    /// The same for an upgraded connection, on both sides; 0: no limit.
    pub tunnel_idle_ms: u64,
    pub connections: PoolLimits,
    pub queue: QueueSettings,
    /// How requests of a session find their member; `None`: the policy selects for each request.
    pub sticky: Option<Sticky>,
    pub membership: MembershipSettings,
    pub check: CheckSettings,
    /// Interval of a member's load reports, in milliseconds.
    pub report_interval_ms: u64,
    /// `Retry-After: N\r\n`.
    pub retry_after_line: Box<[u8]>,
}

/// How bodies are buffered for slow clients.
#[derive(Clone, Debug)]
pub struct Buffering {
    /// The buffers.
    pub buffers: Arc<BodyBuffers>,
    /// Memory of one body, in bytes, above which it is written to the spool.
    pub memory_bytes_max: u64,
    /// Whether requests take a slot only after their bodies were received.
    pub requests: bool,
    /// Whether responses are read faster than their clients receive them.
    pub responses: bool,
}

/// The source of a member's current load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadMeasure {
    /// This process sends it all of its requests, or its share of them, and counts them.
    Counted,
    /// Its own reports: its packets do not pass through this process.
    Reported,
}

/// The source of object sizes for policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeSource {
    /// Responses, which pass through this process.
    Responses,
    /// Members report what they have served, regardless of the host of the request.
    Told,
}

/// Requests that wait for a member with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Requests that wait at the same time, at most; 0: none waits.
    pub requests_max: usize,
    /// Time that one waits, at most, in milliseconds.
    pub timeout_ms: u64,
}

/// How members are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// The path to request; `None`: a connection is sufficient.
    pub path: Option<String>,
    /// Field Host; `None`: the member's address.
    pub host: Option<String>,
    /// The status of a successful check.
    pub status: u16,
}

/// The budget of retries of a group, as a share of its requests.
pub fn retry_budget(percent: u32) -> RetryBudgetSettings {
    RetryBudgetSettings {
        ratio_permille: percent * 10,
        // No budget means no retries, not ten per second.
        floor_per_s: if percent == 0 { 0 } else { RETRY_FLOOR_PER_S },
    }
}
