//! The machine of one node: which command switches it next, and whether it is off.
//!
//! ```text
//!            order On            exits with 0            the node serves
//!      Off ------------> SwitchOn ----------> Coming ----------------------> On
//!       ^                   | fails, hangs                                   | order Off
//!       |                   v                                                v
//!       |                 Failed, until the next order      Resting: its agent returns memory, as far as
//!       |                   ^                                    | all dispatchers agree
//!       | it is off         | not in time, fails, hangs          v
//!       +-------------- Verifying <---------------------- SwitchOff
//!                              exits with 0
//! ```
//!
//! Elasticity orders again what failed, and gives up after some attempts; here each order is one of them.
//!
//! **Invariants:** one command of a machine runs at a time. `off` runs only when the agent of the node keeps nothing any more,
//! or is gone. What a command that is no longer wanted comes to changes nothing.

use std::fmt;

use skep_units::Now;
use skep_wire::cache::PowerStage;

use crate::limits::{ELASTIC_AGREE_MS, ELASTIC_UNLINKED_MS};

/// The commands of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PowerCommand {
    On,
    Off,
    Status,
}

/// What there is for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineSettings {
    pub has_on: bool,
    pub has_off: bool,
    pub has_status: bool,
    /// Time from one question for the status to the next, in milliseconds.
    pub status_interval_ms: u64,
    /// Time after `off` in which the machine must be off, in milliseconds.
    pub off_timeout_ms: u64,
}

/// What is seen of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineSeen {
    /// Its checks are good.
    pub serves: bool,
    /// What its agent says; `None`: it is not linked.
    pub agent: Option<PowerStage>,
}

/// What the status of a machine says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineStatus {
    On,
    Off,
    /// Nothing that is known.
    Unclear,
}

/// What a command came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited with 0; of [`PowerCommand::Status`] with what it said.
    Done(MachineStatus),
    /// It failed, hung, or could not be run.
    Failed,
}

#[derive(Clone, Debug)]
pub struct MachinePower {
    settings: MachineSettings,
    phase: MachinePhase,
    seen: MachineSeen,
    /// Since when its node serves, and its agent is not linked.
    unlinked_since: Option<Now>,
    running: Option<PowerCommand>,
    /// What the status has said in this phase.
    status: Option<MachineStatus>,
    status_due: Now,
    /// `off` has run since the node served last.
    was_switched_off: bool,
    order_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MachinePhase {
    On,
    Off,
    SwitchOn {
        is_run: bool,
    },
    Coming,
    Resting {
        since: Now,
        /// Some other dispatcher wants it on.
        is_kept_on: bool,
    },
    SwitchOff {
        is_run: bool,
    },
    Verifying {
        until: Now,
    },
    Failed {
        wants_on: bool,
    },
}

impl MachinePower {
    /// Of a machine that is on, for all that is known.
    pub fn new(settings: MachineSettings) -> Self {
        Self {
            settings,
            phase: MachinePhase::On,
            seen: MachineSeen::default(),
            unlinked_since: None,
            running: None,
            status: None,
            status_due: Now(0),
            was_switched_off: false,
            order_failed: false,
        }
    }

    /// Settings were reloaded.
    pub fn set_settings(&mut self, settings: MachineSettings) {
        self.settings = settings;
    }

    /// The node is to serve. Whenever that is ordered again, it is switched on again.
    pub fn order_on(&mut self) {
        let is_alive = self.seen.serves || self.seen.agent.is_some();
        let was_told = matches!(self.phase, MachinePhase::Coming | MachinePhase::Failed { .. });
        let needs_no_command = is_alive && !self.was_switched_off && !was_told;
        if self.phase == MachinePhase::On && self.seen.serves {
            return;
        }
        self.enter(match needs_no_command || !self.settings.has_on {
            true => MachinePhase::Coming,
            false => MachinePhase::SwitchOn { is_run: false },
        });
    }

