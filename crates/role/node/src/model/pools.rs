//! Pools: the servers of applications, to which routes lead.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use skep_cluster::{HealthSettings, MembershipSettings};
use skep_config::{
    Config, POLICY_NAMES, PoolConfig, PoolHealthConfig, SameSite, ServerConfig, StickyBy,
};
use skep_proxy::{
    CheckSettings, Group, GroupControlError, GroupSettings, GroupSpec, GroupWords, InsertedCookie,
    LoadMeasure, MemberProtocol, MemberSpec, MemberTest, QueueSettings, Sticky, TestRequest,
    retry_budget,
};
use skep_serve::WorkerHandle;
use skep_units::stable_hash;
use skep_upstream::PoolLimits;
use skep_wire::seal::Key;

use crate::model::file_names::FileCounts;
use crate::model::pool_protocol::{PoolError, protocol};

/// The words of operators for a pool and what is in it.
static WORDS: GroupWords = GroupWords { group: "pool", member: "server" };

/// Pools by their names.
pub(crate) type PoolMap = BTreeMap<String, Pool>;

/// A pool, for the routes that lead to it.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) group: Arc<Group>,
    /// Whether clients are believed what they say about where a request came from.
    pub(crate) trusts_claims: bool,
    /// Name of the cookie that nodes insert for sessions, if they do.
    pub(crate) session_cookie: Option<String>,
    /// What became of files that its applications have named.
    pub(crate) file_counts: Arc<FileCounts>,
    /// What the config says of it.
    spec: GroupSpec,
    /// How the requests at each server are counted.
    counting: BTreeMap<String, Counting>,
}

/// How requests at a server are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// With those of all nodes; this one's share while no coordinator answers.
    OfCluster(u32),
    /// By this node for itself: so many it may have.
    OfNode(u32),
}

/// The pools of a node; shared by all workers.
#[derive(Default)]
pub(crate) struct Pools {
    seed: u64,
    /// The cluster's key, if it has one.
    key: Option<Key>,
    current: Mutex<PoolMap>,
    /// The worker that checks servers.
    checker: OnceLock<WorkerHandle>,
    /// Whether the node links with coordinators.
    joins: AtomicBool,
}

impl Pools {
    /// None; `seed` drives policies and the spread of checks, `key` hides the servers' names in
    /// cookies.
    pub(crate) fn new(seed: u64, key: Option<Key>) -> Self {
        Self { seed, key, ..Self::default() }
    }

    /// The pools of a config: those that there are already, and new ones, which get no requests
    /// before [`Pools::adopt`].
    ///
    /// # Errors
    /// A secret cannot be read.
    pub(crate) fn prepare(&self, config: &Config) -> Result<PoolMap, PoolError> {
        let joins = self.joins.load(Ordering::Relaxed);
        let current = self.lock();
        let prepared = |pool: &PoolConfig| {
            let spec = spec(config, pool, self.key.as_ref(), joins)?;
            let current = current.get(&pool.name);
            let file_counts = current.map(|it| Arc::clone(&it.file_counts)).unwrap_or_default();
            let group = match current {
                Some(current) => Arc::clone(&current.group),
                None => {
                    // Pools must not be checked in step.
                    let seed = self.seed ^ stable_hash(pool.name.as_bytes(), 0);
                    Group::new(&pool.name, &WORDS, spec.clone(), seed)
                }
            };
            let session_cookie = spec.settings.sticky.as_ref().and_then(Sticky::inserted);
            let session_cookie = session_cookie.map(str::to_owned);
            let trusts_claims = pool.trust_forwarded;
            let counting = pool.servers.iter();
            let counting = counting.map(|it| (it.name.clone(), counting_of(config, it, joins)));
            let counting = counting.collect();
            let pool_of =
                Pool { group, trusts_claims, session_cookie, file_counts, spec, counting };
            Ok((pool.name.clone(), pool_of))
        };
        config.pools.iter().map(prepared).collect()
    }

    /// `pools`, made for `config`, are in force from now on.
    pub(crate) fn adopt(&self, config: &Config, pools: PoolMap) {
        let mut current = self.lock();
        for pool in &config.pools {
            let Some(Pool { group, spec, .. }) = pools.get(&pool.name) else { continue };
            if current.contains_key(&pool.name) {
                group.reload(spec.clone());
            } else if let Some(checker) = self.checker.get() {
                group.start_checks(checker);
            }
        }
        *current = pools;
    }

    /// Starts to check servers, on `checker`. Call it once.
    pub(crate) fn start_checks(&self, checker: &WorkerHandle) {
        let current = self.lock();
        if self.checker.set(checker.clone()).is_ok() {
            for pool in current.values() {
                pool.group.start_checks(checker);
            }
        }
    }

    /// Tests a server of `pool`.
    pub(crate) fn test(
        &self,
        pool: &Arc<Group>,
        name: &str,
        request: TestRequest,
        limit_ms: u64,
    ) -> Result<Receiver<MemberTest>, GroupControlError> {
        match self.checker.get() {
            Some(checker) => pool.test_member(checker, name, request, limit_ms),
            None => Ok(sync_channel(1).1),
        }
    }

    /// The pools in force.
    pub(crate) fn all(&self) -> Vec<Arc<Group>> {
        self.lock().values().map(|pool| Arc::clone(&pool.group)).collect()
    }

    /// The pools in force, with how the requests at their servers are counted.
    pub(crate) fn counted(&self) -> Vec<(Arc<Group>, BTreeMap<String, Counting>)> {
        let current = self.lock();
        let counted = |pool: &Pool| (Arc::clone(&pool.group), pool.counting.clone());
        current.values().map(counted).collect()
    }

