//! Tests of the cluster's state: one file for each of its parts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod budget;
mod failover;
mod flows;
mod handover;
mod health;
mod lease_observer;
mod membership;
mod reconciler;
mod table_distribution;
mod table_publisher;

use crate::HealthSettings;

/// Round numbers to reason with.
const SETTINGS: HealthSettings = HealthSettings {
    interval_ms: 1_000,
    timeout_ms: 500,
    rise: 2,
    fall: 3,
    passive_failures_max: 4,
    slow_start_ms: 10_000,
};
