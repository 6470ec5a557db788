//! Synchronisation of the dispatchers' host tables, so that a client has the same arm at all of
//! them.
//!
//! New clients are reported at once; the digests in all messages reveal lost datagrams and
//! restarted dispatchers. If a table differs from that of a live dispatcher for longer than
//! messages in flight explain, it is sent as a whole, piece by piece, repeatedly until both agree.
//! Messages are idempotent and may arrive in any order.

use std::collections::BTreeMap;

use skep_units::Now;
use skep_wire::message::{ArmClient, ArmClients, CLIENTS_PER_MESSAGE_MAX};
use skep_wire::seal::PeerId;

use crate::client::ClientId;
use crate::host_table::{HostTable, TableDigest};
use crate::limits::{FULL_PAUSE_MS, HEARTBEAT_MS, SETTLE_MS, SILENT_MS, SWEEP_MESSAGES, SWEEP_MS};

/// The synchronisation of one test at one dispatcher.
#[derive(Clone, Debug)]
pub struct TableSync {
    test: u64,
    others: BTreeMap<PeerId, Heard>,
    /// Since when another dispatcher's table has differed.
    differs_since: Option<Now>,
    /// The client after which sending the table continues.
    last_swept: Option<ClientId>,
    swept_at: Option<Now>,
    told_at: Option<Now>,
}

/// The last message of another dispatcher.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Now,
    digest: TableDigest,
}

impl TableSync {
    /// For the test with this [`id`](crate::Arms::id).
    pub fn new(test: u64) -> Self {
        Self {
            test,
            others: BTreeMap::new(),
            differs_since: None,
            last_swept: None,
            swept_at: None,
            told_at: None,
        }
    }

    /// Merges a message of another dispatcher; returns false if it belongs to another test.
    pub fn hear(
        &mut self,
        now: Now,
        from: PeerId,
        message: &ArmClients,
        table: &mut HostTable,
    ) -> bool {
        if message.test != self.test {
            return false;
        }
        for told in &message.clients {
            table.merge(ClientId(told.client), told.arm);
        }
        let digest = TableDigest { clients: message.known, hash: message.digest };
        self.others.insert(from, Heard { at: now, digest });
        true
    }

    /// The messages to send to all other dispatchers now. To be called about every [`SWEEP_MS`].
    pub fn tell(&mut self, now: Now, table: &mut HostTable) -> Vec<ArmClients> {
        self.others.retain(|_, heard| now.since_ms(heard.at) < SILENT_MS);
        let mut told: Vec<Vec<(ClientId, u8)>> = Vec::new();
        loop {
            let new = table.take_untold(CLIENTS_PER_MESSAGE_MAX);
            if new.is_empty() {
                break;
            }
            told.push(new);
        }
        let digest = table.digest();
        self.sweep(now, digest, table, &mut told);
        let is_due = self.told_at.is_none_or(|at| now.since_ms(at) >= HEARTBEAT_MS);
        if told.is_empty() && is_due {
            told.push(Vec::new());
        }
        if !told.is_empty() {
            self.told_at = Some(now);
        }
        let message = |clients: Vec<(ClientId, u8)>| ArmClients {
            test: self.test,
            known: digest.clients,
            digest: digest.hash,
            clients: clients
                .into_iter()
                .map(|(client, arm)| ArmClient { client: client.0, arm })
                .collect(),
        };
        told.into_iter().map(message).collect()
    }

