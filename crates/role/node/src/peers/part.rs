//! Files of partitioned folders on other nodes: finds a node that has the file, and fetches
//! its bytes from there.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_directory::FetchOutcome;
use skep_directory::limits::OVERLOADED_WAIT_MS;
use skep_peer::stream::{PeerError, PeerPool};
use skep_segments::{FetchError, PeerFillSource, Segment};
use skep_telemetry::{CoreCounters, Counter};
use skep_wire::cache::part::FileHead;
use skep_wire::cache::{FilePlace, OriginRef, PeerRefusal, PeerRequest, SegmentName};
use tokio::task::JoinSet;

use super::client::{SegmentOrigin, counter_of, end_of, error_of, fetch_chunks};
use super::head::ask_head;
use super::{Cluster, Command, PeerClient};
use crate::limits::{HEAD_ASKS_MAX, PART_AROUND_MAX, PART_HOMES_MAX, PART_SEEK_MS, PART_WAITS_MAX};
use crate::model::object::Object;
use crate::model::peer::{PeerHead, PeerNode};
use crate::model::route::Route;

/// The result of a search for a node with a file.
#[expect(clippy::large_enum_variant, reason = "one at a time, and never kept")]
pub(crate) enum PartSought {
    /// A node with the file, and its head.
    Found {
        home: PeerNode,
        head: FileHead,
        /// Time for which the head may be used, in milliseconds.
        fresh_ms: u64,
    },
    /// No node has it.
    Nobody,
    /// The nodes that have it, or may have it, do not answer.
    Unreachable,
}

/// The nodes with a file, as reported by a coordinator.
pub(super) enum FileHolders {
    These(Vec<PeerNode>),
    Nobody,
    /// No linked node is known to have it, but these nodes may have it.
    Perhaps {
        nodes: Vec<PeerNode>,
        /// Whether no node beyond these may have it.
        are_all: bool,
    },
}

impl PeerClient {
    /// Asks other nodes for the file with this head name. Ends within [`PART_SEEK_MS`]. `place` is
    /// the file's place that the name is a hash of.
    pub(crate) async fn seek_part(&self, name: SegmentName, place: FilePlace) -> PartSought {
        let limit = Duration::from_millis(PART_SEEK_MS);
        let sought = tokio::time::timeout(limit, self.seek_part_at_all(name, place)).await;
        sought.unwrap_or(PartSought::Unreachable)
    }

    async fn seek_part_at_all(&self, name: SegmentName, place: FilePlace) -> PartSought {
        let request = PeerRequest::Head { name, place: Some(place) };
        for _ in 0..HEAD_ASKS_MAX {
            let homes = match self.cluster.homes(name, &self.counters).await {
                FileHolders::These(homes) => homes,
                FileHolders::Nobody => return PartSought::Nobody,
                FileHolders::Perhaps { nodes, are_all } => {
                    return self.ask_around(nodes, are_all, request).await;
                }
            };
            for home in homes {
                match part_of(&self.pool, home, request.clone()).await {
                    Ok((head, fresh_ms)) => return PartSought::Found { home, head, fresh_ms },
                    Err(PeerError::Refused(PeerRefusal::NotThere)) => {
                        self.counters.inc(Counter::ClusterDirectoryError);
                        self.cluster.tell_not_there(name, home);
                    }
                    // The node may have the file; so may others.
                    Err(error) => {
                        tracing::debug!(%error, "a node did not answer whether it has a file")
                    }
                }
            }
        }
        PartSought::Unreachable
    }

    /// Asks all of these nodes at once. `are_all`: no other node may have it.
    async fn ask_around(
        &self,
        nodes: Vec<PeerNode>,
        are_all: bool,
        request: PeerRequest,
    ) -> PartSought {
        let are_all = are_all && nodes.len() <= PART_AROUND_MAX;
        let mut asked = JoinSet::new();
        for peer in nodes.into_iter().take(PART_AROUND_MAX) {
            let (pool, request) = (Rc::clone(&self.pool), request.clone());
            asked.spawn_local(async move { (peer, part_of(&pool, peer, request).await) });
        }
        let mut sought = if are_all { PartSought::Nobody } else { PartSought::Unreachable };
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok((home, Ok((head, fresh_ms)))) => {
                    return PartSought::Found { home, head, fresh_ms };
                }
                Ok((_, Err(PeerError::Refused(PeerRefusal::NotThere)))) => {}
                Ok(_) | Err(_) => sought = PartSought::Unreachable,
            }
        }
        sought
    }

    /// The source of segment `index` of another node's file.
    pub(crate) fn home_file(&self, route: &Route, object: &Object, index: u32) -> Option<PeerFile> {
        let (relative, home) = object.elsewhere()?;
        Some(PeerFile {
            cluster: Arc::clone(&self.cluster),
            pool: Rc::clone(&self.pool),
            counters: Arc::clone(&self.counters),
            name: object.segment_name(index),
            head: route.part_head_name(relative),
            origin: OriginRef {
                site: route.short_key,
                path: relative.to_vec(),
                version: object.tag().to_vec(),
                purged: object.purged(),
                object_bytes: object.bytes(),
                index,
                has_lease: false,
            },
            home,
        })
    }
}

