//! Pools: the servers of applications, to which routes forward.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use skep_cluster::{HealthSettings, MembershipSettings};
use skep_config::{
    Config, POLICY_NAMES, PoolConfig, PoolHealthConfig, SameSite, ServerConfig, StickyBy,
};
use skep_proxy::{
    Buffering, CheckSettings, Group, GroupControlError, GroupSettings, GroupSpec, GroupWords,
    InsertedCookie, LoadMeasure, MemberProtocol, MemberSource, MemberSpec, MemberTest,
    QueueSettings, SizeSource, Sticky, TestRequest, retry_budget,
};
use skep_serve::WorkerHandle;
use skep_spool::BodyBuffers;
use skep_units::{Now, ServerAddress, stable_hash};
use skep_upstream::PoolLimits;
use skep_wire::cache::ServerKey;
use skep_wire::seal::Key;

use crate::model::agents::{AgentSpec, Agents};
use crate::model::file_names::FileCounts;
use crate::model::pool_protocol::{PoolError, protocol, scripts};
use crate::model::sessions::{ClientNetworks, SessionCounts, SessionKey, SessionsByNetwork};

/// The terms used to operators for a pool and its members.
static WORDS: GroupWords = GroupWords { group: "pool", member: "server" };

/// Pools by their names.
pub(crate) type PoolMap = BTreeMap<String, Pool>;

/// A pool, for the routes that lead to it.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) group: Arc<Group>,
    /// Whether statements of clients about a request's origin are trusted.
    pub(crate) trusts_claims: bool,
    /// Name of the cookie that nodes insert for sessions, if they do.
    pub(crate) session_cookie: Option<String>,
    /// Its sessions, if the pool can distinguish them.
    pub(crate) sessions: Option<Arc<SessionCounts>>,
    /// Outcomes for the files that its applications have named.
    pub(crate) file_counts: Arc<FileCounts>,
    /// Suffix of the names of files that it runs as scripts.
    pub(crate) scripts: Option<Box<[u8]>>,
    /// Its settings in the config.
    spec: GroupSpec,
    /// How the requests at each server are counted.
    counting: BTreeMap<String, Counting>,
    /// Servers that were added at run time.
    added: Vec<ServerConfig>,
    /// The status that servers report.
    pub(crate) agents: Arc<Agents>,
    /// How that status is requested.
    agent_spec: Arc<AgentSpec>,
}

/// How requests at a server are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// Together with the requests of all nodes, under this key; `share` is this node's share while no
    /// coordinator answers.
    OfCluster { key: ServerKey, share: u32 },
    /// By this node alone, up to this number.
    OfNode(u32),
}

/// The pools of a node; shared by all workers.
pub(crate) struct Pools {
    seed: u64,
    /// The cluster's key, if it has one.
    key: Option<Key>,
    session_key: SessionKey,
    /// Buffers in which bodies wait for slow clients.
    buffers: Arc<BodyBuffers>,
    current: Mutex<PoolMap>,
    /// The worker that checks servers.
    checker: OnceLock<WorkerHandle>,
    /// Whether the node links with coordinators.
    joins: AtomicBool,
}

impl Pools {
    /// Creates an empty set; `seed` initialises policies and the spread of checks, `key` hides the servers'
    /// names in cookies.
    pub(crate) fn new(seed: u64, key: Option<Key>, buffers: Arc<BodyBuffers>) -> Self {
        let session_key = SessionKey::new(key.as_ref(), seed);
        Self {
            seed,
            key,
            session_key,
            buffers,
            current: Mutex::default(),
            checker: OnceLock::new(),
            joins: AtomicBool::new(false),
        }
    }

    /// Buffers in which bodies wait for slow clients.
    pub(crate) fn buffers(&self) -> &Arc<BodyBuffers> {
        &self.buffers
    }

