//! The page's section on the size of replies.

use super::super::Part;
use super::super::bed::Way;
use super::super::load::{Sample, spread};
use super::super::sizes::Sizes;
use super::details::{details, details_head};
use crate::experiments::page::{Page, bold, texts};
use crate::experiments::plot::{Line, Plot};

pub(super) fn add(page: &mut Page, Part { machine, figures: sizes }: &Part<Sizes>) {
    page.add("## By the size of replies\n");
    page.add(&machine.text());
    page.add(&format!(
        "\n{} nodes, {} clients for each, links as fast as the kernel, so that the cores, which all share, are the \
         bottleneck: a proxy with a machine of its own would be a bottleneck of its own, which does not show here. \
         Round robin, so that three of four \
         connections move. Medians of rounds of {} s, with the lowest and the highest. Handoff relative to the \
         proxy, bold where it loses; XO reports 1.27 to 4.65 of a proxy's throughput.\n",
        sizes.nodes,
        sizes.clients,
        sizes.window_ms as f64 / 1e3,
    ));
    let head = texts(["reply", "throughput x", "CPU x", "handoff us", "proxy us", "direct us"]);
    let ratio = |of: Option<(f64, f64, f64)>, loses: fn(f64) -> bool| {
        of.map_or("-".to_owned(), |(middle, low, high)| {
            format!("{} ({low:.2} - {high:.2})", bold(&format!("{middle:.2}"), loses(middle)))
        })
    };
    let cpu = |bytes: u64, way: Way| {
        let cell = sizes.cell(bytes, way);
        cell.map_or("-".to_owned(), |cell| {
            format!("{:.0}", spread(cell.samples.iter().map(Sample::cpu_us)).0)
        })
    };
    let row = |bytes: u64| {
        vec![
            size(bytes),
            ratio(sizes.over_proxy(bytes, Sample::per_s), |it| it < 0.995),
            ratio(sizes.over_proxy(bytes, Sample::cpu_us), |it| it > 1.005),
            cpu(bytes, Way::Handoff),
            cpu(bytes, Way::Proxy),
            cpu(bytes, Way::Direct),
        ]
    };
    page.add_table(&head, &sizes.sizes().into_iter().map(row).collect::<Vec<_>>());
    page.add(&format!("{}\n", pays(sizes)));
    let rows: Vec<_> = sizes
        .cells
        .iter()
        .map(|cell| details(&size(cell.bytes), cell.way.name(), &cell.samples))
        .collect();
    page.add_table(&details_head("reply"), &rows);
    page.add_plot("sizes", sizes_plot(sizes));
}

/// The smallest of the measured sizes from which on handoff is better at all of them.
fn pays(sizes: &Sizes) -> String {
    let first = |figure: fn(&Sample) -> f64, is_better: fn(f64) -> bool| {
        let is_worse = |&&bytes: &&u64| {
            sizes.over_proxy(bytes, figure).is_none_or(|(middle, ..)| !is_better(middle))
        };
        let all = sizes.sizes();
        let worse = all.iter().rev().find(is_worse).copied().unwrap_or(0);
        all.into_iter().find(|&bytes| bytes > worse).map_or("no size".to_owned(), size)
    };
    format!(
        "It pays off in throughput from {} on, in CPU from {} on, of the sizes measured.",
        first(Sample::per_s, |it| it > 1.0),
        first(Sample::cpu_us, |it| it < 1.0),
    )
}

fn sizes_plot(sizes: &Sizes) -> Plot {
    let line = |name: &str, colour, figure: fn(&Sample) -> f64| Line {
        name: name.to_owned(),
        colour,
        points: sizes
            .sizes()
            .into_iter()
            .filter_map(|bytes| {
                let ratio = sizes.over_proxy(bytes, figure)?.0;
                Some(((bytes as f64 / 1024.0).log2(), ratio))
            })
            .collect(),
        has_dots: true,
    };
    Plot {
        title: "Handoff over a proxy, by the size of replies".to_owned(),
        x: "size of the reply: log2 of KiB",
        y: "x the proxy",
        y_begin: 0.0,
        lines: vec![line("throughput", 4, Sample::per_s), line("CPU", 0, Sample::cpu_us)],
        marks: Vec::new(),
    }
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}
