//! Donors and receivers that are killed in each exact step of a move: the message that would end the step is
//! dropped for this one connection, and the kill follows once the message was seen. Each connection is then
//! served, or ends by RST within a second.
//!
//! | step | the donor | the receiver |
//! |---|---|---|
//! | OFFER | has frozen, and offered | knows nothing |
//! | READY | has offered | has the connection, silent and blocked |
//! | COMMIT | has ordered the redirect, which its netguard has not done | the same |
//! | GO | has redirected | the same |
//! | DONE | the same | serves |
//! | ABORT | has ordered to thaw, which its netguard has not done | has the connection, silent and blocked |
//!
//! Four of them are prepared together, as are the two with a frozen netguard: four kills for twelve cases.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use skep_tests::direct::{DirectCluster, Setup, figure};
use skep_tests::{ClientError, PATIENCE, poll_until};

use super::messages::{Command, LccpCapture, hold, let_through, send_foreign};
use super::moving::{Elsewhere, moved_from, owners, path_of, start};
use super::{by_url, count};

const DONOR: &str = "node-1";
const RECEIVER: &str = "node-2";

/// Names of tables with rules.
const HELD: &str = "held";
const COMMIT: &str = "held_commit";

/// Timeout of a client that waits for the end of a connection.
const WAIT: Duration = Duration::from_secs(5);

/// Longer than a receiver that is ready waits for a message.
const PAUSE: Duration = Duration::from_millis(900);

/// Number of datagrams ahead of a message that is to be processed late: many times what is read at once.
const BEFORE: usize = 1_000;

/// Time from the fault to the end of a connection: one second, plus the delays of a busy machine.
const END_MS: u128 = 2_500;

/// How a connection ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Served by that node, and still open.
    Served(&'static str),
    Reset,
    /// Reset, or closed in order, as with any process that dies.
    Closed,
}

/// A cluster with a path that the receiver should answer, and captures of its nodes' messages.
struct Scene<'a> {
    cluster: &'a DirectCluster,
    path: String,
    at_donor: LccpCapture,
    at_receiver: LccpCapture,
}

impl<'a> Scene<'a> {
    fn new(cluster: &'a DirectCluster) -> Self {
        let path = path_of(cluster, RECEIVER);
        let (at_donor, at_receiver) =
            (LccpCapture::at(cluster, DONOR), LccpCapture::at(cluster, RECEIVER));
        Self { cluster, path, at_donor, at_receiver }
    }

    fn connect(&self) -> Elsewhere {
        Elsewhere::connect(self.cluster, self.cluster.vip(), RECEIVER)
    }

    /// Discards earlier captures, so that the buffers have room for the next messages.
    fn ask(&mut self, all: &mut [&mut Elsewhere]) {
        _ = (self.at_donor.all(), self.at_receiver.all());
        all.iter_mut().for_each(|it| _ = it.client.ask(&self.path));
    }

    /// Returns connections whose OFFER, READY, GO and DONE were sent but dropped. The last one is served by
    /// the receiver.
    fn hold_messages(&mut self) -> [Elsewhere; 4] {
        let mut held = None;
        poll_until(PATIENCE, "four moves stand still, each at its step", || {
            held = self.try_hold_messages();
            held.is_some()
        });
        held.unwrap()
    }

    /// `None` if the machine was so slow that a move has continued.
    fn try_hold_messages(&mut self) -> Option<[Elsewhere; 4]> {
        let mut all = [(); 4].map(|()| self.connect());
        let [offer, ready, go, done] = all.each_ref().map(|it| it.local);
        let at_receiver = [(Command::Offer, offer), (Command::Go, go)];
        let at_donor = [(Command::Ready, ready), (Command::Done, done)];
        hold(self.cluster, RECEIVER, HELD, &at_receiver);
        hold(self.cluster, DONOR, HELD, &at_donor);
        self.ask(&mut all.each_mut());
        let mut left: Vec<_> = at_receiver.into_iter().chain(at_donor).collect();
        let mut has_gone_on = false;
        poll_until(PATIENCE, "the messages come", || {
            for (command, client) in self.at_donor.all().into_iter().chain(self.at_receiver.all()) {
                left.retain(|it| (it.0 as u32, it.1) != (command, client));
                has_gone_on |= command == Command::Abort as u32;
            }
            left.is_empty() || has_gone_on
        });
        if has_gone_on {
            self.let_all_through();
            return None;
        }
        assert_eq!(all[3].assert_short(), RECEIVER);
        Some(all)
    }

