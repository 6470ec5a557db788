//! Peer heads: heads that one node fetched from an origin, for another node.
//!
//! ```text
//!  0 bytes of the version (u16)   2 version   ... bytes of the object (u64)
//!  ... stamp of its latest purge (u64)   head
//! ```
//!
//! The head is that of an HTTP response and contains all caching information. Numbers are
//! little-endian.

use std::sync::Arc;

use skep_origin::Head;
use skep_serve::{monotonic_ms, unix_ms};
use skep_wire::cache::PurgeStamp;
use skep_wire::limits::PEER_HEAD_BYTES_MAX;

use super::kept::{self, FetchedHead};
use crate::model::freshness::{self, LatestPurges, ResourceFreshness};
use crate::model::origin_backend::OriginBackend;
use crate::model::peer::PeerHead;
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// The peer head of `resource`; `None`: it is too long, or not from an origin.
pub(super) fn of(resource: &Resource) -> Option<PeerHead> {
    encode(resource, Vec::new())
}

/// The same, preceded by `prefix`.
pub(crate) fn encode(resource: &Resource, prefix: Vec<u8>) -> Option<PeerHead> {
    let (remote, freshness) = (resource.remote()?, resource.freshness()?);
    let version_len = u16::try_from(remote.version.len()).ok()?;
    let mut head = prefix;
    head.extend(version_len.to_le_bytes());
    head.extend_from_slice(&remote.version);
    head.extend(resource.variants.plain.bytes().to_le_bytes());
    head.extend(resource.variants.plain.purged().0.to_le_bytes());
    head.extend(remote.head.to_text(unix_ms()));
    let fresh_ms = freshness.fresh_ms(monotonic_ms());
    let softly_purged = resource.softly_purged();
    (head.len() <= PEER_HEAD_BYTES_MAX).then_some(PeerHead { fresh_ms, softly_purged, head })
}

/// A parsed peer head.
pub(crate) struct ReadHead {
    pub(crate) version: Vec<u8>,
    /// Length of the whole object.
    pub(crate) bytes: u64,
    /// The latest hard purge of it known to the node that sent it.
    pub(crate) purged: PurgeStamp,
    pub(crate) head: Head,
}

/// Parses a peer head; `None`: it is invalid.
pub(crate) fn decode(head: &[u8]) -> Option<ReadHead> {
    let (version_len, rest) = head.split_first_chunk()?;
    let (version, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*version_len)))?;
    let (bytes, rest) = rest.split_first_chunk()?;
    let (purged, text) = rest.split_first_chunk()?;
    Some(ReadHead {
        version: version.to_vec(),
        bytes: u64::from_le_bytes(*bytes),
        purged: PurgeStamp(u64::from_le_bytes(*purged)),
        head: Head::from_text(text, unix_ms())?,
    })
}

