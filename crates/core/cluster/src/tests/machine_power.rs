//! Machines that are switched by commands: what works, and what does not, alone and under elasticity.

use skep_units::{NodeId, Now};
use skep_wire::cache::PowerStage;

use crate::elasticity::{
    CommandEnd, Elasticity, ElasticitySettings, LifecycleState, LoadTargets, MachinePower,
    MachineSeen, MachineSettings, MachineStatus, NodeObservation, Observed, PowerCommand,
    PowerEvent, PowerOrder, StartFault,
};

const DONE: CommandEnd = CommandEnd::Done(MachineStatus::Unclear);

const SETTINGS: MachineSettings = MachineSettings {
    has_on: true,
    has_off: true,
    has_status: true,
    status_interval_ms: 1_000,
    off_timeout_ms: 10_000,
};

const SERVES: MachineSeen = MachineSeen { serves: true, agent: Some(PowerStage::On) };
const SILENT: MachineSeen = MachineSeen { serves: false, agent: None };
const RESTS: MachineSeen = MachineSeen { serves: true, agent: Some(PowerStage::Off) };

fn is_switched_off(settings: MachineSettings) -> MachinePower {
    let mut machine = MachinePower::new(settings);
    machine.order_off(Now(0));
    assert_eq!(machine.tick(Now(0), RESTS), Some(PowerCommand::Off));
    machine.finished(Now(0), PowerCommand::Off, DONE);
    machine
}

fn off(settings: MachineSettings) -> MachinePower {
    let mut machine = is_switched_off(settings);
    if settings.has_status {
        assert_eq!(machine.tick(Now(0), SILENT), Some(PowerCommand::Status));
        let status = CommandEnd::Done(MachineStatus::Off);
        machine.finished(Now(0), PowerCommand::Status, status);
    }
    assert_eq!(machine.tick(Now(0), SILENT), None);
    assert!(machine.is_off(), "{machine}");
    machine
}

#[test]
fn the_machine_goes_off_when_its_agent_keeps_nothing_and_its_status_says_so() {
    let mut machine = MachinePower::new(SETTINGS);
    assert_eq!(machine.tick(Now(0), SERVES), None);
    machine.order_off(Now(0));
    assert!(machine.wants_agent_off());
    let stops = MachineSeen { agent: Some(PowerStage::Stopping), ..SERVES };
    assert_eq!(machine.tick(Now(100), SERVES), None, "it was told just now");
    assert_eq!(machine.tick(Now(20_000), stops), None, "it hands over what only it has");
    assert_eq!(machine.tick(Now(20_100), RESTS), Some(PowerCommand::Off));
    assert_eq!(machine.tick(Now(20_200), RESTS), None, "one at a time");
    machine.finished(Now(20_300), PowerCommand::Off, DONE);
    assert_eq!(machine.tick(Now(20_300), SILENT), Some(PowerCommand::Status));
    machine.finished(Now(20_400), PowerCommand::Status, CommandEnd::Done(MachineStatus::On));
    assert_eq!(machine.tick(Now(20_500), SILENT), None);
    assert!(!machine.is_off(), "its status disagrees");
    assert_eq!(machine.tick(Now(21_400), SILENT), Some(PowerCommand::Status));
    machine.finished(Now(21_400), PowerCommand::Status, CommandEnd::Done(MachineStatus::Off));
    machine.tick(Now(21_400), SERVES);
    assert!(!machine.is_off(), "its node answers");
    machine.tick(Now(21_500), SILENT);
    assert!(machine.is_off() && !machine.take_failed());
    assert_eq!(machine.to_string(), "machine is off");
}

#[test]
fn without_a_status_silence_counts_and_with_one_it_does_not() {
    let settings = MachineSettings { has_status: false, ..SETTINGS };
    let mut machine = is_switched_off(settings);
    assert_eq!(machine.tick(Now(100), RESTS), None);
    assert!(!machine.is_off(), "it answers still");
    machine.tick(Now(200), SILENT);
    assert!(machine.is_off());
    let mut machine = is_switched_off(SETTINGS);
    machine.tick(Now(100), SILENT);
    assert!(!machine.is_off());
}

