//! A/B tests in which nodes determine the arm of each client, and this node's counts for the arms.
//!
//! Nodes share no table, so the arm of a client is the hash of its address only: the node that accepts the
//! client and the node that answers it come to the same result.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Cache};
use skep_comparison::{ArmEvent, ArmTally, ClientId, arm_by_hash, record};
use skep_units::Now;
use skep_wire::message::{ArmCounts, ArmsInForce, ServiceArms};
use skep_wire::seal::PeerId;

use crate::limits::ARM_COUNTS_MS;

/// This node's counts of the tests in force. Shared by all threads.
#[derive(Debug, Default)]
pub struct ArmCounters {
    counted: Mutex<CountedTests>,
}

#[derive(Debug, Default)]
struct CountedTests {
    tests: Vec<CountedTest>,
    told_at: Now,
    /// Number of tests counted so far.
    begun: u64,
}

#[derive(Debug)]
struct CountedTest {
    test: u64,
    arms: usize,
    session: u64,
    began: Now,
    /// One per worker.
    cells: Vec<Arc<ArmCells>>,
}

/// One worker's counts of a test, by arm, written by this worker only.
#[derive(Debug)]
struct ArmCells(Box<[AtomicU64]>);

/// A worker's part of the counts.
pub(crate) struct WorkerArmCounts {
    own: PeerId,
    shared: Arc<ArmCounters>,
    latest: Cache<Arc<ArcSwap<ArmsInForce>>, Arc<ArmsInForce>>,
    /// The tests to which `services` belong.
    in_force: Arc<ArmsInForce>,
    /// By address of the service.
    services: HashMap<SocketAddr, CountedService>,
}

struct CountedService {
    test: u64,
    weights: Vec<u32>,
    /// For each arm, whether this node is in its group.
    has_own: Vec<bool>,
    cells: Arc<ArmCells>,
}

/// The arm of a client in the test of a service.
pub(crate) fn arm_of(test: u64, weights: &[u32], client: IpAddr) -> usize {
    arm_by_hash(weights, ClientId::new(client, test))
}

pub(crate) fn weights(service: &ServiceArms) -> Vec<u32> {
    service.arms.iter().map(|arm| arm.weight).collect()
}

impl ArmCounters {
    /// The counts to send to dispatchers, if they are due.
    pub fn tell(&self, now: Now) -> Vec<ArmCounts> {
        let mut counted = self.lock();
        if counted.tests.is_empty() || now.since_ms(counted.told_at) < ARM_COUNTS_MS {
            return Vec::new();
        }
        counted.told_at = now;
        counted.tests.iter().flat_map(|test| test.counts(now)).collect()
    }

    /// Removes tests that are no longer in force.
    pub(crate) fn keep(&self, in_force: &ArcSwap<ArmsInForce>) {
        let mut counted = self.lock();
        // Loaded under the lock: a worker that has joined a later test sees it in force.
        let in_force = in_force.load();
        counted.tests.retain(|it| in_force.services.iter().any(|service| service.test == it.test));
    }

