//! The units of `packaging/` under a real systemd: processes that die or hang are restarted, and the virtual
//! address stays meanwhile.

use skep_tests::direct::{DirectCluster, SHORT, Setup};
use skep_tests::systemd::SystemdMachine;
use skep_tests::{PATIENCE, poll_until};

const DISPATCHER: &str = "dispatcher-1";
const NODE: &str = "node-1";
const SKEP: &str = "skep.service";
const NETGUARD: &str = "skep-netguard@dispatcher-1.service";

/// Waits until a unit runs with another invocation than `before`; the virtual address must be present all the
/// time.
#[track_caller]
fn wait_restart(cluster: &DirectCluster, machine: &SystemdMachine, unit: &str, before: &str) {
    poll_until(2 * PATIENCE, &format!("restart of {unit}"), || {
        assert_eq!(cluster.holders(), [DISPATCHER], "{}", machine.log());
        machine.invocation(unit).is_some_and(|id| id != before)
    });
}

/// Waits until the dispatcher has become active for the `count`th time, and a client is answered.
#[track_caller]
fn wait_term(cluster: &DirectCluster, machine: &SystemdMachine, count: usize) {
    poll_until(PATIENCE, "the dispatcher is active", || {
        machine.log().matches("active with epoch").count() == count
    });
    wait_answer(cluster);
}

/// Waits until a client's new connection is answered.
#[track_caller]
fn wait_answer(cluster: &DirectCluster) {
    poll_until(PATIENCE, "an answer", || {
        cluster.ask("client-1", cluster.vip(), SHORT.0) == Ok(NODE.to_owned())
    });
}

#[test]
fn units_restart_what_dies_and_what_hangs() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    let Some(machine) = SystemdMachine::boot(&cluster, DISPATCHER) else { return };
    cluster.run(NODE);
    machine.systemctl(&["start", SKEP]);
    assert!(machine.invocation(NETGUARD).is_some(), "it is required");
    wait_term(&cluster, &machine, 1);
    assert_eq!(cluster.holders(), [DISPATCHER]);
    let runs = || [NETGUARD, SKEP].map(|unit| machine.invocation(unit).expect("it runs"));

    let [guard, skep] = runs();
    machine.signal(NETGUARD, "KILL");
    wait_restart(&cluster, &machine, NETGUARD, &guard);
    wait_restart(&cluster, &machine, SKEP, &skep);
    assert!(machine.log().contains("skep.service ended: exited 1"), "{}", machine.log());
    wait_term(&cluster, &machine, 2);

    let [guard, skep] = runs();
    machine.signal(SKEP, "KILL");
    wait_restart(&cluster, &machine, SKEP, &skep);
    assert_eq!(machine.invocation(NETGUARD), Some(guard.clone()));
    wait_term(&cluster, &machine, 3);

    let [_, skep] = runs();
    machine.signal(SKEP, "STOP");
    wait_answer(&cluster);
    // After `WatchdogSec`.
    wait_restart(&cluster, &machine, SKEP, &skep);
    assert_eq!(machine.invocation(NETGUARD), Some(guard));
    wait_term(&cluster, &machine, 4);

    machine.systemctl(&["stop", SKEP]);
    assert_eq!(cluster.holders(), [""; 0]);
    assert!(machine.log().contains("skep.service ended: exited 0"), "{}", machine.log());
    machine.systemctl(&["stop", NETGUARD]);
    // Each process can apply its own restrictions within those of its unit.
    assert!(!machine.log().contains("restrict"), "{}", machine.log());
}
