//! Purges in the link thread: sends a purge to all nodes, and earlier purges to each new link.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use skep_directory::{PurgeOrder, PurgeReport, Purger};
use skep_peer::stream::{LinkId, Outbox};
use skep_serve::unix_ms;
use skep_units::Now;
use skep_wire::cache::{NodeFeatures, PurgeKind, PurgeNews, PurgeStamp, PurgeWhat, ToNode};
use skep_wire::message::Name;

use crate::limits::INVALIDATION_MS;

/// The results of purges, since the start.
#[derive(Debug, Default)]
pub struct PurgeCounts {
    complete: AtomicU64,
    incomplete: AtomicU64,
    slowest_us: AtomicU64,
}

impl PurgeCounts {
    /// Number of purges that all nodes that are linked or serve clients acknowledged in time, and
    /// of the others.
    pub fn totals(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.complete), read(&self.incomplete))
    }

    /// The longest time until all nodes had acknowledged a purge, in microseconds.
    pub fn slowest_us(&self) -> u64 {
        self.slowest_us.load(Ordering::Relaxed)
    }

    /// Counts a purge and its duration.
    pub(crate) fn count(&self, report: &PurgeReport, took: Duration) {
        if !report.is_complete() {
            self.incomplete.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.complete.fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.slowest_us.fetch_max(us, Ordering::Relaxed);
    }
}

/// State of the link thread.
pub(crate) struct Purging {
    purger: Purger<LinkId, SyncSender<PurgeReport>>,
    nodes: BTreeMap<LinkId, (Name, NodeFeatures)>,
    started: Instant,
}

impl Purging {
    /// For the dispatcher with this number.
    pub(crate) fn new(number: u16) -> Self {
        Self { purger: Purger::new(number), nodes: BTreeMap::new(), started: Instant::now() }
    }

    /// Handles a node's hello; the node gets all purges before any other message.
    pub(crate) fn joined(
        &mut self,
        link: LinkId,
        (name, features): (Name, NodeFeatures),
        outbox: &mut Outbox<ToNode>,
    ) {
        self.nodes.insert(link, (name.clone(), features));
        let told = self.purger.purges().told().into_iter();
        // A link whose queue is full is closed, and the node links again.
        let _ = told.map(|it| ToNode::purges(it, features)).all(|it| outbox.send(link, &it));
        self.purger.joined(link, &name);
    }

    /// Handles the end of a link.
    pub(crate) fn left(&mut self, link: LinkId) {
        self.nodes.remove(&link);
        self.purger.left(link);
    }

    /// Begins the purge of an operator.
    pub(crate) fn begin(
        &mut self,
        order: PurgeOrder,
        sender: SyncSender<PurgeReport>,
        outbox: &mut Outbox<ToNode>,
    ) {
        if self.nodes.is_empty() {
            let nobody = PurgeReport { stamp: PurgeStamp::NONE, nodes: Vec::new() };
            return drop(sender.try_send(nobody));
        }
        let how = match order.kind {
            PurgeKind::Hard => "purging",
            PurgeKind::Soft => "softly purging",
        };
        tracing::info!(nodes = self.nodes.len(), "{how} {}", list(&order.what));
        self.order(order, sender, outbox);
    }

    /// Purges `what`, which a request at some node has changed. The result is not reported.
    pub(crate) fn invalidate(&mut self, what: Vec<PurgeWhat>, outbox: &mut Outbox<ToNode>) {
        tracing::debug!("invalidating {}", list(&what));
        let (kind, serving) = (PurgeKind::Hard, Vec::new());
        let order = PurgeOrder { kind, what, limit_ms: INVALIDATION_MS, serving };
        let (nobody, _) = sync_channel(0);
        self.order(order, nobody, outbox);
    }

    fn order(
        &mut self,
        order: PurgeOrder,
        sender: SyncSender<PurgeReport>,
        outbox: &mut Outbox<ToNode>,
    ) {
        let nodes = self.nodes.iter().map(|(&link, (name, _))| (link, name.clone()));
        let kind = order.kind;
        let news = self.purger.begin((self.now(), unix_ms()), order, nodes, sender);
        self.tell((kind, news), None, outbox);
    }

    /// Nodes whose hello was received.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (LinkId, &Name, NodeFeatures)> {
        self.nodes.iter().map(|(link, (name, features))| (*link, name, *features))
    }

    /// Sets the nodes that serve clients now.
    pub(crate) fn set_serving(&mut self, nodes: &[Name]) {
        self.purger.set_serving(nodes);
    }

    /// Handles purges that a node reports: new ones are sent to all others.
    pub(crate) fn learn(
        &mut self,
        from: LinkId,
        (kind, news): (PurgeKind, &PurgeNews),
        outbox: &mut Outbox<ToNode>,
    ) {
        if let Some(new) = self.purger.learn(kind, news) {
            self.tell((kind, new), Some(from), outbox);
        }
    }

    /// Handles a node's acknowledgement of purges.
    pub(crate) fn acknowledged(
        &mut self,
        link: LinkId,
        stamps: (PurgeStamp, PurgeStamp),
        outbox: &mut Outbox<ToNode>,
    ) {
        let again = self.purger.acknowledged((self.now(), unix_ms()), link, stamps);
        if let Some(again) = again {
            self.tell(again, None, outbox);
        }
    }

    /// Reports the purges that are complete or timed out.
    pub(crate) fn report(&mut self) {
        for (sender, report) in self.purger.ended(self.now()) {
            // The caller may have stopped waiting.
            drop(sender.try_send(report));
        }
    }

    /// Sends purges to all nodes except `but`.
    fn tell(
        &self,
        purges: (PurgeKind, PurgeNews),
        but: Option<LinkId>,
        outbox: &mut Outbox<ToNode>,
    ) {
        for (link, (_, features)) in self.nodes.iter().filter(|(link, _)| Some(**link) != but) {
            let _ = outbox.send(*link, &ToNode::purges(purges.clone(), *features));
        }
    }

    /// Time since the start, in milliseconds.
    fn now(&self) -> Now {
        Now(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

fn list(what: &[PurgeWhat]) -> String {
    what.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
