//! The host table: the arm of each client. Paper 003, table 3: `hostTable[r.ip].mechanism`.

use std::collections::BTreeMap;

use skep_units::stable_hash;

use crate::client::ClientId;
use crate::limits::{CLIENTS_MAX, MERGED_CLIENTS_MAX, UNTOLD_MAX};

/// An ordered map, not a hash map, since clients choose their addresses.
#[derive(Clone, Debug)]
pub struct HostTable {
    weights: Vec<u32>,
    known: BTreeMap<ClientId, u8>,
    /// The number of entries in `known`, by arm.
    counts: Vec<u64>,
    clients_max: usize,
    digest: u64,
    /// Clients not yet reported to other dispatchers.
    untold: Vec<(ClientId, u8)>,
    revision: u64,
}

/// A digest that is equal for equal tables, and for others only by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableDigest {
    pub clients: u32,
    pub hash: u64,
}

impl HostTable {
    /// An empty table for arms with these weights, at least one arm, each weight at least 1.
    pub fn new(weights: Vec<u32>) -> Self {
        Self::with_room(weights, CLIENTS_MAX)
    }

    fn with_room(weights: Vec<u32>, clients_max: usize) -> Self {
        assert!(!weights.is_empty() && weights.iter().all(|weight| *weight > 0), "no arms");
        Self {
            counts: vec![0; weights.len()],
            weights,
            known: BTreeMap::new(),
            clients_max,
            digest: 0,
            untold: Vec::new(),
            revision: 0,
        }
    }

    /// The arm of a client: its own if it is known, else the next one in turn; if the table is
    /// full, the arm determined by its hash.
    pub fn arm_of(&mut self, client: ClientId) -> usize {
        if let Some(&arm) = self.known.get(&client) {
            return arm.into();
        }
        if self.known.len() >= self.clients_max {
            return arm_by_hash(&self.weights, client);
        }
        let arm = self.next_in_turn();
        self.insert(client, arm);
        if self.untold.len() < UNTOLD_MAX {
            self.untold.push((client, arm));
        }
        arm.into()
    }

    /// Merges a client's arm as reported by another dispatcher. Returns whether that changes
    /// anything. If two dispatchers assigned different arms to a client at the same time, both keep
    /// the same one.
    pub fn merge(&mut self, client: ClientId, arm: u8) -> bool {
        if usize::from(arm) >= self.weights.len() {
            return false;
        }
        let Some(&own) = self.known.get(&client) else {
            let has_room = self.known.len() < MERGED_CLIENTS_MAX;
            if has_room {
                self.insert(client, arm);
                // The client may have been assigned by its hash until now.
                self.revision += 1;
            }
            return has_room;
        };
        // Not always the first: that arm would get more than its share.
        let kept = if client.0 & 1 == 0 { own.min(arm) } else { own.max(arm) };
        if kept != own {
            self.counts[usize::from(own)] -= 1;
            self.digest ^= entry_hash(client, own);
            self.insert(client, kept);
            self.revision += 1;
        }
        kept != own
    }

    /// Increases whenever a client's arm may have changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn digest(&self) -> TableDigest {
        TableDigest { clients: self.known.len() as u32, hash: self.digest }
    }

    /// The number of clients in the table, by arm.
    pub fn clients(&self) -> &[u64] {
        &self.counts
    }

    /// Whether new clients are assigned by their hash.
    pub fn is_full(&self) -> bool {
        self.known.len() >= self.clients_max
    }

    /// Takes at most `clients_max` clients that were not yet reported to other dispatchers.
    pub(crate) fn take_untold(&mut self, clients_max: usize) -> Vec<(ClientId, u8)> {
        let rest = self.untold.split_off(self.untold.len().min(clients_max));
        std::mem::replace(&mut self.untold, rest)
    }

    /// At most `clients_max` clients after `last`, in order.
    pub(crate) fn behind(&self, last: Option<ClientId>, clients_max: usize) -> Vec<(ClientId, u8)> {
        let from = last.map_or(ClientId(0), |last| ClientId(last.0.saturating_add(1)));
        self.known.range(from..).take(clients_max).map(|(client, arm)| (*client, *arm)).collect()
    }

    /// The arm that is furthest below its share, the first of several: the order of nginx's smooth
    /// weighted round robin. It depends only on the numbers of clients, so that turns continue
    /// where those of another dispatcher have ended.
    fn next_in_turn(&self) -> u8 {
        let total: u64 = self.weights.iter().copied().map(u64::from).sum();
        let next = self.known.len() as u64 + 1;
        let lack = |arm: usize| {
            i128::from(u64::from(self.weights[arm]) * next)
                - i128::from(self.counts[arm]) * i128::from(total)
        };
        let first = |best: usize, arm: usize| if lack(arm) > lack(best) { arm } else { best };
        (0..self.weights.len()).fold(0, first) as u8
    }

    fn insert(&mut self, client: ClientId, arm: u8) {
        self.known.insert(client, arm);
        self.counts[usize::from(arm)] += 1;
        self.digest ^= entry_hash(client, arm);
    }
}

