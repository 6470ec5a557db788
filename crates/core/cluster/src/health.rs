//! The state of one node, and how checks, requests and operators change it.
//!
//! ```text
//!            first good check            silence, `fall` checks, or *ejected*:
//!  Joining ------------------> Up ------ refused, `passive_failures_max` ---> Down
//!     |                        ^                                               | ^
//!     |                        +--------------- `rise` good checks ------------+ |
//!     +------------------------- `fall` failed checks ---------------------------+
//!
//!  any of these --drain--> Draining --no request left--> Drained --resume--> back
//! ```
//!
//! Health and the operator's admin state are independent: checks continue while a node is
//! drained, so `resume` returns to its current health. The admin state is shown
//! first: a drained machine that is switched off is Drained, not Down.
//!
//! Whether failed requests may eject a node is decided by the table, which knows the other nodes: a
//! client chooses its requests, and must not be able to choose which nodes serve all clients.
//!
//! Invariants: only an Up node is eligible; only checks bring a node back, never successful
//! requests; each counter stays below its threshold, except that failed requests reach theirs while
//! the node may not be ejected.

use std::fmt;

use skep_units::{Now, Rng};

use crate::limits::{CHECK_JITTER_PERCENT, JOINING_INTERVAL_MS_MAX};

/// When a node counts as dead or alive. Thresholds are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Longest time from the start of one check to the start of the next, in milliseconds; a check
    /// that takes longer is followed by the next at once.
    pub interval_ms: u64,
    /// Milliseconds after which a check has failed. (Used by the caller, who performs the checks.)
    pub timeout_ms: u64,
    /// Consecutive good checks that bring a node back.
    pub rise: u32,
    /// Consecutive failed checks that take a node out.
    pub fall: u32,
    /// Consecutive failed requests that eject a node. A single refused connection also does.
    pub passive_failures_max: u32,
    /// Milliseconds over which a node that came up grows to its full share; 0 for at once.
    pub slow_start_ms: u64,
}

impl Default for HealthSettings {
    /// `rise` and `fall` are HAProxy's; without traffic a dead node is detected within 3 s, with
    /// traffic it costs one refused connection.
    fn default() -> Self {
        Self {
            interval_ms: 1_000,
            timeout_ms: 500,
            rise: 2,
            fall: 3,
            passive_failures_max: 3,
            slow_start_ms: 10_000,
        }
    }
}

/// Displayed state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// New: not checked yet, receives no requests.
    Joining,
    /// Receives requests.
    Up,
    /// Completes its requests and receives no new ones.
    Draining,
    /// Dead, receives no requests.
    Down { since: Now, reason: DownReason },
    /// Taken out by the operator, without requests.
    Drained,
}

/// Why a node went down, with the failure that crossed the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// `fall` checks failed.
    Checks(Failure),
    /// The connection of a request was refused.
    Refused,
    /// Its heartbeats stopped.
    Silent,
    /// `passive_failures_max` requests failed.
    Requests(Failure),
}

/// How a check or a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Connection refused.
    Refused,
    /// No route to the host or network.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The connection was reset.
    Reset,
    /// The answer violated the protocol.
    Malformed,
    /// This process has no permission to connect to the Unix socket.
    Denied,
    /// The Unix socket does not exist.
    NoSocket,
    /// It requires another secret than the one sent, or one at all.
    Secret,
    /// The answer had this status instead of the expected one.
    Status(u16),
}

/// Result of an active check.
pub type CheckResult = Result<(), Failure>;

/// Result of a client's request, as far as the node is responsible.
pub type RequestOutcome = Result<(), Failure>;

/// A change of the displayed state, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub at: Now,
    /// The previous state.
    pub from: HealthState,
    /// The new state.
    pub to: HealthState,
}

/// Health and admin state of one node.
#[derive(Clone, Debug)]
pub struct NodeHealth {
    settings: HealthSettings,
    health: Health,
    admin_state: AdminState,
    /// Consecutive good checks while down.
    good_checks: u32,
    /// Consecutive failed checks while joining or up, or of another kind while down.
    bad_checks: u32,
    /// Consecutive failed requests while up.
    bad_requests: u32,
    /// When the slow start began.
    warming_since: Now,
    /// Creation, or the start of the latest check.
    check_began_at: Now,
    /// The number of checks started so far.
    checks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Joining,
    Up,
    Down { since: Now, reason: DownReason },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdminState {
    Serve,
    Drain,
    Excluded,
}

impl NodeHealth {
    /// A node that was just added.
    pub fn new(settings: HealthSettings, now: Now) -> Self {
        let node = Self {
            settings,
            health: Health::Joining,
            admin_state: AdminState::Serve,
            good_checks: 0,
            bad_checks: 0,
            bad_requests: 0,
            warming_since: now,
            check_began_at: now,
            checks: 0,
        };
        node.check_invariants();
        node
    }

