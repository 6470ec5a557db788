//! Crashes and starts of processes and netguards, pauses, cuts.

use skep_handoff::OfferKey;
use skep_wire::seal::PeerId;

use super::{Event, ORPHANS_MS, World};
use crate::kernel::{Entry, Flow, Id};
use crate::netguard::{Asker, Netguard, Order};
use crate::process::Process;
use crate::scenario::{FAULTS_END_MS, FOR_EVER_MS, Fault, Victim, fault};

/// Longest time until a process that has ended is restarted, and the retry interval of a process
/// that finds no netguard.
const START_AGAIN_MS: u64 = 20;

impl World {
    /// Called before and after each step of a move: a fault may be set on it.
    pub(crate) fn trap(&mut self, step: &'static str, is_before: bool, at: Id, other: Option<Id>) {
        if is_before {
            match self.steps.iter_mut().find(|it| it.0 == step) {
                Some((_, count)) => *count += 1,
                None => self.steps.push((step, 1)),
            }
        }
        let count = self.steps.iter().find(|it| it.0 == step).map_or(0, |it| it.1);
        let is_it = |trap: &&crate::scenario::Trap| {
            trap.step == step && trap.nth == count && trap.is_before == is_before
        };
        if self.now + 1 >= FAULTS_END_MS {
            return;
        }
        let sprung: Vec<_> = self.scenario.traps.iter().filter(is_it).copied().collect();
        for trap in sprung {
            let victim = match trap.victim {
                Victim::This => at,
                Victim::Other => other.filter(|it| *it < self.machines.len()).unwrap_or(at),
            };
            self.totals.traps += 1;
            let fault = fault(trap.kind, victim, trap.lasts_ms, self.machines.len(), &mut self.rng);
            self.strike(fault);
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if self.tells {
            eprintln!("{:>5} *** {fault:?}", self.now);
        }
        // All faults except permanent ones end by the end of the fault period.
        let left_ms = FAULTS_END_MS - self.now.min(FAULTS_END_MS);
        let until_end = |ms: u64| if ms == FOR_EVER_MS { ms } else { ms.min(left_ms) };
        match fault {
            Fault::Crash(id, ms) => self.crash(id, until_end(ms)),
            Fault::CrashNetguard(id, ms) => self.crash_netguard(id, until_end(ms)),
            Fault::Pause(id, ms) => {
                pause(&mut self.machines[id].process.paused_until, self.now + until_end(ms))
            }
            Fault::PauseNetguard(id, ms) => {
                pause(&mut self.machines[id].guard.paused_until, self.now + until_end(ms));
            }
            Fault::Cut(a, b, both, ms) => {
                self.net.cut(a, b, both);
                self.after(until_end(ms), Event::Heal);
            }
        }
    }

    fn crash(&mut self, id: Id, ms: u64) {
        if !self.machines[id].process.is_up {
            return;
        }
        self.touch(id);
        self.note_totals(id);
        let machine = &mut self.machines[id];
        machine.process.is_up = false;
        machine.process.serving.clear();
        if machine.guard.is_up && machine.guard.client == Some(machine.process.start) {
            let guard = &mut machine.guard;
            guard.busy_until = guard.busy_until.max(self.now);
            let (wait, guard) = (guard.busy_until - self.now, guard.start);
            let process = self.machines[id].process.start;
            self.after(wait, Event::ClientGone { at: id, guard, process });
        }
        self.close_sockets(id);
        self.after(ms, Event::Restart(id));
    }

    /// Connections that a crash of the process may close: those served or frozen there, and those
    /// that it may have been given, since it was ready.
    fn touch(&mut self, id: Id) {
        let machine = &self.machines[id];
        let own = machine.kernel.sockets.iter().filter(|it| !it.1.is_in_repair || it.1.is_donors);
        let own = own.map(|it| *it.0);
        let ready = self.machines.iter().enumerate().flat_map(|(donor, it)| {
            let key = move |id| OfferKey { donor: PeerId(donor as u64), id };
            let moving = it.process.moving.iter();
            let ready = moving.filter(move |it| machine.process.ready.contains(&key(*it.0)));
            ready.map(|it| it.1.0)
        });
        let touched: Vec<Flow> = own.chain(ready).collect();
        touched.into_iter().for_each(|flow| self.clients[flow].is_touched = true);
    }

    /// Saves a process's counters, which a crash loses.
    fn note_totals(&mut self, id: Id) {
        let process = &self.machines[id].process;
        self.totals.undecided += process.receiver.counters().undecided;
        self.totals.gone += process.receiver.counters().gone;
    }

    /// Starts a process as soon as there is a netguard.
    pub(crate) fn restart(&mut self, id: Id) {
        if !self.machines[id].guard.is_up {
            return self.after(START_AGAIN_MS, Event::Restart(id));
        }
        self.starts += 1;
        let machines = self.machines.len();
        let mut process = Process::new(self.starts, self.scenario.ready_ms[id], machines);
        // In reality it learns the others' starts through hellos; here, at once.
        process.known = self.machines.iter().map(|it| it.process.start).collect();
        self.machines[id].process = process;
        self.connect(id);
    }

    fn crash_netguard(&mut self, id: Id, ms: u64) {
        let machine = &mut self.machines[id];
        if !machine.guard.is_up {
            return;
        }
        let process = machine.process.start;
        (machine.guard.is_up, machine.guard.client, machine.guard.paused_until) = (false, None, 0);
        machine.kernel.sockets.values_mut().for_each(|it| it.is_held = false);
        self.close_sockets(id);
        self.after(0, Event::Disconnected { at: id, process });
        self.after(ms, Event::RestartNetguard(id));
    }

    pub(crate) fn restart_netguard(&mut self, id: Id) {
        let machine = &mut self.machines[id];
        machine.guard = Netguard { start: machine.guard.start + 1, ..Netguard::new() };
        let guard = machine.guard.start;
        self.after(ORPHANS_MS, Event::Orphans { at: id, guard });
    }

    /// The process notices that the connection to netguard has ended.
    pub(crate) fn disconnected(&mut self, at: Id, process: u64) {
        if self.is_current(at, process) {
            let ms = 1 + self.rng.below(START_AGAIN_MS);
            self.crash(at, ms);
        }
    }

    /// A starting process connects to netguard: flows blocked before belong to no process.
    pub(crate) fn connect(&mut self, id: Id) {
        let machine = &mut self.machines[id];
        machine.guard.client = Some(machine.process.start);
        let guard = &mut machine.guard;
        guard.busy_until = guard.busy_until.max(self.now);
        let (wait, guard) = (guard.busy_until - self.now, guard.start);
        let (process, order) = (machine.process.start, Order::ForgetOrphans);
        let asker = Asker::Nobody;
        self.after(wait, Event::Order { at: id, guard, process, serial: 0, asker, order });
        self.drive(id);
    }

    /// Netguard notices that its process is gone.
    pub(crate) fn client_gone(&mut self, at: Id, guard: u64, process: u64) {
        let it = &mut self.machines[at].guard;
        if !it.is_up || it.start != guard {
            return;
        }
        if it.client == Some(process) {
            it.client = None;
        }
        // For connections that returned to where they are redirected from, the redirect is lost
        // with the block.
        let is_back = |entry: &Entry| matches!(entry, Entry::Blocked { behind: Some(_) });
        let back = self.machines[at].kernel.moves.iter().filter(|it| is_back(it.1));
        back.for_each(|it| self.clients[*it.0].is_touched = true);
        for (flow, sequence) in Netguard::abandon(&mut self.machines[at].kernel) {
            self.send_rst(flow, Some(sequence));
        }
        self.close_sockets(at);
    }

    /// No process has connected to a netguard since its start.
    pub(crate) fn orphans(&mut self, at: Id, guard: u64) {
        let it = &self.machines[at].guard;
        if it.is_up && it.start == guard && it.client.is_none() {
            Netguard::execute(&mut self.machines[at].kernel, 0, &Order::ForgetOrphans);
        }
    }

    /// Closes sockets without any descriptor: with RST if they run, silently in repair mode.
    pub(crate) fn close_sockets(&mut self, at: Id) {
        let process = &self.machines[at].process;
        let process = process.is_up.then_some(process.start);
        for (flow, socket) in self.machines[at].kernel.close(process) {
            if !socket.is_in_repair {
                self.send_rst(flow, Some(socket.send_next));
            } else if socket.is_donors {
                let entry = self.machines[at].kernel.moves.get(&flow);
                let is_given = matches!(entry, Some(Entry::Redirect(_)));
                let is_let_go = socket.process == 0;
                self.clients[flow].is_bereft |= !is_given || !is_let_go;
            }
        }
    }
}

/// A process that is paused twice runs when both pauses have ended.
fn pause(paused_until: &mut u64, until: u64) {
    *paused_until = until.max(*paused_until);
}
