//! The page: both loads from one node to four, beside the paper's figures.

use super::Results;
use super::figures::Figures;
use super::limits::{
    HEAP_MIB, NODE_CPU_CORES, NODE_CPU_PERIOD_US, NODE_REQUESTS_MAX, NODES_MAX, QUEUE_MAX,
};
use super::load::{LoadKind, PortalRun};
use crate::experiments::page::{Page, texts};
use crate::experiments::plot::{Line, Plot};

/// The paper's heavy load: failures of 500 requests; requests per second relative to those of one node; and
/// the same without the failures of one node.
const PAPER_FAILED: [u64; NODES_MAX] = [62, 2, 0, 0];
const PAPER_HEAVY: [f64; NODES_MAX] = [1.0, 2.1, 3.2, 4.3];
const PAPER_HEAVY_RIGHT: [f64; NODES_MAX] = [1.0, 1.9, 2.8, 3.7];

/// The paper's light load: the gain of each node over the previous number, in percent.
const PAPER_LIGHT_PERCENT: [u32; NODES_MAX] = [0, 30, 25, 8];

const LOADS: [LoadKind; 2] = [LoadKind::Light, LoadKind::Heavy];

impl Results {
    pub(super) fn page(&self) -> Page {
        let mut page = Page::new("portal");
        let figures = Figures::of(&self.runs);
        page.add("# A portal on Tomcat, from one node to four\n");
        page.add("`skep-lab portal` makes this page ([how](README.md)).\n");
        page.add(&self.machine.text());
        page.add(&self.setting(&figures));
        self.add_heavy(&mut page, &figures);
        self.add_light(&mut page, &figures);
        page.add_plot("speed-up", speed_up_plot(&figures));
        self.add_without_queue(&mut page, &figures);
        add_details(&mut page, &figures);
        self.troubles.iter().for_each(|trouble| page.add(&format!("Amiss: {trouble}\n")));
        page
    }

    fn setting(&self, figures: &Figures<'_>) -> String {
        let costs: Vec<_> =
            figures.warm_ups().map(|run| format!("{:.1}", run.page_cpu_ms())).collect();
        let (plan, quota_ms) = (&self.plan, NODE_CPU_CORES * NODE_CPU_PERIOD_US as f64 / 1e3);
        format!(
            "\nAn experiment of the paper on a load-balancing cluster of servlet engines (Gourley, 2001): nodes with a \
             Tomcat from Debian's package behind Skep, by AJP. Each node has {NODE_CPU_CORES} of a core ({quota_ms} ms \
             of each {} ms) and {HEAP_MIB} MiB of heap; Skep sends it {NODE_REQUESTS_MAX} requests at a time at most, \
             and lets {QUEUE_MAX} more wait. All of it runs on this one machine, in network namespaces (`testbed/`).\n\n\
             The page resembles the paper's: the servlet (`lab/peers/Portal.java`) identifies the client by its \
             address, begins a session, and builds {:.0} KB of HTML from a menu, news, four searches of a catalogue \
             and a list of loans. `skep bench run portal` requests it, with a connection and a session for each \
             request, and compares \
             every page with the first. *Light* is {} requests of {} clients, *heavy* {} of {}, as in the paper.\n\n\
             The JVMs first answer runs of {} pages at full speed until the cost of a page no longer changes from \
             run to run; then they get their quotas, and one heavy run. Processor time of a page in those runs, in \
             ms: {}. Then come {} \
             rounds. Each round has all numbers of nodes, in another order and with other nodes than the round \
             before: \
             {} light runs and a heavy one. Figures are medians over all rounds.\n",
            NODE_CPU_PERIOD_US / 1_000,
            figures.page_bytes() / 1e3,
            plan.light.requests,
            plan.light.clients,
            plan.heavy.requests,
            plan.heavy.clients,
            plan.warm_up.requests,
            costs.join(", "),
            plan.rounds,
            plan.light_runs,
        )
    }

