//! The task that watches a group's members: runs checks when they are due, and ends drains,
//! removals and slow starts. One per group and process.

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use skep_serve::{Worker, WorkerHandle};
use skep_units::{NodeId, Now};
use tokio::sync::Notify;

use crate::limits::HOUSEKEEPING_MS;
use crate::members::group::Group;
use crate::members::member::SharedMember;
use crate::members::probe::probe;
use crate::members::settings::GroupSettings;

impl Group {
    /// Starts to watch the members, on `worker`, until the group or the worker ends. Call it once.
    /// False: the worker is gone.
    pub fn start_checks(self: &Arc<Self>, worker: &WorkerHandle) -> bool {
        let group = Arc::downgrade(self);
        worker.run(move |worker| {
            tokio::task::spawn_local(watch(Rc::clone(worker), group));
        })
    }
}

async fn watch(worker: Rc<Worker>, group: Weak<Group>) {
    // A check that took its whole interval is followed by the next one at once.
    let ended = Rc::new(Notify::new());
    while let Some(alive) = group.upgrade() {
        let round = alive.begin_round();
        for due in round.due {
            let (worker, ended) = (Rc::clone(&worker), Rc::clone(&ended));
            tokio::task::spawn_local(check(worker, Arc::clone(&alive), due, ended));
        }
        drop(alive);
        let pause = Duration::from_millis(round.pause_ms);
        let _ = tokio::time::timeout(pause, ended.notified()).await;
    }
}

async fn check(worker: Rc<Worker>, group: Arc<Group>, due: Due, ended: Rc<Notify>) {
    let is_busy = || due.member.load.requests.now() > 0;
    let verdict = probe(&worker, due.member.address, &due.settings, is_busy).await;
    group.change(|state, now| state.on_check(now, due.id, verdict));
    ended.notify_one();
}

/// A check that is due.
struct Due {
    id: NodeId,
    member: Arc<SharedMember>,
    settings: Arc<GroupSettings>,
}

struct Round {
    due: Vec<Due>,
    /// Time until the next round, in milliseconds.
    pause_ms: u64,
}

impl Group {
    /// Does the periodic work other than checks, and returns the checks that are due.
    fn begin_round(&self) -> Round {
        let seed = self.seed();
        self.change(|state, now| {
            state.tick(now);
            let mut round = Round { due: Vec::new(), pause_ms: HOUSEKEEPING_MS };
            for member in state.membership.members() {
                let Some(details) = state.details.get_mut(&member.id()) else { continue };
                if details.is_checking {
                    continue;
                }
                let at = member.health().next_check_at(seed ^ details.member.name_hash);
                if at <= now {
                    details.is_checking = true;
                    round.due.push(Due {
                        id: member.id(),
                        member: Arc::clone(&details.member),
                        settings: Arc::clone(&state.settings),
                    });
                } else {
                    round.pause_ms = round.pause_ms.min(ms_until(at, now));
                }
            }
            for due in &round.due {
                state.membership.begin_check(now, due.id);
            }
            round
        })
    }
}

fn ms_until(at: Now, now: Now) -> u64 {
    at.since_ms(now).max(1)
}
