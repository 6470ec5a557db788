//! TCP counters of the kernels of a bed's machines.

use std::fs;

use skep_testbed::Machine;

use super::bed::HandoffBed;
use crate::experiments::Failure;

/// The client's counters, and the sum of those of nodes and dispatcher.
pub(super) struct Kernels {
    pub(super) client: TcpCounters,
    pub(super) cluster: TcpCounters,
}

/// Counters of `/proc/net/snmp` (RFC 4022).
#[derive(Clone, Copy, Default)]
pub(super) struct TcpCounters {
    /// Connections that went from established directly to closed: by RST, or abandoned.
    pub(super) resets_seen: u64,
    pub(super) resets_sent: u64,
    pub(super) sent_again: u64,
}

impl Kernels {
    pub(super) fn of(bed: &HandoffBed) -> Result<Self, Failure> {
        let machines = bed.machines();
        let mut cluster = TcpCounters::default();
        for machine in machines.nodes().iter().chain(machines.dispatchers()) {
            let of = TcpCounters::of(machine)?;
            cluster.resets_seen += of.resets_seen;
            cluster.resets_sent += of.resets_sent;
            cluster.sent_again += of.sent_again;
        }
        Ok(Self { client: TcpCounters::of(bed.client()?)?, cluster })
    }
}

impl TcpCounters {
    fn of(machine: &Machine) -> Result<Self, Failure> {
        let text = machine.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
        let of =
            |name| value(&text, name).ok_or_else(|| format!("no Tcp {name} in /proc/net/snmp"));
        Ok(Self {
            resets_seen: of("EstabResets")?,
            resets_sent: of("OutRsts")?,
            sent_again: of("RetransSegs")?,
        })
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            resets_seen: self.resets_seen - before.resets_seen,
            resets_sent: self.resets_sent - before.resets_sent,
            sent_again: self.sent_again - before.sent_again,
        }
    }
}

/// The value of a counter. Of two lines that begin with `Tcp:`, the first has the names.
fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|it| it == name)?;
    values.split(' ').nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_tcp_are_found_by_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin EstabResets RetransSegs\nTcp: 200 7 12\n";
        assert_eq!(value(text, "EstabResets"), Some(7));
        assert_eq!(value(text, "RetransSegs"), Some(12));
        assert_eq!(value(text, "OutRsts"), None);
    }
}