    /// The counts of a worker, which had `known` before.
    fn join(
        &self,
        (test, arms): (u64, usize),
        known: Option<&Arc<ArmCells>>,
        now: Now,
    ) -> Arc<ArmCells> {
        let mut counted = self.lock();
        // A test with other arms is another one, even if the number is equal.
        let is_it = |it: &CountedTest| (it.test, it.arms) == (test, arms);
        if !counted.tests.iter().any(is_it) {
            counted.begun += 1;
            // Differs after each start of the process and of the test.
            let session = now.0.wrapping_add(counted.begun << 48);
            let cells = Vec::new();
            counted.tests.push(CountedTest { test, arms, session, began: now, cells });
        }
        let new = || Arc::new(ArmCells::new(arms));
        let Some(own) = counted.tests.iter_mut().find(|it| is_it(it)) else { return new() };
        if let Some(known) = known.filter(|known| own.cells.iter().any(|it| Arc::ptr_eq(it, known)))
        {
            return Arc::clone(known);
        }
        let cells = new();
        own.cells.push(Arc::clone(&cells));
        cells
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CountedTests> {
        // A panic while it is held is a bug of ours; the data is still consistent.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedTest {
    fn counts(&self, now: Now) -> impl Iterator<Item = ArmCounts> {
        let counted_ms = now.since_ms(self.began);
        (0..self.arms).map(move |arm| {
            let first = arm * ArmTally::CELLS;
            let sum = |cell: usize| -> u64 {
                self.cells.iter().map(|cells| cells.0[first + cell].load(Relaxed)).sum()
            };
            let cells = (0..ArmTally::CELLS).map(sum).collect();
            let (test, session, arm) = (self.test, self.session, arm as u8);
            ArmCounts { test, arm, session, counted_ms, cells }
        })
    }
}

impl ArmCells {
    fn new(arms: usize) -> Self {
        Self((0..arms * ArmTally::CELLS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl WorkerArmCounts {
    /// Creates the counts of a worker of the node `name`.
    pub(crate) fn new(
        name: &str,
        in_force: &Arc<ArcSwap<ArmsInForce>>,
        shared: &Arc<ArmCounters>,
    ) -> Self {
        Self {
            own: PeerId::of(name),
            shared: Arc::clone(shared),
            latest: Cache::new(Arc::clone(in_force)),
            in_force: Arc::default(),
            services: HashMap::new(),
        }
    }

    /// Whether the service at this address may have a test.
    pub(crate) fn has_test(&mut self, server: SocketAddr) -> bool {
        let in_force = self.latest.load();
        in_force.services.iter().any(|service| service.addresses.contains(&server))
    }

    /// Counts a request of `client` to the service at this address, which this node has answered; `event` is
    /// the result.
    pub(crate) fn count(&mut self, server: SocketAddr, client: IpAddr, event: &ArmEvent, now: Now) {
        self.follow(now);
        let Some(service) = self.services.get(&server) else { return };
        let client_id = ClientId::new(client, service.test);
        let arm = arm_by_hash(&service.weights, client_id);
        let event = if service.has_own[arm] { event } else { &ArmEvent::Strayed };
        record(client_id, event, |cell, count| {
            let cell = &service.cells.0[arm * ArmTally::CELLS + cell];
            cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
        });
    }

    fn follow(&mut self, now: Now) {
        let latest = self.latest.load();
        if Arc::ptr_eq(latest, &self.in_force) {
            return;
        }
        self.in_force = Arc::clone(latest);
        let mut former = std::mem::take(&mut self.services);
        for service in &self.in_force.services {
            for address in &service.addresses {
                let known = former.remove(address).filter(|known| known.test == service.test);
                let known = known.map(|known| known.cells);
                let test = (service.test, service.arms.len());
                let is_own = |nodes: &[PeerId]| nodes.is_empty() || nodes.contains(&self.own);
                let counted = CountedService {
                    test: service.test,
                    weights: weights(service),
                    has_own: service.arms.iter().map(|arm| is_own(&arm.nodes)).collect(),
                    cells: self.shared.join(test, known.as_ref(), now),
                };
                self.services.insert(*address, counted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use skep_wire::message::{Name, ToldArm};

    use super::*;

    const VIP: &str = "192.0.2.1:80";

    fn tests(test: u64) -> ArmsInForce {
        let arm = |node: &str| ToldArm {
            policy: Name::new("random").unwrap(),
            weight: 1,
            nodes: vec![PeerId::of(node)],
        };
        let arms = vec![arm("node-1"), arm("node-2")];
        let addresses = vec![VIP.parse().unwrap()];
        ArmsInForce { services: vec![ServiceArms { addresses, test, arms }] }
    }

    fn sum(told: &[ArmCounts], event: &ArmEvent) -> u64 {
        let mut of = 0;
        record(ClientId(0), event, |cell, _| {
            of = told.iter().map(|counts| counts.cells[cell]).sum::<u64>();
        });
        of
    }

    #[test]
    fn a_node_counts_its_own_arms_requests_and_others_as_strayed() {
        let in_force = Arc::new(ArcSwap::from_pointee(tests(7)));
        let shared = Arc::<ArmCounters>::default();
        let mut workers = [(); 2].map(|()| WorkerArmCounts::new("node-1", &in_force, &shared));
        let client = |n: u8| IpAddr::from([198, 51, 100, n]);
        let own = (0..100).filter(|n| arm_of(7, &[1, 1], client(*n)) == 0).count() as u64;
        assert!((30..70).contains(&own), "{own} of 100");
        let server = VIP.parse().unwrap();
        for n in 0..100 {
            let worker = &mut workers[usize::from(n % 2)];
            worker.count(server, client(n), &ArmEvent::Failed, Now(5));
            worker.count("192.0.2.9:80".parse().unwrap(), client(n), &ArmEvent::Failed, Now(5));
        }
        let told = shared.tell(Now(5 + ARM_COUNTS_MS));
        assert_eq!(told.iter().map(|it| it.arm).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(sum(&told, &ArmEvent::Failed), own);
        assert_eq!(sum(&told, &ArmEvent::Strayed), 100 - own);
        assert_eq!(shared.tell(Now(6 + ARM_COUNTS_MS)), [], "not so soon");
        // The test ends and starts again.
        in_force.store(Arc::default());
        shared.keep(&in_force);
        assert_eq!(shared.tell(Now(6 + 2 * ARM_COUNTS_MS)), []);
        in_force.store(Arc::new(tests(7)));
        workers[0].count(server, client(1), &ArmEvent::Failed, Now(9_000));
        let again = shared.tell(Now(10_000));
        let counted = sum(&again, &ArmEvent::Failed) + sum(&again, &ArmEvent::Strayed);
        assert!(counted == 1 && again[0].session != told[0].session);
    }

    #[test]
    fn a_test_that_comes_with_other_arms_is_another_one() {
        let in_force = Arc::new(ArcSwap::from_pointee(tests(7)));
        let shared = Arc::<ArmCounters>::default();
        let mut worker = WorkerArmCounts::new("node-1", &in_force, &shared);
        let (server, client) = (VIP.parse().unwrap(), IpAddr::from([198, 51, 100, 1]));
        let mut fewer = tests(7).services.remove(0);
        fewer.arms.truncate(1);
        // At once by two services, and one after the other by one.
        let beside =
            ServiceArms { addresses: vec!["192.0.2.2:80".parse().unwrap()], ..fewer.clone() };
        let both = ArmsInForce { services: vec![tests(7).services.remove(0), beside] };
        for arms in [tests(7), both, ArmsInForce { services: vec![fewer] }] {
            in_force.store(Arc::new(arms));
            worker.count(server, client, &ArmEvent::Failed, Now(5));
        }
        let told = shared.tell(Now(5 + ARM_COUNTS_MS));
        assert_eq!(told.iter().map(|it| it.arm).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!(sum(&told, &ArmEvent::Failed) + sum(&told, &ArmEvent::Strayed), 3);
    }
}
