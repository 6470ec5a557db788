//! Queues tables to be sent: the whole table of a large cluster is many datagrams for each machine. The
//! event loop sends some of them in each turn, so that heartbeats do not wait for all.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use skep_peer::EncodedMessage;
use skep_wire::seal::PeerId;

use crate::limits::TABLE_DATAGRAMS_PER_TURN;

/// Messages to be sent, at most one per machine.
#[derive(Debug, Default)]
pub(crate) struct TableQueue {
    waiting: VecDeque<(PeerId, Arc<EncodedMessage>)>,
    peers: BTreeSet<PeerId>,
}

impl TableQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a table is queued for a machine.
    pub(crate) fn has(&self, peer: PeerId) -> bool {
        self.peers.contains(&peer)
    }

    /// Queues a new table for these machines, in place of what was queued for them; short messages
    /// first. An earlier table is still sent to other machines, which get the new one later.
    pub(crate) fn put(&mut self, mut messages: Vec<(Vec<PeerId>, Arc<EncodedMessage>)>) {
        let renewed: BTreeSet<PeerId> =
            messages.iter().flat_map(|(to, _)| to.iter().copied()).collect();
        self.waiting.retain(|(peer, _)| !renewed.contains(peer));
        messages.sort_by_key(|(_, message)| message.datagrams());
        let one = |(to, message): (Vec<PeerId>, Arc<EncodedMessage>)| {
            to.into_iter().map(move |peer| (peer, Arc::clone(&message)))
        };
        let earlier = std::mem::take(&mut self.waiting);
        self.waiting = messages.into_iter().flat_map(one).chain(earlier).collect();
        self.peers.extend(renewed);
    }

    /// The messages to send in this turn.
    pub(crate) fn take_turn(&mut self) -> Vec<(PeerId, Arc<EncodedMessage>)> {
        let mut datagrams = 0;
        let mut turn = Vec::new();
        while datagrams < TABLE_DATAGRAMS_PER_TURN
            && let Some((peer, message)) = self.waiting.pop_front()
        {
            datagrams += message.datagrams();
            self.peers.remove(&peer);
            turn.push((peer, message));
        }
        turn
    }

    /// Clears the queue when this dispatcher is no longer active.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::SocketAddr;

    use skep_wire::message::{Message, Name};
    use skep_wire::steer::ForwardingState;
    use skep_wire::table::{Table, TableNode};

    use super::*;

    fn peer(number: u64) -> PeerId {
        PeerId(number)
    }

    /// The whole table of this number of nodes.
    fn message(nodes: u16) -> Arc<EncodedMessage> {
        let node = |index| TableNode {
            index,
            name: Name::new(&format!("node-{index}")).unwrap(),
            address: SocketAddr::from(([10, 0, 0, 1], 80)),
            weight: 1,
            state: ForwardingState::Up,
            is_drained: false,
            mac: [2; 6],
            mtu: 1_500,
        };
        let table = Table { nodes: (0..nodes).map(node).collect(), ..Table::default() };
        Arc::new(EncodedMessage::new(&Message::Table(table)).unwrap())
    }

    #[test]
    fn a_thousand_whole_tables_take_many_turns() {
        let mut queue = TableQueue::default();
        let whole = message(1_000);
        queue.put(vec![((0..1_000).map(peer).collect(), Arc::clone(&whole))]);
        let (mut turns, mut sent) = (0, BTreeSet::new());
        while !queue.is_empty() {
            let turn = queue.take_turn();
            let datagrams: usize = turn.iter().map(|(_, message)| message.datagrams()).sum();
            assert!(datagrams < TABLE_DATAGRAMS_PER_TURN + whole.datagrams(), "{datagrams}");
            sent.extend(turn.into_iter().map(|(peer, _)| peer));
            turns += 1;
        }
        assert!(turns > 50 && sent.len() == 1_000, "{turns} turns to {}", sent.len());
        assert!(!queue.has(peer(0)));
    }

    #[test]
    fn a_new_table_replaces_what_waits_and_short_messages_are_first() {
        let mut queue = TableQueue::default();
        let (whole, delta) = (message(1_000), message(1));
        queue.put(vec![(vec![peer(1), peer(2)], Arc::clone(&whole))]);
        queue.put(vec![
            (vec![peer(3)], Arc::clone(&whole)),
            (vec![peer(2), peer(4)], Arc::clone(&delta)),
        ]);
        assert!((1..=4).all(|number| queue.has(peer(number))));
        let mut sent = Vec::new();
        while !queue.is_empty() {
            sent.extend(queue.take_turn().into_iter().map(|(peer, it)| (peer.0, it.datagrams())));
        }
        let (long, short) = (whole.datagrams(), delta.datagrams());
        assert_eq!(sent, [(2, short), (4, short), (3, long), (1, long)]);
    }
}
