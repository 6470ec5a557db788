//! The page's section on transports.

use super::super::Part;
use super::exchange::READY_TIMEOUT_MS;
use super::{Exchanges, RTO_SHORT_US, RTO_US, Transports, TransportsCell, TransportsSample};
use crate::experiments::page::{Page, bold, texts};

/// A figure of a sample, and whether more of it is better.
type Figure = (fn(&TransportsSample) -> f64, bool);

pub(in super::super) fn add(page: &mut Page, Part { machine, figures }: &Part<Transports>) {
    page.add("## LCCP beside TCP\n");
    page.add(&machine.text());
    page.add(&setting(figures));
    page.add(
        "The paper argues that TCP is too heavy for control messages: with permanent TCP connections between nodes \
         at least 12 more packets are exchanged for a request whose connection moves, instead of 9, and TCP's \
         extensive code is for losses that a LAN hardly has (its section 3.2, after Aron et al.); it measures no \
         control protocol on TCP. \
         The figures show that TCP's code is not the cost. A packet for each message costs about as much on a \
         persistent TCP connection as on IP, and several messages in a packet, which LCCP does not have, cost a \
         fraction; a connection for each move takes three times \
         the packets. Losses favour LCCP: it repeats a lost message of one move after 5 ms, while on TCP all moves \
         wait behind a lost packet, by default for longer than a donor waits for READY. With its minimum lowered to \
         5 ms TCP waits for some tens of milliseconds, which a donor mostly tolerates.\n",
    );
    add_alone(page, figures);
    add_many(page, figures);
}

fn setting(figures: &Transports) -> String {
    format!(
        "\nTwo nodes exchange the messages of moves and do nothing else: OFFER with the state of a connection and a request of {} bytes \
         (one fragment), READY, GO, DONE, encoded and sealed as in production. The receiver answers at once: no netguard, no \
         client's socket, so that only the transports are compared. LCCP is sent by Skep's socket, on IP (protocol \
         253) or on UDP; the \
         donor repeats lost messages as in production. On TCP the same sealed messages are sent, with their lengths, \
         on one persistent connection (`TCP_NODELAY`; all pending messages in one write, or one write for each \
         message), or each exchange has a connection of its own, from SYN \
         to FIN. TCP retransmits by itself: if no later packets reveal the loss, after {} ms at least (Linux's default) or, by \
         `net.ipv4.tcp_rto_min_us`, {} ms, rounded up to ticks of the kernel's clock. *Lost* is a share of all \
         packets of the transport in both directions, including those that only acknowledge. *Late*: READY came \
         more than {READY_TIMEOUT_MS} ms \
         after the start, so that the connection would have stayed (`handoff.ready_timeout_ms`). \
         Medians of rounds in turns, with the lowest and the highest. Bold: one of the rows of TCP with the same loss is better.\n",
        figures.request_bytes,
        RTO_US / 1_000,
        RTO_SHORT_US / 1_000,
    )
}

fn add_alone(page: &mut Page, figures: &Transports) {
    page.add(
        "**One exchange at a time**: from OFFER to DONE, in microseconds. *Packets* are those that the donor's \
         machine sends and receives for each.\n",
    );
    let head =
        texts(["transport", "lost", "exchanges", "median", "90 %", "99 %", "late %", "packets"]);
    let row = |cell: &TransportsCell| {
        let of = |figure: fn(&TransportsSample) -> f64| compared(figures, cell, (figure, false));
        vec![
            cell.transport.name().to_owned(),
            format!("{} %", cell.lost_percent),
            cell.samples.iter().map(|it| it.alone.times.count).sum::<u64>().to_string(),
            with_range(cell, of(|it| it.alone.times.p50_us), |it| it.alone.times.p50_us),
            of(|it| it.alone.times.p90_us),
            of(|it| it.alone.times.p99_us),
            late(figures, cell, |it| &it.alone),
            format!("{:.1}", cell.spread(|it| it.alone.packets).0),
        ]
    };
    page.add_table(&head, &figures.cells.iter().map(row).collect::<Vec<_>>());
}

