//! The section on plans and tables of large clusters, and its target (issue 12).

use std::fmt::Write as _;

use super::Finding;
use crate::results::{FigureRow, Figures, Tables};

/// Maximum cost of plans and tables, in percent of a core.
const PERCENT_MAX: f64 = 5.0;
/// The column for both together, as named by the benchmark of `skep-steering`.
const BOTH: &str = "plans and tables";

/// The whole section.
pub(super) fn section(tables: &Tables) -> String {
    let figures = &tables.figures;
    let mut text = String::from(
        "\n## Plans and tables of large clusters\n\nThe cost of plans and tables for the active dispatcher in direct \
         dispatch, in percent of a core: `skep-bench tables`, or `cargo bench -p skep-steering \
         --bench tables`. *Plans* is reading the services' states, *tables* making the forwarding \
         table, encoding it, and sealing and sending it to all nodes; *heartbeats* is processing those of all nodes, \
         20 a second each, with the loads in them, and *unsealing* is verifying and decoding them; *own heartbeats* \
         is sealing and sending the dispatcher's, 50 a second to each of 500 nodes, and the same total to more \
         nodes. Datagrams are sent to a socket of this machine, so the cost of receiving is included.\n\n",
    );
    text.push_str(&table(figures));
    text + &super::machine(&tables.machine)
}

/// The section on the cost of comparing maps in netguard.
pub(super) fn comparison(comparison: &Tables) -> String {
    let text = "\n## Comparing the packet programs' maps\n\nThe cost for netguard of comparing the maps with what it \
                wrote to them (all maps once within 30 s), in percent of a core: \
                `skep-bench tables`, or `cargo bench -p skep-datapath --bench compare`. *Longest* is \
                the longest of the ten comparisons in a second, during which orders wait.\n\n";
    text.to_owned() + &table(&comparison.figures) + &super::machine(&comparison.machine)
}

fn table(figures: &Figures) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| cluster | {} |", figures.columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(figures.columns.len()));
    for FigureRow { case, figures } in &figures.rows {
        let figures: Vec<String> = figures.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "| {case} | {} |", figures.join(" | "));
    }
    text.push('\n');
    text
}

/// The result for the target, which the dearest row decides.
pub(super) fn finding(tables: Option<&Tables>) -> (String, Finding) {
    let target = format!("direct: plans and tables at most {PERCENT_MAX} % of a core");
    let dearest = tables.and_then(|tables| {
        let figures = &tables.figures;
        let both = |row: &FigureRow| Some((row.case.clone(), figures.figure(row, BOTH)?));
        let rows = figures.rows.iter().filter_map(both);
        rows.max_by(|(_, a), (_, b)| a.total_cmp(b))
    });
    let judged =
        dearest.map(|(case, percent)| (format!("{percent:.2} % ({case})"), percent <= PERCENT_MAX));
    (target, judged)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::results::MachineDescription;

    #[test]
    fn the_dearest_row_decides() {
        let said = "| percent | plans | plans and tables |\n|---|---|---|\n| small | 1 | 2.5 |\n\
                    | large | 3 | 5.25 |\n";
        let figures = Figures::parse(said).unwrap();
        let machine =
            MachineDescription { date: "2026-01-01".to_owned(), ..MachineDescription::default() };
        let tables = Tables { machine, figures };
        let text = section(&tables);
        assert!(text.contains("\n| large | 3 | 5.25 |\n\nA machine with "), "{text}");
        assert!(text.ends_with(" 2026-01-01.\n"), "{text}");
        let text = comparison(&tables);
        assert!(text.contains("\n| large | 3 | 5.25 |\n\nA machine with "), "{text}");
        assert_eq!(finding(Some(&tables)).1, Some(("5.25 % (large)".to_owned(), false)));
        assert_eq!(finding(None).1, None);
    }
}
