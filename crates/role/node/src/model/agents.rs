//! The status that the servers of a pool report: memory, threads, sessions, versions.
//!
//! ```text
//!   config [pool.status] -> AgentSpec
//!                              |  every interval, at each server
//!                              v
//!        ask_once (skep-proxy): GET -> tomcat | php_fpm | json -> Findings -> AgentReport
//! ```
//! Invariants: nothing here affects which server gets requests. Each status request is limited in time and
//! bytes, and a server gets one at a time.

mod json;
mod php_fpm;
mod tomcat;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use skep_config::{PoolConfig, ServerConfig, StatusAgent};
use skep_proxy::{FcgiSpec, Group, MemberProtocol, Question, ScriptSpec, ask_once};
use skep_serve::{Worker, WorkerHandle, monotonic_ms};
use skep_units::{Now, ServerAddress};

use crate::limits::{AGENT_BODY_BYTES_MAX, AGENT_LOOK_MS, AGENT_NUMBER_MAX, AGENT_TEXT_BYTES_MAX};
use crate::model::pool_protocol::{PoolError, read_line};

/// The status that a server has reported, and its age.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentReport {
    /// Time since the status was received; `None`: never.
    pub age_ms: Option<u64>,
    /// Version of the server or application.
    pub version: Option<String>,
    /// Names, which end in units, and values.
    pub values: Vec<(String, f64)>,
    /// Sessions of each of its applications, by path.
    pub sessions: Vec<(String, u64)>,
    /// Why the last status request failed; the rest is then older.
    pub error: Option<String>,
}

/// The result of one status request.
#[derive(Clone, Debug, Default, PartialEq)]
struct Findings {
    version: Option<String>,
    values: Vec<(String, f64)>,
    sessions: Vec<(String, u64)>,
}

/// How the status is requested, and where.
#[derive(Debug, PartialEq)]
pub(crate) struct AgentSpec {
    agent: StatusAgent,
    path: String,
    host: Option<String>,
    authorization: Option<String>,
    jmx: bool,
    values: Vec<(String, String)>,
    interval_ms: u64,
    timeout_ms: u64,
    /// The protocol at the server's own address.
    protocol: MemberProtocol,
    /// The protocol at a separate status address.
    protocol_apart: MemberProtocol,
}

/// The reports of a pool's servers.
#[derive(Debug)]
pub(crate) struct Agents {
    spec: ArcSwap<AgentSpec>,
    servers: Mutex<BTreeMap<String, AgentPoll>>,
}

/// The state of the requests to one server.
#[derive(Debug, Default)]
struct AgentPoll {
    /// The separate status address, if there is one.
    address: Option<ServerAddress>,
    is_waiting: bool,
    found: Option<(Now, Findings)>,
    error: Option<String>,
}

impl AgentSpec {
    /// # Errors
    /// The credentials cannot be read.
    pub(crate) fn new(pool: &PoolConfig, protocol: &MemberProtocol) -> Result<Self, PoolError> {
        let config = &pool.status;
        let credentials = config.credentials_file.as_deref();
        let credentials = credentials.map(|file| read_line(&pool.name, file)).transpose()?;
        let path = config.path.clone().unwrap_or_else(|| match config.agent {
            StatusAgent::Tomcat => tomcat::PATH.to_owned(),
            StatusAgent::PhpFpm => php_fpm::PATH.to_owned(),
            StatusAgent::Json | StatusAgent::Off => "/".to_owned(),
        });
        let protocol = match protocol {
            // The path of php-fpm's status page is not the name of a script.
            MemberProtocol::Fcgi(spec) if config.agent == StatusAgent::PhpFpm => {
                let script = ScriptSpec::Always(path.as_bytes().into());
                MemberProtocol::Fcgi(Arc::new(FcgiSpec { script, ..FcgiSpec::clone(spec) }))
            }
            protocol => protocol.clone(),
        };
        let protocol_apart = match config.agent {
            StatusAgent::PhpFpm => protocol.clone(),
            _ => MemberProtocol::Http,
        };
        Ok(Self {
            agent: config.agent,
            path,
            host: config.host.clone(),
            // RFC 7617
            authorization: credentials.map(|it| format!("Basic {}", BASE64_STANDARD.encode(it))),
            jmx: config.jmx,
            values: config.values.clone(),
            interval_ms: config.interval_ms,
            timeout_ms: config.timeout_ms,
            protocol,
            protocol_apart,
        })
    }
}

