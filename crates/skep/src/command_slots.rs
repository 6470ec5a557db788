//! Slots for commands in `skep power`: they limit how many run at a time, and none outlives this process if it may be killed.
//!
//! **Invariant:** a slot is taken before anything is started for a command, and is freed when no process of the command is left:
//! commands that cannot be killed neither accumulate beyond the limit, nor run beside a later command for their node.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Pid;
use skep_commands::kill_group;

/// Commands that run at a time: each has a thread. More nodes than this are not switched at once.
pub(crate) const RUNNING_MAX: usize = 64;

/// Time that the end waits for commands that are being started, in milliseconds: their program may be on a file system that
/// does not respond.
const STARTED_MS_MAX: u64 = 2_000;

#[derive(Default)]
pub(crate) struct CommandSlots {
    state: Mutex<SlotsState>,
    /// A command is no longer being started.
    start_finished: Condvar,
}

/// See [`CommandSlots`].
#[derive(Default)]
struct SlotsState {
    /// The nodes whose commands run or are being started.
    nodes: BTreeSet<String>,
    /// Of these, those whose process group is not known yet.
    starting: usize,
    groups: Vec<Pid>,
    is_closed: bool,
}

/// The reason why a command may not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoSlot {
    #[error("an earlier command for this node is still running")]
    NodeBusy,
    #[error("{RUNNING_MAX} commands are already running")]
    AllTaken,
    #[error("the process is ending")]
    Ending,
}

/// The slot of one command; freed on drop.
pub(crate) struct CommandSlot {
    slots: Arc<CommandSlots>,
    node: String,
    group: Option<Pid>,
}

impl CommandSlots {
    /// Takes the slot of a node.
    pub(crate) fn take(self: &Arc<Self>, node: &str) -> Result<CommandSlot, NoSlot> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(NoSlot::Ending);
        }
        if state.nodes.contains(node) {
            return Err(NoSlot::NodeBusy);
        }
        if state.nodes.len() >= RUNNING_MAX {
            return Err(NoSlot::AllTaken);
        }
        state.nodes.insert(node.to_owned());
        state.starting += 1;
        Ok(CommandSlot { slots: Arc::clone(self), node: node.to_owned(), group: None })
    }

    /// Kills all running commands, and those being started as soon as they run. No further slot is given out. False: a
    /// command was still being started when the wait ended.
    pub(crate) fn kill_all(&self) -> bool {
        let mut state = self.lock();
        state.is_closed = true;
        state.groups.iter().for_each(|group| kill_group(*group));
        let time = Duration::from_millis(STARTED_MS_MAX);
        let waited =
            self.start_finished.wait_timeout_while(state, time, |state| state.starting > 0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.starting == 0
    }

    fn lock(&self) -> MutexGuard<'_, SlotsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandSlot {
    /// Its command runs, in this process group.
    pub(crate) fn started(&mut self, group: Pid) {
        let mut state = self.slots.lock();
        state.starting -= 1;
        state.groups.push(group);
        self.group = Some(group);
        if state.is_closed {
            kill_group(group);
        }
        self.slots.start_finished.notify_all();
    }
}

impl Drop for CommandSlot {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        state.nodes.remove(&self.node);
        match self.group {
            Some(group) => state.groups.retain(|it| *it != group),
            None => state.starting -= 1,
        }
        self.slots.start_finished.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};
    use std::thread;

    use super::*;

    fn sleeping() -> Child {
        Command::new("sleep").arg("100").process_group(0).spawn().unwrap()
    }

    #[test]
    fn a_slot_is_taken_before_its_command_is_started_and_until_it_is_dropped() {
        let slots = Arc::<CommandSlots>::default();
        let take = |number: usize| slots.take(&format!("n{number}"));
        let mut taken: Vec<_> = (0..RUNNING_MAX).map(|number| take(number).unwrap()).collect();
        assert_eq!(take(RUNNING_MAX).err(), Some(NoSlot::AllTaken));
        drop(taken.pop());
        let mut child = sleeping();
        let mut slot = take(RUNNING_MAX).unwrap();
        slot.started(Pid::from_child(&child));
        assert_eq!(slots.lock().groups.len(), 1);
        taken.clear();
        assert_eq!(take(RUNNING_MAX).err(), Some(NoSlot::NodeBusy), "two commands for one machine");
        drop(slot);
        assert!(slots.lock().groups.is_empty() && take(RUNNING_MAX).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_end_kills_what_runs_and_what_was_just_being_started() {
        let slots = Arc::<CommandSlots>::default();
        let mut children = [sleeping(), sleeping()];
        let [mut running, mut starting] = ["n1", "n2"].map(|node| slots.take(node).unwrap());
        running.started(Pid::from_child(&children[0]));
        thread::scope(|scope| {
            let end = scope.spawn(|| slots.kill_all());
            while !slots.lock().is_closed {
                thread::yield_now();
            }
            starting.started(Pid::from_child(&children[1]));
            assert!(end.join().unwrap());
        });
        for child in &mut children {
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        assert_eq!(slots.take("n3").err(), Some(NoSlot::Ending));
    }
}
