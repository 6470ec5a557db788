//! An operator's settings of a group, in the form that the request path reads.

use std::sync::Arc;

use skep_cluster::{MembershipSettings, RetryBudgetSettings};
use skep_comparison::ArmSpec;
use skep_spool::BodyBuffers;
use skep_units::ServerAddress;
use skep_upstream::PoolLimits;

use crate::limits::RETRY_FLOOR_PER_S;
use crate::members::protocol::MemberProtocol;
use crate::members::session::Sticky;

/// The words by which an operator knows a group and its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupWords {
    /// Such as `service`.
    pub group: &'static str,
    /// Such as `node`.
    pub member: &'static str,
}

/// What a config says of a group.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    pub settings: GroupSettings,
    pub members: Vec<MemberSpec>,
}

/// What a config, or a command, says of a member.
#[derive(Clone, Debug)]
pub struct MemberSpec {
    pub name: String,
    /// Where it is connected to.
    pub address: ServerAddress,
    /// Its share under weighted policies.
    pub weight: u32,
    /// The clients' address of it.
    pub authority: String,
    /// Requests and tunnels that there are at a time, at most; `u32::MAX` is no bound.
    pub requests_max: u32,
    /// Of these, those that this process may have; `None`: as [`Group::set_slots`](crate::Group::set_slots)
    /// says, 0 until then.
    pub slots: Option<u32>,
}

/// A group's settings; replaced whole on a reload.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    pub protocol: MemberProtocol,
    /// Name of the policy in force.
    pub policy: String,
    /// The policies that there can be, and why no other.
    pub policies: (&'static [&'static str], &'static str),
    /// The arms of an A/B test of policies; empty: there is none.
    pub arms: Vec<ArmSpec>,
    /// Whether members decide about clients' arms themselves, by the hash of their addresses, and count.
    pub arms_by_hash: bool,
    /// Why there can be no A/B test, if so.
    pub no_comparison: Option<&'static str>,
    /// Bytes of memory that each member has for what one worker sends there; 0: not known.
    pub memory_bytes: u64,
    /// Whether members fetch from each other's memory what they do not have.
    pub have_cluster_cache: bool,
    /// Where policies learn the sizes of objects.
    pub sizes: SizeSource,
    /// Where a member's current load is read.
    pub loads: LoadMeasure,
    /// Whether a client that closes its side while it waits has left, so that its request is given up.
    pub gives_up: bool,
    /// How bodies wait for slow clients, so that these hold no place at a member; `None`: they do not.
    pub buffering: Option<Buffering>,
    /// Whether replies name the member that they come from, as `X-Skep-Node`.
    pub names_member: bool,
    /// Other members that an idempotent request is tried on after its first failed.
    pub retries_max: u32,
    pub retry_budget: RetryBudgetSettings,
    /// Time from the end of a request to the head of its response.
    pub response_timeout_ms: u64,
    /// Time without a byte in either direction, of a member that has to send or to take some.
    pub stall_timeout_ms: u64,
    /// The same of an upgraded connection, on both sides; 0 is no limit.
    pub tunnel_idle_ms: u64,
    pub connections: PoolLimits,
    pub queue: QueueSettings,
    /// How requests of a session find their member again; `None`: the policy chooses for each.
    pub sticky: Option<Sticky>,
    pub membership: MembershipSettings,
    pub check: CheckSettings,
    /// Time from one report of a member's load to the next.
    pub report_interval_ms: u64,
    /// `Retry-After: N\r\n`.
    pub retry_after_line: Box<[u8]>,
}

/// How bodies wait for slow clients.
#[derive(Clone, Debug)]
pub struct Buffering {
    /// Where they do.
    pub buffers: Arc<BodyBuffers>,
    /// Memory of one body before it goes on in the spool.
    pub memory_bytes_max: u64,
    /// Whether requests take a place when their bodies are there.
    pub requests: bool,
    /// Whether responses are read faster than their clients take them.
    pub responses: bool,
}

/// Where a member's current load is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadMeasure {
    /// This process sends it all of its requests, or its share of them, and counts them.
    Counted,
    /// Its own reports: its packets pass by this process.
    Reported,
}

/// Where policies learn the sizes of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeSource {
    /// From responses, which pass by here.
    Responses,
    /// Members tell of what they have answered for, by whatever host they were asked for it.
    Told,
}

/// Requests that wait for a member with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Requests that wait at a time, at most; 0: none waits.
    pub requests_max: usize,
    /// Time that one waits, at most.
    pub timeout_ms: u64,
}

/// How members are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// The path that is asked for; `None`: a connection is enough.
    pub path: Option<String>,
    /// Field Host; `None`: the member's address.
    pub host: Option<String>,
    /// The status of a good check.
    pub status: u16,
}

/// The budget of retries of a group, as a share of its requests.
pub fn retry_budget(percent: u32) -> RetryBudgetSettings {
    RetryBudgetSettings {
        ratio_permille: percent * 10,
        // No budget means no retries, not ten a second.
        floor_per_s: if percent == 0 { 0 } else { RETRY_FLOOR_PER_S },
    }
}
