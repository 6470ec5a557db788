//! Settings of A/B tests of policies: a part of the settings table.

use skep_units::WEIGHT_MAX;

use crate::kind::{Form, Kind, count, word};
use crate::section::Row;
use crate::table::table;
use crate::words::POLICY_NAMES;

table! {
    /// An arm of an A/B test, which compares two or more policies at the same time, each for a part of the
    /// clients. New clients are assigned to the arms in turn (with `dispatch = "handoff"` by the hash of their
    /// address) and stay in their arm. Not possible with `dispatch = "direct"`. A service without arms uses its
    /// `policy`.
    ArmConfig at "arm" {
        /// Its name, for `skep policy compare` and metrics.
        name: String => Kind::Text(Form::Name), live;
        /// How the node is chosen for the clients of this arm.
        policy: String => word(POLICY_NAMES), live;
        /// Its share of the clients, relative to the weights of the other arms.
        weight: u32 = 1 => count(1..=WEIGHT_MAX.into()), live;
        /// Its group of nodes, none of which is in another arm's group. Empty: all nodes of the service; then
        /// it must be empty for all arms.
        nodes: Vec<String> = Vec::new() => Kind::Texts(Form::Name), live;
    }
}

impl Row for ArmConfig {
    fn row_name(&self) -> &str {
        &self.name
    }
}