    /// The pools of a config: existing ones, and new ones, which get no requests before [`Pools::adopt`].
    ///
    /// # Errors
    /// A secret cannot be read.
    pub(crate) fn prepare(&self, config: &Config) -> Result<PoolMap, PoolError> {
        let joins = self.joins.load(Ordering::Relaxed);
        let current = self.lock();
        let networks = Arc::new(ClientNetworks::new(&config.client_networks));
        let prepared = |pool: &PoolConfig| {
            let spec = spec(config, pool, (self.key.as_ref(), &self.buffers), joins)?;
            let current = current.get(&pool.name);
            let file_counts = current.map(|it| Arc::clone(&it.file_counts)).unwrap_or_default();
            let scripts = scripts(pool);
            let group = match current {
                Some(current) => Arc::clone(&current.group),
                None => {
                    // Different seeds keep the checks of pools from running in step.
                    let seed = self.seed ^ stable_hash(pool.name.as_bytes(), 0);
                    Group::new(&pool.name, &WORDS, spec.clone(), seed)
                }
            };
            let session_cookie = spec.settings.sticky.as_ref().and_then(Sticky::inserted);
            let session_cookie = session_cookie.map(str::to_owned);
            let sessions_before = current.and_then(|it| it.sessions.as_deref());
            let keyed = (self.session_key, &networks);
            let sticky = spec.settings.sticky.as_ref();
            let sessions = SessionCounts::new(pool, sticky, keyed, sessions_before).map(Arc::new);
            let trusts_claims = pool.trust_forwarded;
            let counting = pool.servers.iter();
            let counting =
                counting.map(|it| (it.name.clone(), counting_of(config, pool, it, joins)));
            let counting = counting.collect();
            let agent_spec = Arc::new(AgentSpec::new(pool, &spec.settings.protocol)?);
            let agents = current.map(|it| Arc::clone(&it.agents));
            let pool_of = Pool {
                group,
                trusts_claims,
                session_cookie,
                sessions,
                file_counts,
                scripts,
                spec,
                counting,
                added: Vec::new(),
                agents: agents.unwrap_or_else(|| Agents::new(&agent_spec)),
                agent_spec,
            };
            Ok((pool.name.clone(), pool_of))
        };
        config.pools.iter().map(prepared).collect()
    }

    /// Puts `pools`, which were prepared for `config`, in force.
    pub(crate) fn adopt(&self, config: &Config, mut pools: PoolMap) {
        let joins = self.joins.load(Ordering::Relaxed);
        let mut current = self.lock();
        for pool in &config.pools {
            let Some(next) = pools.get_mut(&pool.name) else { continue };
            let was = current.get(&pool.name);
            if let Some(was) = was {
                next.keep_added(config, &was.added, joins);
            }
            next.agents.set(&next.agent_spec);
            next.agents.set_addresses(pool.servers.iter().chain(&next.added));
            if was.is_some() {
                next.group.reload(next.spec.clone());
            } else if let Some(checker) = self.checker.get() {
                next.start(checker);
            }
        }
        *current = pools;
    }

    /// Adds a server to `pool`, whose requests are counted as `config` specifies. It stays across reloads
    /// until it is removed, the file names it, or the pool is gone.
    pub(crate) fn add(
        &self,
        config: &Config,
        pool: &str,
        server: ServerConfig,
    ) -> Result<(), AddServerError> {
        let filed = config.pools.iter().find(|it| it.name == pool);
        let mut current = self.lock();
        let other = current.iter().find(|(name, it)| *name != pool && it.has_added(server.address));
        if let Some((other, _)) = other {
            return Err(AddServerError::Elsewhere(other.clone(), Box::new(server.address)));
        }
        let (Some(filed), Some(pool)) = (filed, current.get_mut(pool)) else {
            return Err(AddServerError::NoPool(pool.to_owned()));
        };
        if !filed.may_reach(server.address) {
            return Err(AddServerError::NeedsSecret(server.address));
        }
        if let Some(of_file) = filed.servers.iter().find(|it| it.name == server.name)
            && of_file.address != server.address
        {
            return Err(AddServerError::OfFile(of_file.name.clone(), Box::new(of_file.address)));
        }
        let joins = self.joins.load(Ordering::Relaxed);
        pool.group.add_member(member_spec(config, &server, joins))?;
        pool.forget_removed(filed);
        pool.counting.insert(server.name.clone(), counting_of(config, filed, &server, joins));
        pool.agents.set_addresses(std::iter::once(&server));
        pool.added.retain(|it| it.name != server.name);
        pool.added.push(server);
        Ok(())
    }