    /// Returns connections that are about to be redirected and thawed, and the donor's netguard, which is
    /// frozen.
    fn hold_netguard(&mut self) -> ([Elsewhere; 2], Pid) {
        let [guard] = self.cluster.processes(DONOR, "netguard")[..] else { panic!("one netguard") };
        let mut held = None;
        poll_until(PATIENCE, "two moves wait for netguard", || {
            held = self.try_hold_netguard(guard);
            held.is_some()
        });
        (held.unwrap(), guard)
    }

    /// `None` if the machine was so slow that both are about to be thawed.
    fn try_hold_netguard(&mut self, guard: Pid) -> Option<[Elsewhere; 2]> {
        let mut both = [(); 2].map(|()| self.connect());
        let [commit, abort] = both.each_ref().map(|it| it.local);
        hold(self.cluster, DONOR, HELD, &[(Command::Ready, abort)]);
        hold(self.cluster, DONOR, COMMIT, &[(Command::Ready, commit)]);
        hold(self.cluster, RECEIVER, HELD, &[(Command::Abort, abort)]);
        let before = self.redirects();
        self.ask(&mut both.each_mut());
        let mut left = vec![abort, commit];
        poll_until(PATIENCE, "the receiver is ready", || {
            let ready = self.at_donor.all().into_iter().filter(|it| it.0 == Command::Ready as u32);
            ready.for_each(|(_, client)| left.retain(|it| *it != client));
            left.is_empty()
        });
        kill_process(guard, Signal::STOP).unwrap();
        let_through(self.cluster, DONOR, COMMIT);
        let (mut is_aborted, mut has_gone_on) = (false, false);
        poll_until(PATIENCE, "one is to be thawed, the other to be redirected", || {
            for (command, client) in self.at_receiver.all() {
                let is_abort = command == Command::Abort as u32;
                is_aborted |= is_abort && client == abort;
                has_gone_on |= is_abort && client == commit;
            }
            has_gone_on || is_aborted && self.redirects() > before
        });
        if !has_gone_on {
            return Some(both);
        }
        kill_process(guard, Signal::CONT).unwrap();
        self.let_all_through();
        None
    }

    /// Number of redirects that the donor has ordered.
    fn redirects(&self) -> f64 {
        self.cluster.metric(DONOR, "skep_handoff_step_seconds_count{step=\"offer\"}")
    }

    fn let_all_through(&self) {
        [DONOR, RECEIVER].iter().for_each(|name| let_through(self.cluster, name, HELD));
    }
}

/// Returns how a connection with a pending request ends.
fn end_of(it: &mut Elsewhere) -> End {
    it.client.set_timeout(WAIT);
    match it.client.try_response() {
        Ok(response) => {
            let node = response.assert_status(200).header("x-skep-node").unwrap();
            End::Served(if node == DONOR { DONOR } else { RECEIVER })
        }
        Err(ClientError::Failed(ErrorKind::ConnectionReset)) => End::Reset,
        Err(ClientError::Closed(0)) => End::Closed,
        Err(error) => panic!("{} of {}: {error}", it.local, it.donor),
    }
}

/// Asserts that each connection ends in time as its step specifies, and that no node keeps a socket of a
/// connection that has ended.
fn assert_ends(cluster: &DirectCluster, killed: &str, ends: Vec<(&str, Elsewhere, &[End])>) {
    let (began, mut clients) = (Instant::now(), Vec::new());
    for (step, mut it, expected) in ends {
        let end = end_of(&mut it);
        let took = began.elapsed();
        figure(&format!("{killed} killed at {step}: {end:?} after {took:?}"));
        assert!(expected.contains(&end), "{killed} killed at {step}: {end:?}");
        assert!(took.as_millis() < END_MS, "{killed} killed at {step}: {took:?}");
        if let End::Served(node) = end {
            // The same node continues to serve it.
            it.client.ask(super::SHORT.0);
            assert_eq!(end_of(&mut it), End::Served(node), "{killed} killed at {step}");
        }
        clients.push(it.local);
    }
    poll_until(PATIENCE, "no node has a socket of them", || {
        clients.iter().all(|client| owners(cluster, *client).is_empty())
    });
}

