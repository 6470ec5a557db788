//! A fake netguard, with the part of the machine that it changes.

use skep_cluster::reconciler::{Found, Step};
use skep_units::Rng;
use skep_wire::table::TableVersion;

/// How netguard executes steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Fast,
    /// Within seconds.
    Slow,
    /// It refuses, or does a part first.
    Refusing,
}

/// What outlives the dispatcher's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) mode: Mode,
    pub(crate) has_addresses: bool,
    pub(crate) is_attached: bool,
    pub(crate) applied: TableVersion,
    /// Others have removed the addresses, which is seen at the next look.
    is_meddled: bool,
    /// It executes one step at a time, also those of a process that is gone.
    busy_until: u64,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            mode: Mode::Fast,
            has_addresses: false,
            is_attached: true,
            applied: TableVersion::default(),
            is_meddled: false,
            busy_until: 0,
        }
    }
}

impl Guard {
    /// When it will have executed a step that it is ordered now.
    pub(crate) fn done_at(&mut self, at: u64, rng: &mut Rng) -> u64 {
        let ms = match self.mode {
            Mode::Fast => 1 + rng.below(5),
            Mode::Slow => 100 + rng.below(1_500),
            Mode::Refusing => 1 + rng.below(50),
        };
        self.busy_until = self.busy_until.max(at) + ms;
        self.busy_until
    }

    /// Executes a step, whether the process that ordered it still lives or not. `Err`: what must
    /// never be ordered.
    pub(crate) fn execute(
        &mut self,
        step: &Step,
        rng: &mut Rng,
    ) -> Result<Result<(), String>, String> {
        if *step == Step::Announce && !self.has_addresses && !self.is_meddled {
            return Err("announces what it does not have".to_owned());
        }
        if self.mode == Mode::Refusing {
            match step {
                // One of several addresses.
                Step::Release if rng.below(2) == 0 => self.has_addresses = false,
                _ => {}
            }
            return Ok(Err(format!("refused: {step:?}")));
        }
        match step {
            Step::Attach => self.is_attached = true,
            Step::Claim => (self.has_addresses, self.is_meddled) = (true, false),
            Step::Release => self.has_addresses = false,
            Step::Announce => {}
            Step::Apply(_) if !self.is_attached => return Ok(Err("not attached".to_owned())),
            Step::Apply(table) => self.applied = table.version,
        }
        Ok(Ok(()))
    }

    pub(crate) fn found(&self) -> Found {
        Found { has_addresses: self.has_addresses, is_attached: self.is_attached }
    }

    /// Others remove the addresses, or replace the program.
    pub(crate) fn meddle(&mut self, with_program: bool) {
        if with_program {
            (self.is_attached, self.applied) = (false, TableVersion::default());
        } else {
            (self.has_addresses, self.is_meddled) = (false, true);
        }
    }
}