    /// Starts to check servers, on `checker`. Call it once.
    pub(crate) fn start_checks(&self, checker: &WorkerHandle) {
        let current = self.lock();
        if self.checker.set(checker.clone()).is_ok() {
            for pool in current.values() {
                pool.start(checker);
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

    /// The agents of the pools in force, which query the status of servers.
    pub(crate) fn agents(&self) -> BTreeMap<String, Arc<Agents>> {
        let current = self.lock();
        current.iter().map(|(name, pool)| (name.clone(), Arc::clone(&pool.agents))).collect()
    }

    /// The pools in force, with how the requests at their servers are counted.
    pub(crate) fn counted(&self) -> Vec<(Arc<Group>, BTreeMap<String, Counting>)> {
        let current = self.lock();
        let counted = |pool: &Pool| (Arc::clone(&pool.group), pool.counting.clone());
        current.values().map(counted).collect()
    }

    /// Announces that the node is about to link with coordinators: from the next [`Pools::prepare`] on,
    /// requests are counted together with those of other nodes if the config enables it.
    pub(crate) fn join(&self) {
        self.joins.store(true, Ordering::Relaxed);
    }

    /// Recently seen sessions, by pool; only pools that can distinguish sessions.
    pub(crate) fn sessions(&self, now: Now) -> BTreeMap<String, SessionsByNetwork> {
        let current = self.lock();
        let seen = |pool: &Pool| pool.sessions.as_ref().map(|it| it.seen(now));
        current.iter().filter_map(|(name, pool)| Some((name.clone(), seen(pool)?))).collect()
    }

    /// Outcomes for the files that applications have named, by pool.
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

impl Pool {
    /// Addresses of the configured servers, in the form of the field Host.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.spec.members.iter().map(|it| it.authority.clone()).collect()
    }

    /// Starts checks and status requests of its servers on `worker`.
    fn start(&self, worker: &WorkerHandle) {
        self.group.start_checks(worker);
        self.agents.start(&self.group, worker);
    }

    /// Whether a server at that address was added at run time.
    fn has_added(&self, address: ServerAddress) -> bool {
        let members = self.group.members();
        let mut added = self.added.iter().filter(|it| it.address == address);
        added.any(|server| members.iter().any(|it| it.name == server.name))
    }

    /// Drops the records of servers that were added at run time and removed again.
    fn forget_removed(&mut self, filed: &PoolConfig) {
        let members = self.group.members();
        let is_there = |name: &str| members.iter().any(|it| it.name == name);
        self.added.retain(|it| is_there(&it.name));
        let is_filed = |name: &str| filed.servers.iter().any(|it| it.name == name);
        self.counting.retain(|name, _| is_filed(name) || is_there(name));
    }

    /// Keeps those servers added at run time that still exist and that the file does not name.
    fn keep_added(&mut self, config: &Config, added: &[ServerConfig], joins: bool) {
        let members = self.group.members();
        let is_there = |server: &&ServerConfig| {
            members.iter().any(|it| it.name == server.name && it.source == MemberSource::Api)
                && !self.spec.members.iter().any(|it| it.name == server.name)
        };
        self.added = added.iter().filter(is_there).cloned().collect();
        let Some(filed) = config.pools.iter().find(|it| it.name == self.group.name()) else {
            return;
        };
        for server in &self.added {
            self.counting.insert(server.name.clone(), counting_of(config, filed, server, joins));
            let connections = &mut self.spec.settings.connections.connections_max;
            *connections = (*connections).max(server.connections_max as usize);
        }
    }
}

/// A server cannot be added to a pool.
#[derive(Debug, thiserror::Error)]
pub enum AddServerError {
    /// No pool has this name.
    #[error("no pool {0:?}")]
    NoPool(String),
    /// Anyone who reaches an AJP port can forge the client's identity (CVE-2020-1938).
    #[error(
        "{0} is not on this machine, which needs a secret: set secret_file in [pool.ajp] of the \
         config first"
    )]
    NeedsSecret(ServerAddress),
    /// The next reload would take it for the server of that name in the file.
    #[error(
        "the config has a server {0:?} at {1}: choose another name, or change the config and reload"
    )]
    OfFile(String, Box<ServerAddress>),
    /// Counts of two pools at one address are distinguished only by their order in the config.
    #[error(
        "pool {0} has a server at {1} that was added at run time, too: put one of the two into the \
         config first"
    )]
    Elsewhere(String, Box<ServerAddress>),
    /// The table of members rejects it.
    #[error(transparent)]
    Refused(#[from] GroupControlError),
}

