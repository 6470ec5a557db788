//! Invariants of a coordinator between any two calls; checked in debug builds and simulations.

use super::Coordinator;

impl Coordinator {
    pub(super) fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.members.check_invariants(self.changes);
        let is_linked = |link| self.members.get(link).is_some();
        let (leases, holdings) = (self.leases.len(), self.directory.holdings());
        debug_assert!(self.is_active || leases == 0, "{leases} leases of a standby");
        debug_assert!(leases <= self.settings.leases_max, "{leases} leases");
        debug_assert!(self.leases.leaders().all(is_linked), "a leader is not linked: {self:?}");
        debug_assert!(holdings <= self.settings.holdings_max, "{holdings} holdings");
        debug_assert!(self.files.holdings() <= self.settings.files_max, "files");
        let of_files = || self.files.links();
        debug_assert!(of_files().all(is_linked), "files of a link that has ended: {self:?}");
        debug_assert_eq!(of_files().count(), self.members.iter().count(), "{self:?}");
        let receivers = self.outbox.iter().map(|(to, _)| *to);
        debug_assert!(receivers.into_iter().all(is_linked), "a message to nobody: {self:?}");
    }
}
