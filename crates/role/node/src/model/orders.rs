//! Operators' questions to a node, and their orders about servers of its pools.
//!
//! Orders are given by an operator of this process or received from a coordinator; the latest order about
//! each aspect of a server is in force ([`OrderTable`]). An order that cannot be carried out, such as one
//! about a server that the config does not contain yet, is retried after each reload.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use skep_directory::OrderTable;
use skep_serve::unix_ms;
use skep_wire::cache::{NodeQuestion, OrderStamp, ServerOrder};
use skep_wire::limits::STATUS_BYTES_MAX;

/// Answers operators of all machines for this node; implemented by the composition root of the process.
pub trait OperatorHandler: Send + Sync {
    /// Returns the management API's answer to a question that is not an order, as JSON. May wait for workers
    /// if the question concerns requests.
    fn answer(&self, question: &NodeQuestion) -> Vec<u8>;

    /// Carries out an order, unless it is done or outdated.
    fn carry_out(&self, order: &ServerOrder, novelty: OrderNovelty) -> OrderOutcome;
}

/// How a received order relates to the orders already known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderNovelty {
    /// It is new.
    New,
    /// It was carried out: another coordinator sent it first.
    Done,
    /// A later order about the same aspect is in force.
    Outdated,
}

/// The outcome of an order; the default: no handler could carry it out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderOutcome {
    pub is_done: bool,
    /// The outcome as JSON, for operators.
    pub json: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Orders {
    state: Mutex<State>,
    handler: OnceLock<Box<dyn OperatorHandler>>,
}

#[derive(Default)]
struct State {
    table: OrderTable,
    /// Orders in the table that could not be carried out.
    undone: BTreeSet<OrderStamp>,
}

impl Orders {
    /// Sets the handler that answers operators. Call it once.
    pub(crate) fn answer_by(&self, handler: Box<dyn OperatorHandler>) {
        let _ = self.handler.set(handler);
        self.retry();
    }

    /// The answer to a question that is not an order; empty if there is no handler yet, or the answer is too
    /// long.
    pub(crate) fn answer(&self, question: &NodeQuestion) -> Vec<u8> {
        let json = self.handler.get().map(|handler| handler.answer(question)).unwrap_or_default();
        if json.len() <= STATUS_BYTES_MAX { json } else { Vec::new() }
    }

    /// Carries out an operator's order, given here or elsewhere.
    pub(crate) fn carry_out(&self, order: &ServerOrder) -> OrderOutcome {
        self.lock().carry_out(order, self.handler.get())
    }

    /// Carries out an order of an operator of this process that no coordinator can pass on. `number` is that
    /// of this process.
    pub(crate) fn order_here(
        &self,
        mut order: ServerOrder,
        number: u16,
    ) -> (ServerOrder, OrderOutcome) {
        let mut state = self.lock();
        order.stamp = state.table.next_stamp(unix_ms(), number);
        let outcome = state.carry_out(&order, self.handler.get());
        (order, outcome)
    }

    /// Adds orders that others know. Returns those that are new here.
    pub(crate) fn learn(&self, orders: Vec<ServerOrder>) -> Vec<ServerOrder> {
        let mut state = self.lock();
        let new = state.table.learn(unix_ms(), orders);
        for order in &new {
            state.follow(order, self.handler.get());
        }
        new
    }

    /// Retries the orders that could not be carried out.
    pub(crate) fn retry(&self) {
        let mut state = self.lock();
        let undone = std::mem::take(&mut state.undone);
        // Orders that were superseded meanwhile are no longer in the table.
        for order in state.table.all().into_iter().filter(|it| undone.contains(&it.stamp)) {
            state.follow(&order, self.handler.get());
        }
    }

