//! The settings of handoffs that every worker uses.

use skep_config::{Config, HandoffDecision};

#[derive(Clone, Copy, Debug)]
pub struct HandoffSettings {
    /// Number of times that a connection may move.
    pub moves_max: u8,
    /// Length of a reply from which a connection in use is moved for it, in bytes.
    pub again_bytes_min: u64,
    pub decide: HandoffDecision,
    /// Whether a connection that need not move is handed off to this same node.
    pub to_self: bool,
}

impl HandoffSettings {
    pub fn of(config: &Config) -> Self {
        Self {
            moves_max: u8::try_from(config.handoff.moves_max).unwrap_or(u8::MAX),
            again_bytes_min: config.handoff.again_bytes_min,
            decide: config.handoff.decide,
            to_self: config.handoff.to_self,
        }
    }
}
