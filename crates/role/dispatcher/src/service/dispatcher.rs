//! A service's dispatcher: its state behind a lock, what it publishes, and the workers' reports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use skep_cluster::{Failure, MembershipError};
use skep_config::{Config, ServiceConfig};
use skep_serve::monotonic_ms;
use skep_units::{NodeId, Now};

use crate::service::node_reports::NodeReports;
use crate::service::published::Published;
use crate::service::settings::ServiceSettings;
use crate::service::state::{NewNode, ServiceState};
use crate::service::status::{NodeSource, ServiceStatus};

/// The config has no service of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the config has no service \"{0}\"")]
pub struct NoSuchService(pub String);

/// Sends a service's requests to its nodes. Shared by all threads.
pub struct Dispatcher {
    name: Arc<str>,
    seed: u64,
    state: Mutex<ServiceState>,
    published: Arc<ArcSwap<Published>>,
    /// That of the state.
    revision: AtomicU64,
}

impl Dispatcher {
    /// The dispatcher of the service `name` of `config`. No node gets requests
    /// before its first good check: see [`Dispatcher::start_checks`]. `seed`
    /// drives policies and the spread of checks; dispatchers get different ones.
    ///
    /// # Errors
    /// [`NoSuchService`].
    pub fn new(config: &Config, name: &str, seed: u64) -> Result<Arc<Self>, NoSuchService> {
        let service = find(config, name).ok_or_else(|| NoSuchService(name.to_owned()))?;
        let mut state = ServiceState::new(name, ServiceSettings::of(service, config));
        state.adopt(config, service, now());
        let published = Arc::new(ArcSwap::from_pointee(state.publish()));
        let revision = AtomicU64::new(state.revision);
        Ok(Arc::new(Self {
            name: name.into(),
            seed,
            state: Mutex::new(state),
            published,
            revision,
        }))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies a new config's settings, nodes and weights of this service. Changes made at run time
    /// stay, unless the file has changed the same setting. Requests in progress are not touched. A
    /// config without this service changes nothing: services are added and removed by a restart.
    pub fn reload(&self, config: &Config) {
        match find(config, &self.name) {
            Some(service) => self.change(|state, now| state.adopt(config, service, now)),
            None => {
                tracing::warn!(
                    "service {}: not in the new config, unchanged until restart",
                    self.name
                )
            }
        }
    }

    /// Rises whenever nodes, their states or weights, or settings may have changed. Takes no lock.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The service at this moment.
    pub fn status(&self) -> ServiceStatus {
        let state = self.lock();
        ServiceStatus {
            name: self.name.to_string(),
            listen: state.listen.clone(),
            dispatch: state.settings.dispatch.word().to_owned(),
            policy: state.settings.policy.clone(),
            nodes: state.node_statuses(now()),
        }
    }

    /// Reads nodes' loads in `reports` from now on.
    pub(crate) fn follow_reports(&self, reports: &Arc<NodeReports>) {
        self.change(|state, _| state.follow_reports(reports));
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn published(&self) -> &Arc<ArcSwap<Published>> {
        &self.published
    }

    /// Records that a request at a node failed, or succeeded after others had failed. Returns
    /// whether the node would be down now if it could be spared, and was not before.
    pub(crate) fn report(&self, id: NodeId, outcome: Result<(), Failure>) -> bool {
        self.change(|state, now| state.on_request(now, id, outcome))
    }

    /// Runs `job` on the state and publishes the changes to the workers.
    pub(crate) fn change<R>(&self, job: impl FnOnce(&mut ServiceState, Now) -> R) -> R {
        let mut state = self.lock();
        let result = job(&mut state, now());
        if state.unpublished {
            // Within the lock, so that a later state is never overwritten.
            self.published.store(Arc::new(state.publish()));
        }
        self.revision.store(state.revision, Ordering::Release);
        result
    }

    fn lock(&self) -> MutexGuard<'_, ServiceState> {
        // A panic under the lock is a bug of ours; what it left is a table
        // whose own checks hold, and better than no service.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a node of the config file.
pub(crate) fn filed_node(node: &skep_config::NodeConfig) -> NewNode<'_> {
    NewNode {
        name: &node.name,
        address: node.address,
        weight: node.weight,
        authority: node.client_authority(),
        source: NodeSource::Config,
    }
}

/// Adds `new`, or logs why not: for nodes that were not added by an operator's command.
pub(crate) fn add_or_log(state: &mut ServiceState, now: Now, new: NewNode<'_>) {
    let name = new.name;
    let added: Result<(), MembershipError> = state.add(now, new);
    if let Err(error) = added {
        tracing::error!("service {}: node {name} of the config not added: {error}", state.service);
    }
}

fn find<'a>(config: &'a Config, name: &str) -> Option<&'a ServiceConfig> {
    config.services.iter().find(|service| service.name == name)
}

fn now() -> Now {
    Now(monotonic_ms())
}
