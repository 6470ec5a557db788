//! Elasticity of a service: several times per interval asks the controller (`skep_cluster::elasticity`) how
//! many nodes should receive requests, and drains and resumes nodes accordingly.
//!
//! A node is `off` once elasticity has drained it, it has no requests left, and its machine is off if a
//! command switches it: [`NodePowers`] makes its agent return its memory, and runs the commands.
//! **Invariant:** a node that an operator has drained is not resumed here, and one that an operator resumes
//! counts as active.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use skep_cluster::elasticity::{
    Elasticity, ElasticitySettings, LifecycleState, LoadTargets, NodeObservation, Observed,
    PowerEvent, PowerOrder,
};
use skep_config::ElasticConfig;
use skep_proxy::{Group, MemberStatus};
use skep_serve::{WorkerHandle, monotonic_ms};
use skep_units::{NodeId, Now};

use crate::limits::{
    ELASTIC_LOOK_MS_MAX, ELASTIC_OFF_LOOK_MS, ELASTIC_RETRY_PAUSE_MS, ELASTIC_SAMPLES,
};
use crate::power::NodePowers;

/// The elasticity of one service.
pub(crate) struct ServiceElasticity {
    state: Mutex<ElasticityState>,
    /// Switches nodes off and on; without it nodes are only drained.
    powers: OnceLock<Arc<NodePowers>>,
}

/// See [`ServiceElasticity`].
struct ElasticityState {
    /// The settings in the config.
    config: ElasticConfig,
    controller: Option<Elasticity>,
    /// The number of each node by its name, in the order in which nodes were first seen.
    ids: BTreeMap<String, NodeId>,
    /// Nodes drained by elasticity.
    drained: BTreeSet<String>,
    /// Of these, those that are off.
    off: BTreeSet<String>,
    /// Nodes that did not join in time; they were switched off in case they had started halfway.
    given_up: BTreeSet<String>,
    counts: ElasticCounts,
}

/// What elasticity has done since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ElasticCounts {
    pub(crate) starts: u64,
    pub(crate) drains: u64,
    pub(crate) troubles: u64,
}

impl ServiceElasticity {
    pub(crate) fn new(config: &ElasticConfig) -> Self {
        let state = ElasticityState {
            config: config.clone(),
            controller: None,
            ids: BTreeMap::new(),
            drained: BTreeSet::new(),
            off: BTreeSet::new(),
            given_up: BTreeSet::new(),
            counts: ElasticCounts::default(),
        };
        Self { state: Mutex::new(state), powers: OnceLock::new() }
    }

    /// Sets what switches nodes from now on. Must be called only once.
    pub(crate) fn switch_by(&self, powers: &Arc<NodePowers>) {
        // A second call has no effect.
        let _ = self.powers.set(Arc::clone(powers));
    }

    /// Applies reloaded settings.
    pub(crate) fn reload(&self, config: &ElasticConfig) {
        let mut state = self.lock();
        state.config = config.clone();
        // If elasticity is now disabled, the next tick ends it; its settings need not be valid.
        let powers = self.powers.get().map(|it| &**it);
        if let Some(controller) = state.controller.as_mut().filter(|_| config.enabled) {
            controller.set_settings(settings(config, powers));
        }
    }

    /// An operator drains a node: elasticity no longer resumes it, even if it drained the node itself.
    pub(crate) fn hold(&self, node: &str) {
        let mut state = self.lock();
        state.drained.remove(node);
        state.off.remove(node);
    }

    /// Returns the state of a node, if elasticity is on.
    pub(crate) fn state_of(&self, node: &str) -> Option<LifecycleState> {
        let state = self.lock();
        state.controller.as_ref()?.state(*state.ids.get(node)?)
    }

    /// Whether a node recently failed to start.
    pub(crate) fn is_failed(&self, node: &str) -> bool {
        let state = self.lock();
        let id = state.ids.get(node);
        id.is_some_and(|id| state.controller.as_ref().is_some_and(|it| it.is_failed(*id)))
    }

    /// Returns a text for operators on the machine and memory of a node, if there is anything to report.
    pub(crate) fn power_text(&self, node: &str) -> Option<String> {
        self.powers.get()?.text(node)
    }

    pub(crate) fn counts(&self) -> ElasticCounts {
        self.lock().counts
    }

    /// Returns the number of nodes in a state; 0 if elasticity is off.
    pub(crate) fn nodes_in(&self, wanted: LifecycleState) -> usize {
        let state = self.lock();
        let Some(controller) = &state.controller else { return 0 };
        state.ids.values().filter(|id| controller.state(**id) == Some(wanted)).count()
    }

