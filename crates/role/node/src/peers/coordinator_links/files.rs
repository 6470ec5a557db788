//! Announces this node's files to coordinators: first the existing ones, then changes.

use skep_peer::stream::{LinkId, Outbox};
use skep_wire::cache::{SegmentName, ToCoordinator};
use skep_wire::limits::HELD_PER_MESSAGE_MAX;

use super::CoordinatorLinks;
use crate::limits::INVENTORY_QUEUE_BYTES_MAX;
use crate::model::announced::{Announced, AnnouncedChanges};

/// What was announced to one coordinator of this node's files.
#[derive(Debug)]
pub(super) struct Announcement {
    /// The files known when the link began that are yet to be announced. Later ones are changes.
    untold: Vec<SegmentName>,
    /// Whether the coordinator was informed that the announcement is complete.
    is_complete: bool,
}

impl CoordinatorLinks {
    /// Announces files to all coordinators, as far as the capacity of their links allows.
    pub(super) fn announce(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        // In this order: if the walk was complete, the changes contain all files that it found.
        let is_walked = self.announced.is_complete();
        let changes = self.announced.changes();
        for (&link, coordinator) in &mut self.links {
            let announcement = &mut coordinator.announcement;
            announcement.tell_changes(link, &changes, outbox);
            announcement.tell_rest(link, &self.announced, outbox);
            announcement.tell_complete(link, is_walked, outbox);
        }
    }
}

impl Announcement {
    /// Starts with all files known so far, none of them announced yet.
    pub(super) fn new(announced: &Announced) -> Self {
        Self { untold: announced.names(), is_complete: false }
    }

    /// Whether only changes are left to be announced.
    pub(super) fn is_told(&self) -> bool {
        self.untold.is_empty()
    }

    fn tell_changes(
        &self,
        link: LinkId,
        changes: &[AnnouncedChanges],
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        for AnnouncedChanges { added, removed } in changes.iter().cloned() {
            let is_complete = self.is_complete;
            let _ = outbox.send(link, &ToCoordinator::Announce { added, removed, is_complete });
        }
    }

    /// Announces a part of the rest, not all at once: the capacity of links is limited, and purges
    /// must not wait.
    fn tell_rest(
        &mut self,
        link: LinkId,
        announced: &Announced,
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        while !self.is_told() && outbox.queued_bytes(link) < INVENTORY_QUEUE_BYTES_MAX {
            let rest = self.untold.len().saturating_sub(HELD_PER_MESSAGE_MAX);
            // An announcement must not follow the change that revoked it.
            let added = announced.still(&self.untold.split_off(rest));
            let (removed, is_complete) = (Vec::new(), false);
            let part = ToCoordinator::Announce { added, removed, is_complete };
            if !outbox.send(link, &part) {
                self.untold.clear();
            }
        }
    }

    fn tell_complete(&mut self, link: LinkId, is_walked: bool, outbox: &mut Outbox<ToCoordinator>) {
        let is_complete = is_walked && self.is_told();
        if self.is_complete != is_complete {
            self.is_complete = is_complete;
            let (added, removed) = (Vec::new(), Vec::new());
            let _ = outbox.send(link, &ToCoordinator::Announce { added, removed, is_complete });
        }
    }
}
