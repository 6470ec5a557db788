//! The topology of a bed, as defined by its user.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::TestbedError;
use crate::limits::{
    CLIENTS_MAX, CPU_CORES_MAX, CPU_CORES_MIN, CPU_PERIOD_US, CPU_PERIOD_US_MAX, CPU_QUOTA_US_MIN,
    DISPATCHERS_MAX, NODES_MAX, RATE_BITS_S_MIN,
};

/// The machines of a bed and how they are linked.
///
/// ```toml
/// clients = 1
/// router = true          # clients are on a LAN of their own behind it
/// dispatchers = 2
/// nodes = 3
/// origin = true
/// frames = "wire"        # or "large"
///
/// [limits.node]          # all nodes
/// cpu_cores = 0.5
/// rate_bits_s = 100_000_000
///
/// [limits.node-2]        # this one, beyond what all have
/// loss_percent = 1.0
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Topology {
    /// Machines `client-1`, `client-2`, …
    pub clients: usize,
    /// Whether there is a `router` with the clients behind it, on a LAN of
    /// their own. Else all are on one LAN.
    pub router: bool,
    /// Machines `dispatcher-1`, …
    pub dispatchers: usize,
    /// Machines `node-1`, …
    pub nodes: usize,
    /// Whether there is a machine `origin`.
    pub origin: bool,
    /// What frames look like.
    pub frames: Frames,
    /// Whether links with a rate send packets of network control (class CS6, RFC 4594) before all others, as
    /// hosts and switches do that know such classes. Else they have one queue.
    pub control_first: bool,
    /// Limits by name of a machine (`node-2`) or of a role (`node`).
    pub limits: BTreeMap<String, Limits>,
}

/// What the frames between machines look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frames {
    /// As on a wire: no longer than the MTU, checksums complete; and the LAN
    /// takes frames that a dispatcher's XDP program sends.
    #[default]
    Wire,
    /// As `veth` likes them: up to 64 KiB, checksums left open. Much less work
    /// for the machine under the bed. Not for XDP: what its programs send
    /// would arrive with wrong checksums, or nowhere.
    Large,
}

/// Limits of one machine; what is `None` has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Processor time of its processes, in cores.
    pub cpu_cores: Option<f64>,
    /// Period over which it counts, in microseconds; by default 100,000. The shorter it is, the more a
    /// machine with a quota is like a slow one, and the less like one that runs and stands still.
    pub cpu_period_us: Option<u64>,
    /// Rate of its link in either direction, in bits per second. Frames that
    /// an XDP program sends are not held to it.
    pub rate_bits_s: Option<u64>,
    /// Frames lost on its link in either direction, in percent.
    pub loss_percent: Option<f64>,
}

impl Default for Topology {
    /// A client, two dispatchers and three nodes on one LAN.
    fn default() -> Self {
        Self {
            clients: 1,
            router: false,
            dispatchers: 2,
            nodes: 3,
            origin: false,
            frames: Frames::Wire,
            control_first: false,
            limits: BTreeMap::new(),
        }
    }
}

impl Topology {
    /// Reads a topology from TOML; what is left out is as in the default.
    pub fn from_toml(text: &str) -> Result<Self, TestbedError> {
        let topology: Self = toml_edit::de::from_str(text)
            .map_err(|error| TestbedError::Topology(error.to_string()))?;
        topology.check()?;
        Ok(topology)
    }

    /// Whether such a bed can be.
    pub(crate) fn check(&self) -> Result<(), TestbedError> {
        for (what, count, most) in [
            ("clients", self.clients, CLIENTS_MAX),
            ("dispatchers", self.dispatchers, DISPATCHERS_MAX),
            ("nodes", self.nodes, NODES_MAX),
        ] {
            if count > most {
                let said = format!("{what} is {count}: a bed has at most {most}");
                return Err(TestbedError::Topology(said));
            }
        }
        self.limits.iter().try_for_each(|(name, limits)| {
            limits.check().map_err(|what| TestbedError::Topology(format!("limits.{name}: {what}")))
        })
    }

    /// The limits of a machine: its own, else its role's.
    pub(crate) fn limits_of(&self, machine: &str, role: &str) -> Limits {
        let own = self.limits.get(machine).copied().unwrap_or_default();
        let all = self.limits.get(role).copied().unwrap_or_default();
        Limits {
            cpu_cores: own.cpu_cores.or(all.cpu_cores),
            cpu_period_us: own.cpu_period_us.or(all.cpu_period_us),
            rate_bits_s: own.rate_bits_s.or(all.rate_bits_s),
            loss_percent: own.loss_percent.or(all.loss_percent),
        }
    }
}

impl Limits {
    /// Whether each number is one that the kernel can keep.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(cores) = self.cpu_cores
            && !(CPU_CORES_MIN..=CPU_CORES_MAX).contains(&cores)
        {
            return Err(format!(
                "cpu_cores is {cores}: expected {CPU_CORES_MIN} to {CPU_CORES_MAX}"
            ));
        }
        let period_us = self.cpu_period_us.unwrap_or(CPU_PERIOD_US);
        let cores = self.cpu_cores.unwrap_or(CPU_CORES_MAX);
        if period_us > CPU_PERIOD_US_MAX || cores * (period_us as f64) < CPU_QUOTA_US_MIN as f64 {
            return Err(format!(
                "cpu_period_us is {period_us}: expected up to {CPU_PERIOD_US_MAX}, of which cpu_cores \
                 is {CPU_QUOTA_US_MIN} us or more"
            ));
        }
        if let Some(rate) = self.rate_bits_s
            && rate < RATE_BITS_S_MIN
        {
            return Err(format!("rate_bits_s is {rate}: expected {RATE_BITS_S_MIN} or more"));
        }
        if let Some(loss) = self.loss_percent
            && !(0.0..=100.0).contains(&loss)
        {
            return Err(format!("loss_percent is {loss}: expected 0 to 100"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_left_out_is_as_in_the_default() {
        assert_eq!(Topology::from_toml("").unwrap(), Topology::default());
        let text = "nodes = 5\nframes = \"large\"\n[limits.node]\nrate_bits_s = 1_000_000\n\
                    [limits.node-2]\nloss_percent = 1.5\n";
        let topology = Topology::from_toml(text).unwrap();
        assert_eq!((topology.nodes, topology.frames), (5, Frames::Large));
        let of = |name| topology.limits_of(name, "node");
        assert_eq!((of("node-1").rate_bits_s, of("node-1").loss_percent), (Some(1_000_000), None));
        assert_eq!(
            (of("node-2").rate_bits_s, of("node-2").loss_percent),
            (Some(1_000_000), Some(1.5))
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (text, word) in [
            ("nodes = 65", "at most 64"),
            ("clients = 1000", "at most 16"),
            ("knots = 3", "knots"),
            ("nodes = -1", "nodes"),
            ("frames = \"tiny\"", "tiny"),
            ("[limits.node]\nloss_percent = 101", "limits.node: loss_percent is 101"),
            ("[limits.node]\nloss_percent = nan", "loss_percent"),
            ("[limits.node]\ncpu_cores = 0", "cpu_cores is 0"),
            ("[limits.node]\ncpu_cores = 0.01\ncpu_period_us = 20_000", "cpu_period_us is 20000"),
            ("[limits.node]\ncpu_period_us = 2_000_000", "cpu_period_us is 2000000"),
            ("[limits.node]\nrate_bits_s = 1", "rate_bits_s is 1"),
        ] {
            let error = Topology::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