    /// Observes the nodes and carries out the controller's orders. Returns the time until the next call.
    pub(crate) fn tick(&self, now: Now, group: &Group) -> Duration {
        let powers = self.powers.get().map(|it| &**it);
        if let Some(powers) = powers {
            powers.tick(now, group.name(), &group.well_members());
        }
        let mut state = self.lock();
        if !state.config.enabled {
            state.end(group, powers);
            return Duration::from_millis(ELASTIC_OFF_LOOK_MS);
        }
        state.tick(now, group, powers);
        let pause_ms = state.config.interval_ms / ELASTIC_SAMPLES;
        Duration::from_millis(pause_ms.min(ELASTIC_LOOK_MS_MAX))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ElasticityState> {
        // The next tick corrects any state that a panic left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ElasticityState {
    fn tick(&mut self, now: Now, group: &Group, powers: Option<&NodePowers>) {
        let members = group.members();
        if self.controller.is_none() && members.iter().any(|member| member.state == "joining") {
            // Nodes that already run must not be ordered to start.
            return;
        }
        self.note_resumed(&members, group, powers);
        let of_powers = powers.map(|powers| (group.name(), powers));
        let observe = |member| self.observe(member, of_powers);
        let seen: Vec<NodeObservation> = members.iter().map(observe).collect();
        let config = &self.config;
        let begin = || Elasticity::new(settings(config, powers));
        let controller = self.controller.get_or_insert_with(begin);
        let step = controller.tick(now, &seen);
        for order in step.orders {
            self.carry_out(now, order, group, powers);
        }
        for event in step.events {
            self.follow_joined(event, group, powers);
            self.log(event, group.name());
        }
    }

    /// Nodes that an operator has resumed no longer count as drained by elasticity, and are switched on.
    fn note_resumed(
        &mut self,
        members: &[MemberStatus],
        group: &Group,
        powers: Option<&NodePowers>,
    ) {
        let is_drained = |name: &String| {
            let found = members.iter().find(|member| member.name == *name);
            found.is_some_and(|member| is_drained(member) || member.state == "removing")
        };
        self.drained.retain(is_drained);
        self.off.retain(|name| self.drained.contains(name));
        let Some(powers) = powers else { return };
        for name in powers.wanted_off_by(group.name()) {
            if !is_drained(&name) && !self.given_up.contains(&name) {
                powers.order_on(group.name(), &name);
            }
        }
    }

    /// A node that joined without an order, or after it was given up, counts as on.
    fn follow_joined(&mut self, event: PowerEvent, group: &Group, powers: Option<&NodePowers>) {
        if let PowerEvent::Joined { node } = event
            && let (Some(name), Some(powers)) = (self.name_of(node), powers)
        {
            self.given_up.remove(&name);
            powers.order_on(group.name(), &name);
        }
    }

    /// Returns the controller's observation of a node.
    fn observe(
        &mut self,
        member: &MemberStatus,
        powers: Option<(&str, &NodePowers)>,
    ) -> NodeObservation {
        let next = NodeId(self.ids.len() as u32);
        let id = *self.ids.entry(member.name.clone()).or_insert(next);
        let is_ours = self.drained.contains(&member.name);
        let observed = match member.state.as_str() {
            "up" => Observed::Ready,
            _ if self.off.contains(&member.name) => {
                let is_off = powers.and_then(|(service, it)| it.is_off(service, &member.name));
                let state = self.controller.as_ref().and_then(|it| it.state(id));
                observed_after_stop(is_off, state)
            }
            "draining" | "drained" => Observed::Ready,
            "joining" => Observed::Silent,
            _ if powers.is_some_and(|(_, it)| it.is_coming(&member.name)) => Observed::Silent,
            _ => Observed::Lost,
        };
        let order_failed =
            powers.is_some_and(|(service, it)| it.take_failed(service, &member.name));
        NodeObservation {
            id,
            observed,
            is_held: member.state == "removing" || (is_drained(member) && !is_ours),
            is_idle: member.state == "drained",
            order_failed,
            requests: member.outstanding_requests.into(),
            bytes: member.outstanding_bytes,
        }
    }

    fn carry_out(
        &mut self,
        now: Now,
        order: PowerOrder,
        group: &Group,
        powers: Option<&NodePowers>,
    ) {
        let (PowerOrder::Start(id) | PowerOrder::Drain(id) | PowerOrder::Stop(id)) = order;
        let Some(name) = self.name_of(id) else { return };
        let done = match order {
            PowerOrder::Start(_) => {
                self.counts.starts += 1;
                self.drained.remove(&name);
                self.off.remove(&name);
                self.given_up.remove(&name);
                if let Some(powers) = powers {
                    powers.order_on(group.name(), &name);
                }
                group.resume(&name)
            }
            PowerOrder::Drain(_) => {
                self.counts.drains += 1;
                self.drained.insert(name.clone());
                group.drain(&name)
            }
            PowerOrder::Stop(_) => {
                if let Some(powers) = powers {
                    powers.order_off(now, group.name(), &name);
                }
                // A node that was given up receives requests if it joins after all.
                match self.drained.contains(&name) {
                    true => self.off.insert(name),
                    false => self.given_up.insert(name),
                };
                Ok(())
            }
        };
        if let Err(error) = done {
            // The node was removed meanwhile.
            tracing::debug!("service {}: elasticity: {error}", group.name());
        }
    }

    fn log(&mut self, event: PowerEvent, service: &str) {
        let node = event.node().and_then(|id| self.name_of(id));
        let of = node.map_or_else(String::new, |name| format!(" node {name}:"));
        if event.is_trouble() {
            self.counts.troubles += 1;
            tracing::warn!("service {service}: elasticity:{of} {event}");
        } else {
            tracing::info!("service {service}: elasticity:{of} {event}");
        }
    }

    fn name_of(&self, id: NodeId) -> Option<String> {
        self.ids.iter().find(|(_, known)| **known == id).map(|(name, _)| name.clone())
    }

    /// Ends elasticity: all nodes receive requests again.
    fn end(&mut self, group: &Group, powers: Option<&NodePowers>) {
        if self.controller.take().is_none() {
            return;
        }
        for name in std::mem::take(&mut self.drained) {
            // A node that was removed need not be resumed.
            let _ = group.resume(&name);
        }
        self.off.clear();
        self.given_up.clear();
        if let Some(powers) = powers {
            let off = powers.wanted_off_by(group.name());
            off.iter().for_each(|name| powers.order_on(group.name(), name));
        }
        tracing::info!("service {}: elasticity is off, all nodes get requests", group.name());
    }
}

/// Runs elasticity on `worker` until `group` is dropped.
pub(crate) fn start(
    elasticity: &Arc<ServiceElasticity>,
    group: &Arc<Group>,
    worker: &WorkerHandle,
) -> bool {
    let (elasticity, group): (_, Weak<Group>) = (Arc::clone(elasticity), Arc::downgrade(group));
    worker.run(move |_| {
        tokio::task::spawn_local(async move {
            while let Some(alive) = group.upgrade() {
                let pause = elasticity.tick(Now(monotonic_ms()), &alive);
                drop(alive);
                tokio::time::sleep(pause).await;
            }
        });
    })
}

/// Returns the observation of a node that was ordered off. `is_off`: whether its machine is off; `None`: no
/// command switches it.
fn observed_after_stop(is_off: Option<bool>, state: Option<LifecycleState>) -> Observed {
    match (is_off, state) {
        // Once a node counts as off, it stays so: its machine is switched when the last of its services and
        // dispatchers agrees.
        (_, Some(LifecycleState::Off)) => Observed::Off,
        (Some(false), _) => Observed::Ready,
        (Some(true) | None, _) => Observed::Off,
    }
}

fn is_drained(member: &MemberStatus) -> bool {
    matches!(member.state.as_str(), "draining" | "drained")
}

fn settings(config: &ElasticConfig, powers: Option<&NodePowers>) -> ElasticitySettings {
    let switched_ms = powers.and_then(NodePowers::stop_timeout_ms);
    ElasticitySettings {
        nodes_min: config.nodes_min as usize,
        nodes_max: config.nodes_max as usize,
        targets: LoadTargets { requests: config.target_requests, bytes: config.target_bytes_max },
        tolerance_permille: config.tolerance_percent * 10,
        interval_ms: config.interval_ms,
        scale_out_window_ms: config.scale_out_window_ms,
        scale_in_window_ms: config.scale_in_window_ms,
        step_out_nodes_max: config.step_out_nodes_max as usize,
        step_in_nodes_max: config.step_in_nodes_max as usize,
        start_timeout_ms: config.start_timeout_ms,
        attempts_max: config.attempts_max,
        retry_pause_ms: ELASTIC_RETRY_PAUSE_MS,
        failed_hold_ms: config.failed_hold_ms,
        drain_timeout_ms: config.drain_timeout_ms,
        // Without a machine to switch, a drain takes effect at once.
        stop_timeout_ms: switched_ms.unwrap_or(config.interval_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_off_stays_off_while_its_machine_waits_for_other_services() {
        let of = |is_off, state| observed_after_stop(is_off, Some(state));
        assert_eq!(of(Some(false), LifecycleState::Draining), Observed::Ready);
        assert_eq!(of(Some(true), LifecycleState::Draining), Observed::Off);
        // The last service agrees: the machine is being switched off, which does not mean that the node has
        // returned.
        assert_eq!(of(Some(false), LifecycleState::Off), Observed::Off);
        assert_eq!(of(None, LifecycleState::Draining), Observed::Off);
    }
}