#[test]
fn a_machine_that_does_not_go_off_in_time_has_failed_and_can_be_ordered_again() {
    let mut machine = is_switched_off(SETTINGS);
    for at in (0..10_000).step_by(1_000) {
        assert_eq!(machine.tick(Now(at), SILENT), Some(PowerCommand::Status));
        machine.finished(Now(at), PowerCommand::Status, CommandEnd::Done(MachineStatus::On));
    }
    machine.tick(Now(10_000), SILENT);
    assert!(machine.take_failed() && !machine.take_failed() && !machine.is_off());
    assert_eq!(machine.to_string(), "machine could not be switched off, its status is on");
    machine.order_off(Now(11_000));
    // The last status may still run.
    machine.finished(Now(11_000), PowerCommand::Status, CommandEnd::Failed);
    assert_eq!(machine.tick(Now(11_000), SILENT), Some(PowerCommand::Off));
}

#[test]
fn a_node_that_other_dispatchers_want_on_keeps_its_machine() {
    let mut machine = MachinePower::new(SETTINGS);
    machine.order_off(Now(0));
    assert_eq!(machine.tick(Now(10_000), SERVES), None);
    assert!(machine.is_off() && machine.wants_agent_off());
    assert_eq!(machine.to_string(), "another dispatcher keeps it on");
    // Until those agree.
    assert_eq!(machine.tick(Now(20_000), RESTS), Some(PowerCommand::Off));
}

#[test]
fn a_lost_link_is_no_leave_to_switch_off_until_it_stays_away() {
    let mut machine = MachinePower::new(SETTINGS);
    machine.order_off(Now(0));
    let (stops, unlinked) = (
        MachineSeen { agent: Some(PowerStage::Stopping), ..SERVES },
        MachineSeen { agent: None, ..SERVES },
    );
    assert_eq!(machine.tick(Now(100), stops), None);
    assert_eq!(machine.tick(Now(200), unlinked), None, "it hands over");
    assert_eq!(machine.tick(Now(50_000), stops), None);
    assert_eq!(machine.tick(Now(60_200), unlinked), None, "the time begins anew");
    machine.order_off(Now(61_000));
    assert_eq!(machine.tick(Now(120_100), unlinked), None, "and not with each order");
    assert_eq!(machine.tick(Now(120_200), unlinked), Some(PowerCommand::Off));
}

#[test]
fn commands_that_fail_are_told_once_and_run_again_when_ordered() {
    let mut machine = off(SETTINGS);
    for at in [100, 200] {
        machine.order_on();
        assert_eq!(machine.tick(Now(at), SILENT), Some(PowerCommand::On));
        assert!(machine.is_coming());
        machine.finished(Now(at), PowerCommand::On, CommandEnd::Failed);
        assert!(machine.take_failed() && !machine.take_failed());
        assert_eq!(machine.tick(Now(at), SILENT), None);
        assert_eq!(machine.to_string(), "machine could not be switched on");
    }
    machine.order_on();
    assert_eq!(machine.tick(Now(300), SILENT), Some(PowerCommand::On));
    machine.finished(Now(300), PowerCommand::On, DONE);
    assert_eq!(machine.tick(Now(400), SERVES), None);
    assert!(!machine.is_coming() && machine.to_string().is_empty());
}

#[test]
fn what_is_no_longer_wanted_ends_first_and_changes_nothing() {
    let mut machine = off(SETTINGS);
    machine.order_on();
    assert_eq!(machine.tick(Now(100), SILENT), Some(PowerCommand::On));
    machine.order_off(Now(200));
    assert_eq!(machine.tick(Now(200), SILENT), None, "`on` runs still");
    machine.finished(Now(300), PowerCommand::On, CommandEnd::Failed);
    assert!(!machine.take_failed());
    assert_eq!(machine.tick(Now(300), SILENT), Some(PowerCommand::Off));
    machine.order_on();
    machine.finished(Now(400), PowerCommand::Off, DONE);
    assert_eq!(machine.tick(Now(400), SERVES), Some(PowerCommand::On), "`off` has run since");
}