    /// All orders in force.
    pub(crate) fn known(&self) -> Vec<ServerOrder> {
        self.lock().table.all()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Handler<'a> = Option<&'a Box<dyn OperatorHandler>>;

impl State {
    fn carry_out(&mut self, order: &ServerOrder, handler: Handler<'_>) -> OrderOutcome {
        let Some(handler) = handler else { return OrderOutcome::default() };
        let is_done = self.table.has(order) && !self.undone.contains(&order.stamp);
        let novelty = match self.table.is_news(order) || self.table.has(order) {
            _ if is_done => OrderNovelty::Done,
            true => OrderNovelty::New,
            false => OrderNovelty::Outdated,
        };
        let outcome = handler.carry_out(order, novelty);
        if outcome.is_done {
            self.undone.remove(&order.stamp);
            self.table.learn(unix_ms(), vec![order.clone()]);
        }
        outcome
    }

    /// Carries out an order of the table.
    fn follow(&mut self, order: &ServerOrder, handler: Handler<'_>) {
        let is_done =
            handler.is_some_and(|handler| handler.carry_out(order, OrderNovelty::New).is_done);
        if !is_done {
            self.undone.insert(order.stamp);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use skep_wire::cache::ServerChange;
    use skep_wire::message::Name;

    use super::*;

    /// Has a given set of servers, and records the orders carried out for them.
    #[derive(Default)]
    struct Notes {
        has: BTreeSet<String>,
        done: Vec<(String, &'static str)>,
    }

    struct Recorded(Arc<Mutex<Notes>>);

    impl OperatorHandler for Recorded {
        fn answer(&self, _: &NodeQuestion) -> Vec<u8> {
            vec![b'x'; STATUS_BYTES_MAX + 1]
        }

        fn carry_out(&self, order: &ServerOrder, novelty: OrderNovelty) -> OrderOutcome {
            if novelty == OrderNovelty::Done {
                return OrderOutcome { is_done: true, json: Vec::new() };
            }
            let mut notes = self.0.lock().unwrap();
            let server = order.server.as_str().to_owned();
            let is_new = novelty == OrderNovelty::New;
            let is_done = is_new && notes.has.contains(&server);
            if is_done {
                notes.done.push((server, order.change.word()));
            }
            OrderOutcome { is_done, json: Vec::new() }
        }
    }

    fn order(server: &str, change: ServerChange, stamp: u64) -> ServerOrder {
        let name = |text| Name::new(text).unwrap();
        ServerOrder { pool: name("app"), server: name(server), change, stamp: OrderStamp(stamp) }
    }

    #[test]
    fn what_cannot_be_done_is_done_as_soon_as_it_can() {
        let (orders, notes) = (Orders::default(), Arc::<Mutex<Notes>>::default());
        let done = || std::mem::take(&mut notes.lock().unwrap().done);
        let have = |server: &str| notes.lock().unwrap().has.insert(server.to_owned());
        have("a");
        // Received from a coordinator before the handler is set.
        let drain = order("a", ServerChange::Drain, 1);
        assert_eq!(orders.learn(vec![drain.clone()]), std::slice::from_ref(&drain));
        orders.answer_by(Box::new(Recorded(Arc::clone(&notes))));
        assert_eq!(done(), [("a".to_owned(), "drain")]);
        assert_eq!(orders.learn(vec![drain]), []);
        // Orders about a server that a reload adds; the later one is in force.
        orders.learn(vec![order("b", ServerChange::Drain, 2), order("c", ServerChange::Drain, 3)]);
        orders.learn(vec![order("b", ServerChange::Resume, 4)]);
        orders.retry();
        assert_eq!(done(), []);
        have("b");
        orders.retry();
        orders.retry();
        assert_eq!(done(), [("b".to_owned(), "resume")]);
    }

    #[test]
    fn what_an_operator_orders_is_known_once_it_is_done() {
        let (orders, notes) = (Orders::default(), Arc::<Mutex<Notes>>::default());
        orders.answer_by(Box::new(Recorded(Arc::clone(&notes))));
        assert!(!orders.carry_out(&order("a", ServerChange::Drain, 5)).is_done);
        assert_eq!(orders.known(), []);
        notes.lock().unwrap().has.insert("a".to_owned());
        // The second time stands for a message of another coordinator.
        for _ in 0..2 {
            assert!(orders.carry_out(&order("a", ServerChange::Drain, 5)).is_done);
        }
        assert_eq!(notes.lock().unwrap().done.len(), 1);
        assert!(!orders.carry_out(&order("a", ServerChange::Resume, 4)).is_done, "outdated");
        let (resumed, outcome) = orders.order_here(order("a", ServerChange::Resume, 0), 7);
        assert!(outcome.is_done && resumed.stamp > OrderStamp(5));
        assert_eq!(orders.known(), [resumed]);
        assert!(orders.answer(&NodeQuestion::Pools).is_empty(), "too much");
    }
}