    /// The node is to be off: its agent first, then the machine.
    pub fn order_off(&mut self, now: Now) {
        if self.phase != MachinePhase::Off {
            self.enter(MachinePhase::Resting { since: now, is_kept_on: false });
        }
    }

    /// Time went on, and this is seen. Returns the command to run now.
    pub fn tick(&mut self, now: Now, seen: MachineSeen) -> Option<PowerCommand> {
        self.seen = seen;
        let is_unlinked = seen.serves && seen.agent.is_none();
        self.unlinked_since = is_unlinked.then(|| self.unlinked_since.unwrap_or(now));
        match self.phase {
            MachinePhase::Coming if seen.serves => {
                self.was_switched_off = false;
                self.enter(MachinePhase::On);
            }
            // What still runs for an earlier order may be what answers.
            MachinePhase::Resting { since, .. } if self.running.is_none() => self.rest(now, since),
            MachinePhase::Verifying { until } => self.verify(now, until),
            _ => {}
        }
        if self.running.is_some() {
            return None;
        }
        self.running = self.due(now);
        match &mut self.phase {
            MachinePhase::SwitchOn { is_run } => *is_run = true,
            MachinePhase::SwitchOff { is_run } => (*is_run, self.was_switched_off) = (true, true),
            _ => {}
        }
        self.running
    }

    /// A command has ended.
    pub fn finished(&mut self, now: Now, command: PowerCommand, end: CommandEnd) {
        if self.running.take_if(|running| *running == command).is_none() {
            return;
        }
        match (command, self.phase, end) {
            (PowerCommand::Status, MachinePhase::Coming | MachinePhase::Verifying { .. }, end) => {
                self.status_due = now.plus_ms(self.settings.status_interval_ms);
                self.status = match end {
                    CommandEnd::Done(status) => Some(status),
                    CommandEnd::Failed => None,
                };
            }
            (PowerCommand::On, MachinePhase::SwitchOn { is_run: true }, CommandEnd::Done(_)) => {
                self.enter(MachinePhase::Coming);
                self.status_due = now.plus_ms(self.settings.status_interval_ms);
            }
            (PowerCommand::Off, MachinePhase::SwitchOff { is_run: true }, CommandEnd::Done(_)) => {
                let until = now.plus_ms(self.settings.off_timeout_ms);
                self.enter(MachinePhase::Verifying { until });
                self.status_due = now;
            }
            (PowerCommand::On, MachinePhase::SwitchOn { is_run: true }, CommandEnd::Failed)
            | (PowerCommand::Off, MachinePhase::SwitchOff { is_run: true }, CommandEnd::Failed) => {
                self.fail();
            }
            _ => {}
        }
    }

    /// Whether the agent of the node is to be off.
    pub fn wants_agent_off(&self) -> bool {
        !matches!(
            self.phase,
            MachinePhase::On | MachinePhase::SwitchOn { .. } | MachinePhase::Coming
        ) && self.phase != MachinePhase::Failed { wants_on: true }
    }

    /// Whether it is as off as it will be: the machine, or the node alone where some other dispatcher wants it on.
    pub fn is_off(&self) -> bool {
        matches!(self.phase, MachinePhase::Off | MachinePhase::Resting { is_kept_on: true, .. })
    }

    /// Whether it is being switched on, so that a node which does not answer is not lost.
    pub fn is_coming(&self) -> bool {
        matches!(self.phase, MachinePhase::SwitchOn { .. } | MachinePhase::Coming)
    }

    /// Whether the last order failed; said once.
    pub fn take_failed(&mut self) -> bool {
        std::mem::take(&mut self.order_failed)
    }

