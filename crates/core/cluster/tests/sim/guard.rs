//! A fake netguard, with the part of the machine that it changes.

use skep_cluster::reconciler::Step;
use skep_units::Rng;
use skep_wire::guard::{ChangedMap, MachineState, ProgramMap};
use skep_wire::table::TableVersion;

use crate::machine::COMPARE_ALL_MS;

/// How netguard executes steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Fast,
    /// Each step takes seconds.
    Slow,
    /// It refuses, perhaps after executing a part.
    Refusing,
}

/// Changes of a dispatcher's machine by other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meddling {
    Addresses,
    /// The program is replaced.
    Program,
    /// The contents of a map; detected after this many milliseconds.
    Map(ProgramMap, u64),
}

impl Meddling {
    pub(crate) fn any(rng: &mut Rng) -> Self {
        match rng.below(6) {
            0 | 1 => Self::Program,
            2 => Self::Map(ProgramMap::Nodes, rng.below(COMPARE_ALL_MS)),
            3 => Self::Map(ProgramMap::Settings, rng.below(COMPARE_ALL_MS)),
            _ => Self::Addresses,
        }
    }
}

/// State that outlives the dispatcher's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) mode: Mode,
    pub(crate) has_addresses: bool,
    pub(crate) is_attached: bool,
    pub(crate) applied: TableVersion,
    /// Others have removed the addresses, which is detected at the next check.
    is_meddled: bool,
    /// Others have changed a map that is filled from tables, or from the config: when this is
    /// detected.
    table_changed: Option<u64>,
    config_changed: Option<u64>,
    /// It executes one step at a time, including those of a process that is gone.
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
            table_changed: None,
            config_changed: None,
            busy_until: 0,
        }
    }
}

impl Guard {
    /// When it will have executed a step that is ordered now.
    pub(crate) fn done_at(&mut self, at: u64, rng: &mut Rng) -> u64 {
        let ms = match self.mode {
            Mode::Fast => 1 + rng.below(5),
            Mode::Slow => 100 + rng.below(1_500),
            Mode::Refusing => 1 + rng.below(50),
        };
        self.busy_until = self.busy_until.max(at) + ms;
        self.busy_until
    }

    /// Executes a step, whether the process that ordered it is still alive or not. `Err`: a step
    /// that must never be ordered.
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
                // Some of several addresses.
                Step::Release if rng.below(2) == 0 => self.has_addresses = false,
                _ => {}
            }
            return Ok(Err(format!("refused: {step:?}")));
        }
        match step {
            Step::Attach => (self.is_attached, self.config_changed) = (true, None),
            Step::SetUp if !self.is_attached => return Ok(Err("not attached".to_owned())),
            Step::SetUp => self.config_changed = None,
            Step::Claim => (self.has_addresses, self.is_meddled) = (true, false),
            Step::Release => self.has_addresses = false,
            Step::Announce => {}
            Step::Apply(_) if !self.is_attached => return Ok(Err("not attached".to_owned())),
            Step::Apply(table) => (self.applied, self.table_changed) = (table.version, None),
        }
        Ok(Ok(()))
    }

    /// Whether every map has the right contents; those filled from tables count once there is one.
    pub(crate) fn has_maps(&self, has_table: bool) -> bool {
        self.config_changed.is_none() && (self.table_changed.is_none() || !has_table)
    }

    /// A new process fills all maps from the config, and the others from the first table that it
    /// receives.
    pub(crate) fn restart(&mut self) {
        (self.is_attached, self.config_changed) = (true, None);
    }

    pub(crate) fn look(&self, at: u64) -> MachineState {
        let missing = if self.has_addresses { Vec::new() } else { vec!["an address".to_owned()] };
        let changed = |map, due: Option<u64>| {
            let is_found = due.is_some_and(|due| at >= due);
            is_found.then(|| ChangedMap { map, key: "0".to_owned() })
        };
        let of_table = changed(ProgramMap::Nodes, self.table_changed);
        let of_config = changed(ProgramMap::Settings, self.config_changed);
        MachineState {
            missing,
            is_attached: self.is_attached,
            changed_maps: of_table.into_iter().chain(of_config).collect(),
            ..MachineState::default()
        }
    }

    pub(crate) fn meddle(&mut self, at: u64, how: Meddling) {
        match how {
            Meddling::Addresses => (self.has_addresses, self.is_meddled) = (false, true),
            Meddling::Program => {
                (self.is_attached, self.applied) = (false, TableVersion::default());
            }
            Meddling::Map(map, ms) => {
                let is_of_table = map.is_of_table();
                let changed =
                    if is_of_table { &mut self.table_changed } else { &mut self.config_changed };
                *changed = Some(changed.unwrap_or(u64::MAX).min(at + ms));
            }
        }
    }
}
