//! The page.

mod alone;
mod relay;

use super::Part;
use super::Results;
use super::bed::Way;
use super::load::{Sample, spread};
use super::loss::Loss;
use super::moves::{Moves, MovesRun, STEPS};
use super::nodes::{Nodes, WAYS};
use super::sizes::Sizes;
use super::transports::add_transports;
use crate::experiments::page::{Page, bold, texts};
use crate::experiments::plot::{Line, Plot};

/// What is wanted: a move within so many microseconds at the median, and so much of the ideal's throughput.
const FREEZE_US_MAX: f64 = 60.0;
const IDEAL_MIN: f64 = 0.97;

impl Results {
    pub(super) fn page(&self) -> Page {
        let mut page = Page::new("handoff");
        page.add("# TCP handoff\n");
        page.add(
            "`skep-lab handoff` makes this page ([how](README.md)), or parts of it by `--parts moves,alone,nodes,sizes,loss,transports,relay`. All \
             machines are network namespaces on one machine and share its cores. Frames are as on a wire, \
             each node has one worker, and clients open a connection for each request. *CPU* is that of the whole bed: \
             client, dispatcher, nodes, netguards and their kernels, with all of ksoftirqd, whoever gave it work; *others* is \
             what else ran on the machine meanwhile. A ratio is of two measurements of the same round. Where ours loses, \
             or misses what is wanted, it is bold.\n",
        );
        self.moves.iter().for_each(|part| add_moves(&mut page, part));
        self.alone.iter().for_each(|part| alone::add(&mut page, part));
        self.nodes.iter().for_each(|part| add_nodes(&mut page, part));
        self.sizes.iter().for_each(|part| add_sizes(&mut page, part));
        self.loss.iter().for_each(|part| add_loss(&mut page, part));
        self.transports.iter().for_each(|part| add_transports(&mut page, part));
        self.relay.iter().for_each(|part| relay::add(&mut page, part));
        page.add("## Not measured\n");
        page.add(
            "Whole moves by LCCP on TCP: Skep has no such transport, and its messages alone are measured. XO and Prism themselves: they \
             need a switch, or are not to be had.\n",
        );
        for trouble in &self.troubles {
            page.add(&format!("Not measured: {trouble}\n"));
        }
        page
    }
}

fn add_moves(page: &mut Page, Part { machine, figures: Moves { runs } }: &Part<Moves>) {
    page.add("## What a move takes\n");
    page.add(&machine.text());
    page.add(&format!(
        "\nTwo nodes, an object of 1 KiB that is one's by its URL, so that every connection which the other accepts moves. One \
         client, one connection at a time. *Frozen* is from the order to freeze until the receiver is \
         told to go on (GO), as the donor's clock says; wanted: at most {FREEZE_US_MAX} us at the median. *Whole* is from the worker's \
         decision until the receiver has said that it serves. From the nodes' histograms \
         (`skep_handoff_freeze_seconds`, `skep_handoff_move_seconds`, `skep_handoff_step_seconds`): microseconds.\n",
    ));
    let head = texts(["LCCP on", "", "moves", "10 %", "median", "90 %", "99 %", "mean"]);
    let row = |run: &MovesRun, what: &str, times: &super::metrics::Quantiles, max: f64| {
        let us = |value: f64| format!("{value:.0}");
        vec![
            run.transport.clone(),
            what.to_owned(),
            times.count.to_string(),
            us(times.p10_us),
            bold(&us(times.p50_us), times.p50_us > max),
            us(times.p90_us),
            us(times.p99_us),
            us(times.mean_us),
        ]
    };
    let of = |run: &MovesRun| {
        let alone = [
            row(run, "frozen", &run.freeze, FREEZE_US_MAX),
            row(run, "whole", &run.whole, f64::MAX),
        ];
        let parts = STEPS.iter().zip(&run.steps);
        let parts = parts.map(|((_, what), times)| row(run, what, times, f64::MAX));
        alone.into_iter().chain(parts).collect::<Vec<_>>()
    };
    page.add_table(&head, &runs.iter().flat_map(of).collect::<Vec<_>>());
    page.add(
        "The receiver's `create` and `restore` are within the donor's `offer`, its `start` within `go`; `ready` has `redirect` in \
         it. Neither paper nor others give times of their moves; a prototype in Python froze a connection for 84 us between two \
         namespaces. Both nodes, their netguards and the client share two cores.\n",
    );
    runs.iter().for_each(|run| add_cost(page, run));
}

