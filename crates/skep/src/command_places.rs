//! The places of commands in `skep power`: so many run at a time, and none outlasts this process as far as it may end them.
//!
//! **Invariant:** a place is taken before anything is started for a command, and is free when nothing of that runs any more: those
//! that cannot be killed do not add up.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Pid;
use skep_commands::kill_group;

/// Commands that run at a time: each has a thread. More nodes than this are not switched at once.
pub(crate) const RUNNING_MAX: usize = 64;

/// Time that the end waits for commands that are just being started, in milliseconds: a program may lie on a file system that
/// does not answer.
const STARTED_MS_MAX: u64 = 2_000;

#[derive(Default)]
pub(crate) struct CommandPlaces {
    state: Mutex<PlacesState>,
    /// A command is no longer being started.
    is_settled: Condvar,
}

/// See [`CommandPlaces`].
#[derive(Default)]
struct PlacesState {
    taken: usize,
    /// Of these, those whose process group is not known yet.
    starting: usize,
    groups: Vec<Pid>,
    is_over: bool,
}

/// The place of one command, until it is dropped.
pub(crate) struct Place {
    places: Arc<CommandPlaces>,
    group: Option<Pid>,
}

impl CommandPlaces {
    /// A place for one more; `None`: there is none.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.lock();
        if state.is_over || state.taken >= RUNNING_MAX {
            return None;
        }
        state.taken += 1;
        state.starting += 1;
        Some(Place { places: Arc::clone(self), group: None })
    }

    /// Kills all that run, and what is just being started as soon as it has been. No place is given any more. False: something is
    /// still being started, and is left.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.lock();
        state.is_over = true;
        state.groups.iter().for_each(|group| kill_group(*group));
        let time = Duration::from_millis(STARTED_MS_MAX);
        let waited = self.is_settled.wait_timeout_while(state, time, |state| state.starting > 0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.starting == 0
    }

    fn lock(&self) -> MutexGuard<'_, PlacesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Its command runs, in this process group.
    pub(crate) fn started(&mut self, group: Pid) {
        let mut state = self.places.lock();
        state.starting -= 1;
        state.groups.push(group);
        self.group = Some(group);
        if state.is_over {
            kill_group(group);
        }
        self.places.is_settled.notify_all();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.taken -= 1;
        match self.group {
            Some(group) => state.groups.retain(|it| *it != group),
            None => state.starting -= 1,
        }
        self.places.is_settled.notify_all();
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
    fn a_place_is_taken_before_its_command_is_started_and_until_it_is_dropped() {
        let places = Arc::<CommandPlaces>::default();
        let mut taken: Vec<_> = (0..RUNNING_MAX).map_while(|_| places.take()).collect();
        assert_eq!(taken.len(), RUNNING_MAX);
        assert!(places.take().is_none());
        drop(taken.pop());
        assert!(places.take().is_some(), "one that was not started has freed its place");
        let mut child = sleeping();
        let mut place = places.take().unwrap();
        place.started(Pid::from_child(&child));
        assert!(places.take().is_none());
        assert_eq!(places.lock().groups.len(), 1);
        drop(place);
        assert!(places.lock().groups.is_empty() && places.take().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_end_kills_what_runs_and_what_was_just_being_started() {
        let places = Arc::<CommandPlaces>::default();
        let mut children = [sleeping(), sleeping()];
        let [mut running, mut starting] = [places.take().unwrap(), places.take().unwrap()];
        running.started(Pid::from_child(&children[0]));
        thread::scope(|scope| {
            let end = scope.spawn(|| places.end());
            while !places.lock().is_over {
                thread::yield_now();
            }
            starting.started(Pid::from_child(&children[1]));
            assert!(end.join().unwrap());
        });
        for child in &mut children {
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        assert!(places.take().is_none());
    }
}