#[test]
fn a_node_is_not_off_while_its_machine_is_being_switched_on() {
    let mut machine = MachinePower::new(MachineSettings { has_off: false, ..SETTINGS });
    machine.order_on();
    assert_eq!(machine.tick(Now(0), SILENT), Some(PowerCommand::On));
    machine.order_off(Now(100));
    machine.tick(Now(100), SILENT);
    assert!(!machine.is_off());
    machine.finished(Now(200), PowerCommand::On, DONE);
    machine.tick(Now(200), RESTS);
    assert!(machine.is_off());
}

#[test]
fn a_node_that_was_never_switched_off_needs_no_command_to_serve() {
    let mut machine = MachinePower::new(SETTINGS);
    machine.order_off(Now(0));
    machine.tick(Now(0), MachineSeen { agent: Some(PowerStage::Stopping), ..SERVES });
    machine.order_on();
    assert_eq!(machine.tick(Now(100), SERVES), None);
    assert!(!machine.wants_agent_off());
    // One that was never seen does.
    let mut machine = MachinePower::new(SETTINGS);
    machine.order_on();
    assert_eq!(machine.tick(Now(0), SILENT), Some(PowerCommand::On));
}

#[test]
fn words_say_whether_a_machine_is_on() {
    let [on, off] = [["on", "running"], ["off", "stopped"]].map(|it| it.map(String::from));
    for (text, expected) in [
        ("Chassis Power is on\n", MachineStatus::On),
        ("Chassis Power is off\n", MachineStatus::Off),
        ("\"RUNNING\"", MachineStatus::On),
        ("shut off", MachineStatus::Off),
        ("running, on-demand", MachineStatus::On),
        ("on, then off", MachineStatus::Unclear),
        ("stopping", MachineStatus::Unclear),
        ("", MachineStatus::Unclear),
    ] {
        assert_eq!(MachineStatus::read(text, &on, &off), expected, "{text:?}");
    }
}

/// How a machine takes `on`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    Works,
    Fails,
    ExitsAndDoesNotCome,
    /// When it was given up already.
    ComesAt(u64),
}

/// Two nodes that are wanted where one serves, and others to be had: elasticity and machines together.
struct Cluster {
    elasticity: Elasticity,
    machines: Vec<(MachinePower, Habit, MachineSeen)>,
    now: Now,
    events: Vec<PowerEvent>,
}

impl Cluster {
    /// The first one serves; the others have these habits, and are off.
    fn new(habits: &[Habit]) -> Self {
        let settings = ElasticitySettings {
            nodes_min: 1,
            nodes_max: 9,
            targets: LoadTargets { requests: 100, bytes: 0 },
            tolerance_permille: 100,
            interval_ms: 1_000,
            scale_out_window_ms: 0,
            scale_in_window_ms: 600_000,
            step_out_nodes_max: 4,
            step_in_nodes_max: 1,
            start_timeout_ms: 10_000,
            attempts_max: 2,
            retry_pause_ms: 1_000,
            failed_hold_ms: 600_000,
            drain_timeout_ms: 10_000,
            stop_timeout_ms: 20_000,
        };
        let first = (MachinePower::new(SETTINGS), Habit::Works, SERVES);
        let others = habits.iter().map(|habit| (off(SETTINGS), *habit, SILENT));
        let machines = [first].into_iter().chain(others).collect();
        let elasticity = Elasticity::new(settings);
        Self { elasticity, machines, now: Now(1_000), events: Vec::new() }
    }

