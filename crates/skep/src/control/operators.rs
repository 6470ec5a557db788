//! What this process's node answers to operators at any machine, and executes for them.

use std::sync::{Arc, Weak};

use skep_node::{OperatorHandler, OrderNovelty, OrderOutcome};
use skep_wire::cache::{NodeQuestion, ServerOrder};
use skep_wire::limits::STATUS_BYTES_MAX;

use super::{pools, requests, servers};
use crate::running::Running;

struct NodeOfProcess(Weak<Running>);

impl OperatorHandler for NodeOfProcess {
    fn answer(&self, question: &NodeQuestion) -> Vec<u8> {
        let Some(running) = self.0.upgrade() else { return Vec::new() };
        let json = match question {
            NodeQuestion::Pools => return pools::encoded(pools::told(&running), STATUS_BYTES_MAX),
            NodeQuestion::Requests => serde_json::to_vec(&requests::requests(&running)),
            NodeQuestion::Series { step_s } => match running.series.show(*step_s) {
                Ok(series) => serde_json::to_vec(&series),
                Err(_) => return Vec::new(),
            },
            NodeQuestion::Order(_) => return Vec::new(),
        };
        json.unwrap_or_default()
    }

    fn carry_out(&self, order: &ServerOrder, novelty: OrderNovelty) -> OrderOutcome {
        match self.0.upgrade() {
            Some(running) => servers::carry_out(&running, order, novelty),
            None => OrderOutcome::default(),
        }
    }
}

/// Has this process's node answer questions from all machines.
pub(super) fn answer_operators(running: &Arc<Running>) {
    if let Some(node) = running.parts.node.as_ref() {
        node.answer_operators_by(Box::new(NodeOfProcess(Arc::downgrade(running))));
    }
}
