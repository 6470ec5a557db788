//! Faults of the machines of a world, and their repair.

use crate::body::Pause;
use crate::disk::FileLoss;

use super::*;

impl World {
    pub(super) fn befall(&mut self, fault: &Fault) -> Result<(), String> {
        self.tell(format_args!("*** {fault:?}"));
        self.check.disturbed(self.at, fault, self.scenario.dispatchers);
        match fault {
            Fault::Crash(id) => self.crash(*id),
            Fault::Start(id) => return self.restart(*id),
            Fault::Pause(id, ms) => self.pause(*id, *ms, Pause::Process),
            Fault::Suspend(id, ms) => self.pause(*id, *ms, Pause::Machine),
            Fault::Freeze(id, ms) => self.pause(*id, *ms, Pause::VirtualMachine),
            Fault::Leap(id, ms) => self.body(*id).leap(*ms),
            Fault::Upgrade(id, release) => return self.upgrade(*id, *release),
            Fault::Leave(id) => self.nodes[id - self.scenario.dispatchers].is_leaving = true,
            Fault::Stop(id) => {
                if self.dispatchers[*id].body.runs(self.at) {
                    let now = self.dispatchers[*id].body.clock.at(self.at);
                    let outputs = self.dispatchers[*id].failover.stop(now);
                    self.carry_out(*id, outputs)?;
                }
                self.crash(*id);
            }
            Fault::Part(side) => self.net.part(side),
            Fault::Cut(a, b, both) => self.net.cut(*a, *b, *both),
            Fault::Deaf(id) => self.net.deafen(*id),
            Fault::Heal => self.net.heal(),
            Fault::Store(id, reaches) => self.dispatchers[*id].reaches_store = *reaches,
            Fault::Disk(id, mode) => self.dispatchers[*id].disk.mode = *mode,
            Fault::Lose(id, how) => self.lose_file(*id, *how),
            Fault::Guard(id, mode) => self.dispatchers[*id].guard.mode = *mode,
            Fault::Meddle(id, how) => self.dispatchers[*id].guard.meddle(self.at, *how),
            Fault::Checks(id, node, pass) => {
                self.dispatchers[*id].check(node - self.scenario.dispatchers, *pass);
            }
            Fault::Mend => return self.mend(),
        }
        Ok(())
    }

    fn pause(&mut self, id: Id, ms: u64, pause: Pause) {
        let at = self.at;
        if self.body(id).pause(at, ms, pause) {
            self.schedule(at + ms, Event::Wake(id));
        }
    }

    /// The file of a running process is never lost.
    fn lose_file(&mut self, id: Id, how: FileLoss) {
        let dispatcher = &mut self.dispatchers[id];
        if !dispatcher.body.is_alive {
            dispatcher.disk.lose(dispatcher.body.life, how, &mut self.rng);
        }
    }

    fn upgrade(&mut self, id: Id, release: Release) -> Result<(), String> {
        self.crash(id);
        self.net.upgrade(id, release);
        self.restart(id)
    }

    pub(super) fn crash(&mut self, id: Id) {
        let at = self.at;
        self.body(id).is_alive = false;
        match id.checked_sub(self.scenario.dispatchers) {
            None => self.dispatchers[id].is_active = false,
            Some(node) => {
                self.nodes[node].dead_since.get_or_insert(at);
            }
        }
    }

    fn restart(&mut self, id: Id) -> Result<(), String> {
        let at = self.at;
        match id.checked_sub(self.scenario.dispatchers) {
            None if !self.dispatchers[id].body.is_alive => {
                let (random, of_store) = (self.rng.next_u64(), self.etcd.epoch());
                let outputs = self.dispatchers[id].restart(at, random, of_store);
                let life = self.dispatchers[id].body.life;
                self.check.restarted(id, self.dispatchers[id].disk.epoch());
                self.schedule(at + 1, Event::Tick(id, life));
                return self.carry_out(id, outputs);
            }
            Some(node) if !self.nodes[node].body.is_alive || self.nodes[node].is_leaving => {
                self.nodes[node].restart(at);
                let life = self.nodes[node].body.life;
                self.schedule(at + 1, Event::Heartbeat(id, life));
            }
            _ => {}
        }
        Ok(())
    }

    fn mend(&mut self) -> Result<(), String> {
        self.net.mend();
        for dispatcher in &mut self.dispatchers {
            (dispatcher.reaches_store, dispatcher.disk.mode) = (true, DiskMode::Fast);
            dispatcher.guard.mode = Mode::Fast;
        }
        let release = self.net.release_of_most();
        for id in 0..self.scenario.dispatchers + self.scenario.nodes {
            match self.net.release(id) == release {
                true => self.restart(id)?,
                false => self.upgrade(id, release)?,
            }
            if self.body(id).paused_until > self.at {
                self.wake_up(id)?;
            }
        }
        Ok(())
    }
}
