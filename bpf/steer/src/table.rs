//! A service's table: the row of a flow, and the nodes of a row
//! (`bpf/table.h`, `bpf/choice.h`).

use skep_wire::steer::{
    DatapathNode, DatapathService, ForwardingState, Measure, NodeIndex, ROWS, Row,
};

use crate::tables::{FlowKey, Tables};

/// The place of a flow's row in its service's table.
pub fn row_of(key: &FlowKey, service: &DatapathService, hash_seed: u64) -> usize {
    let client = key.client.octets();
    let mut hash = mix(mix(hash_seed, half(&client, 0)), half(&client, 8));
    if !service.by_address {
        let port = u16::from_ne_bytes(key.port.to_be_bytes());
        hash = mix(hash, u64::from(port) | (u64::from(service.id) << 16));
    }
    let low = mix(hash, 0) & 0xffff_ffff;
    // Below ROWS, whatever `low` is.
    ((low * ROWS as u64) >> 32) as usize
}

fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

/// Two 32-bit words of this machine's order, the first one low.
fn half(address: &[u8; 16], at: usize) -> u64 {
    let word = |at: usize| {
        u64::from(u32::from_ne_bytes([
            address[at],
            address[at + 1],
            address[at + 2],
            address[at + 3],
        ]))
    };
    word(at) | (word(at + 4) << 32)
}

impl Tables {
    /// The row of a flow; none if the service has no table.
    pub(crate) fn row(&self, key: &FlowKey, service: &DatapathService) -> Option<Row> {
        let place = row_of(key, service, self.settings.hash_seed);
        self.rows.get(&service.id)?.get(place).copied()
    }

    /// A node that takes packets at all.
    pub(crate) fn live_node(&self, index: NodeIndex) -> Option<&DatapathNode> {
        self.nodes.get(&index).filter(|node| node.state != ForwardingState::Down)
    }

    fn is_up(&self, index: NodeIndex) -> bool {
        self.nodes.get(&index).is_some_and(|node| node.state == ForwardingState::Up)
    }

    /// The first of a row that is not down.
    pub(crate) fn first_live(&self, row: &Row) -> Option<NodeIndex> {
        row.0.into_iter().find(|&index| self.live_node(index).is_some())
    }

    /// The first of a row that takes new flows.
    pub(crate) fn first_up(&self, row: &Row) -> Option<NodeIndex> {
        row.0.into_iter().find(|&index| self.is_up(index))
    }

    /// The node that the policy takes for a new flow.
    pub(crate) fn choice(&self, row: &Row, service: &DatapathService) -> Option<NodeIndex> {
        if service.measure == Measure::First {
            return self.first_up(row);
        }
        let choices = usize::from(service.choices).min(skep_wire::steer::CHOICES_MAX);
        let candidates = row.0.into_iter().take(choices).filter(|&index| self.is_up(index));
        let best = candidates.map(|index| (index, self.cost(index, service))).reduce(
            |(best, best_cost), (index, cost)| {
                if cost.is_below(best_cost) { (index, cost) } else { (best, best_cost) }
            },
        );
        best.map(|(index, _)| index).or_else(|| self.first_up(row))
    }

    /// What a node has already, and the flow that it would get.
    fn cost(&self, index: NodeIndex, service: &DatapathService) -> Cost {
        let place = (service.id, index);
        let load = self.loads.get(&place).copied().unwrap_or_default();
        let assigned = self.assigned.get(&place).copied().unwrap_or_default();
        let flows = match service.measure {
            Measure::Load => {
                load.reported.wrapping_add(assigned.wrapping_sub(load.assigned_at_report))
            }
            Measure::First | Measure::Turns => assigned.wrapping_sub(load.assigned_at_table),
        };
        let flows = flows.wrapping_add(1).min(u64::from(u32::MAX));
        Cost { flows, weight: load.weight }
    }
}

#[derive(Clone, Copy)]
struct Cost {
    /// Below 2^32.
    flows: u64,
    weight: u32,
}

impl Cost {
    fn is_below(self, other: Self) -> bool {
        self.flows * u64::from(other.weight) < other.flows * u64::from(self.weight)
    }
}