fn add_cost(page: &mut Page, run: &MovesRun) {
    let (many, direct) = (&run.many, &run.direct);
    page.add(&format!(
        "**Many at a time**, LCCP on {}: {:.0} connections a second, of which {:.0} moved; {} that were to move stayed, {} requests failed. Frozen for {:.0} us at the \
         median. CPU for each connection: {:.1} us, where none moves (`direct`, {:.0} a second) {:.1} us: a move \
         costs the bed {:.0} us. Of the nodes' threads, microseconds for each move (workers also \
         serve; the receiver's its own connections, too):\n",
        run.transport,
        many.per_s(),
        many.moved() as f64 / many.seconds,
        many.stayed(),
        many.failed,
        run.many_freeze.p50_us,
        many.cpu_us(),
        direct.per_s(),
        direct.cpu_us(),
        run.cost_us(),
    ));
    let of = |threads: &[(String, f64)], name: &str| {
        let found = threads.iter().find(|(it, _)| it == name);
        found.map_or("-".to_owned(), |(_, us)| format!("{us:.1}"))
    };
    let mut names: Vec<&String> = [&run.donor, &run.receiver, &run.dispatcher]
        .into_iter()
        .flatten()
        .map(|it| &it.0)
        .collect();
    names.sort_unstable();
    names.dedup();
    let row = |name: &&String| {
        let cells = [&run.donor, &run.receiver, &run.dispatcher].map(|it| of(it, name));
        std::iter::once((*name).clone()).chain(cells).collect()
    };
    page.add_table(
        &texts(["thread", "donor", "receiver", "dispatcher"]),
        &names.iter().map(row).collect::<Vec<Vec<String>>>(),
    );
}

fn add_nodes(page: &mut Page, Part { machine, figures: nodes }: &Part<Nodes>) {
    page.add("## Figure 6 of the paper: from 1 to 14 nodes\n");
    page.add(&machine.text());
    page.add(&format!(
        "\nLinks are the bound: those of nodes and of the dispatcher have {} Mbit/s either way (the paper's had 100). SURGE's objects: {} files, {:.1} MB, \
         every fifth request for the most popular one; the mean reply has {:.0} bytes. {} clients for each node (the paper had 200 \
         threads) ask again as soon as they have their reply. Handoff is under round robin, as in the paper, so that all but every n-th connection \
         moves. *Nodes themselves* is the paper's ideal system. Medians of rounds of {} s.\n",
        nodes.link_bits_s / 1_000_000,
        nodes.files,
        nodes.bytes as f64 / 1e6,
        nodes.mean_reply_bytes,
        nodes.clients,
        nodes.window_ms as f64 / 1e3,
    ));
    page.add(&format!(
        "Connections per second; in brackets over the ideal's, with the lowest and the highest round. Wanted of \
         handoff: {IDEAL_MIN}. The paper's figure shows no difference, and gives no numbers.\n"
    ));
    let counts = nodes.counts();
    let head = || {
        let counts = counts.iter().map(ToString::to_string);
        std::iter::once("nodes".to_owned()).chain(counts).collect::<Vec<_>>()
    };
    let cell = |count: usize, way: Way| {
        let Some(cell) = nodes.cell(count, way) else { return "-".to_owned() };
        let per_s = spread(cell.samples.iter().map(Sample::per_s)).0;
        let Some((ratio, low, high)) = nodes.ratio(count, way).filter(|_| way != Way::Ideal) else {
            return format!("{per_s:.0}");
        };
        let misses = way == Way::Handoff && ratio < IDEAL_MIN;
        let ratio = bold(&format!("{ratio:.3}"), misses);
        format!("{per_s:.0} ({ratio}; {low:.3} - {high:.3})")
    };
    let row = |way: Way| {
        let cells = counts.iter().map(|&count| cell(count, way));
        std::iter::once(way.name().to_owned()).chain(cells).collect::<Vec<_>>()
    };
    page.add_table(&head(), &WAYS.map(row));
    page.add("All figures, of all rounds together; times to the first byte in milliseconds:\n");
    let rows: Vec<_> = nodes
        .cells
        .iter()
        .map(|cell| details(&cell.nodes.to_string(), cell.way.name(), &cell.samples))
        .collect();
    page.add_table(&details_head("nodes"), &rows);
    page.add_plot("nodes", nodes_plot(nodes));
}