    fn run(&mut self, until_ms: u64) {
        while self.now < Now(until_ms) {
            self.now = self.now.plus_ms(500);
            let mut seen = Vec::new();
            for (number, (machine, habit, seen_of)) in self.machines.iter_mut().enumerate() {
                if matches!(habit, Habit::ComesAt(at) if self.now >= Now(*at)) {
                    *seen_of = SERVES;
                }
                if let Some(command) = machine.tick(self.now, *seen_of) {
                    let end = match (command, *habit) {
                        (PowerCommand::On, Habit::Fails) => CommandEnd::Failed,
                        (PowerCommand::Status, _) => CommandEnd::Done(MachineStatus::Off),
                        _ => DONE,
                    };
                    if (command, *habit) == (PowerCommand::On, Habit::Works) {
                        *seen_of = SERVES;
                    }
                    machine.finished(self.now, command, end);
                }
                seen.push(NodeObservation {
                    id: NodeId(number as u32),
                    observed: match seen_of.serves {
                        true => Observed::Ready,
                        false if machine.is_off() => Observed::Off,
                        false => Observed::Silent,
                    },
                    is_held: false,
                    is_idle: false,
                    order_failed: machine.take_failed(),
                    requests: if number == 0 { 180 } else { 0 },
                    bytes: 0,
                });
            }
            let step = self.elasticity.tick(self.now, &seen);
            for order in step.orders {
                let (PowerOrder::Start(id) | PowerOrder::Stop(id) | PowerOrder::Drain(id)) = order;
                let machine = &mut self.machines[id.0 as usize].0;
                match order {
                    PowerOrder::Start(_) => machine.order_on(),
                    PowerOrder::Stop(_) => machine.order_off(self.now),
                    PowerOrder::Drain(_) => {}
                }
            }
            self.events.extend(step.events);
        }
    }

    fn state(&self, number: u32) -> LifecycleState {
        self.elasticity.state(NodeId(number)).unwrap()
    }

    fn faults(&self, number: u32) -> Vec<StartFault> {
        let fault = |event: &PowerEvent| match *event {
            PowerEvent::StartRetried { node, fault, .. }
            | PowerEvent::StartFailed { node, fault, .. } => {
                (node == NodeId(number)).then_some(fault)
            }
            _ => None,
        };
        self.events.iter().filter_map(fault).collect()
    }
}

#[test]
fn a_machine_whose_command_fails_is_marked_and_another_one_comes_at_once() {
    let mut cluster = Cluster::new(&[Habit::Fails, Habit::Works]);
    cluster.run(8_000);
    assert_eq!(cluster.state(2), LifecycleState::Active);
    assert_eq!(cluster.faults(1), [StartFault::OrderFailed; 2]);
    assert!(cluster.elasticity.is_failed(NodeId(1)) && !cluster.elasticity.is_failed(NodeId(2)));
}

#[test]
fn one_that_exits_with_0_and_no_node_comes_is_marked_when_its_time_is_over() {
    let mut cluster = Cluster::new(&[Habit::ExitsAndDoesNotCome, Habit::Works]);
    cluster.run(10_000);
    assert_eq!(cluster.state(1), LifecycleState::Starting);
    cluster.run(30_000);
    assert_eq!(cluster.state(2), LifecycleState::Active);
    assert_eq!(cluster.faults(1), [StartFault::NotInTime; 2]);
    assert!(cluster.elasticity.is_failed(NodeId(1)));
    // It is switched off for good, in case that it came half-way.
    assert!(cluster.machines[1].0.is_off());
}

#[test]
fn one_that_comes_when_it_was_given_up_serves() {
    let mut cluster = Cluster::new(&[Habit::ComesAt(40_000)]);
    cluster.run(39_000);
    assert_eq!(cluster.state(1), LifecycleState::Off);
    cluster.run(45_000);
    assert_eq!(cluster.state(1), LifecycleState::Active);
    assert!(cluster.events.contains(&PowerEvent::Joined { node: NodeId(1) }));
}
