//! The reconciler: each difference is removed, whatever fails at first.

use std::net::SocketAddr;
use std::sync::Arc;

use skep_units::Now;
use skep_wire::guard::{ChangedMap, MachineState, ProgramMap};
use skep_wire::message::Name;
use skep_wire::steer::{DatapathService, Measure, Protocol};
use skep_wire::table::{Share, Table, TableService, TableVersion};

use crate::reconciler::{Drift, Reconciler, Step, Wants};

const PATIENCE_MS: u64 = 2_000;

fn well() -> MachineState {
    MachineState { device: "eth0".to_owned(), is_attached: true, ..MachineState::default() }
}

/// A machine without its virtual address.
fn lost() -> MachineState {
    MachineState { missing: vec!["192.0.2.1 on eth0".to_owned()], ..well() }
}

fn changed(map: ProgramMap) -> MachineState {
    MachineState { changed_maps: vec![ChangedMap { map, key: "7".to_owned() }], ..well() }
}

/// A table with a service per element, on that many nodes.
fn table(generation: u64, memberships: &[usize]) -> Arc<Table> {
    let share = |index| Share { index: index as u16, weight: 1 };
    let service = |at| TableService {
        service: DatapathService {
            id: at,
            address: SocketAddr::from(([192, 0, 2, 1], 80)),
            protocol: Protocol::Tcp,
            choices: 1,
            measure: Measure::First,
            by_address: false,
        },
        policy: Name::new("maglev").unwrap(),
        history: vec![at],
    };
    Arc::new(Table {
        version: TableVersion { epoch: 8, generation },
        services: (0..memberships.len() as u16).map(service).collect(),
        memberships: memberships.iter().map(|&nodes| (0..nodes).map(share).collect()).collect(),
        ..Table::default()
    })
}

struct Bench {
    reconciler: Reconciler,
    wants: Wants,
    now: Now,
}

impl Bench {
    fn new() -> Self {
        let now = Now(10_000);
        Self { reconciler: Reconciler::new(PATIENCE_MS), wants: Wants::default(), now }
    }

    /// A reconciler that holds the addresses and steers by a table.
    fn active() -> Self {
        let mut bench = Self::new();
        bench.want(Some(true), Some(table(1, &[1])));
        assert_eq!(bench.run().len(), 2);
        bench
    }

    fn want(&mut self, addresses: Option<bool>, table: Option<Arc<Table>>) {
        self.wants = Wants { at: self.now, addresses, table, ..self.wants.clone() };
        self.reconciler.want(self.wants.clone());
    }

    fn want_announcement(&mut self) {
        self.wants.announcements += 1;
        self.reconciler.want(self.wants.clone());
    }

    /// Advances the time with unchanged wants.
    fn wait(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        self.want(self.wants.addresses, self.wants.table.clone());
    }

    /// Executes all steps that are due.
    fn run(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(step) = self.reconciler.next(self.now) {
            self.reconciler.done(self.now, &step, Ok(()));
            steps.push(step);
        }
        steps
    }

    /// Lets every step that is due fail.
    fn fail(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(step) = self.reconciler.next(self.now) {
            self.reconciler.done(self.now, &step, Err(format!("{step:?}")));
            steps.push(step);
        }
        steps
    }
}

#[test]
fn addresses_are_claimed_once_every_service_has_a_node() {
    let mut bench = Bench::new();
    for (generation, memberships) in [[0, 0], [2, 0]].iter().enumerate() {
        let table = table(generation as u64, memberships);
        bench.want(Some(true), Some(Arc::clone(&table)));
        assert_eq!(bench.run(), [Step::Apply(table)]);
    }
    let full = table(3, &[2, 1]);
    bench.want(Some(true), Some(Arc::clone(&full)));
    assert_eq!(bench.run(), [Step::Apply(full), Step::Claim]);
    bench.want(Some(false), None);
    assert_eq!(bench.run(), [Step::Release]);
    bench.want(Some(true), None);
    assert_eq!(bench.run(), [Step::Claim], "the next takeover waits for nothing");
}

