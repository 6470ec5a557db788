//! The page's section on packets of clients that are lost, duplicated and reordered.

use super::super::Part;
use super::super::relay::{RelayFigures, Requests};
use crate::experiments::page::{Page, bold, percent};

pub(super) fn add(page: &mut Page, Part { machine, figures: relayed }: &Part<RelayFigures>) {
    page.add("## Packets of clients are lost, doubled and overtaken\n");
    page.add(&machine.text());
    page.add(&format!("\n{}", setting(relayed)));
    let rows: Vec<Vec<String>> =
        wanted(relayed).into_iter().chain(figures(relayed)).map(Vec::from).collect();
    page.add_table(&["", "count", "wanted"].map(str::to_owned), &rows);
    for example in &relayed.requests.examples {
        page.add(&format!("- {example}"));
    }
}

fn setting(relayed: &RelayFigures) -> String {
    let faults = &relayed.faults;
    let objects: usize = relayed.objects.iter().map(|(_, count)| count).sum();
    let object = |(bytes, count): &(u64, usize)| {
        format!("{} KiB ({} % of requests)", bytes >> 10, count * 100 / objects.max(1))
    };
    let objects: Vec<_> = relayed.objects.iter().map(object).collect();
    format!(
        "{} nodes under round robin, LCCP on ip; {} clients, replies of {}, each byte compared. Between the client \
         and all others is a router with a relay on a TUN device. Of all packets, in both directions, {} % are lost, {} % are \
         duplicated (half of the copies at once, the others late) and {} % come {} to {} ms late, so that others \
         overtake them; by seed {} and number. LCCP \
         is not affected: see above. The client's kernel has its defaults: a SYN is retransmitted after 1 s, other \
         packets after 200 ms at least. A request that has no complete answer after {} s has hung; none is given up, \
         and the run waits for those in progress at the end. RSTs of the cluster that reach no connection of the \
         client do not count as failures: if a late copy of a reply arrives after the end, the client's kernel \
         answers with RST, which ends the node's TIME_WAIT (RFC 1337), and packets of the client that are still in \
         transit are then answered with RST.\n",
        relayed.nodes,
        relayed.clients,
        objects.join(", "),
        faults.lost_percent,
        faults.doubled_percent,
        faults.late_percent,
        f64::from(faults.late_us_min) / 1e3,
        f64::from(faults.late_us_max) / 1e3,
        faults.seed,
        relayed.hang_ms / 1000,
    )
}

fn wanted(relayed: &RelayFigures) -> Vec<[String; 3]> {
    let Requests { wrong, hung, reset, .. } = relayed.requests;
    let row = |what: &str, count: u64| {
        [what.to_owned(), bold(&count.to_string(), count > 0), "0".to_owned()]
    };
    vec![
        row("requests with a wrong byte or length", wrong),
        row("requests that hung", hung),
        row("requests whose connection was reset or refused", reset),
        row("requests that failed otherwise", relayed.requests.others()),
        row(
            "established connections that an RST ended, by the client's kernel",
            relayed.client_resets,
        ),
    ]
}

fn figures(relayed: &RelayFigures) -> Vec<[String; 3]> {
    let row = |what: &str, count: String| [what.to_owned(), count, String::new()];
    let causes = relayed.handoffs.causes();
    let packets = &relayed.packets;
    let of_all = |count: u64| format!("{count} ({} %)", percent(count, packets.relayed));
    let Requests { succeeded, bytes, first_byte_p50_us, first_byte_p99_us, .. } = relayed.requests;
    let ms = |us: u64| format!("{:.1}", us as f64 / 1e3);
    let [by_nodes, by_client] = relayed.sent_again;
    vec![
        row("connections that moved", relayed.handoffs.moved().to_string()),
        row("that were to move and stayed", none_if_empty(causes)),
        row("connections that nodes closed, by cause", none_if_empty(relayed.closings.words())),
        row("requests with the right answer", succeeded.to_string()),
        row("their bytes", bytes.to_string()),
        row("packets relayed", packets.relayed.to_string()),
        row("of these lost", of_all(packets.lost)),
        row("doubled", of_all(packets.doubled)),
        row("late", of_all(packets.late)),
        row("dropped by the kernel before the relay", packets.unread.to_string()),
        row("segments sent again by nodes", by_nodes.to_string()),
        row("by the client", by_client.to_string()),
        row(
            "RSTs of the cluster, heard by no connection if those above are 0",
            relayed.resets_sent.to_string(),
        ),
        row("seconds", format!("{:.0}", relayed.seconds)),
        row("requests a second", format!("{:.0}", relayed.per_s())),
        row(
            "time to the first byte, ms: median of the slower client thread",
            ms(first_byte_p50_us),
        ),
        row("99 %", ms(first_byte_p99_us)),
        row(
            "CPU of the bed for each request, us",
            format!("{:.0}", relayed.cpu_s * 1e6 / succeeded.max(1) as f64),
        ),
        row("cores used by others, %", format!("{:.0}", relayed.others_percent)),
    ]
}

fn none_if_empty(words: String) -> String {
    if words.is_empty() { "0".into() } else { words }
}