/// The arm of a client that is in no table: equal on all machines, determined by the hash of its
/// address and the weights, of which there must be at least one.
pub fn arm_by_hash(weights: &[u32], client: ClientId) -> usize {
    let total: u64 = weights.iter().copied().map(u64::from).sum();
    let mut place = client.one_of(total.max(1), ARM_BY_HASH);
    for (arm, weight) in weights.iter().enumerate() {
        match place.checked_sub(u64::from(*weight)) {
            Some(rest) => place = rest,
            None => return arm,
        }
    }
    0
}

/// Distinguishes this use of a client's hash from others.
const ARM_BY_HASH: u64 = 1;

fn entry_hash(client: ClientId, arm: u8) -> u64 {
    stable_hash(&client.0.to_le_bytes(), arm.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use skep_units::Rng;

    use super::*;

    fn client(n: u64) -> ClientId {
        ClientId(stable_hash(&n.to_le_bytes(), 9))
    }

    #[test]
    fn two_arms_take_turns_and_known_clients_stay() {
        let mut table = HostTable::new(vec![1, 1]);
        let arms: Vec<_> = (0..6).map(|n| table.arm_of(client(n))).collect();
        assert_eq!(arms, [0, 1, 0, 1, 0, 1]);
        let again: Vec<_> = (0..6).rev().map(|n| table.arm_of(client(n))).collect();
        assert_eq!(again, [1, 0, 1, 0, 1, 0]);
        assert_eq!(table.clients(), [3, 3]);
    }

    #[test]
    fn beyond_the_bound_a_client_goes_by_its_hash_and_stays_too() {
        let mut table = HostTable::with_room(vec![3, 1], 8);
        let known: Vec<_> = (0..8).map(|n| table.arm_of(client(n))).collect();
        let beyond: Vec<_> = (8..4_008).map(|n| table.arm_of(client(n))).collect();
        assert!(table.is_full() && table.digest().clients == 8);
        assert_eq!(beyond, (8..4_008).map(|n| table.arm_of(client(n))).collect::<Vec<_>>());
        assert_eq!(known, (0..8).map(|n| table.arm_of(client(n))).collect::<Vec<_>>());
        let first = beyond.iter().filter(|arm| **arm == 0).count();
        assert!((2_900..3_100).contains(&first), "{first} of 4,000, three quarters");
        // Another, empty table assigns them the same arms.
        let mut other = HostTable::with_room(vec![3, 1], 0);
        assert_eq!(beyond, (8..4_008).map(|n| other.arm_of(client(n))).collect::<Vec<_>>());
    }

    #[test]
    fn turns_go_on_where_another_dispatcher_has_ended() {
        let (mut active, mut standby) = (HostTable::new(vec![1, 1]), HostTable::new(vec![1, 1]));
        for n in 0..3 {
            active.arm_of(client(n));
        }
        for (client, arm) in active.take_untold(10) {
            assert!(standby.merge(client, arm) && !standby.merge(client, arm));
        }
        assert_eq!(active.digest(), standby.digest());
        assert_eq!(standby.arm_of(client(0)), active.arm_of(client(0)));
        assert_eq!(standby.arm_of(client(3)), 1, "after 0, 1, 0");
        assert!(!standby.merge(client(9), 2), "there is no such arm");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn arms_are_within_one_client_of_their_shares(
            weights in proptest::collection::vec(1..9u32, 2..6),
            clients in 1..200u64,
        ) {
            let mut table = HostTable::new(weights.clone());
            let total: u32 = weights.iter().sum();
            for n in 0..clients {
                table.arm_of(client(n));
                for (count, weight) in table.clients().iter().zip(&weights) {
                    let share = (n + 1) as f64 * f64::from(*weight) / f64::from(total);
                    let is_near = (*count as f64 - share).abs() <= 1.0 + 1e-9;
                    // With several weights, no order keeps all arms within one at all times; with
                    // two arms it does.
                    prop_assert!(is_near || weights.len() > 2 && (*count as f64 - share).abs() < 2.0);
                }
            }
            let equal = weights.iter().all(|weight| *weight == weights[0]);
            let range = table.clients().iter().max().unwrap() - table.clients().iter().min().unwrap();
            prop_assert!(!equal || range <= 1);
        }

        #[test]
        fn tables_that_have_told_each_other_all_are_the_same(seed in any::<u64>()) {
            let mut rng = Rng::new(seed);
            let mut tables = [HostTable::new(vec![2, 1, 1]), HostTable::new(vec![2, 1, 1])];
            for _ in 0..100 {
                tables[rng.below(2) as usize].arm_of(client(rng.below(60)));
            }
            let told = [tables[0].take_untold(100), tables[1].take_untold(100)];
            for (client, arm) in &told[0] {
                tables[1].merge(*client, *arm);
            }
            for (client, arm) in &told[1] {
                tables[0].merge(*client, *arm);
            }
            prop_assert_eq!(tables[0].digest(), tables[1].digest());
            prop_assert_eq!(tables[0].behind(None, 100), tables[1].behind(None, 100));
            prop_assert_eq!(tables[0].clients(), tables[1].clients());
            let known: u64 = tables[0].clients().iter().sum();
            prop_assert_eq!(known, u64::from(tables[0].digest().clients));
        }
    }
}
