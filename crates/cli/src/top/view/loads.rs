//! The table of loads reported by nodes, beside the dispatcher's measurements.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};
use skep_console::NodeReport;

use super::alarm;
use crate::show::{Paint, load_cells};
use crate::top::model::Model;

const COLUMNS: [(&str, Constraint); 9] = [
    ("LOAD OF", Constraint::Fill(1)),
    ("CPU", Constraint::Length(6)),
    ("MEMORY", Constraint::Length(8)),
    ("CONNS", Constraint::Length(5)),
    ("TO SEND", Constraint::Length(8)),
    ("SENT/S", Constraint::Length(8)),
    ("HITS", Constraint::Length(7)),
    ("FILLED/S", Constraint::Length(8)),
    ("AGE", Constraint::Length(6)),
];

/// Draws the load reports, stale ones in red.
pub(super) fn draw_loads(frame: &mut Frame<'_>, model: &Model, area: Rect, paint: Paint) {
    let rows = model.latest.loads.iter().skip(model.scroll).map(|report| row(report, paint));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let heads = COLUMNS.iter().enumerate().map(|(at, (head, _))| cell(head, at).style(bold));
    let widths = COLUMNS.map(|(_, width)| width);
    let table = Table::new(rows, widths).header(Row::new(heads)).column_spacing(1);
    frame.render_widget(table, area);
}

fn row(report: &NodeReport, paint: Paint) -> Row<'static> {
    let cells = load_cells(report).into_iter().enumerate().map(|(at, text)| cell(&text, at));
    let style = if report.is_stale { alarm(paint) } else { Style::new() };
    Row::new(cells).style(style)
}

/// A cell with the name aligned to the left, or a number to the right.
fn cell(text: &str, column: usize) -> Cell<'static> {
    let line = Line::from(text.to_owned());
    Cell::from(if column == 0 { line } else { line.right_aligned() })
}