    /// Adds the next pieces of the table while another one differs.
    fn sweep(
        &mut self,
        now: Now,
        digest: TableDigest,
        table: &HostTable,
        told: &mut Vec<Vec<(ClientId, u8)>>,
    ) {
        if self.others.values().all(|heard| heard.digest == digest) {
            self.differs_since = None;
            return;
        }
        let since = *self.differs_since.get_or_insert(now);
        // Tables that were filled independently may never agree.
        let is_between_passes = table.is_full() && self.last_swept.is_none();
        let pause_ms = if is_between_passes { FULL_PAUSE_MS } else { SWEEP_MS };
        let is_early = self.swept_at.is_some_and(|at| now.since_ms(at) < pause_ms);
        if now.since_ms(since) < SETTLE_MS || is_early {
            return;
        }
        self.swept_at = Some(now);
        for _ in 0..SWEEP_MESSAGES {
            let piece = table.behind(self.last_swept, CLIENTS_PER_MESSAGE_MAX);
            self.last_swept = piece.last().map(|(client, _)| *client);
            if piece.is_empty() {
                return;
            }
            told.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use skep_units::{Rng, stable_hash};

    use super::*;

    struct Dispatcher {
        name: PeerId,
        table: HostTable,
        sync: TableSync,
    }

    impl Dispatcher {
        fn new(name: &str) -> Self {
            let table = HostTable::new(vec![1, 1]);
            Self { name: PeerId::of(name), table, sync: TableSync::new(7) }
        }

        fn serve(&mut self, clients: std::ops::Range<u64>) {
            for n in clients {
                self.table.arm_of(ClientId(stable_hash(&n.to_le_bytes(), 4)));
            }
        }
    }

    /// Runs both for `ms`, losing `lost_percent` of 100 messages. Returns the number of messages
    /// sent.
    fn run(pair: &mut [Dispatcher; 2], from: u64, ms: u64, lost_percent: u64) -> usize {
        let mut rng = Rng::new(from);
        let mut sent = 0;
        for at in (from..from + ms).step_by(SWEEP_MS as usize) {
            for (own, other) in [(0, 1), (1, 0)] {
                let told = {
                    let Dispatcher { table, sync, .. } = &mut pair[own];
                    sync.tell(Now(at), table)
                };
                let name = pair[own].name;
                for message in told {
                    sent += 1;
                    assert!(message.clients.len() <= CLIENTS_PER_MESSAGE_MAX);
                    if rng.below(100) >= lost_percent {
                        let Dispatcher { table, sync, .. } = &mut pair[other];
                        assert!(sync.hear(Now(at), name, &message, table));
                    }
                }
            }
        }
        sent
    }

    #[test]
    fn a_standby_knows_each_client_with_the_next_message() {
        let mut pair = [Dispatcher::new("gate-1"), Dispatcher::new("gate-2")];
        pair[0].serve(0..250);
        assert_eq!(run(&mut pair, 1_000, 1, 0), 4, "three, and a heartbeat of the other");
        assert_eq!(pair[0].table.digest(), pair[1].table.digest());
        assert_eq!(pair[1].table.clients(), [125, 125]);
        // Both agree: only heartbeats are sent.
        assert!(run(&mut pair, 1_050, 10_000, 0) <= 22);
    }

    #[test]
    fn full_tables_that_cannot_agree_are_told_once_a_minute() {
        let mut pair = [Dispatcher::new("gate-1"), Dispatcher::new("gate-2")];
        pair[0].serve(0..65_536);
        pair[1].serve(1 << 32..(1 << 32) + 65_536);
        // New clients are sent first, followed by one pass over each table.
        run(&mut pair, 1_000, 20_000, 0);
        assert!(pair.iter().all(|it| it.table.is_full()));
        assert_ne!(pair[0].table.digest(), pair[1].table.digest());
        let passes = 2 * 2 * (81_920 / CLIENTS_PER_MESSAGE_MAX + 1);
        let heartbeats = 2 * 61;
        let sent = run(&mut pair, 30_000, 60_000, 0);
        assert!(sent <= passes + heartbeats, "{sent} messages in a minute");
    }

    #[test]
    fn tables_become_the_same_whatever_is_lost() {
        let mut pair = [Dispatcher::new("gate-1"), Dispatcher::new("gate-2")];
        for round in 0..10 {
            pair[0].serve(round * 400..round * 400 + 300);
            pair[1].serve(round * 400 + 200..round * 400 + 400);
            run(&mut pair, 1_000 + round * 100, 100, 60);
        }
        assert_ne!(pair[0].table.digest(), pair[1].table.digest());
        run(&mut pair, 10_000, 15_000, 60);
        assert_eq!(pair[0].table.digest(), pair[1].table.digest());
        assert_eq!(pair[0].table.digest().clients, 4_000);
    }

    #[test]
    fn one_that_starts_again_is_told_all_and_one_that_is_gone_nothing() {
        let mut pair = [Dispatcher::new("gate-1"), Dispatcher::new("gate-2")];
        pair[0].serve(0..10_000);
        run(&mut pair, 1_000, 100, 0);
        pair[1] = Dispatcher::new("gate-2");
        run(&mut pair, 2_000, 4_000, 0);
        assert_eq!(pair[0].table.digest(), pair[1].table.digest());
        // A single dispatcher, with clients that no other knows: they are sent once.
        pair[0].serve(10_000..10_100);
        let alone = |pair: &mut [Dispatcher; 2], at| {
            let Dispatcher { table, sync, .. } = &mut pair[0];
            sync.tell(Now(at), table).iter().map(|it| it.clients.len()).sum::<usize>()
        };
        assert_eq!(alone(&mut pair, 20_000), 100);
        assert_eq!((20_050..30_000).step_by(50).map(|at| alone(&mut pair, at)).sum::<usize>(), 0);
    }

    #[test]
    fn messages_of_another_test_say_nothing() {
        let mut own = Dispatcher::new("gate-1");
        let clients = vec![ArmClient { client: 1, arm: 0 }];
        let message = ArmClients { test: 8, known: 1, digest: 1, clients };
        let Dispatcher { table, sync, .. } = &mut own;
        assert!(!sync.hear(Now(1), PeerId::of("gate-2"), &message, table));
        assert_eq!(own.table.digest().clients, 0);
    }
}
