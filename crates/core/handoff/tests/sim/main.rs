//! Donors and receivers under a virtual clock and network, seeded.
//!
//! Every seed determines some machines, clients whose connections are moved between them
//! repeatedly, and a list of faults: processes and netguards that crash, at given times or at a
//! given step of a move, or are paused, and machines that do not reach each other. All decisions
//! are made by the cores that a node runs: `Donor`, `Receiver`, `MovedReports`. Their environment
//! is modelled: the kernel's sockets, their repair mode, and the packets of clients (`kernel`),
//! netguard with its map of blocked and redirected flows, which outlives it (`netguard`), and the
//! network (`net`), which loses, duplicates, delays and reorders messages, with the guarantee of a
//! seal: no process receives messages meant for its predecessor.
//!
//! After every event `check` verifies that a connection has at most one running socket, that this
//! socket has everything that the client has seen acknowledged, and that it can be reached. No
//! packet reaches a socket in repair mode, unless netguard was restarted while its process was
//! paused, and considered it dead: then the socket's filter drops it. No connection is started
//! without a redirect, and none is thawed or taken back after one; no redirect is ordered after its
//! deadline; no offer is accepted twice, or after it was declined. A second after the last fault,
//! each connection has an owner or was closed with RST, and at the end each client has received all
//! of its replies, or an RST. In seeds without faults other than those of the network, no
//! connection is closed, and none waits long for a move that fails; in those with crashes only, no
//! connection is closed that did not involve the machine.
//!
//! One guarantee is weaker: if a process and its netguard are both down while a connection is
//! frozen, no process is left to send an RST; the client then receives it in response to its next
//! packet.
//!
//! `SKEP_SIM_SEED=n` runs one seed and prints its events; `SKEP_SIM_SEEDS=n` runs that many.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod check;
mod client;
mod kernel;
mod net;
mod netguard;
mod process;
mod scenario;
mod totals;
mod world;

use skep_sim::Simulation;
use world::World;

const SIMULATION: Simulation = Simulation { package: "skep-handoff", test: "sim", seeds: 12_000 };

#[test]
fn each_connection_has_one_owner_and_none_ends_silently() {
    let totals = SIMULATION.run(|seed, tells| World::new(seed, tells).run());
    let Some(totals) = totals.filter(|totals| totals.seeds >= SIMULATION.seeds) else { return };
    let never = totals.never();
    assert!(never.is_empty(), "in all these seeds there was no {never:?}");
}
