//! Retransmissions of a machine.

use skep_testbed::Machine;

/// Returns the number of TCP segments that a machine has retransmitted: each was lost, or so late that it was
/// considered lost.
pub fn sent_again(machine: &Machine) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    let text = machine.run(read).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut fields = names.split(' ').zip(values.split(' '));
    let found = fields.find(|(name, _)| *name == "RetransSegs");
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}