    /// The displayed state.
    pub fn state(&self) -> HealthState {
        match (self.admin_state, self.health) {
            (AdminState::Drain, _) => HealthState::Draining,
            (AdminState::Excluded, _) => HealthState::Drained,
            (AdminState::Serve, Health::Joining) => HealthState::Joining,
            (AdminState::Serve, Health::Up) => HealthState::Up,
            (AdminState::Serve, Health::Down { since, reason }) => {
                HealthState::Down { since, reason }
            }
        }
    }

    /// Whether its checks pass, regardless of the operator's orders.
    pub fn is_well(&self) -> bool {
        matches!(self.health, Health::Up)
    }

    /// Whether it may receive new requests.
    pub fn eligible(&self) -> bool {
        self.state() == HealthState::Up
    }

    /// Current fraction of its share in thousandths, `1..=1000`: grows linearly over
    /// `slow_start_ms` from the moment it came up.
    pub fn slow_start_permille(&self, now: Now) -> u16 {
        let elapsed_ms = now.since_ms(self.warming_since);
        if !self.eligible() || elapsed_ms >= self.settings.slow_start_ms {
            return 1_000;
        }
        let permille = u128::from(elapsed_ms) * 1_000 / u128::from(self.settings.slow_start_ms);
        (permille as u16).max(1)
    }

    /// When the next check is due. The first is due at once; later ones are spread by `seed`, which
    /// should differ between nodes and dispatchers.
    pub fn next_check_at(&self, seed: u64) -> Now {
        if self.checks == 0 {
            return self.check_began_at;
        }
        let interval_ms = match self.health {
            Health::Joining => self.settings.interval_ms.min(JOINING_INTERVAL_MS_MAX),
            Health::Up | Health::Down { .. } => self.settings.interval_ms,
        };
        let jitter_ms = interval_ms.saturating_mul(CHECK_JITTER_PERCENT) / 100;
        let drawn_ms = Rng::new(seed ^ self.checks.rotate_left(32)).below(jitter_ms + 1);
        self.check_began_at.plus_ms(interval_ms - drawn_ms)
    }

    /// A check begins; its result is passed to [`NodeHealth::on_check`].
    pub fn begin_check(&mut self, now: Now) {
        self.check_began_at = now;
        self.checks += 1;
    }

    /// A check has ended.
    pub fn on_check(&mut self, now: Now, result: CheckResult) -> Option<Transition> {
        self.change(now, |node| match (result, node.health) {
            (Ok(()), Health::Joining) => node.go_up(now),
            (Ok(()), Health::Up) => node.bad_checks = 0,
            (Ok(()), Health::Down { .. }) => {
                node.good_checks += 1;
                node.bad_checks = 0;
                if node.good_checks >= node.settings.rise {
                    node.go_up(now);
                }
            }
            (Err(failure), Health::Down { since, reason }) => {
                node.good_checks = 0;
                node.reconsider(since, reason, failure);
            }
            (Err(failure), Health::Joining | Health::Up) => {
                node.bad_checks += 1;
                if node.bad_checks >= node.settings.fall {
                    node.go_down(now, DownReason::Checks(failure));
                }
            }
        })
    }

    /// A client's request has ended. Counts only while the node is up, since late results of
    /// earlier requests carry no new information. `may_eject`: the table can spare the node.
    pub fn on_request(
        &mut self,
        now: Now,
        outcome: RequestOutcome,
        may_eject: bool,
    ) -> Option<Transition> {
        let failures_max = self.settings.passive_failures_max;
        self.change(now, |node| match (outcome, node.health) {
            (_, Health::Joining | Health::Down { .. }) => {}
            (Ok(()), Health::Up) => node.bad_requests = 0,
            (Err(failure), Health::Up) => {
                let (failures, reason) = match failure {
                    Failure::Refused => (failures_max, DownReason::Refused),
                    _ => (node.bad_requests + 1, DownReason::Requests(failure)),
                };
                node.bad_requests = failures.min(failures_max);
                if node.is_to_be_ejected() && may_eject {
                    node.go_down(now, reason);
                }
            }
        })
    }

    /// Its heartbeats have stopped.
    pub fn on_silence(&mut self, now: Now) -> Option<Transition> {
        self.change(now, |node| {
            if node.health == Health::Up {
                node.go_down(now, DownReason::Silent);
            }
        })
    }

    /// The operator drains the node.
    pub fn drain(&mut self, now: Now) -> Option<Transition> {
        self.change(now, |node| {
            if node.admin_state == AdminState::Serve {
                node.admin_state = AdminState::Drain;
            }
        })
    }

