//! Files of partitioned folders on other nodes: finds a node that has the file, and fetches
//! its bytes from there.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_directory::limits::OVERLOADED_WAIT_MS;
use skep_directory::{FetchEvent, FetchOutcome, ResolvedAnswer};
use skep_peer::stream::{PeerError, PeerPool};
use skep_segments::{FetchError, PeerFillSource, Segment};
use skep_serve::monotonic_ms;
use skep_telemetry::{CoreCounters, Counter};
use skep_wire::cache::part::FileHead;
use skep_wire::cache::{OriginRef, PeerRefusal, PeerRequest, SegmentName};
use tokio::task::JoinSet;

use super::client::{SegmentOrigin, counter_of, end_of, fetch_chunks};
use super::head::ask_head;
use super::{Cluster, PeerClient};
use crate::limits::{
    HEAD_ASKS_MAX, PART_AROUND_MAX, PART_HOMES_MAX, PART_SEEK_MS, PART_SETTLED_MS, PART_WAITS_MAX,
};
use crate::model::object::Object;
use crate::model::peer::{PeerHead, PeerNode};
use crate::model::route::Route;

/// The result of a search for a node with a file.
#[expect(clippy::large_enum_variant, reason = "one at a time, and never kept")]
pub(crate) enum PartSought {
    /// This node, and what it has.
    Found {
        home: PeerNode,
        head: FileHead,
        /// For how long that may be used, in milliseconds.
        fresh_ms: u64,
    },
    /// Nobody has it.
    Nobody,
    /// The nodes that have it, or may have it, do not answer.
    Unreachable,
}

/// The nodes with a file, as reported by a coordinator.
enum FileHolders {
    These(Vec<PeerNode>),
    Nobody,
    /// No coordinator answers, or it has not heard of all nodes' files yet.
    Unknown,
}

impl PeerClient {
    /// Asks for what other nodes have under a head name. Ends in a bounded time.
    pub(crate) async fn seek_part(&self, name: SegmentName) -> PartSought {
        let limit = Duration::from_millis(PART_SEEK_MS);
        let sought = tokio::time::timeout(limit, self.seek_part_at_all(name)).await;
        sought.unwrap_or(PartSought::Unreachable)
    }

    async fn seek_part_at_all(&self, name: SegmentName) -> PartSought {
        for _ in 0..HEAD_ASKS_MAX {
            let homes = match self.cluster.homes(name).await {
                FileHolders::These(homes) => homes,
                FileHolders::Nobody => return PartSought::Nobody,
                FileHolders::Unknown => return self.ask_around(name).await,
            };
            for home in homes {
                match part_of(&self.pool, home, name).await {
                    Ok((head, fresh_ms)) => return PartSought::Found { home, head, fresh_ms },
                    Err(PeerError::Refused(PeerRefusal::NotThere)) => {
                        self.counters.inc(Counter::ClusterDirectoryError);
                        self.cluster.tell_not_there(name, home);
                    }
                    // It may be well; others may have it, too.
                    Err(error) => tracing::debug!(%error, "a node does not say what it has"),
                }
            }
        }
        PartSought::Unreachable
    }

    /// Asks all nodes that are known, all at once.
    async fn ask_around(&self, name: SegmentName) -> PartSought {
        self.counters.inc(Counter::ClusterSilent);
        let mut asked = JoinSet::new();
        for peer in self.cluster.everybody().into_iter().take(PART_AROUND_MAX) {
            let pool = Rc::clone(&self.pool);
            asked.spawn_local(async move { (peer, part_of(&pool, peer, name).await) });
        }
        let mut sought = PartSought::Nobody;
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

/// The file of `home` under a head name, and how long it may be used.
async fn part_of(
    pool: &PeerPool,
    home: PeerNode,
    name: SegmentName,
) -> Result<(FileHead, u64), PeerError> {
    let PeerHead { fresh_ms, head } = ask_head(pool, home, name).await?;
    let head = FileHead::read(&head).ok_or(PeerError::Unexpected)?;
    Ok((head, fresh_ms))
}

impl Cluster {
    /// The nodes with a file, by its head name.
    async fn homes(&self, name: SegmentName) -> FileHolders {
        // By asking, this node says that it has nothing of that name.
        self.announced.doubt(name);
        let homes = match self.ask(name, 0).await {
            FetchEvent::Answer(ResolvedAnswer::Have { holders }) => {
                return FileHolders::These(holders);
            }
            FetchEvent::Answer(ResolvedAnswer::Grant { lease }) => {
                self.tell_ended(lease, false);
                FileHolders::Nobody
            }
            // Another one is just being told that nobody has it.
            FetchEvent::Answer(ResolvedAnswer::Busy { .. }) => FileHolders::Nobody,
            _ => return FileHolders::Unknown,
        };
        let settled_ms = self.view.load().linked_since_ms + PART_SETTLED_MS;
        if monotonic_ms() < settled_ms { FileHolders::Unknown } else { homes }
    }

    /// All other nodes that are known: by a coordinator or from the config.
    fn everybody(&self) -> Vec<PeerNode> {
        let mut all: Vec<_> = self.view.load().peers.clone();
        for peer in &**self.configured.load() {
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
    /// The node that had it when its head was requested.
    home: PeerNode,
}

impl PeerFile {
    /// Gets the missing bytes of the segment from `home`, in the version in its name.
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
        let homes = match self.cluster.homes(self.head).await {
            FileHolders::These(homes) => homes,
            FileHolders::Nobody => return None,
            FileHolders::Unknown => self.cluster.everybody(),
        };
        homes.into_iter().find(|home| !tried.contains(home))
    }
}

/// Whether a retry may succeed soon: the node is overloaded.
fn is_of_load(error: &PeerError) -> bool {
    matches!(end_of(error), FetchOutcome::Refused(PeerRefusal::Overloaded) | FetchOutcome::Crowded)
}

impl SegmentOrigin for PeerFile {
    async fn read(&self, segment: Arc<Segment>) -> Result<(), FetchError> {
        let mut tried = Vec::new();
        let mut next = Some(self.home);
        while let Some(home) = next {
            match self.read_from(home, &segment).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::debug!(%error, "a segment was not fetched from the node that has its file");
                    let counter = counter_of(end_of(&error));
                    counter.into_iter().for_each(|counter| self.counters.inc(counter));
                }
            }
            tried.push(home);
            let may_go_on = tried.len() < PART_HOMES_MAX;
            next = if may_go_on { self.another_home(&tried).await } else { None };
        }
        Err(FetchError::Peer)
    }

    fn described(&self, _: bool) -> Option<OriginRef> {
        // Only a node that has the file could make use of it.
        None
    }
}