fn add_many(page: &mut Page, figures: &Transports) {
    page.add(&format!(
        "**{} exchanges at a time**, each followed by the next. *CPU* of an exchange in microseconds: both ends and their kernels; *donor* and \
         *receiver* are their threads, with the kernel's work for the packets that they send, up to the other \
         machine's socket; the rest is ksoftirqd's. Times in microseconds; *others* affects times and rates, and to \
         a lesser extent packets and CPU.\n",
        figures.in_flight
    ));
    let head = texts([
        "transport",
        "lost",
        "per s",
        "packets",
        "CPU",
        "donor",
        "receiver",
        "median",
        "99 %",
        "late %",
        "others %",
    ]);
    let row = |cell: &TransportsCell| {
        let of = |figure: fn(&TransportsSample) -> f64, is_more_better| {
            compared(figures, cell, (figure, is_more_better))
        };
        let middle = |figure: fn(&TransportsSample) -> f64| cell.spread(figure).0;
        vec![
            cell.transport.name().to_owned(),
            format!("{} %", cell.lost_percent),
            with_range(cell, of(|it| it.many.per_s(), true), |it| it.many.per_s()),
            format!("{:.1}", middle(|it| it.many.packets)),
            with_range(cell, of(|it| it.many.cpu_us, false), |it| it.many.cpu_us),
            format!("{:.0}", middle(|it| it.many.donor_us)),
            format!("{:.0}", middle(|it| it.many.receiver_us)),
            of(|it| it.many.times.p50_us, false),
            of(|it| it.many.times.p99_us, false),
            late(figures, cell, |it| &it.many),
            format!("{:.0}", middle(|it| it.many.others_percent)),
        ]
    };
    page.add_table(&head, &figures.cells.iter().map(row).collect::<Vec<_>>());
}

/// The median of all rounds; bold if it is ours and a TCP transport is better.
fn compared(figures: &Transports, cell: &TransportsCell, figure: Figure) -> String {
    let own = cell.spread(figure.0).0;
    bold(&format!("{own:.0}"), loses(figures, cell, figure))
}

fn with_range(
    cell: &TransportsCell,
    middle: String,
    figure: fn(&TransportsSample) -> f64,
) -> String {
    let (_, low, high) = cell.spread(figure);
    format!("{middle} ({low:.0} - {high:.0})")
}

fn late(
    figures: &Transports,
    cell: &TransportsCell,
    of: fn(&TransportsSample) -> &Exchanges,
) -> String {
    // Summed over all rounds, since the counts are small.
    let percent = |cell: &TransportsCell| {
        let sum = |count: fn(&Exchanges) -> u64| -> u64 {
            cell.samples.iter().map(|it| count(of(it))).sum()
        };
        sum(|it| it.late) as f64 * 100.0 / sum(|it| it.times.count).max(1) as f64
    };
    let own = percent(cell);
    let is_worse = rivals(figures, cell).any(|rival| percent(rival) < own);
    bold(&format!("{own:.2}"), cell.transport.is_ours() && is_worse)
}

fn loses(figures: &Transports, cell: &TransportsCell, (figure, is_more_better): Figure) -> bool {
    // Compared as displayed.
    let own = cell.spread(figure).0.round();
    let is_better = |rival: &TransportsCell| {
        let rival = rival.spread(figure).0.round();
        if is_more_better { rival > own * 1.005 } else { rival < own * 0.995 }
    };
    cell.transport.is_ours() && rivals(figures, cell).any(is_better)
}

/// The cells of TCP transports with the same loss rate.
fn rivals<'a>(
    figures: &'a Transports,
    cell: &TransportsCell,
) -> impl Iterator<Item = &'a TransportsCell> {
    let lost_percent = cell.lost_percent;
    let is_one =
        move |it: &&TransportsCell| !it.transport.is_ours() && it.lost_percent == lost_percent;
    figures.cells.iter().filter(is_one)
}