    /// The last request of a draining node has ended.
    pub fn on_idle(&mut self, now: Now) -> Option<Transition> {
        self.change(now, |node| {
            if node.admin_state == AdminState::Drain {
                node.admin_state = AdminState::Excluded;
            }
        })
    }

    /// The operator resumes the node. A drained one goes through slow start again (it may have
    /// been restarted); one that was still draining continues as before.
    pub fn resume(&mut self, now: Now) -> Option<Transition> {
        self.change(now, |node| {
            if node.admin_state == AdminState::Excluded {
                node.warming_since = now;
            }
            node.admin_state = AdminState::Serve;
        })
    }

    /// Settings were reloaded. Counters restart, the state is kept.
    pub fn set_settings(&mut self, settings: HealthSettings) {
        self.settings = settings;
        self.reset_counters();
        self.check_invariants();
    }

    /// Whether failed requests, rather than failed checks, took the node out.
    pub(crate) fn is_ejected(&self) -> bool {
        let Health::Down { reason, .. } = self.health else { return false };
        matches!(reason, DownReason::Refused | DownReason::Requests(_))
    }

    /// Whether enough requests have failed to eject the node, if it can be spared.
    pub(crate) fn is_to_be_ejected(&self) -> bool {
        self.bad_requests >= self.settings.passive_failures_max
    }

    /// Whether the operator has not drained the node.
    pub(crate) fn is_wanted(&self) -> bool {
        self.admin_state == AdminState::Serve
    }

    fn go_up(&mut self, now: Now) {
        self.health = Health::Up;
        self.warming_since = now;
        self.reset_counters();
    }

    fn go_down(&mut self, now: Now, reason: DownReason) {
        self.health = Health::Down { since: now, reason };
        self.reset_counters();
    }

    /// Another check failed while the node is down. If checks took it out, and `fall` consecutive
    /// checks now fail in another way, that becomes the reason: for example a server that started
    /// late and refuses the secret.
    fn reconsider(&mut self, since: Now, reason: DownReason, failure: Failure) {
        let is_new = matches!(reason, DownReason::Checks(known) if known != failure);
        self.bad_checks = if is_new { self.bad_checks + 1 } else { 0 };
        if self.bad_checks >= self.settings.fall {
            self.bad_checks = 0;
            self.health = Health::Down { since, reason: DownReason::Checks(failure) };
        }
    }

    fn reset_counters(&mut self) {
        self.good_checks = 0;
        self.bad_checks = 0;
        self.bad_requests = 0;
    }

    /// Applies one input and returns the change of the displayed state, if any.
    fn change(&mut self, now: Now, input: impl FnOnce(&mut Self)) -> Option<Transition> {
        let from = self.state();
        input(self);
        self.check_invariants();
        let to = self.state();
        (from != to).then_some(Transition { at: now, from, to })
    }

    pub(crate) fn check_invariants(&self) {
        let HealthSettings { rise, fall, passive_failures_max, interval_ms, .. } = self.settings;
        debug_assert!(rise > 0 && fall > 0 && passive_failures_max > 0 && interval_ms > 0);
        debug_assert!(self.good_checks < rise && self.bad_checks < fall);
        debug_assert!(self.bad_requests <= passive_failures_max);
        match self.health {
            Health::Joining => debug_assert!(self.good_checks == 0 && self.bad_requests == 0),
            Health::Up => debug_assert!(self.good_checks == 0),
            Health::Down { .. } => debug_assert!(self.bad_requests == 0),
        }
        debug_assert!(!self.eligible() || (self.health == Health::Up && self.is_wanted()));
    }
}

impl HealthState {
    /// The word for display, logs and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Down { .. } => "down",
            Self::Drained => "drained",
        }
    }
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down { reason, .. } => write!(f, "down ({reason})"),
            Self::Joining | Self::Up | Self::Draining | Self::Drained => f.write_str(self.word()),
        }
    }
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checks(failure) => write!(f, "checks failed: {failure}"),
            Self::Refused => write!(f, "{}", Failure::Refused),
            Self::Silent => f.write_str("no heartbeats"),
            Self::Requests(failure) => write!(f, "requests failed: {failure}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Reset => f.write_str("connection broken"),
            Self::Malformed => f.write_str("not a valid answer"),
            Self::Denied => f.write_str(
                "permission denied: the user or groups of this process may not connect to the socket",
            ),
            Self::NoSocket => f.write_str("no such socket"),
            Self::Secret => f.write_str("the secret is wrong or missing"),
            Self::Status(status) => write!(f, "status {status}"),
        }
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from.word(), self.to)
    }
}
