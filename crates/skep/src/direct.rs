//! Direct dispatch in this process: netguard beside it, the dispatcher's part,
//! the node's part, and the end of this process's own privileges.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use skep_agent::{Agent, AgentParts};
use skep_config::Config;
use skep_dispatcher::{Direct, DirectParts, Dispatcher};
use skep_guard::privileges;
use skep_serve::Admission;
use skep_telemetry::Registry;
use skep_wire::message::NodeLoad;
use skep_wire::seal::Key;

use crate::epoch::EpochFile;
use crate::guardian::Guardian;
use crate::running::Roles;

/// Parts of this process in direct dispatch; empty where there is none.
#[derive(Default)]
pub(crate) struct Directing {
    guardian: Option<Guardian>,
    key: Option<Key>,
    pub(crate) direct: Option<Direct>,
    pub(crate) agent: Option<Agent>,
}

impl Directing {
    /// What comes before listeners: a guard, and virtual addresses on a node.
    pub(crate) fn prepare(
        config: &Config,
        roles: &Roles,
        file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let (Some(_), Some(file)) = (config.direct_services().next(), file) else {
            return Ok(Self::default());
        };
        let key = read_key(config)?;
        std::fs::create_dir_all(&config.state_dir)
            .with_context(|| format!("cannot make {}", config.state_dir.display()))?;
        let guardian = Guardian::start(config, file, &roles.name)?;
        if roles.node.is_some() {
            Agent::hold_addresses(&guardian.guard)?;
        }
        Ok(Self { guardian: Some(guardian), key: Some(key), direct: None, agent: None })
    }

    /// Virtual addresses at which the node of this process listens too.
    pub(crate) fn node_addresses(&self, config: &Config, roles: &Roles) -> Vec<SocketAddr> {
        if self.guardian.is_none() {
            return Vec::new();
        }
        let is_behind = |service: &&skep_config::Service| {
            config.nodes_of(service).any(|(_, node)| Some(&node.name) == roles.node.as_ref())
        };
        let services = config.direct_services().map(|(_, service)| service).filter(is_behind);
        services.flat_map(|service| service.listen.iter().copied()).collect()
    }

    /// What comes after listeners: takes part, then gives up all privileges of
    /// this thread and of those that it starts.
    pub(crate) fn start(
        mut self,
        config: &Config,
        roles: &Roles,
        dispatchers: &[Arc<Dispatcher>],
        admission: &Arc<Admission>,
        registry: &Arc<Registry>,
    ) -> anyhow::Result<Self> {
        let (Some(guardian), Some(key)) = (&self.guardian, &self.key) else { return Ok(self) };
        if let Some(name) = &roles.node {
            let (admission, registry) = (Arc::clone(admission), Arc::clone(registry));
            let parts = AgentParts {
                name: name.clone(),
                key: key.clone(),
                guard: Arc::clone(&guardian.guard),
                load: Box::new(move || load(&admission, &registry)),
                on_drained: Box::new(|is_drained| {
                    let what = if is_drained { "no new connections" } else { "new connections" };
                    tracing::info!("the dispatcher sends {what} to this node");
                }),
            };
            self.agent = Some(Agent::start(config, parts)?);
        }
        if let Some(name) = dispatcher_name(config, roles) {
            let (mut file, last_epoch) = EpochFile::open(config, &name)?;
            let parts = DirectParts {
                name,
                key: key.clone(),
                guard: Arc::clone(&guardian.guard),
                dispatchers: dispatchers.to_vec(),
                last_epoch,
                persist: Box::new(move |epoch| file.keep(epoch)),
            };
            self.direct = Some(Direct::start(config, parts)?);
        }
        privileges::keep_nothing().context("cannot give up privileges")?;
        Ok(self)
    }

    /// Takes up a new config.
    pub(crate) fn reload(&self, config: &Config) -> anyhow::Result<()> {
        if let (Some(direct), Some(key)) = (&self.direct, &self.key) {
            direct.reload(config, key)?;
        }
        Ok(())
    }

    /// Lets others take over, before this process takes nothing new any more.
    pub(crate) fn leave(&self) {
        if let Some(agent) = &self.agent {
            agent.leave();
        }
        if let Some(direct) = &self.direct {
            direct.leave();
        }
    }
}

/// The dispatcher of the config that this process is.
fn dispatcher_name(config: &Config, roles: &Roles) -> Option<String> {
    let own = config.dispatcher(&roles.name).map(|dispatcher| dispatcher.name.clone());
    own.filter(|_| roles.services)
}

fn read_key(config: &Config) -> anyhow::Result<Key> {
    let Some(path) = &config.key_file else { bail!("the config has no `key_file`") };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the cluster's key {}", path.display()))?;
    Key::from_text(&text).with_context(|| format!("{} holds no key", path.display()))
}

fn load(admission: &Admission, registry: &Registry) -> NodeLoad {
    NodeLoad {
        connections: admission.open() as u64,
        requests_in_flight: registry.snapshot().requests_in_flight,
        bytes_outstanding: 0,
        cpu_permille: 0,
    }
}
