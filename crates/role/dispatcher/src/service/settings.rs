//! An operator's settings of a service, in the form that the request path reads.

use skep_cluster::{HealthSettings, MembershipSettings, RetryBudgetSettings};
use skep_config::{Config, DispatchMode, HealthConfig, ServiceConfig};
use skep_upstream::PoolLimits;

use crate::limits::RETRY_FLOOR_PER_S;

/// A service's settings; replaced whole on a reload.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSettings {
    pub(crate) dispatch: DispatchMode,
    /// Name of the policy in force.
    pub(crate) policy: String,
    pub(crate) redirect_status: u16,
    pub(crate) trust_forwarded: bool,
    pub(crate) node_header: bool,
    pub(crate) retries_max: u32,
    pub(crate) retry_budget: RetryBudgetSettings,
    pub(crate) response_timeout_ms: u64,
    pub(crate) pool: PoolLimits,
    pub(crate) membership: MembershipSettings,
    pub(crate) check_path: String,
    pub(crate) check_status: u16,
    /// Time from one report of a node's load to the next.
    pub(crate) report_interval_ms: u64,
    /// `Retry-After: N\r\n`.
    pub(crate) retry_after_line: Box<[u8]>,
}

impl ServiceSettings {
    /// Those of `service` in `config`.
    pub(crate) fn of(service: &ServiceConfig, config: &Config) -> Self {
        let retry_after_s = config.limits.retry_after_s;
        Self {
            dispatch: service.dispatch,
            policy: service.policy.clone(),
            redirect_status: service.redirect_status,
            trust_forwarded: service.trust_forwarded,
            node_header: service.node_header,
            retries_max: service.retries_max,
            retry_budget: RetryBudgetSettings {
                ratio_permille: service.retry_budget_percent * 10,
                // No budget means no retries, not ten a second.
                floor_per_s: match service.retry_budget_percent {
                    0 => 0,
                    _ => RETRY_FLOOR_PER_S,
                },
            },
            response_timeout_ms: service.response_timeout_ms,
            pool: PoolLimits {
                connections_max: service.upstream_connections_max as usize,
                idle_ms: service.upstream_idle_ms,
                connect_timeout_ms: service.connect_timeout_ms,
            },
            membership: membership(&service.health),
            check_path: service.health.path.clone(),
            check_status: service.health.expect_status,
            report_interval_ms: config.report_interval_ms(),
            retry_after_line: format!("Retry-After: {retry_after_s}\r\n").into_bytes().into(),
        }
    }
}

fn membership(health: &HealthConfig) -> MembershipSettings {
    MembershipSettings {
        health: HealthSettings {
            interval_ms: health.interval_ms,
            timeout_ms: health.timeout_ms,
            rise: health.rise,
            fall: health.fall,
            passive_failures_max: health.passive_failures_max,
            slow_start_ms: health.slow_start_ms,
        },
        fail_open: false,
        ejected_percent_max: health.ejected_max_percent,
    }
}