fn nodes_plot(nodes: &Nodes) -> Plot {
    let line = |(colour, way): (usize, Way)| Line {
        name: way.name().to_owned(),
        colour,
        points: nodes
            .counts()
            .into_iter()
            .filter_map(|count| nodes.cell(count, way))
            .map(|cell| (cell.nodes as f64, spread(cell.samples.iter().map(Sample::per_s)).0))
            .collect(),
        has_dots: true,
    };
    Plot {
        title: "Connections per second; links are the bound".to_owned(),
        x: "nodes",
        y: "connections/s",
        y_begin: 0.0,
        lines: WAYS.into_iter().enumerate().map(|(at, way)| line((at * 2, way))).collect(),
        marks: Vec::new(),
    }
}

fn details_head(first: &str) -> Vec<String> {
    let words = [
        "way", "conn/s", "Mbit/s", "CPU us", "moved", "stayed", "failed", "p50", "p99", "others %",
    ];
    std::iter::once(first).chain(words).map(str::to_owned).collect()
}

fn details(first: &str, way: &str, samples: &[Sample]) -> Vec<String> {
    let middle = |figure: fn(&Sample) -> f64| spread(samples.iter().map(figure)).0;
    let sum = |figure: fn(&Sample) -> u64| samples.iter().map(figure).sum::<u64>();
    vec![
        first.to_owned(),
        way.to_owned(),
        format!("{:.0}", middle(Sample::per_s)),
        format!("{:.1}", middle(Sample::mbit_s)),
        format!("{:.0}", middle(Sample::cpu_us)),
        sum(Sample::moved).to_string(),
        sum(Sample::stayed).to_string(),
        sum(|it| it.failed).to_string(),
        format!("{:.1}", middle(|it| it.first_byte_p50_us as f64) / 1e3),
        format!("{:.1}", middle(|it| it.first_byte_p99_us as f64) / 1e3),
        format!("{:.0}", middle(|it| it.others_percent)),
    ]
}

fn add_sizes(page: &mut Page, Part { machine, figures: sizes }: &Part<Sizes>) {
    page.add("## By the size of replies\n");
    page.add(&machine.text());
    page.add(&format!(
        "\n{} nodes, {} clients for each, links as fast as the kernel, so that the cores are the bound, which all share: a proxy \
         that has a machine of its own is a bound of its own, which does not show here. Round robin, so that three of four \
         connections move. Medians of rounds of {} s, with the lowest and the highest. Handoff over the proxy, \
         bold where it loses; XO reports 1.27 to 4.65 of a proxy's throughput.\n",
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

/// From which size on, of those that were measured, handoff is better at all of them.
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
        "It pays in throughput from {} on, in CPU from {} on, of the sizes measured.",
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

fn add_loss(page: &mut Page, Part { machine, figures: loss }: &Part<Loss>) {
    page.add("## Control packets are lost\n");
    page.add(&machine.text());
    page.add(&format!(
        "\n{} nodes, {} clients for each, replies of {} bytes, every byte compared; a share of all LCCP packets (IP protocol 253) is lost on the \
         way, reports to the dispatcher included. Wanted: no failed request. *Stayed* are connections that were to move \
         and were answered by the node that had them. The paper has no such measurement; it argues that such a \
         loss does not matter.\n",
        loss.nodes, loss.clients, loss.object_bytes,
    ));
    let base = loss.cells.first().map_or(0.0, |cell| cell.sample.per_s());
    let head = texts([
        "lost", "requests", "failed", "conn/s", "x", "moved", "stayed", "p50 ms", "p99 ms",
        "others %",
    ]);
    let row = |cell: &super::loss::LossCell| {
        let sample = &cell.sample;
        vec![
            format!("{} %", cell.percent),
            sample.requests.to_string(),
            bold(&sample.failed.to_string(), sample.failed > 0),
            format!("{:.0}", sample.per_s()),
            format!("{:.2}", sample.per_s() / base.max(f64::MIN_POSITIVE)),
            sample.moved().to_string(),
            match sample.stayed() {
                0 => "0".to_owned(),
                stayed => format!("{stayed}: {}", sample.causes()),
            },
            format!("{:.1}", sample.first_byte_p50_us as f64 / 1e3),
            format!("{:.1}", sample.first_byte_p99_us as f64 / 1e3),
            format!("{:.0}", sample.others_percent),
        ]
    };
    page.add_table(&head, &loss.cells.iter().map(row).collect::<Vec<_>>());
    let points = loss.cells.iter().map(|cell| (cell.percent, cell.sample.per_s())).collect();
    let name = "Skep, handoff".to_owned();
    page.add_plot(
        "loss",
        Plot {
            title: "Connections per second while control packets are lost".to_owned(),
            x: "percent of control packets lost",
            y: "connections/s",
            y_begin: 0.0,
            lines: vec![Line { name, colour: 4, points, has_dots: true }],
            marks: Vec::new(),
        },
    );
}