/// Returns the head of the requested file on `home`, and the time for which it may be used.
async fn part_of(
    pool: &PeerPool,
    home: PeerNode,
    request: PeerRequest,
) -> Result<(FileHead, u64), PeerError> {
    let PeerHead { fresh_ms, head, .. } = ask_head(pool, home, request).await?;
    let head = FileHead::read(&head).ok_or(PeerError::Unexpected)?;
    Ok((head, fresh_ms))
}

impl Cluster {
    /// The nodes with a file, found by its head name.
    async fn homes(&self, name: SegmentName, counters: &CoreCounters) -> FileHolders {
        // By asking, this node states that it does not have the file.
        self.announced.doubt(name);
        match self.answer(|answer| Command::FindFile { name, answer }).await {
            Some(FileHolders::Perhaps { nodes, are_all: false }) => {
                FileHolders::Perhaps { nodes: self.everybody(nodes), are_all: true }
            }
            Some(homes) => homes,
            None => {
                counters.inc(Counter::ClusterSilent);
                FileHolders::Perhaps { nodes: self.everybody(Vec::new()), are_all: true }
            }
        }
    }

    /// All other known nodes: the given ones, those a coordinator reported, and those of the
    /// config.
    fn everybody(&self, mut all: Vec<PeerNode>) -> Vec<PeerNode> {
        let (view, configured) = (self.view.load(), self.configured.load());
        for peer in view.peers.iter().chain(&**configured) {
            if !all.contains(peer) {
                all.push(*peer);
            }
        }
        all.retain(|peer| peer.id != self.me);
        all
    }
}

/// A segment of a file on another node's disk.
pub(crate) struct PeerFile {
    cluster: Arc<Cluster>,
    pool: Rc<PeerPool>,
    counters: Arc<CoreCounters>,
    name: SegmentName,
    /// The file's head name.
    head: SegmentName,
    origin: OriginRef,
    /// The node that had the file when its head was requested.
    home: PeerNode,
}

impl PeerFile {
    /// Fetches the missing bytes of the segment from `home`, in the version that its name contains.
    async fn read_from(&self, home: PeerNode, segment: &Segment) -> Result<(), PeerError> {
        segment.set_fill_source(PeerFillSource::RemoteFill { id: home.id });
        let mut waits = 0;
        loop {
            let request = PeerRequest::Fetch {
                name: self.name,
                bytes: segment.len(),
                from: segment.filled(),
                origin: Some(self.origin.clone()),
            };
            let fetched = fetch_chunks(&self.pool, home.address, &request, segment).await;
            match fetched {
                Err(error) if is_of_load(&error) && waits < PART_WAITS_MAX => {
                    tokio::time::sleep(Duration::from_millis(OVERLOADED_WAIT_MS << waits)).await;
                    waits += 1;
                }
                fetched => return fetched,
            }
        }
    }

    /// Another node that announces the file.
    async fn another_home(&self, tried: &[PeerNode]) -> Option<PeerNode> {
        let homes = match self.cluster.homes(self.head, &self.counters).await {
            FileHolders::These(homes) => homes,
            FileHolders::Nobody => return None,
            FileHolders::Perhaps { nodes, .. } => nodes,
        };
        homes.into_iter().find(|home| !tried.contains(home))
    }
}

/// Whether a retry may succeed soon: the node is overloaded.
fn is_of_load(error: &PeerError) -> bool {
    matches!(end_of(error), FetchOutcome::Refused(PeerRefusal::Overloaded) | FetchOutcome::Crowded)
}

/// The error of a reply, unless it means that the node is unreachable.
pub(super) fn error_of_home(error: &PeerError) -> Option<FetchError> {
    match error {
        PeerError::Refused(_)
        | PeerError::SourceLate
        | PeerError::Frame(_)
        | PeerError::NotAMessage(_)
        | PeerError::Unexpected => Some(FetchError::Peer),
        error if !error.blames_node() => Some(error_of(error)),
        _ => None,
    }
}

impl SegmentOrigin for PeerFile {
    async fn read(&self, segment: Arc<Segment>) -> Result<(), FetchError> {
        let mut tried = Vec::new();
        let mut failed = FetchError::NodeAway;
        let mut next = Some(self.home);
        while let Some(home) = next {
            match self.read_from(home, &segment).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::debug!(%error, "a segment was not fetched from the node that has its file");
                    failed = error_of_home(&error).unwrap_or(failed);
                    let counter = counter_of(end_of(&error));
                    counter.into_iter().for_each(|counter| self.counters.inc(counter));
                }
            }
            tried.push(home);
            let may_go_on = tried.len() < PART_HOMES_MAX;
            next = if may_go_on { self.another_home(&tried).await } else { None };
        }
        Err(failed)
    }

    fn described(&self, _: bool) -> Option<OriginRef> {
        // Only a node that has the file could use it.
        None
    }
}
