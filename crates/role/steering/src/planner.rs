//! The planner: follows the services' states for the event loop, on its own thread.
//!
//! ```text
//!   services --locks--> Planner --latest plan--> PlanView (event loop)
//!            <---------         <----orders-----
//! ```
//!
//! Workers and operators' commands take the services' locks as well, without real-time priority: the
//! event loop must not wait for them ([`crate::queue`]).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use skep_cluster::table_publisher::TablePlan;
use skep_peer::Pulse;
use skep_units::Now;
use skep_wire::message::{Mac, Name};

use crate::limits::{DRAINS_MAX, PLAN_MS};
use crate::plan::Plans;
use crate::queue::{Popped, Queue};

/// The active dispatcher drains a node, or has resumed it: all services must follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrainOrder {
    pub(crate) name: Name,
    pub(crate) is_drained: bool,
    /// The time since which it is known here, by the clock of commands.
    pub(crate) at: Now,
}

pub(crate) struct Planner {
    plans: Plans,
    shared: Arc<PlannerShared>,
}

/// The event loop's side of it.
pub(crate) struct PlanView {
    shared: Arc<PlannerShared>,
    seen: Arc<Planned>,
    /// The plan of `seen`, with the dispatchers.
    plan: TablePlan,
    /// Orders that were not passed to the planner yet.
    unsent: VecDeque<DrainOrder>,
    /// Number of orders given, and of those whose effects `seen` includes.
    given: u64,
    done: u64,
}

#[derive(Debug)]
struct PlannerShared {
    planned: ArcSwap<Planned>,
    orders: Queue<DrainOrder>,
    /// Number of orders executed; their effects are in `planned`.
    done: AtomicU64,
}

#[derive(Debug, Default)]
struct Planned {
    plan: TablePlan,
    closed: BTreeSet<Name>,
}

impl Planner {
    /// Creates the planner, with a first plan.
    pub(crate) fn new(plans: Plans) -> (Self, PlanView) {
        let shared = Arc::new(PlannerShared {
            planned: ArcSwap::default(),
            orders: Queue::new(DRAINS_MAX),
            done: AtomicU64::new(0),
        });
        let mut planner = Self { plans, shared: Arc::clone(&shared) };
        planner.look();
        let (seen, plan) = (Arc::default(), TablePlan::default());
        (planner, PlanView { shared, seen, plan, unsent: VecDeque::new(), given: 0, done: 0 })
    }

    /// Runs until the event loop has ended.
    pub(crate) fn run(mut self, pulse: &Pulse) {
        let mut done = 0;
        loop {
            pulse.tick();
            match self.shared.orders.pop(Duration::from_millis(PLAN_MS)) {
                Popped::Item(order) => {
                    self.execute(&order);
                    done += 1;
                }
                Popped::Nothing => {}
                Popped::Closed => return,
            }
            self.look();
            // Stored after the effects of the orders.
            self.shared.done.store(done, Ordering::Release);
        }
    }

    fn execute(&self, &DrainOrder { ref name, is_drained, at }: &DrainOrder) {
        for service in self.plans.dispatchers() {
            // The node may be unknown here because the config files differ, which is reported
            // elsewhere.
            let _ = service.group().follow_drain(name.as_str(), is_drained, at);
        }
    }

    fn look(&mut self) {
        match self.plans.look() {
            Ok(true) => {
                let (plan, closed) = (self.plans.plan().clone(), self.plans.closed().clone());
                self.shared.planned.store(Arc::new(Planned { plan, closed }));
            }
            Ok(false) => {}
            Err(error) => tracing::error!("{error}"),
        }
    }
}

impl PlanView {
    /// Takes over the planner's latest plan, with the MAC addresses of the dispatchers; returns true
    /// if it has changed. Never waits.
    pub(crate) fn look(&mut self, macs: &[Mac]) -> bool {
        self.send();
        // Read before the plan, which may be later.
        self.done = self.shared.done.load(Ordering::Acquire);
        let latest = self.shared.planned.load();
        if Arc::ptr_eq(&latest, &self.seen) && self.plan.dispatchers == macs {
            return false;
        }
        self.seen = Arc::clone(&latest);
        let plan = TablePlan { dispatchers: macs.to_vec(), ..latest.plan.clone() };
        let is_other = plan != self.plan;
        self.plan = plan;
        is_other
    }

    /// The plan of the last update.
    pub(crate) fn plan(&self) -> &TablePlan {
        &self.plan
    }

