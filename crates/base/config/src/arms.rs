//! Settings of A/B tests of policies: a part of the settings table.

use skep_units::WEIGHT_MAX;

use crate::kind::{Form, Kind, count, word};
use crate::section::Row;
use crate::table::table;
use crate::words::POLICY_NAMES;

table! {
    /// An arm of an A/B test: two or more policies at once, each for a part of the clients. A
    /// client that is new gets an arm in turn (with `dispatch = "handoff"` by the hash of its address),
    /// and stays there. Not with `dispatch = "direct"`; a service without arms goes by its `policy`.
    ArmConfig at "arm" {
        /// Its name, for `skep policy compare` and metrics.
        name: String => Kind::Text(Form::Name), live;
        /// How the node is chosen for its clients.
        policy: String => word(POLICY_NAMES), live;
        /// Its share of the clients, against the weights of the other arms.
        weight: u32 = 1 => count(1..=WEIGHT_MAX.into()), live;
        /// Its group of nodes, which no other arm has; empty is all nodes of the service, and so it
        /// is for the other arms.
        nodes: Vec<String> = Vec::new() => Kind::Texts(Form::Name), live;
    }
}

impl Row for ArmConfig {
    fn row_name(&self) -> &str {
        &self.name
    }
}