/// Restarts a killed node. Once no messages are dropped, the donor moves connections to the receiver.
fn revive(scene: &Scene<'_>, killed: &str) {
    scene.let_all_through();
    scene.cluster.run(killed);
    scene.cluster.wait_serving();
    moved_from(scene.cluster, (DONOR, RECEIVER), 1);
}

#[test]
fn whoever_is_killed_in_whatever_step_each_connection_is_served_or_reset_within_a_second() {
    use End::{Closed, Reset, Served};
    let Some(cluster) = start(by_url(2)) else { return };
    let kill = |name: &str| cluster.daemon(name).signal(Signal::KILL);
    let mut scene = Scene::new(&cluster);

    let [offer, ready, go, mut done] = scene.hold_messages();
    kill(RECEIVER);
    done.client.ask(super::SHORT.0);
    assert_ends(
        &cluster,
        RECEIVER,
        vec![
            ("OFFER", offer, &[Served(DONOR)]),
            ("READY", ready, &[Served(DONOR)]),
            ("GO", go, &[Reset]),
            ("DONE", done, &[Reset, Closed]),
        ],
    );
    revive(&scene, RECEIVER);

    let ([commit, abort], guard) = scene.hold_netguard();
    kill(RECEIVER);
    kill_process(guard, Signal::CONT).unwrap();
    assert_ends(
        &cluster,
        RECEIVER,
        vec![("ABORT", abort, &[Served(DONOR)]), ("COMMIT", commit, &[Reset])],
    );
    revive(&scene, RECEIVER);

    let [offer, ready, go, mut done] = scene.hold_messages();
    kill(DONOR);
    done.client.ask(super::SHORT.0);
    assert_ends(
        &cluster,
        DONOR,
        vec![
            ("OFFER", offer, &[Reset]),
            ("READY", ready, &[Reset]),
            ("GO", go, &[Reset]),
            ("DONE", done, &[Served(RECEIVER)]),
        ],
    );
    revive(&scene, DONOR);

    let ([commit, abort], guard) = scene.hold_netguard();
    kill(DONOR);
    kill_process(guard, Signal::CONT).unwrap();
    assert_ends(
        &cluster,
        DONOR,
        vec![("COMMIT", commit, &[Reset]), ("ABORT", abort, &[Reset, Closed])],
    );
}

/// A ready receiver is frozen until its timeout has passed. ABORT has arrived by then, after everything else
/// that it must read.
#[test]
fn a_word_that_has_come_counts_however_late_it_is_read() {
    let direct = "node_heartbeats_missed_max = 100\n".into();
    let Some(cluster) = start(Setup { direct, ..by_url(2) }) else { return };
    let mut scene = Scene::new(&cluster);
    let mut it = scene.connect();
    hold(&cluster, DONOR, HELD, &[(Command::Ready, it.local)]);
    let received = |outcome| count(&cluster, "skep_handoffs_received_total", outcome);
    let before = received("aborted");
    scene.ask(&mut [&mut it]);
    let client = it.local;
    poll_until(PATIENCE, "the receiver is ready", || {
        scene.at_donor.all().contains(&(Command::Ready as u32, client))
    });
    cluster.daemon(RECEIVER).pause();
    let to = SocketAddr::from((cluster.machine(RECEIVER).ipv4(), 0));
    cluster.machine("client-2").run(|| send_foreign(to, BEFORE)).unwrap();
    assert_eq!(it.assert_short(), DONOR);
    poll_until(PATIENCE, "ABORT comes", || {
        scene.at_receiver.all().contains(&(Command::Abort as u32, client))
    });
    // The pause is the fault itself, not a wait for a condition.
    std::thread::sleep(PAUSE);
    cluster.daemon(RECEIVER).resume();
    poll_until(PATIENCE, "the receiver gives it up", || {
        received("aborted") - before + received("undecided") >= 1.0
    });
    assert_eq!((received("aborted") - before, received("undecided")), (1.0, 0.0));
    let_through(&cluster, DONOR, HELD);
    it.client.ask(super::SHORT.0);
    assert_eq!(it.assert_short(), DONOR);
}
