//! Purges received over a link: applied, acknowledged, and sent to the other coordinators,
//! which may not have received them.

use skep_peer::stream::{LinkId, Outbox};
use skep_wire::cache::{PurgeKind, PurgeNews, ToCoordinator};

use super::CoordinatorLinks;

impl CoordinatorLinks {
    /// Applies a coordinator's purges. All of them arrive before its first welcome, so that other
    /// nodes are not asked for purged objects.
    pub(super) fn purged(
        &mut self,
        link: LinkId,
        (kind, news): (PurgeKind, &PurgeNews),
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        let new = self.purges.learn(kind, news);
        let (stamp, newest) = (news.newest(), self.purges.newest());
        // A link with a full queue ends, and the next one starts with all known purges.
        let _ = outbox.send(link, &ToCoordinator::Purged { stamp, newest });
        if let Some(new) = new {
            let what: Vec<_> = new.purges.iter().map(|(what, _)| what.to_string()).collect();
            let how = if kind == PurgeKind::Soft { "softly purged" } else { "purged" };
            tracing::debug!("{how} {}", what.join(", "));
            let others = self.links.keys().filter(|other| **other != link);
            let new = ToCoordinator::purges((kind, new));
            others.for_each(|other| _ = outbox.send(*other, &new));
        }
    }
}
