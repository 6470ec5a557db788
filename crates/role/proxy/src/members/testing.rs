//! Replaces the checks and the clock of a group in tests of roles.

use skep_policy::Work;

use crate::members::group::Group;
use crate::members::settings::GroupSpec;
use crate::members::state::CheckOutcome;

#[doc(hidden)]
impl Group {
    /// Lets every member that is not up pass its checks.
    pub fn pass_checks(&self) {
        self.change(|state, now| {
            let ids: Vec<_> = state.membership.members().iter().map(|it| it.id()).collect();
            for id in ids {
                for _ in 0..state.settings.membership.health.rise {
                    state.on_check(now, id, Some(CheckOutcome::Good));
                }
            }
        });
    }

    /// Ends drains and removals that are complete, as the periodic housekeeping does.
    pub fn tick(&self) {
        self.change(|state, now| state.tick(now));
    }

    /// Runs `job` while the lock is held.
    pub fn while_locked<R>(&self, job: impl FnOnce() -> R) -> R {
        self.change(|_, _| job())
    }

    /// Runs `job` after the members of `spec` are adopted, and before workers see them.
    pub fn while_reloading<R>(&self, spec: GroupSpec, job: impl FnOnce() -> R) -> R {
        self.change(|state, now| {
            state.adopt(spec, now);
            job()
        })
    }

    /// The load that the member `name` has reported beyond this process's count: requests and
    /// bytes.
    pub fn reported(&self, name: &str) -> Option<(u64, u64)> {
        self.change(|state, now| {
            let id = state.membership.find(name)?.id();
            let reported = &state.details.get(&id)?.member.reported;
            reported.catch_up(Work::default);
            let work = reported.at(now, 10_000);
            Some((work.requests, work.bytes))
        })
    }
}
