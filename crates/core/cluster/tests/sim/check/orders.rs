//! Orders to netguards, and reports to other machines.

use skep_cluster::reconciler::Step;
use skep_wire::message::DispatcherHeartbeat;

use super::*;

/// Age after which wants from before a pause are invalid, in milliseconds, by the slowest clock.
const STALE_MS: u64 = 1_020;
/// How soon after a pause it must not claim yet: less than two heartbeats, by the fastest clock.
const LISTENS_MS: u64 = 90;
/// How long another dispatcher must have been active and running for its heartbeats to have
/// arrived.
const HEARD_MS: u64 = 300;

impl Check {
    /// A dispatcher does not report a heartbeat as later than the last one that arrived, whatever
    /// arrived afterwards but was sent before, unless its clock stood still meanwhile.
    pub(crate) fn tells(
        &self,
        world: &World,
        id: Id,
        heartbeat: &DispatcherHeartbeat,
    ) -> Result<(), String> {
        let Some(hears) = heartbeat.hears else { return Ok(()) };
        let body = &world.dispatchers[id].body;
        let is_it = |it: &Dispatcher| it.body.peer == hears.dispatcher;
        let other = world.dispatchers.iter().position(is_it).ok_or("hears a stranger")?;
        let Some(heard_at) = self.heard[id][other].active_at else {
            return Err(format!("d{id} says that d{other} is active, and it has said otherwise"));
        };
        // Its clock may be slow.
        let told_ms = u64::from(hears.ago_ms) * 102 / 100 + 3;
        let stood_still = body.stood_until.is_some_and(|until| until > heard_at);
        let silent_ms = world.at - heard_at;
        if silent_ms > told_ms && !stood_still {
            return Err(format!(
                "d{id} says that it heard d{other} {} ms ago, which was {silent_ms} ms ago",
                hears.ago_ms
            ));
        }
        Ok(())
    }

    /// A dispatcher that was paused claims or announces the addresses only after it has listened
    /// for others, if another one has been active meanwhile.
    pub(crate) fn ordered(&self, world: &World, id: Id, step: &Step) -> Result<(), String> {
        let body = &world.dispatchers[id].body;
        let takes = matches!(step, Step::Claim | Step::Announce);
        let was_paused = body.paused_ms >= STALE_MS && body.knows_since == body.runs_since;
        let is_just_back = was_paused && world.at - body.runs_since < LISTENS_MS;
        if !takes || !is_just_back || world.net.loss_percent > 0 || world.scenario.preempt {
            return Ok(());
        }
        let others = world.dispatchers.iter().enumerate().filter(|(other, _)| *other != id);
        let has_taken_over = |(other, dispatcher): &(Id, &Dispatcher)| {
            let since = self.active_since[*other].max(dispatcher.body.woke_at());
            is_active(world, dispatcher)
                && world.at - since >= HEARD_MS
                && world.net.joins(*other, id)
        };
        match others.clone().find(has_taken_over) {
            Some((other, _)) => Err(format!(
                "d{id} orders {step:?} as it runs again after {} ms, and d{other} is active",
                body.paused_ms
            )),
            None => Ok(()),
        }
    }
}