impl Agents {
    pub(crate) fn new(spec: &Arc<AgentSpec>) -> Arc<Self> {
        let spec = ArcSwap::new(Arc::clone(spec));
        Arc::new(Self { spec, servers: Mutex::default() })
    }

    /// Uses `spec` for requests from now on.
    pub(crate) fn set(&self, spec: &Arc<AgentSpec>) {
        if **self.spec.load() == **spec {
            return;
        }
        self.spec.store(Arc::clone(spec));
        // The results of the old spec may have another meaning.
        self.lock().values_mut().for_each(|asked| (asked.found, asked.error) = (None, None));
    }

    /// Sets the servers whose status has a separate address.
    pub(crate) fn set_addresses<'a>(&self, servers: impl Iterator<Item = &'a ServerConfig>) {
        let mut known = self.lock();
        for server in servers {
            known.entry(server.name.clone()).or_default().address = server.status_address;
        }
    }

    /// Queries the members of `group` on `worker`, until the group is gone.
    pub(crate) fn start(self: &Arc<Self>, group: &Arc<Group>, worker: &WorkerHandle) {
        let (agents, group) = (Arc::downgrade(self), Arc::downgrade(group));
        worker.run(move |worker| {
            tokio::task::spawn_local(watch(Rc::clone(worker), group, agents));
        });
    }

    /// The status of a server; `None`: status is not queried.
    pub(crate) fn report(&self, server: &str) -> Option<AgentReport> {
        if self.spec.load().agent == StatusAgent::Off {
            return None;
        }
        let servers = self.lock();
        let asked = servers.get(server)?;
        let error = asked.error.clone();
        let Some((at, found)) = &asked.found else {
            return Some(AgentReport { error, ..AgentReport::default() });
        };
        let Findings { version, values, sessions } = found.clone();
        let age_ms = Some(Now(monotonic_ms()).since_ms(*at));
        Some(AgentReport { age_ms, version, values, sessions, error })
    }

    /// The status of all servers that have been queried.
    pub(crate) fn all(&self) -> Vec<(String, AgentReport)> {
        let names: Vec<String> = self.lock().keys().cloned().collect();
        let reports = names.into_iter().filter_map(|it| Some((it.clone(), self.report(&it)?)));
        reports.filter(|(_, it)| it.age_ms.is_some() || it.error.is_some()).collect()
    }

    /// Returns the servers that are due for a request, with their addresses. Servers no longer in the
    /// group are removed.
    fn begin(&self, group: &Group) -> Vec<(String, ServerAddress, bool)> {
        let members = group.members();
        let mut servers = self.lock();
        servers.retain(|name, asked| {
            asked.is_waiting || members.iter().any(|member| member.name == *name)
        });
        let mut due = Vec::new();
        for member in members {
            let asked = servers.entry(member.name.clone()).or_default();
            if !std::mem::replace(&mut asked.is_waiting, true) {
                let address = asked.address.unwrap_or(member.address);
                due.push((member.name, address, asked.address.is_some()));
            }
        }
        due
    }

    fn end(&self, pool: &str, server: &str, by: &Arc<AgentSpec>, found: Result<Findings, String>) {
        let mut servers = self.lock();
        let Some(asked) = servers.get_mut(server) else { return };
        asked.is_waiting = false;
        if !Arc::ptr_eq(&self.spec.load(), by) {
            // A reload has changed the spec: the result is discarded.
            return;
        }
        let error = found.as_ref().err().cloned();
        // Logged once when a failure begins and once when it ends.
        match (&asked.error, &error) {
            (None, Some(error)) => {
                tracing::warn!("pool {pool}: no status from server {server}: {error}");
            }
            (Some(_), None) => {
                tracing::info!("pool {pool}: server {server} reports its status again")
            }
            _ => {}
        }
        asked.error = error;
        if let Ok(found) = found {
            asked.found = Some((Now(monotonic_ms()), found));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, AgentPoll>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn watch(worker: Rc<Worker>, group: Weak<Group>, agents: Weak<Agents>) {
    while let (Some(group), Some(agents)) = (group.upgrade(), agents.upgrade()) {
        let spec = agents.spec.load_full();
        let mut pause_ms = AGENT_LOOK_MS;
        if spec.agent != StatusAgent::Off {
            pause_ms = spec.interval_ms;
            for (server, address, is_apart) in agents.begin(&group) {
                let (worker, agents) = (Rc::clone(&worker), Arc::clone(&agents));
                let (spec, pool) = (Arc::clone(&spec), group.name().to_owned());
                tokio::task::spawn_local(async move {
                    let asking = Asking { worker, spec, address, is_apart };
                    let found = asking.ask().await;
                    agents.end(&pool, &server, &asking.spec, found);
                });
            }
        }
        drop((group, agents));
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}

/// Requests to one server.
struct Asking {
    worker: Rc<Worker>,
    spec: Arc<AgentSpec>,
    address: ServerAddress,
    is_apart: bool,
}

impl Asking {
    async fn ask(&self) -> Result<Findings, String> {
        let path = &self.spec.path;
        match self.spec.agent {
            StatusAgent::Off => Ok(Findings::default()),
            StatusAgent::Json => json::read(&self.get(path).await?, &self.spec.values),
            StatusAgent::PhpFpm => php_fpm::read(&self.get(&format!("{path}?json")).await?),
            StatusAgent::Tomcat => {
                let mut found = tomcat::read(&self.get(&format!("{path}?JSON=true")).await?)?;
                if self.spec.jmx {
                    let version = self.get(&tomcat::version_target(path)).await?;
                    let sessions = self.get(&tomcat::sessions_target(path)).await?;
                    tomcat::read_jmx(&version, &sessions, &mut found)?;
                }
                Ok(found)
            }
        }
    }

    /// The body of a successful response.
    async fn get(&self, target: &str) -> Result<String, String> {
        let Self { worker, spec, address, is_apart } = self;
        let authorization = spec.authorization.iter();
        let question = Question {
            target: target.to_owned(),
            host: spec.host.clone(),
            fields: authorization.map(|value| ("Authorization", value.clone())).collect(),
            agent: "skep-status",
            body_bytes_max: AGENT_BODY_BYTES_MAX as u64,
            body_bytes_kept: AGENT_BODY_BYTES_MAX,
        };
        let protocol = if *is_apart { &spec.protocol_apart } else { &spec.protocol };
        let answer = ask_once(worker, *address, protocol, &question, spec.timeout_ms).await;
        match (answer.error, answer.status) {
            (Some(error), _) => Err(error),
            (None, Some(200)) if answer.is_cut => {
                Err(format!("its answer is longer than {} KiB", AGENT_BODY_BYTES_MAX / 1024))
            }
            (None, Some(200)) => Ok(answer.body),
            (None, status) => Err(refusal(status.unwrap_or(0), target)),
        }
    }
}

fn refusal(status: u16, target: &str) -> String {
    let path = target.split('?').next().unwrap_or(target);
    let why = match status {
        401 => ": wrong credentials (credentials_file)",
        403 => ": the user lacks the role for it, or it is for other addresses only",
        404 => ": there is nothing (path)",
        _ => "",
    };
    format!("status {status} for {path}{why}")
}

/// Text of a server, cleaned for people and metrics.
fn shown(text: &str) -> String {
    let clean = text.trim().chars().map(|it| if it.is_control() { '.' } else { it });
    let mut shown = String::new();
    for it in clean {
        if shown.len() + it.len_utf8() > AGENT_TEXT_BYTES_MAX {
            break;
        }
        shown.push(it);
    }
    shown
}

/// Numbers of an object: `names` maps its keys to the names used here.
fn numbers(of: &serde_json::Value, names: &[(&str, &str)]) -> Vec<(String, f64)> {
    let number = |(key, name): &(&str, &str)| Some(((*name).to_owned(), number(of.get(*key)?)?));
    names.iter().filter_map(number).collect()
}

/// The number in `value`, unless it is out of bounds: sums stay finite, as JSON requires.
fn number(value: &serde_json::Value) -> Option<f64> {
    value.as_f64().filter(|number| number.abs() <= AGENT_NUMBER_MAX)
}