    fn add_heavy(&self, page: &mut Page, figures: &Figures<'_>) {
        page.add("## Heavy load\n");
        page.add(
            "Failed: in all rounds together, with the warm-up for four nodes. In brackets: the slowest and the fastest round. Of \
             linear: divided by one node's rate times the number of nodes. The paper's speed-ups are relative \
             to a single node slowed down by its failed requests; *right answers only* leaves these out.\n",
        );
        let head = texts([
            "nodes",
            "pages/s",
            "over one node",
            "of linear",
            "failed",
            "paper: over one node",
            "paper: right answers only",
            "paper: failed of 500",
        ]);
        let row = |nodes: usize| {
            let rate = figures.rate(LoadKind::Heavy, nodes);
            let speed_up = figures.speed_up(LoadKind::Heavy, nodes);
            vec![
                nodes.to_string(),
                format!("{:.1} ({:.1} to {:.1})", rate.median, rate.least, rate.most),
                format!("{speed_up:.2}"),
                format!("{:.3}", speed_up / nodes as f64),
                failed(figures, nodes),
                format!("{:.1}", PAPER_HEAVY[nodes - 1]),
                format!("{:.1}", PAPER_HEAVY_RIGHT[nodes - 1]),
                PAPER_FAILED[nodes - 1].to_string(),
            ]
        };
        page.add_table(&head, &(1..=NODES_MAX).map(row).collect::<Vec<_>>());
    }

    fn add_light(&self, page: &mut Page, figures: &Figures<'_>) {
        page.add("## Light load\n");
        page.add("Added: gain over one node less.\n");
        let head = texts([
            "nodes",
            "pages/s",
            "added, %",
            "mean latency, ms",
            "over one node's",
            "failed",
            "paper: added, %",
        ]);
        let row = |nodes: usize| {
            let rate = |nodes| figures.rate(LoadKind::Light, nodes).median;
            let latency = |nodes| figures.latency_ms(LoadKind::Light, nodes);
            let added =
                |percent: f64| if nodes == 1 { "-".to_owned() } else { format!("{percent:+.0}") };
            vec![
                nodes.to_string(),
                format!("{:.1}", rate(nodes)),
                added((rate(nodes) / rate(nodes.max(2) - 1) - 1.0) * 100.0),
                format!("{:.1}", latency(nodes)),
                format!("{:.2}", latency(nodes) / latency(1)),
                figures.failed(LoadKind::Light, nodes).to_string(),
                added(f64::from(PAPER_LIGHT_PERCENT[nodes - 1])),
            ]
        };
        page.add_table(&head, &(1..=NODES_MAX).map(row).collect::<Vec<_>>());
    }

    fn add_without_queue(&self, page: &mut Page, figures: &Figures<'_>) {
        page.add("## Without a queue\n");
        page.add(&format!(
            "The heavy load where Skep lets no request wait (`queue_max = 0`), so that a request that \
             finds {NODE_REQUESTS_MAX} \
             requests at each node gets 503 at once. Its {} clients are more than two nodes can serve, and fewer \
             than three can. A client that is refused retries after 20 ms, so refusals use up the {} requests.\n",
            self.plan.heavy.clients, self.plan.heavy.requests,
        ));
        let failed = |nodes| {
            let failed = |run: &PortalRun| run.seen.failed as f64;
            format!("{:.0}", figures.spread((LoadKind::HeavyWithoutQueue, nodes), failed).median)
        };
        let row = |name: &str, cell: &dyn Fn(usize) -> String| {
            std::iter::once(name.to_owned()).chain((1..=NODES_MAX).map(cell)).collect::<Vec<_>>()
        };
        let rows = [
            row("Skep", &|nodes| figures.failed(LoadKind::Heavy, nodes).to_string()),
            row("Skep without a queue", &failed),
            row("paper", &|nodes| PAPER_FAILED[nodes - 1].to_string()),
        ];
        page.add_table(&texts(["failed, by nodes", "1", "2", "3", "4"]), &rows);
    }
}