    fn rest(&mut self, now: Now, since: Now) {
        let next = match self.seen.agent {
            Some(PowerStage::Stopping) => return,
            // That it was told takes a moment.
            Some(PowerStage::On) if now.since_ms(since) < ELASTIC_AGREE_MS => return,
            Some(PowerStage::On) => MachinePhase::Resting { since, is_kept_on: true },
            // A link that is lost comes back: the agent may have something to hand over, or be wanted on.
            None if self
                .unlinked_since
                .is_some_and(|at| now.since_ms(at) < ELASTIC_UNLINKED_MS) =>
            {
                return;
            }
            Some(PowerStage::Off) | None if self.settings.has_off => {
                MachinePhase::SwitchOff { is_run: false }
            }
            Some(PowerStage::Off) | None => MachinePhase::Off,
        };
        if next != self.phase {
            self.enter(next);
        }
    }

    fn verify(&mut self, now: Now, until: Now) {
        // A node that answers is on, whatever the status of its machine is; or its checks are from before.
        let is_off = !self.seen.serves
            && match self.settings.has_status {
                true => self.status == Some(MachineStatus::Off),
                false => self.seen.agent.is_none(),
            };
        if is_off {
            self.enter(MachinePhase::Off);
        } else if now >= until {
            self.fail();
        }
    }

    /// The command that the phase wants.
    fn due(&self, now: Now) -> Option<PowerCommand> {
        match self.phase {
            MachinePhase::SwitchOn { is_run: false } => Some(PowerCommand::On),
            MachinePhase::SwitchOff { is_run: false } => Some(PowerCommand::Off),
            MachinePhase::Coming | MachinePhase::Verifying { .. }
                if self.settings.has_status && now >= self.status_due =>
            {
                Some(PowerCommand::Status)
            }
            _ => None,
        }
    }
}

/// Commands and phases.
impl MachinePower {
    fn enter(&mut self, phase: MachinePhase) {
        self.phase = phase;
        self.status = None;
    }

    fn fail(&mut self) {
        let wants_on = matches!(self.phase, MachinePhase::SwitchOn { .. });
        self.order_failed = true;
        // The status stays for who looks.
        self.phase = MachinePhase::Failed { wants_on };
    }
}

impl PowerCommand {
    /// As settings, messages and metrics call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Status => "status",
        }
    }
}

impl MachineStatus {
    /// What `text` says, by its words in any case.
    pub fn read(text: &str, on_words: &[String], off_words: &[String]) -> Self {
        let words = || text.split(|c: char| !c.is_alphanumeric() && !"_-".contains(c));
        let has = |known: &[String]| {
            words().any(|word| known.iter().any(|known| known.eq_ignore_ascii_case(word)))
        };
        match (has(on_words), has(off_words)) {
            (true, false) => Self::On,
            (false, true) => Self::Off,
            _ => Self::Unclear,
        }
    }
}

/// For operators, behind the state of elasticity; empty where there is nothing to say.
impl fmt::Display for MachinePower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.phase {
            MachinePhase::On => return Ok(()),
            MachinePhase::Off if self.settings.has_off => "machine is off",
            MachinePhase::Off => "memory is returned",
            MachinePhase::SwitchOn { .. } => "machine is switched on",
            MachinePhase::Coming if self.settings.has_on => {
                "machine was switched on, node has not come"
            }
            MachinePhase::Coming => "node has not come",
            MachinePhase::Resting { is_kept_on: true, .. } => "another dispatcher keeps it on",
            MachinePhase::Resting { .. } => "memory is being returned",
            MachinePhase::SwitchOff { .. } => "machine is switched off",
            MachinePhase::Verifying { .. } => "machine was switched off, not seen off yet",
            MachinePhase::Failed { wants_on: true } => "machine could not be switched on",
            MachinePhase::Failed { wants_on: false } => "machine could not be switched off",
        })?;
        match self.status {
            Some(MachineStatus::On) => f.write_str(", its status is on"),
            Some(MachineStatus::Off) => f.write_str(", its status is off"),
            Some(MachineStatus::Unclear) => f.write_str(", its status is unclear"),
            None => Ok(()),
        }
    }
}