    /// The node is about to link with coordinators: from the next [`Pools::prepare`] on requests are counted
    /// with those of other nodes where the config says so.
    pub(crate) fn join(&self) {
        self.joins.store(true, Ordering::Relaxed);
    }

    /// What became of files that applications have named, by pools.
    pub(crate) fn file_counts(&self) -> Vec<(String, Arc<FileCounts>)> {
        let pools = self.lock();
        pools.iter().map(|(name, pool)| (name.clone(), Arc::clone(&pool.file_counts))).collect()
    }

    pub(crate) fn is_current(&self, group: &Arc<Group>) -> bool {
        self.lock().get(group.name()).is_some_and(|current| Arc::ptr_eq(&current.group, group))
    }

    fn lock(&self) -> MutexGuard<'_, PoolMap> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `joins`: the node links with coordinators.
fn is_counted(config: &Config, server: &ServerConfig, joins: bool) -> bool {
    joins && config.counts_slots() && config.is_of_cluster(server)
}

fn counting_of(config: &Config, server: &ServerConfig, joins: bool) -> Counting {
    match is_counted(config, server, joins) {
        true => Counting::OfCluster(config.share_of(server)),
        false => Counting::OfNode(config.share_of(server)),
    }
}

/// How sessions of the pool find their server.
fn sticky(pool: &PoolConfig, key: Option<&Key>) -> Option<Sticky> {
    let sticky = &pool.sticky;
    let cookie = |default: &str| sticky.cookie.clone().unwrap_or_else(|| default.to_owned());
    Some(match sticky.by {
        StickyBy::Off => return None,
        StickyBy::Cookie => Sticky::Cookie(InsertedCookie {
            name: cookie(&format!("skep-{}", pool.name)),
            attributes: cookie_attributes(pool),
            group: pool.name.clone(),
            key: key.cloned(),
        }),
        StickyBy::Route => Sticky::Route {
            cookie: cookie("JSESSIONID"),
            parameter: sticky.path_parameter.clone(),
            separator: b'.',
        },
        StickyBy::CookieHash => Sticky::CookieHash(sticky.cookie.clone()?),
        StickyBy::FieldHash => Sticky::FieldHash(sticky.field.clone()?),
    })
}

/// Attributes of an inserted cookie (RFC 6265bis 4.1.2).
fn cookie_attributes(pool: &PoolConfig) -> String {
    let same_site = match pool.sticky.same_site {
        SameSite::Lax => "Lax",
        SameSite::Strict => "Strict",
        SameSite::None => "None",
    };
    let secure = if pool.sticky.secure { "; Secure" } else { "" };
    format!("; Path={}; HttpOnly; SameSite={same_site}{secure}", pool.sticky.path)
}

fn spec(
    config: &Config,
    pool: &PoolConfig,
    key: Option<&Key>,
    joins: bool,
) -> Result<GroupSpec, PoolError> {
    let member = |server: &ServerConfig| MemberSpec {
        name: server.name.clone(),
        address: server.address,
        weight: server.weight,
        authority: server.address.to_string(),
        requests_max: server.connections_max,
        slots: (!is_counted(config, server, joins)).then(|| config.share_of(server)),
    };
    let members = pool.servers.iter().map(member).collect();
    let settings = settings(config, pool, protocol(pool)?, sticky(pool, key));
    Ok(GroupSpec { settings, members })
}

fn settings(
    config: &Config,
    pool: &PoolConfig,
    protocol: MemberProtocol,
    sticky: Option<Sticky>,
) -> GroupSettings {
    let retry_after_s = config.limits.retry_after_s;
    let servers = pool.servers.iter();
    GroupSettings {
        protocol,
        policy: pool.policy.clone(),
        policies: (POLICY_NAMES, ""),
        loads: LoadMeasure::Counted,
        gives_up: true,
        reads_ahead: true,
        names_member: false,
        retries_max: pool.retries_max,
        retry_budget: retry_budget(pool.retry_budget_percent),
        response_timeout_ms: pool.response_timeout_ms,
        stall_timeout_ms: pool.stall_timeout_ms,
        tunnel_idle_ms: pool.tunnel_idle_ms,
        connections: PoolLimits {
            // The bound of each server is the process's; a worker may have all of it.
            connections_max: servers.map(|it| it.connections_max as usize).max().unwrap_or(1),
            idle_ms: pool.idle_ms,
            connect_timeout_ms: pool.connect_timeout_ms,
        },
        queue: QueueSettings {
            requests_max: pool.queue_max as usize,
            timeout_ms: pool.queue_timeout_ms,
        },
        sticky,
        membership: membership(&pool.health),
        check: CheckSettings {
            path: pool.health.path.clone(),
            host: pool.health.host.clone(),
            status: pool.health.expect_status,
        },
        report_interval_ms: config.report_interval_ms(),
        retry_after_line: format!("Retry-After: {retry_after_s}\r\n").into_bytes().into(),
    }
}

fn membership(health: &PoolHealthConfig) -> MembershipSettings {
    MembershipSettings {
        health: HealthSettings {
            interval_ms: health.interval_ms,
            timeout_ms: health.timeout_ms,
            rise: health.rise,
            fall: health.fall,
            passive_failures_max: health.passive_failures_max,
            slow_start_ms: health.slow_start_ms,
        },
        fail_open: false,
        ejected_percent_max: health.ejected_max_percent,
    }
}
