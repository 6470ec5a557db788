//! Frames that the switch drops: those between partitioned machines, and a
//! share of those on a lossy link.
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
        let parts = (percent / 100.0 * f64::from(LOSS_PARTS)).round() as u32;
        match parts {
            0 => self.losses.remove(port),
            _ => self.losses.insert(port.to_owned(), parts),
        };
    }

    /// The text for `nft -f`. Without rules there is no table, and no cost.
    pub(crate) fn text(&self) -> String {
        // Made first, so that removing it cannot fail.
        let mut text = "table bridge lab\ndelete table bridge lab\n".to_owned();
        if self.cuts.is_empty() && self.losses.is_empty() {
            return text;
        }
        text += "table bridge lab {\n\
                 chain forward {\n\
                 type filter hook forward priority 0; policy accept;\n";
        for (from, to) in self.cuts.iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
            let _ = writeln!(text, "iifname \"{from}\" oifname \"{to}\" drop");
        }
        for (port, parts) in &self.losses {
            let chance = match *parts {
                LOSS_PARTS => String::new(),
                parts => format!("numgen random mod {LOSS_PARTS} < {parts} "),
            };
            for way in ["iifname", "oifname"] {
                let _ = writeln!(text, "{way} \"{port}\" {chance}drop");
            }
        }
        text + "}\n}\n"
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
        assert_eq!(rules.text(), empty);
    }
}
