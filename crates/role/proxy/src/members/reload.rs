//! Applies a new config: a three-way merge of the new file, the last file and the current state.
//!
//! The new file is compared with the last one, and only the differences are applied: a drain, a
//! weight or a member of the admin API survives reloads that change something else.

use std::sync::Arc;

use skep_cluster::NODES_MAX;
use skep_comparison::{ArmSpec, Arms};
use skep_units::{NodeId, Now};

use crate::limits::RELOAD_REMOVE_MS;
use crate::members::settings::{GroupSettings, GroupSpec, MemberSpec};
use crate::members::state::GroupState;
use crate::members::status::MemberSource;

impl GroupState {
    /// Applies the config of the group.
    pub(crate) fn adopt(&mut self, spec: GroupSpec, now: Now) {
        self.adopt_settings(spec.settings, now);
        let filed = spec.members;
        self.removed.retain(|name| filed.iter().any(|member| member.name == *name));
        self.make_room(&filed, now);
        for member in filed {
            self.adopt_member(member, now);
        }
        self.unpublished = true;
        self.revision += 1;
    }

    fn adopt_settings(&mut self, mut settings: GroupSettings, now: Now) {
        let policy_filed = std::mem::replace(&mut self.policy_filed, settings.policy.clone());
        if policy_filed == settings.policy {
            settings.policy.clone_from(&self.settings.policy);
        }
        if settings.membership != self.settings.membership {
            self.membership.set_settings(settings.membership);
        }
        let arms = settings.arms.clone();
        self.settings = Arc::new(settings);
        if self.arms_filed != arms {
            self.arms_filed.clone_from(&arms);
            self.adopt_arms(arms, now);
        }
        // If clients' packets are steered, nothing selects by arms.
        if self.settings.no_comparison.is_some() {
            self.comparison = None;
        }
    }

    fn adopt_arms(&mut self, arms: Vec<ArmSpec>, now: Now) {
        if arms.is_empty() {
            self.comparison = None;
            return;
        }
        // The config has been validated.
        match Arms::new(&self.name, arms) {
            Ok(arms) => self.begin_comparison(arms, now),
            Err(error) => tracing::error!("{} {}: {error}", self.words.group, self.name),
        }
    }

    /// Allows a worker at least `connections` to a member.
    pub(crate) fn make_room_for(&mut self, connections: usize) {
        if self.settings.connections.connections_max < connections {
            let mut settings = GroupSettings::clone(&self.settings);
            settings.connections.connections_max = connections;
            self.settings = settings.into();
            self.unpublished = true;
        }
    }

    /// Removes the members that the file no longer contains, and at once those that conflict with
    /// its members: they have the same name or address, but are not the same member.
    fn make_room(&mut self, filed: &[MemberSpec], now: Now) {
        let mut leaving: Vec<(NodeId, Now)> = Vec::new();
        for member in self.membership.members() {
            let twin = filed.iter().find(|it| it.name == **member.name());
            let is_same = twin.is_some_and(|it| it.address == member.address());
            let stands_in =
                filed.iter().any(|it| it.name == **member.name() || it.address == member.address());
            let is_leaving = member.removal_deadline().is_some();
            let source = self.details.get(&member.id()).map(|details| details.source);
            if is_same && (!is_leaving || self.removed.contains(&**member.name())) {
                continue;
            }
            if stands_in {
                leaving.push((member.id(), now));
            } else if source == Some(MemberSource::Config) && !is_leaving {
                leaving.push((member.id(), now.plus_ms(RELOAD_REMOVE_MS)));
            }
        }
        for (id, deadline) in leaving {
            // Only an unknown id is an error, and these were just listed.
            let event = self.membership.remove(now, id, deadline).ok();
            self.note(event);
        }
        self.end_due_removals(now);
        let is_new = |it: &&MemberSpec| self.membership.find(&it.name).is_none();
        if self.membership.members().len() + filed.iter().filter(is_new).count() > NODES_MAX {
            // No room for old and new members together: idle old ones leave now, although workers may still pick them.
            self.tick(now);
        }
    }

    /// Adds a member of the file, or applies the file's changes to it.
    fn adopt_member(&mut self, filed: MemberSpec, now: Now) {
        if self.removed.contains(&filed.name) {
            return;
        }
        let Some(id) = self.membership.find(&filed.name).map(|member| member.id()) else {
            return self.add_or_log(filed, now);
        };
        let Some(details) = self.details.get_mut(&id) else { return };
        details.authority = filed.authority;
        details.member.set_requests_max(filed.requests_max);
        if let Some(slots) = filed.slots {
            details.member.set_slots(slots);
        }
        let was_ours = details.source == MemberSource::Config;
        details.source = MemberSource::Config;
        let weight_filed = std::mem::replace(&mut details.weight_filed, filed.weight);
        if was_ours && weight_filed == filed.weight {
            return;
        }
        match self.membership.set_weight(now, id, filed.weight) {
            Ok(event) => self.note(event),
            Err(error) => tracing::error!("{} {}: {error}", self.words.group, self.name),
        }
    }

    fn add_or_log(&mut self, filed: MemberSpec, now: Now) {
        let name = filed.name.clone();
        if let Err(error) = self.add(now, filed, MemberSource::Config) {
            let (group, member) = (self.words.group, self.words.member);
            tracing::error!(
                "{group} {}: {member} {name} of the config not added: {error}",
                self.name
            );
        }
    }
}