/// `joins`: the node links with coordinators.
fn is_counted(config: &Config, server: &ServerConfig, joins: bool) -> bool {
    joins && config.can_count_slots() && config.is_of_cluster(server)
}

fn counting_of(config: &Config, pool: &PoolConfig, server: &ServerConfig, joins: bool) -> Counting {
    let share = config.share_of(server);
    match is_counted(config, server, joins) {
        true => Counting::OfCluster { key: key(config, pool, server), share },
        false => Counting::OfNode(share),
    }
}

/// The key of the server at that address, whatever its names: nodes with another config count the same
/// requests. If several pools have a server at one address, each has its own bound, in the order of the
/// pools; one that was added at run time follows those of the file.
fn key(config: &Config, pool: &PoolConfig, server: &ServerConfig) -> ServerKey {
    let is_it = |it: &ServerConfig| it.address == server.address;
    let has_it = |pool: &&PoolConfig| pool.servers.iter().any(is_it);
    let before = match has_it(&pool) {
        true => config.pools.iter().take_while(|it| it.name != pool.name).filter(has_it).count(),
        false => config.pools.iter().filter(has_it).count(),
    };
    ServerKey(stable_hash(server.address.to_string().as_bytes(), before as u64))
}

/// How requests of a session are assigned to its server.
fn sticky(pool: &PoolConfig, key: Option<&Key>) -> Option<Sticky> {
    let sticky = &pool.sticky;
    let cookie = |default: &str| sticky.cookie.clone().unwrap_or_else(|| default.to_owned());
    Some(match sticky.by {
        StickyBy::Off => return None,
        StickyBy::Cookie => Sticky::Cookie(InsertedCookie {
            name: cookie(&format!("skep-{}", pool.name)),
            attributes: cookie_attributes(pool),
            secure: pool.sticky.secure,
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
    format!("; Path={}; HttpOnly; SameSite={same_site}", pool.sticky.path)
}

fn spec(
    config: &Config,
    pool: &PoolConfig,
    (key, buffers): (Option<&Key>, &Arc<BodyBuffers>),
    joins: bool,
) -> Result<GroupSpec, PoolError> {
    let members = pool.servers.iter().map(|server| member_spec(config, server, joins)).collect();
    let settings = settings(config, pool, protocol(pool)?, sticky(pool, key), buffers);
    Ok(GroupSpec { settings, members })
}

fn member_spec(config: &Config, server: &ServerConfig, joins: bool) -> MemberSpec {
    MemberSpec {
        name: server.name.clone(),
        address: server.address,
        weight: server.weight,
        authority: server.address.to_string(),
        requests_max: server.connections_max,
        slots: (!is_counted(config, server, joins)).then(|| config.share_of(server)),
    }
}

fn settings(
    config: &Config,
    pool: &PoolConfig,
    protocol: MemberProtocol,
    sticky: Option<Sticky>,
    buffers: &Arc<BodyBuffers>,
) -> GroupSettings {
    let retry_after_s = config.limits.retry_after_s;
    let servers = pool.servers.iter();
    GroupSettings {
        protocol,
        policy: pool.policy.clone(),
        policies: (POLICY_NAMES, ""),
        arms: Vec::new(),
        no_comparison: Some("since a pool has no A/B tests"),
        memory_bytes: 0,
        have_cluster_cache: false,
        sizes: SizeSource::Responses,
        arms_by_hash: false,
        loads: LoadMeasure::Counted,
        gives_up: true,
        buffering: Some(Buffering {
            buffers: Arc::clone(buffers),
            memory_bytes_max: pool.buffer_bytes_max,
            requests: pool.request_buffering,
            responses: pool.response_buffering,
        }),
        names_member: false,
        retries_max: pool.retries_max,
        retry_budget: retry_budget(pool.retry_budget_percent),
        response_timeout_ms: pool.response_timeout_ms,
        stall_timeout_ms: pool.stall_timeout_ms,
        tunnel_idle_ms: pool.tunnel_idle_ms,
        connections: PoolLimits {
            // The process enforces the bound of each server; one worker may use all of it.
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