/// A new address whose nodes have not been started yet.
#[test]
fn an_address_without_nodes_delays_no_takeover() {
    let is_claimed = |steps: &[Step]| steps.contains(&Step::Claim);
    // After a restart, it receives from nodes the last table of a dispatcher that has died
    // meanwhile.
    let mut bench = Bench::new();
    bench.want(None, Some(table(1, &[2, 0])));
    assert_eq!(bench.run().len(), 1);
    bench.want(Some(true), Some(table(2, &[2, 0])));
    assert!(is_claimed(&bench.run()));
    // The packet program was attached again.
    let attach = |bench: &mut Bench| {
        bench.reconciler.found(&MachineState { is_attached: false, ..well() });
        let first = bench.reconciler.next(bench.now).unwrap();
        bench.reconciler.done(bench.now, &first, Ok(()));
        first
    };
    assert_eq!(attach(&mut bench), Step::Attach);
    let steps = bench.run();
    assert!(is_claimed(&steps), "{steps:?}");
    // Tables of a cluster without any nodes prove nothing.
    let mut bench = Bench::new();
    bench.want(None, Some(table(1, &[0, 0])));
    bench.run();
    bench.want(Some(true), Some(table(2, &[0, 0])));
    assert!(!is_claimed(&bench.run()));
}

#[test]
fn without_nodes_they_are_claimed_late_so_that_clients_are_refused() {
    let mut bench = Bench::new();
    bench.want(Some(true), None);
    bench.wait(PATIENCE_MS - 1);
    assert_eq!(bench.run(), []);
    bench.wait(1);
    assert_eq!(bench.run(), [Step::Claim]);
}

#[test]
fn what_fails_is_repeated_and_holds_nothing_else_up() {
    let mut bench = Bench::active();
    let second = table(2, &[1]);
    bench.want(Some(false), Some(Arc::clone(&second)));
    assert_eq!(bench.fail(), [Step::Release, Step::Apply(Arc::clone(&second))]);
    assert!(bench.reconciler.is_hindered() && bench.reconciler.failures().count() == 2);
    assert_eq!(bench.reconciler.next(bench.now), None, "netguard is not flooded");
    // Another table may be accepted although the last one was not.
    let third = table(3, &[1]);
    bench.want(Some(false), Some(Arc::clone(&third)));
    assert_eq!(bench.run(), [Step::Apply(third)]);
    bench.wait(500);
    assert_eq!(bench.run(), [Step::Release]);
    assert!(!bench.reconciler.is_hindered() && bench.reconciler.failures().count() == 0);
    // A takeover does not wait for addresses that could not be released.
    let mut bench = Bench::active();
    bench.want(Some(false), None);
    bench.fail();
    bench.want(Some(true), None);
    assert_eq!(bench.run(), [Step::Claim]);
}

#[test]
fn addresses_are_announced_only_where_they_are() {
    let mut bench = Bench::new();
    bench.want_announcement();
    bench.want(Some(true), Some(table(1, &[1])));
    assert_eq!(bench.fail().len(), 1, "its table");
    bench.want_announcement();
    assert_eq!(bench.run(), []);
    bench.wait(500);
    assert_eq!(bench.run(), [Step::Apply(table(1, &[1])), Step::Claim], "which announces");
    bench.want_announcement();
    assert_eq!(bench.fail(), [Step::Announce]);
    bench.wait(500);
    assert_eq!(bench.run(), [Step::Announce]);
    bench.want(Some(false), None);
    bench.want_announcement();
    assert_eq!(bench.run(), [Step::Release]);
    bench.want(Some(true), None);
    assert_eq!(bench.run(), [Step::Claim], "what was wanted before is over");
}