    /// Nodes that an operator drains or removes, as of the last update. `None` while an order is
    /// pending, which may change that.
    pub(crate) fn closed(&self) -> Option<&BTreeSet<Name>> {
        (self.done == self.given).then_some(&self.seen.closed)
    }

    /// Passes an order to the planner, without waiting until it is executed.
    pub(crate) fn order(&mut self, order: DrainOrder) {
        self.given += 1;
        self.unsent.push_back(order);
        self.send();
    }

    fn send(&mut self) {
        while let Some(order) = self.unsent.pop_front() {
            if let Err(order) = self.shared.orders.try_push(order) {
                // Sent with the next update.
                return self.unsent.push_front(order);
            }
        }
    }
}

impl Drop for PlanView {
    fn drop(&mut self) {
        self.shared.orders.close();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_config::Config;
    use skep_dispatcher::Dispatcher;

    use super::*;
    use crate::plan::tests::{config, dispatchers};

    use crate::clock::command_time;

    const MACS: [Mac; 1] = [[2; 6]];

    fn planner(config: &Config, dispatchers: &[Arc<Dispatcher>]) -> (Planner, PlanView) {
        Planner::new(Plans::new(config, dispatchers))
    }

    fn closed(view: &PlanView) -> Option<Vec<&str>> {
        Some(view.closed()?.iter().map(Name::as_str).collect())
    }

    #[test]
    fn the_event_loop_has_a_plan_at_once_and_with_each_dispatcher() {
        let config = config();
        let (_planner, mut view) = planner(&config, &dispatchers(&config));
        assert_eq!((view.look(&MACS), view.plan().nodes.len()), (true, 3));
        assert!(!view.look(&MACS));
        assert!(view.look(&[[2; 6], [3; 6]]));
        assert_eq!(view.plan().dispatchers.len(), 2);
    }

    #[test]
    fn what_operators_close_is_unknown_until_all_orders_are_executed() {
        let config = config();
        let (mut planner, mut view) = planner(&config, &dispatchers(&config));
        view.look(&MACS);
        assert_eq!(closed(&view), Some(vec![]));
        let name = Name::new("b").unwrap();
        let order = DrainOrder { name, is_drained: true, at: command_time() };
        view.order(order.clone());
        view.look(&MACS);
        assert_eq!(closed(&view), None);
        drop(planner.shared.orders.try_take());
        planner.execute(&order);
        planner.look();
        planner.shared.done.store(1, Ordering::Release);
        assert_eq!(closed(&view), None, "it has not looked yet");
        view.look(&MACS);
        assert_eq!(closed(&view), Some(vec!["b"]));
    }

    #[test]
    fn a_command_that_comes_after_an_order_stands() {
        let config = config();
        let dispatchers = dispatchers(&config);
        let (mut planner, mut view) = planner(&config, &dispatchers);
        let order = |is_drained| DrainOrder {
            name: Name::new("b").unwrap(),
            is_drained,
            at: command_time(),
        };
        // The order is delayed while the operator, who sees another dispatcher fail, resumes the
        // node.
        let late = order(true);
        dispatchers.iter().for_each(|service| service.group().resume("b").unwrap());
        planner.execute(&late);
        let mut closed_now = |planner: &mut Planner| {
            planner.look();
            view.look(&MACS);
            closed(&view).unwrap().len()
        };
        assert_eq!(closed_now(&mut planner), 0);
        // An order applies regardless of commands of an earlier time.
        let at = command_time().plus_ms(1);
        planner.execute(&DrainOrder { at, ..order(true) });
        assert_eq!(closed_now(&mut planner), 1);
        planner.execute(&DrainOrder { at, ..order(false) });
        assert_eq!(closed_now(&mut planner), 0);
    }

    #[test]
    fn orders_wait_while_the_planner_is_at_them_and_it_ends_with_the_event_loop() {
        let config = config();
        let dispatchers = dispatchers(&config);
        let (planner, mut view) = planner(&config, &dispatchers);
        let orders = DRAINS_MAX + 3;
        let name = Name::new("c").unwrap();
        for turn in 0..orders {
            view.order(DrainOrder {
                name: name.clone(),
                is_drained: turn % 2 == 0,
                at: command_time(),
            });
        }
        assert_eq!(view.unsent.len(), 3);
        let watchdog = skep_peer::Watchdog::default();
        let pulse = watchdog.watch("skep-plan", 60);
        let thread = std::thread::spawn(move || planner.run(&pulse));
        while view.done < orders as u64 {
            view.look(&MACS);
            std::thread::yield_now();
        }
        assert_eq!(closed(&view), Some(vec!["c"]));
        drop(view);
        assert!(thread.join().is_ok());
    }
}
