//! The page's section on a node that hands off to itself.

use super::super::Part;
use super::super::load::{Sample, spread};
use super::super::to_self::{ToSelf, ToSelfCell};
use crate::experiments::page::{Page, bold, texts};

/// Required throughput where the link is the bottleneck, relative to that without handoff.
const SELF_MIN: f64 = 0.90;

pub(super) fn add(page: &mut Page, Part { machine, figures }: &Part<ToSelf>) {
    page.add("## Figure 5 of the paper: a node that hands off to itself\n");
    page.add(&machine.text());
    page.add(&format!(
        "\nOne node, which hands each connection off to itself (`handoff.to_self`) and asks the dispatcher for each \
         (`handoff.decide = \"coordinator\"`), divided by the same node without it (`direct`), in the same \
         round. SURGE's objects, the mean \
         reply has {:.0} bytes; a connection for each request, or for {} (the first moves it). *Link*: {} Mbit/s are \
         the bottleneck, as in the paper; goal there: at least {SELF_MIN}. The paper reports little difference, and \
         gives no numbers. *Cores*: the link is as fast as the kernel. Messages of the node to itself need no \
         packets; freezing, reading, creating, writing and starting the socket, with netguard, are the same as in \
         any move. Medians of rounds of {} s, with the lowest and the highest.\n",
        figures.mean_reply_bytes,
        figures.kept_requests,
        figures.link_bits_s / 1_000_000,
        figures.window_ms as f64 / 1e3,
    ));
    let head = texts([
        "bound",
        "requests each",
        "clients",
        "requests/s",
        "without",
        "throughput x",
        "CPU us",
        "without",
        "CPU x",
        "moved",
        "stayed",
        "failed",
    ]);
    page.add_table(&head, &figures.pairs().map(row).collect::<Vec<_>>());
}

fn row((own, without): (&ToSelfCell, &ToSelfCell)) -> Vec<String> {
    let middle = |cell: &ToSelfCell, figure: fn(&Sample) -> f64| {
        format!("{:.0}", spread(cell.samples.iter().map(figure)).0)
    };
    let ratio = |figure: fn(&Sample) -> f64, is_bad: fn(f64) -> bool| {
        let (ratio, low, high) = own.over(without, figure);
        format!("{} ({low:.2} - {high:.2})", bold(&format!("{ratio:.2}"), is_bad(ratio)))
    };
    let sum = |figure: fn(&Sample) -> u64| own.samples.iter().map(figure).sum::<u64>();
    let failed = sum(|it| it.failed);
    let loses: fn(f64) -> bool = if own.is_linked { |it| it < SELF_MIN } else { |it| it < 0.995 };
    vec![
        if own.is_linked { "link" } else { "cores" }.to_owned(),
        own.per_connection.to_string(),
        own.clients.to_string(),
        middle(own, Sample::per_s),
        middle(without, Sample::per_s),
        ratio(Sample::per_s, loses),
        middle(own, Sample::cpu_us),
        middle(without, Sample::cpu_us),
        ratio(Sample::cpu_us, |it| it > 1.005),
        sum(Sample::moved).to_string(),
        sum(Sample::stayed).to_string(),
        bold(&failed.to_string(), failed > 0),
    ]
}