#[test]
fn what_was_changed_from_outside_is_put_right() {
    let mut bench = Bench::active();
    assert_eq!(bench.reconciler.found(&well()), []);
    assert_eq!(bench.run(), []);
    let drifts = bench.reconciler.found(&lost());
    assert!(drifts[0].to_string().contains("this machine: 192.0.2.1 on eth0; they"), "{drifts:?}");
    assert_eq!(bench.reconciler.found(&lost()), [], "said once");
    assert_eq!(bench.run(), [Step::Claim]);
    let drifts = bench.reconciler.found(&MachineState { is_attached: false, ..well() });
    assert_eq!(drifts, [Drift::Program("eth0".to_owned())]);
    assert_eq!(bench.run(), [Step::Attach, Step::Apply(table(1, &[1])), Step::Claim]);
    // A standby has no addresses to lose.
    bench.want(Some(false), None);
    bench.run();
    assert_eq!(bench.reconciler.found(&lost()), []);
}

#[test]
fn maps_that_others_have_changed_are_written_again() {
    let mut bench = Bench::active();
    let drifts = bench.reconciler.found(&changed(ProgramMap::Nodes));
    assert!(drifts[0].to_string().contains("the map nodes of"), "{}", drifts[0]);
    assert!(drifts[0].to_string().contains("at key 7; it is written again"), "{}", drifts[0]);
    assert_eq!(bench.reconciler.applied(), Some(table(1, &[1]).version), "it steers by it");
    // Netguard refuses at first.
    assert_eq!(bench.fail(), [Step::Apply(table(1, &[1]))]);
    bench.wait(500);
    assert_eq!(bench.run(), [Step::Apply(table(1, &[1]))]);
    for map in [ProgramMap::Settings, ProgramMap::Networks] {
        assert_eq!(bench.reconciler.found(&changed(map)).len(), 1);
        assert_eq!(bench.fail(), [Step::SetUp]);
        assert!(bench.reconciler.is_hindered());
        bench.wait(500);
        assert_eq!(bench.run(), [Step::SetUp]);
    }
    assert_eq!(bench.run(), []);
    // Attaching the program also sets it up.
    let all = MachineState { is_attached: false, ..changed(ProgramMap::Settings) };
    assert_eq!(bench.reconciler.found(&all).len(), 2);
    assert_eq!(bench.run(), [Step::Attach, Step::Apply(table(1, &[1])), Step::Claim]);
}

#[test]
fn a_process_that_was_paused_claims_nothing_by_what_it_wanted_before() {
    let mut bench = Bench::active();
    bench.now = bench.now.plus_ms(10_000);
    // Netguard has released them meanwhile, since another dispatcher is active.
    bench.reconciler.found(&lost());
    assert_eq!(bench.reconciler.next(bench.now), None);
    bench.wait(0);
    assert_eq!(bench.run(), [Step::Claim], "it still wants them now");
}

#[test]
fn what_an_earlier_process_left_stays_until_it_is_known_whose_it_is() {
    let mut bench = Bench::new();
    bench.want(None, None);
    assert_eq!(bench.run(), []);
    bench.want(Some(false), None);
    assert_eq!(bench.run(), [Step::Release]);
    assert_eq!(bench.run(), []);
}

#[test]
fn a_process_that_was_paused_announces_nothing_by_what_it_wanted_before() {
    let mut bench = Bench::active();
    bench.want_announcement();
    bench.now = bench.now.plus_ms(10_000);
    // Another announcement in the first tick after the pause, before any heartbeat was received.
    bench.want_announcement();
    assert_eq!(bench.run(), []);
    bench.want(Some(true), bench.wants.table.clone());
    assert_eq!(bench.run(), [Step::Announce], "it is awake, and still the active one");
    bench.want_announcement();
    bench.now = bench.now.plus_ms(10_000);
    bench.want(Some(false), bench.wants.table.clone());
    assert_eq!(bench.run(), [Step::Release], "another one is");
}
