//! The guard against floods of new flows.
//!
//! A source over its own rate does not use up the rate of all; over the rate of
//! all no source is noted, since a flood of made-up sources would push the real
//! ones out.

use std::net::Ipv6Addr;

use crate::limits::WINDOW_NS;
use crate::tables::{Rate, Tables};

/// Counts a new flow; whether it is one too many.
pub(crate) fn is_guarded(tables: &mut Tables, client: Ipv6Addr, now_ns: u64) -> bool {
    let all_max = tables.settings.new_flows_max;
    let source_max = tables.settings.new_flows_per_source_max;
    if all_max == 0 && source_max == 0 {
        return false;
    }
    let all = &mut tables.total;
    if all_max != 0 && !is_past(all, now_ns) && all.new_flows >= all_max {
        return true;
    }
    if source_max != 0 {
        let rate = tables.sources.entry(source_of(client));
        let first = Rate { window_began_ns: now_ns, new_flows: 0 };
        if is_over(rate.or_insert(first), now_ns, source_max) {
            return true;
        }
    }
    all_max != 0 && is_over(all, now_ns, all_max)
}

fn is_over(rate: &mut Rate, now_ns: u64, flows_max: u64) -> bool {
    if is_past(rate, now_ns) {
        *rate = Rate { window_began_ns: now_ns, new_flows: 0 };
    }
    if rate.new_flows >= flows_max {
        return true;
    }
    rate.new_flows += 1;
    false
}

fn is_past(rate: &Rate, now_ns: u64) -> bool {
    now_ns.wrapping_sub(rate.window_began_ns) >= WINDOW_NS
}

/// A client that can make addresses up has all of a /64.
fn source_of(client: Ipv6Addr) -> Ipv6Addr {
    match client.to_ipv4_mapped() {
        Some(_) => client,
        None => (u128::from(client) >> 64 << 64).into(),
    }
}
