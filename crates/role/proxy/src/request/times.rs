//! Timeouts of an exchange, from the group or the route.

use crate::members::settings::GroupSettings;

/// Timeouts that replace those of the group, in milliseconds; `None`: those of the group apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnTimes {
    pub response_timeout_ms: Option<u64>,
    pub stall_timeout_ms: Option<u64>,
}

/// Limits on a member's silence, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// From the end of the request to the head of its response.
    pub(super) before_head_ms: u64,
    /// Within a body, of the request or the response.
    pub(super) inside_body_ms: u64,
    /// Between two events, or in a tunnel.
    pub(super) between_events_ms: u64,
}

impl Silence {
    pub(super) fn new(settings: &GroupSettings, own: OwnTimes) -> Self {
        Self {
            before_head_ms: own.response_timeout_ms.unwrap_or(settings.response_timeout_ms),
            inside_body_ms: own.stall_timeout_ms.unwrap_or(settings.stall_timeout_ms),
            between_events_ms: settings.tunnel_idle_ms,
        }
    }
}
