//! The task that watches a service's nodes: runs checks when they are due, and ends drains,
//! removals and slow starts. One per service and process.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use skep_serve::{Worker, WorkerHandle};
use skep_units::{NodeId, Now};

use crate::limits::HOUSEKEEPING_MS;
use crate::service::dispatcher::Dispatcher;
use crate::service::probe::probe;
use crate::service::settings::ServiceSettings;

impl Dispatcher {
    /// Starts to watch the nodes, on `worker`; ends with the dispatcher or the
    /// worker. Call it once. False: that worker is gone.
    pub fn start_checks(self: &Arc<Self>, worker: &WorkerHandle) -> bool {
        let dispatcher = Arc::downgrade(self);
        worker.run(move |worker| {
            tokio::task::spawn_local(watch(Rc::clone(worker), dispatcher));
        })
    }
}

async fn watch(worker: Rc<Worker>, dispatcher: Weak<Dispatcher>) {
    while let Some(alive) = dispatcher.upgrade() {
        let round = alive.begin_round();
        for due in round.due {
            tokio::task::spawn_local(check(Rc::clone(&worker), Arc::clone(&alive), due));
        }
        drop(alive);
        tokio::time::sleep(Duration::from_millis(round.pause_ms)).await;
    }
}

async fn check(worker: Rc<Worker>, dispatcher: Arc<Dispatcher>, due: Due) {
    let verdict = probe(&worker, due.address, &due.settings).await;
    dispatcher.change(|state, now| state.on_check(now, due.id, verdict));
}

/// A check that is due.
struct Due {
    id: NodeId,
    address: SocketAddr,
    settings: Arc<ServiceSettings>,
}

struct Round {
    due: Vec<Due>,
    /// Time to the next round.
    pause_ms: u64,
}

impl Dispatcher {
    /// Does the periodic work other than checks, and takes the checks that are due.
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
                let at = member.health().next_check_at(seed ^ details.node.name_hash);
                if at <= now {
                    details.is_checking = true;
                    round.due.push(Due {
                        id: member.id(),
                        address: member.address(),
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
