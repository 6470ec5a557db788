//! The event loop's part when one of two active dispatchers steps down: tables and announcements.

use skep_units::Now;
use skep_wire::message::Message;
use skep_wire::table::Table;

use crate::clock::now;
use crate::event_loop::DirectLoop;

impl DirectLoop {
    /// Takes over the table of another dispatcher, whose term has ended, while this one is active.
    pub(crate) fn take_table_over(&mut self, theirs: &Table) {
        let (now, present) = (now(), self.publisher.table().version);
        if !self.publisher.merge(now, theirs) {
            return self.handover.known(theirs.version);
        }
        theirs.nodes.iter().for_each(|node| self.listen_to(&node.name, node.address));
        self.handover.merged(now, theirs.version, present);
    }

    /// Sends the table of a term that has ended to the dispatcher that is active now.
    pub(crate) fn hand_table_over(&mut self, now: Now) {
        let Some(to) = self.failover.active() else { return };
        if let Some(table) = self.last_table.as_mut().and_then(|last| last.due(now)) {
            let message = Message::Table(Table::clone(table));
            self.send(to, &message);
        }
    }

    /// Passes an announcement of the addresses to the executor, once this machine has them, if it
    /// is due.
    pub(crate) fn want_announcement(&mut self, now: Now) {
        let (told, applied) = (&self.told, self.path.applied);
        let detector = self.publisher.detector();
        if self.handover.may_announce(now, told, applied, detector) && self.wishes.announce() {
            self.wake_executor();
        }
    }
}
