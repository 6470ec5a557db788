//! The page's section on the time of a move.

use super::super::Part;
use super::super::moves::{Moves, MovesRun, STEPS};
use crate::experiments::metrics::Quantiles;
use crate::experiments::page::{Page, bold, texts};

/// Required median time of a move, in microseconds.
const FREEZE_US_MAX: f64 = 60.0;

pub(super) fn add(page: &mut Page, Part { machine, figures: Moves { runs } }: &Part<Moves>) {
    page.add("## What a move takes\n");
    page.add(&machine.text());
    page.add(&format!(
        "\nTwo nodes, an object of 1 KiB whose URL belongs to one of them, so that every connection which the other \
         accepts moves. One \
         client, one connection at a time. *Frozen* is the time from the order to freeze until GO is sent to the \
         receiver, by the donor's clock; goal: at most {FREEZE_US_MAX} us at the median. *Whole* is the time from \
         the worker's decision until the receiver has confirmed that it serves. From the nodes' histograms \
         (`skep_handoff_freeze_seconds`, `skep_handoff_move_seconds`, `skep_handoff_step_seconds`): microseconds.\n",
    ));
    let head = texts(["LCCP on", "", "moves", "10 %", "median", "90 %", "99 %", "mean"]);
    let row = |run: &MovesRun, what: &str, times: &Quantiles, max: f64| {
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
        "The receiver's `create` and `restore` are within the donor's `offer`, its `start` within `go`; `ready` \
         includes `redirect`. Neither the paper nor others give times of their moves; a prototype in Python froze \
         a connection for 84 us between two \
         namespaces. Both nodes, their netguards and the client share two cores.\n",
    );
    runs.iter().for_each(|run| add_cost(page, run));
}

fn add_cost(page: &mut Page, run: &MovesRun) {
    let (many, direct) = (&run.many, &run.direct);
    page.add(&format!(
        "**Many at a time**, LCCP on {}: {:.0} connections a second, of which {:.0} moved; {} that should have moved \
         stayed, {} requests failed. Frozen for {:.0} us at the \
         median. CPU for each connection: {:.1} us, compared with runs without moves (`direct`, {:.0} a second) {:.1} us: a move \
         costs the bed {:.0} us. Of the nodes' threads, microseconds for each move (workers also serve; those of the \
         receiver also serve its own connections):\n",
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
