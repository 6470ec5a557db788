//! The result of a load in the form for programs.

use serde_json::{Value, json};

use crate::tally::{LatencyTimes, LoadTally};

/// The result of a load.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// Name of the workload.
    pub workload: String,
    pub url: String,
    /// The pace of the requests, as text.
    pub pace: String,
    pub tally: LoadTally,
}

impl BenchReport {
    /// Correct responses per second of the window.
    pub fn per_second(&self) -> f64 {
        self.tally.succeeded as f64 * 1e3 / self.tally.measured_ms.max(1) as f64
    }

    /// Bytes of these per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.tally.bytes as f64 * 1e3 / self.tally.measured_ms.max(1) as f64
    }

    /// The result as JSON.
    pub fn to_json(&self) -> Value {
        let tally = &self.tally;
        json!({
            "workload": self.workload,
            "url": self.url,
            "pace": self.pace,
            "is_stopped": tally.is_stopped,
            "measured_ms": tally.measured_ms,
            "requests": tally.requests(),
            "succeeded": tally.succeeded,
            "failed": tally.failed(),
            "wrong_bodies": tally.wrong_bodies(),
            "failures": tally.failures,
            "examples": tally.examples,
            "requests_per_s": self.per_second(),
            "bytes": tally.bytes,
            "bytes_per_s": self.bytes_per_second(),
            "redirects": tally.redirects,
            "cookies_set": tally.cookies_set,
            "connections": tally.connections,
            "reopened": tally.reopened,
            "late": tally.late,
            "late_us": times(&tally.late_us),
            "first_byte_us": times(&tally.first_byte_us),
            "total_us": times(&tally.total_us),
            "seconds": tally.seconds,
        })
    }
}

fn times(times: &LatencyTimes) -> Value {
    json!({
        "mean": times.mean_us(),
        "p50": times.quantile_us(0.5),
        "p90": times.quantile_us(0.9),
        "p99": times.quantile_us(0.99),
        "p999": times.quantile_us(0.999),
        "max": times.quantile_us(1.0),
    })
}
