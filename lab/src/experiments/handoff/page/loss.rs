//! The page's section on lost control packets.

use super::super::Part;
use super::super::loss::{Loss, LossCell};
use crate::experiments::page::{Page, bold, texts};
use crate::experiments::plot::{Line, Plot};

pub(super) fn add(page: &mut Page, Part { machine, figures: loss }: &Part<Loss>) {
    page.add("## Control packets are lost\n");
    page.add(&machine.text());
    page.add(&format!(
        "\n{} nodes, {} clients for each, replies of {} bytes, every byte compared; a share of all LCCP packets (IP protocol 253) is lost on the \
         way, reports to the dispatcher included. Goal: no failed request. *Stayed* are connections that should have \
         moved and were answered by the node that had them. The paper has no such measurement; it argues that such a \
         loss does not matter.\n",
        loss.nodes, loss.clients, loss.object_bytes,
    ));
    let base = loss.cells.first().map_or(0.0, |cell| cell.sample.per_s());
    let head = texts([
        "lost", "requests", "failed", "conn/s", "x", "moved", "stayed", "p50 ms", "p99 ms",
        "others %",
    ]);
    let row = |cell: &LossCell| {
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
                stayed => format!("{stayed}: {}", sample.handoffs.causes()),
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