/// The resource described by another node's head of `target`; `None`: the head is invalid, or was
/// fetched before one of `purges`, which the other node does not know yet. The head arrived
/// `transit_ms` after it was requested.
pub(super) fn read(
    route: &Arc<Route>,
    origin: &OriginBackend,
    target: &[u8],
    (peer_head, transit_ms): (&PeerHead, u64),
    purges: &PurgeSnapshot,
) -> Option<Arc<Resource>> {
    let ReadHead { version, bytes, purged, head } = decode(&peer_head.head)?;
    // It is checked like an origin's response.
    if kept::keepable_bytes(&head, origin) != Ok(bytes) {
        return None;
    }
    let known = freshness::purged(route, purges, target, &head);
    let purged = LatestPurges { hard: purged, soft: peer_head.softly_purged };
    if purged.hard < known.hard || purged.soft < known.soft {
        return None;
    }
    let freshness =
        ResourceFreshness::of(&head, &origin.policy).handed_over(peer_head.fresh_ms, transit_ms);
    let got =
        FetchedHead { target: target.to_vec(), version, bytes, head, purged, is_from_peer: true };
    Some(kept::resource(route, origin, got, freshness, purges))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_wire::cache::{PurgeKind, PurgeNews, PurgePlace, PurgeWhat};
    use skep_wire::limits::OBJECT_BYTES_MAX;

    use super::super::rig::{node, resource};
    use super::*;

    fn purge(route: &Route, what: PurgeWhat, stamp: u64) {
        purge_so(PurgeKind::Hard, route, what, stamp);
    }

    fn purge_so(kind: PurgeKind, route: &Route, what: PurgeWhat, stamp: u64) {
        let purges = vec![(what, PurgeStamp(stamp))];
        route.purges.learn(kind, &PurgeNews { purges, ..PurgeNews::default() });
    }

    /// A head that a node has just fetched, for another one.
    fn got(route: &Arc<Route>) -> PeerHead {
        got_with(route, 5, "Cache-Tag: t\r\nETag: \"v\"\r\nCache-Control: max-age=60\r\n")
    }

    /// The same with another length and other fields.
    fn got_with(route: &Arc<Route>, bytes: u64, fields: &str) -> PeerHead {
        of(&resource(route, bytes, fields)).unwrap()
    }

    fn taken(route: &Arc<Route>, peer_head: &PeerHead) -> Option<Arc<Resource>> {
        taken_after(route, peer_head, 0)
    }

    fn taken_after(
        route: &Arc<Route>,
        peer_head: &PeerHead,
        transit_ms: u64,
    ) -> Option<Arc<Resource>> {
        let purges = route.purges.load();
        read(route, route.origin().unwrap(), b"/a", (peer_head, transit_ms), &purges)
    }

    #[test]
    fn what_was_got_before_a_purge_is_refused_and_what_came_after_keeps_its_name() {
        let (one, two) = (node(), node());
        let place = PurgePlace { target: "/a".into(), host: None };
        let purges = [PurgeWhat::Url(place), PurgeWhat::Tag("t".into())];
        for (what, stamp) in purges.into_iter().zip([5, 7]) {
            let old = got(&one);
            assert!(taken(&two, &old).is_some());
            purge(&two, what.clone(), stamp);
            assert!(taken(&two, &old).is_none(), "{what}");
            // A node that does not know the purge yet must find the bytes fetched after it.
            let new = got(&two);
            let taken = taken(&one, &new).unwrap();
            assert_eq!(taken.variants.plain.purged(), PurgeStamp(stamp));
            assert!(!taken.is_purged());
            purge(&one, what, stamp);
            assert!(!taken.is_purged(), "it came after");
        }
        let kept = taken(&one, &got(&one)).unwrap();
        purge(&one, PurgeWhat::Tag("u".into()), 8);
        assert!(!kept.is_purged());
        purge(&one, PurgeWhat::Tag("t".into()), 9);
        assert!(kept.is_purged());
    }

    #[test]
    fn a_soft_purge_makes_stale_what_was_got_before_it() {
        let (one, two) = (node(), node());
        let now_ms = monotonic_ms();
        let is_fresh = |it: &Resource| it.freshness().unwrap().is_fresh(now_ms);
        let place = PurgePlace { target: "/a".into(), host: None };
        let stamp = PurgeStamp::after(PurgeStamp::NONE, unix_ms(), 1);
        for (what, later) in [(PurgeWhat::Url(place), 0), (PurgeWhat::Tag("t".into()), 1)] {
            let stamp = stamp.0 + later;
            let old = got(&one);
            let here = taken(&two, &old).unwrap();
            purge_so(PurgeKind::Soft, &two, what.clone(), stamp);
            assert!(taken(&two, &old).is_none(), "{what}");
            assert!(is_fresh(&here) && !here.is_purged() && !is_fresh(&here), "{what}");
            assert!(here.is_softly_purged() && here.is_in_use(now_ms));
            // Its bytes have the same names as before.
            let new = got(&two);
            assert_eq!(new.softly_purged, PurgeStamp(stamp));
            let taken = taken(&one, &new).unwrap();
            assert!(taken.is_same_version(&here));
            purge_so(PurgeKind::Soft, &one, what.clone(), stamp);
            assert!(!taken.is_softly_purged() && is_fresh(&taken), "it came after");
        }
        let kept = taken(&two, &got(&two)).unwrap();
        let later = PurgeStamp::after(PurgeStamp(stamp.0 + 1), unix_ms() - 30_000, 1);
        purge_so(PurgeKind::Soft, &two, PurgeWhat::Tag("u".into()), later.0);
        assert!(!kept.is_softly_purged(), "other tags");
        purge_so(PurgeKind::Soft, &two, PurgeWhat::Tag("t".into()), later.0 + 1);
        assert!(kept.is_softly_purged());
        purge(&two, PurgeWhat::Tag("t".into()), later.0 + 2);
        assert!(kept.is_purged(), "a hard one wins");
    }

    #[test]
    fn a_head_is_as_old_as_where_it_comes_from_and_the_way_counts() {
        let route = node();
        let head = got(&route).head;
        let fresh_ms = |fresh_ms, transit_ms| {
            let softly_purged = PurgeStamp::NONE;
            let peer_head = PeerHead { fresh_ms, softly_purged, head: head.clone() };
            let taken = taken_after(&route, &peer_head, transit_ms).unwrap();
            let freshness = taken.freshness().unwrap();
            let (rules, _) = freshness.rules(monotonic_ms());
            (rules.fresh_until_ms(), rules.initial_age_ms)
        };
        assert_eq!(fresh_ms(12_300, 0), (12_300, 47_700));
        assert_eq!(fresh_ms(12_300, 400), (11_900, 48_100));
        assert_eq!(fresh_ms(300, 400).0, 0);
    }

    #[test]
    fn what_no_node_may_keep_is_refused() {
        let route = node();
        let of = |bytes, fields: &str| taken(&route, &got_with(&route, bytes, fields)).is_some();
        let fresh = "Cache-Control: max-age=60\r\n";
        assert!(of(OBJECT_BYTES_MAX, fresh));
        assert!(!of(OBJECT_BYTES_MAX + 1, fresh));
        assert!(!of(5, &format!("{fresh}Set-Cookie: a=b\r\n")));
        assert!(!of(5, "Cache-Control: max-age=60, private\r\n"));
    }

    #[test]
    fn cut_heads_make_no_sense() {
        let route = node();
        let PeerHead { fresh_ms, softly_purged, head } = got(&route);
        for cut in 0..head.len() {
            let head = head[..cut].to_vec();
            assert!(taken(&route, &PeerHead { fresh_ms, softly_purged, head }).is_none());
        }
    }
}
