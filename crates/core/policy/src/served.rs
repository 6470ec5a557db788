//! Nodes' reports of the objects that they have served: under `redirect` and `handoff` the process
//! that selects nodes sees no responses.
//!
//! One writer extends a [`ServedLog`] and publishes it as a whole; before a pick, each policy
//! instance reads the new entries with its own [`ServedReader`].

use std::collections::VecDeque;
use std::sync::Arc;

use skep_wire::message::ServedObjects;

use crate::limits::SERVED_BATCHES_MAX;
use crate::{NodeView, Policy};

/// The latest messages of nodes, at most `SERVED_BATCHES_MAX`. A clone costs one reference per
/// message.
#[derive(Clone, Debug, Default)]
pub struct ServedLog {
    batches: VecDeque<Arc<ServedObjects>>,
    /// The number of earlier messages.
    forgotten: u64,
}

/// The position up to which a policy instance has read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServedReader {
    read: u64,
}

impl ServedLog {
    /// The log with one more message.
    pub fn with(&self, batch: Arc<ServedObjects>) -> Self {
        let mut log = self.clone();
        if log.batches.len() == SERVED_BATCHES_MAX {
            log.batches.pop_front();
            log.forgotten += 1;
        }
        log.batches.push_back(batch);
        log
    }
}

impl ServedReader {
    /// Passes new entries of `log` to `policy`, whose view has these nodes.
    pub fn teach(&mut self, log: &ServedLog, nodes: &[NodeView], policy: &mut dyn Policy) {
        let new = self.read.saturating_sub(log.forgotten) as usize;
        for batch in log.batches.iter().skip(new) {
            let by = nodes.iter().find(|node| node.name_hash == batch.node.0);
            let by = by.map(|node| node.id);
            batch.objects.iter().for_each(|it| policy.told(it.url_hash, it.bytes, by));
        }
        self.read = log.forgotten + log.batches.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use skep_units::NodeId;
    use skep_wire::message::SizedObject;
    use skep_wire::seal::PeerId;

    use super::*;
    use crate::{ClusterView, Decision, RequestKey};

    #[derive(Default)]
    struct Listener(Vec<(u64, u64, Option<NodeId>)>);

    impl Policy for Listener {
        fn name(&self) -> &'static str {
            "listener"
        }

        fn pick(&mut self, _: &RequestKey<'_>, _: &ClusterView, _: &[NodeId]) -> Decision {
            Decision::None
        }

        fn told(&mut self, url_hash: u64, bytes: u64, by: Option<NodeId>) {
            self.0.push((url_hash, bytes, by));
        }
    }

    fn batch(url_hash: u64) -> Arc<ServedObjects> {
        let objects = vec![SizedObject { url_hash, bytes: 10 }];
        Arc::new(ServedObjects { node: PeerId(url_hash % 2), objects })
    }

    #[test]
    fn each_reader_reads_each_message_once_and_misses_only_what_is_forgotten() {
        let nodes = [NodeView::idle(NodeId(7), 1, 1)];
        let (mut log, mut reader, mut heard) =
            (ServedLog::default(), ServedReader::default(), Listener::default());
        reader.teach(&log, &nodes, &mut heard);
        log = log.with(batch(1)).with(batch(2));
        reader.teach(&log, &nodes, &mut heard);
        reader.teach(&log, &nodes, &mut heard);
        assert_eq!(heard.0, [(1, 10, Some(NodeId(7))), (2, 10, None)]);
        let many = SERVED_BATCHES_MAX as u64 + 5;
        log = (0..many).fold(log, |log, n| log.with(batch(100 + n)));
        heard.0.clear();
        reader.teach(&log, &nodes, &mut heard);
        let hashes = heard.0.iter().map(|it| it.0);
        assert!(hashes.eq(105..100 + many), "{:?}", heard.0.first());
        log = log.with(batch(9));
        heard.0.clear();
        reader.teach(&log, &nodes, &mut heard);
        assert_eq!(heard.0, [(9, 10, Some(NodeId(7)))]);
    }
}
