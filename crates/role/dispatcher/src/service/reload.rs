//! Applies a new config: a three-way merge of the new file, the last file and the current state.
//!
//! The new file is compared with the last one, and only the differences are applied, so that a
//! drain, a weight or a node of the admin API survives reloads that change something else.

use std::sync::Arc;

use skep_config::{Config, NodeConfig, ServiceConfig};
use skep_units::{NodeId, Now};

use crate::limits::RELOAD_REMOVE_MS;
use crate::service::dispatcher::{add_or_log, filed_node};
use crate::service::settings::ServiceSettings;
use crate::service::state::ServiceState;
use crate::service::status::NodeSource;

impl ServiceState {
    /// Applies the `service` of `config`.
    pub(crate) fn adopt(&mut self, config: &Config, service: &ServiceConfig, now: Now) {
        self.adopt_settings(ServiceSettings::of(service, config));
        self.listen.clone_from(&service.listen);
        let filed: Vec<&NodeConfig> = config.nodes_of(service).map(|(_, node)| node).collect();
        self.removed.retain(|name| filed.iter().any(|node| node.name == *name));
        self.make_room(&filed, now);
        for node in filed {
            self.adopt_node(node, now);
        }
        self.settle(now);
        self.unpublished = true;
        self.revision += 1;
    }

    fn adopt_settings(&mut self, mut settings: ServiceSettings) {
        let policy_filed = std::mem::replace(&mut self.policy_filed, settings.policy.clone());
        if policy_filed == settings.policy {
            settings.policy.clone_from(&self.settings.policy);
        }
        if settings.membership != self.settings.membership {
            self.membership.set_settings(settings.membership);
        }
        self.settings = Arc::new(settings);
    }

    /// Removes the nodes that the file no longer has, and at once those that conflict with its
    /// nodes: of the same name or address, but not the same node.
    fn make_room(&mut self, filed: &[&NodeConfig], now: Now) {
        let mut leaving: Vec<(NodeId, Now)> = Vec::new();
        for member in self.membership.members() {
            let twin = filed.iter().find(|node| node.name == **member.name());
            let is_same = twin.is_some_and(|node| node.address == member.address());
            let stands_in = filed
                .iter()
                .any(|node| node.name == **member.name() || node.address == member.address());
            let is_leaving = member.removal_deadline().is_some();
            let source = self.details.get(&member.id()).map(|details| details.source);
            if is_same && (!is_leaving || self.removed.contains(&**member.name())) {
                continue;
            }
            if stands_in {
                leaving.push((member.id(), now));
            } else if source == Some(NodeSource::Config) && !is_leaving {
                leaving.push((member.id(), now.plus_ms(RELOAD_REMOVE_MS)));
            }
        }
        for (id, deadline) in leaving {
            // Only an unknown id is an error, and these were just listed.
            let event = self.membership.remove(now, id, deadline).ok();
            self.note(event);
        }
        self.tick(now);
    }

    /// Adds a node of the file, or applies the file's changes to it.
    fn adopt_node(&mut self, filed: &NodeConfig, now: Now) {
        if self.removed.contains(&filed.name) {
            return;
        }
        let Some(id) = self.membership.find(&filed.name).map(|member| member.id()) else {
            return add_or_log(self, now, filed_node(filed));
        };
        let Some(details) = self.details.get_mut(&id) else { return };
        details.authority = filed.client_authority();
        let was_ours = details.source == NodeSource::Config;
        details.source = NodeSource::Config;
        let weight_filed = std::mem::replace(&mut details.weight_filed, filed.weight);
        if was_ours && weight_filed == filed.weight {
            return;
        }
        match self.membership.set_weight(now, id, filed.weight) {
            Ok(event) => self.note(event),
            Err(error) => tracing::error!("service {}: {error}", self.service),
        }
    }
}