/// Failures under heavy load, including those of the warm-up, which uses all nodes.
fn failed(figures: &Figures<'_>, nodes: usize) -> String {
    let warm_up = figures.warm_ups().filter(|run| run.nodes.len() == nodes);
    let warm_up: u64 = warm_up.map(|run| run.seen.failed).sum();
    (figures.failed(LoadKind::Heavy, nodes) + warm_up).to_string()
}

fn add_details(page: &mut Page, figures: &Figures<'_>) {
    page.add("## All figures\n");
    page.add(
        "Latency in ms from the beginning of a request to the end of its page. Nodes: processor time for a page, and \
         the share of their quotas that they used. Skep: its processor time for a page. Sessions: of the nodes with \
         the fewest and the most of them in a run.\n",
    );
    let head = texts([
        "load",
        "nodes",
        "runs",
        "p50",
        "p90",
        "p99",
        "longest",
        "nodes, ms",
        "quota, %",
        "Skep, ms",
        "sessions",
    ]);
    let mut rows = Vec::new();
    for load in LOADS {
        for nodes in 1..=NODES_MAX {
            rows.push(details(figures, load, nodes));
        }
    }
    page.add_table(&head, &rows);
}

fn details(figures: &Figures<'_>, load: LoadKind, nodes: usize) -> Vec<String> {
    let median = |figure: &dyn Fn(&PortalRun) -> f64| figures.spread((load, nodes), figure).median;
    let ms = |us: u64| us as f64 / 1e3;
    // A short run has one page more than it counts, which is a tenth of a light one.
    let used = match load {
        LoadKind::Light => "-".to_owned(),
        _ => format!("{:.0}", median(&PortalRun::used_percent)),
    };
    let pages = || figures.runs(load, nodes).flat_map(|run| run.pages.iter().copied());
    vec![
        format!("{load:?}").to_lowercase(),
        nodes.to_string(),
        figures.runs(load, nodes).count().to_string(),
        format!("{:.1}", median(&|run| ms(run.seen.total_us.p50))),
        format!("{:.1}", median(&|run| ms(run.seen.total_us.p90))),
        format!("{:.1}", median(&|run| ms(run.seen.total_us.p99))),
        format!("{:.1}", figures.spread((load, nodes), |run| ms(run.seen.total_us.max)).most),
        format!("{:.2}", median(&PortalRun::page_cpu_ms)),
        used,
        format!("{:.2}", median(&PortalRun::skep_page_cpu_ms)),
        format!("{} to {}", pages().min().unwrap_or(0), pages().max().unwrap_or(0)),
    ]
}

fn speed_up_plot(figures: &Figures<'_>) -> Plot {
    let light = PAPER_LIGHT_PERCENT.iter().scan(1.0, |sum, percent| {
        *sum *= 1.0 + f64::from(*percent) / 100.0;
        Some(*sum)
    });
    let light: Vec<f64> = light.collect();
    let of = |load| (1..=NODES_MAX).map(|nodes| figures.speed_up(load, nodes)).collect();
    let linear = (1..=NODES_MAX).map(|nodes| nodes as f64).collect();
    let line = |(colour, name, values): (usize, &str, Vec<f64>)| Line {
        name: name.to_owned(),
        colour,
        points: values
            .into_iter()
            .zip(1..)
            .map(|(value, nodes)| (f64::from(nodes), value))
            .collect(),
        has_dots: true,
    };
    let lines: [(usize, &str, Vec<f64>); 6] = [
        (3, "linear", linear),
        (4, "Skep, heavy", of(LoadKind::Heavy)),
        (6, "Skep, light", of(LoadKind::Light)),
        (0, "paper, heavy", PAPER_HEAVY.into()),
        (1, "paper, heavy, right answers", PAPER_HEAVY_RIGHT.into()),
        (2, "paper, light", light),
    ];
    Plot {
        title: "Pages per second, over those of one node".to_owned(),
        x: "nodes",
        y: "over one node",
        y_begin: 0.0,
        lines: lines.map(line).into(),
        marks: Vec::new(),
    }
}
