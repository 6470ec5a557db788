//! Frames that the switch drops: those between partitioned machines, and a
//! share of those on a lossy link, or of one IP protocol. And those that it sends first.
//!
//! The complete rule set is one text for `nft`, applied atomically. All frames
//! pass through it, including those that XDP programs send.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::limits::LOSS_PARTS;

/// Rules by names of ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Pairs, the lesser name first.
    cuts: BTreeSet<(String, String)>,
    /// Lost frames of a million.
    losses: BTreeMap<String, u32>,
    /// The same of one IP protocol's packets, as they come in: by port and protocol.
    protocol_losses: BTreeMap<(String, u8), u32>,
    /// Whether packets of network control are sent before others.
    control_first: bool,
}

impl Rules {
    /// Cuts the way between two ports.
    pub(crate) fn cut(&mut self, a: &str, b: &str) {
        self.cuts.insert(pair(a, b));
    }

    /// Mends the way between two ports.
    pub(crate) fn mend(&mut self, a: &str, b: &str) {
        self.cuts.remove(&pair(a, b));
    }

    /// Mends all ways.
    pub(crate) fn mend_all(&mut self) {
        self.cuts.clear();
    }

    /// Loses this share of the frames through a port, in either direction.
    pub(crate) fn lose(&mut self, port: &str, percent: f64) {
        match parts_of(percent) {
            0 => self.losses.remove(port),
            parts => self.losses.insert(port.to_owned(), parts),
        };
    }

    /// Loses this share of the IPv4 packets of a protocol that come in through a port.
    pub(crate) fn lose_protocol(&mut self, port: &str, protocol: u8, percent: f64) {
        let key = (port.to_owned(), protocol);
        match parts_of(percent) {
            0 => self.protocol_losses.remove(&key),
            parts => self.protocol_losses.insert(key, parts),
        };
    }

    /// Sends packets of network control before others, where links have a rate.
    pub(crate) fn put_control_first(&mut self) {
        self.control_first = true;
    }

    /// Whether there is nothing to do.
    fn are_none(&self) -> bool {
        let losses = self.losses.len() + self.protocol_losses.len();
        self.cuts.is_empty() && losses == 0 && !self.control_first
    }

    /// The text for `nft -f`. Without rules there is no table, and no cost.
    pub(crate) fn text(&self) -> String {
        // Made first, so that removing it cannot fail.
        let mut text = "table bridge lab\ndelete table bridge lab\n".to_owned();
        if self.are_none() {
            return text;
        }
        text += "table bridge lab {\n\
                 chain forward {\n\
                 type filter hook forward priority 0; policy accept;\n";
        for (from, to) in self.cuts.iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
            let _ = writeln!(text, "iifname \"{from}\" oifname \"{to}\" drop");
        }
        for (port, parts) in &self.losses {
            let chance = chance(*parts);
            for way in ["iifname", "oifname"] {
                let _ = writeln!(text, "{way} \"{port}\" {chance}drop");
            }
        }
        for ((port, protocol), parts) in &self.protocol_losses {
            let chance = chance(*parts);
            let _ = writeln!(text, "iifname \"{port}\" ip protocol {protocol} {chance}drop");
        }
        if self.control_first {
            // A frame that has come from another namespace has no priority any more.
            text += "ip dscp cs6 meta priority set 0:6\nip6 dscp cs6 meta priority set 0:6\n";
        }
        text + "}\n}\n"
    }
}

/// Of [`LOSS_PARTS`].
pub(crate) fn parts_of(percent: f64) -> u32 {
    (percent / 100.0 * f64::from(LOSS_PARTS)).round() as u32
}

/// The condition of a rule that holds for so many of [`LOSS_PARTS`].
fn chance(parts: u32) -> String {
    match parts {
        LOSS_PARTS => String::new(),
        parts => format!("numgen random mod {LOSS_PARTS} < {parts} "),
    }
}

fn pair(a: &str, b: &str) -> (String, String) {
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    (a.to_owned(), b.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_and_losses_go_both_ways_and_away() {
        let mut rules = Rules::default();
        let empty = rules.text();
        rules.cut("node-2", "node-1");
        rules.lose("node-3", 0.5);
        let text = rules.text();
        for line in [
            "iifname \"node-1\" oifname \"node-2\" drop",
            "iifname \"node-2\" oifname \"node-1\" drop",
            "iifname \"node-3\" numgen random mod 1000000 < 5000 drop",
            "oifname \"node-3\" numgen random mod 1000000 < 5000 drop",
        ] {
            assert!(text.contains(line), "{text}");
        }
        rules.lose("node-3", 100.0);
        assert!(rules.text().contains("iifname \"node-3\" drop"));
        rules.mend("node-1", "node-2");
        rules.lose("node-3", 0.0);
        rules.lose_protocol("node-1", 253, 1.0);
        let line = "iifname \"node-1\" ip protocol 253 numgen random mod 1000000 < 10000 drop";
        assert!(rules.text().contains(line), "{}", rules.text());
        rules.lose_protocol("node-1", 253, 0.0);
        assert_eq!(rules.text(), empty);
    }
}
