//! Draws a [`Model`]. Designed for 80 by 24, and uses all available space.

mod loads;

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table};
use skep_console::{NodeState, NodeStatus};

use loads::draw_loads;

use super::model::{Model, NodeRates, Shown};
use crate::arguments::SortBy;
use crate::show::{Paint, bytes, count, duration, latency, rate, stale};

/// Lines of everything except the table's rows.
pub(super) const LINES_AROUND: u16 = HEAD_LINES + CURVE_LINES + 1 + 1;
const HEAD_LINES: u16 = 4;
const CURVE_LINES: u16 = 5;

const COLUMNS: [(&str, Constraint); 10] = [
    ("NODE", Constraint::Fill(1)),
    ("STATE", Constraint::Length(8)),
    ("REQ/S", Constraint::Length(6)),
    ("SENT/S", Constraint::Length(8)),
    ("LOAD", Constraint::Length(5)),
    ("CONNS", Constraint::Length(5)),
    ("FAIL/S", Constraint::Length(6)),
    ("LATENCY", Constraint::Length(8)),
    ("WEIGHT", Constraint::Length(6)),
    ("SHARE", Constraint::Length(5)),
];

const HELP: [&str; 8] = [
    "q        quit",
    "p        pause, and go on",
    "s        sort by another column",
    "l        what nodes say of their load, and back",
    "up down  scroll the nodes",
    "?        this help",
    "",
    "Share: how much of its weight a node takes now.",
];

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, now: Instant, paint: Paint) {
    let parts = [
        Constraint::Length(HEAD_LINES),
        Constraint::Length(CURVE_LINES),
        Constraint::Min(2),
        Constraint::Length(1),
    ];
    let [head, curve, table, foot] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(model)), head);
    draw_curve(frame, model, curve, paint);
    match model.shown {
        Shown::Requests => draw_table(frame, model, table, paint),
        Shown::Loads => draw_loads(frame, model, table, paint),
        Shown::Both => {
            let rows = u16::try_from(model.nodes().len()).unwrap_or(u16::MAX - 1);
            // One head above, and one empty line below.
            let parts = [Constraint::Length(rows.saturating_add(2)), Constraint::Min(1)];
            let [above, below] = Layout::vertical(parts).areas(table);
            draw_table(frame, model, above, paint);
            draw_loads(frame, model, below, paint);
        }
    }
    frame.render_widget(Paragraph::new(foot_line(model, now, paint)), foot);
    if model.is_helping {
        draw_help(frame);
    }
}

fn head_lines(model: &Model) -> Vec<Line<'static>> {
    let (status, rates) = (&model.latest, &model.rates);
    let (traffic, times) = (&status.traffic, &status.traffic.latency);
    let state = if status.draining { " draining" } else { "" };
    let (cluster, name, generation) = (&status.cluster, &status.name, status.config_generation);
    let uptime = duration(status.uptime_ms);
    let mut lines = vec![Line::from(format!(
        "cluster {cluster}  {name}{state}  up {uptime}  generation {generation}  {}",
        status.version
    ))];
    lines.push(Line::from(vec![
        bold(format!("{} req/s  {}/s", rate(rates.requests), bytes(rates.sent_bytes as u64))),
        Span::raw(format!(
            "  4xx {}/s  5xx {}/s  in work {}  connections {}",
            rate(rates.responses_4xx),
            rate(rates.responses_5xx),
            count(traffic.requests_in_flight),
            count(traffic.connections_open),
        )),
    ]));
    lines.push(Line::from(format!(
        "time now {} on average; since the start p50 {}, p95 {}, p99 {}",
        latency(rates.mean_us),
        latency(times.p50_us),
        latency(times.p95_us),
        latency(times.p99_us),
    )));
    let services = status.services.iter().map(|service| {
        let listen = service.listen.first().map_or(String::new(), |it| format!(" on {it}"));
        format!("{}: {}, {}{listen}", service.name, service.dispatch, service.policy)
    });
    lines.push(Line::from(services.collect::<Vec<_>>().join("; ")));
    lines
}

fn draw_curve(frame: &mut Frame<'_>, model: &Model, area: Rect, paint: Paint) {
    let columns = usize::from(area.width);
    let shown = model.history.len().min(columns);
    let mut data = vec![0; columns - shown];
    data.extend(model.history.iter().skip(model.history.len() - shown));
    let most = data.iter().copied().max().unwrap_or(0);
    let title = format!("requests per second, at most {}", count(most));
    let curve = Sparkline::default()
        .block(Block::new().title(title))
        // Without traffic any scale works, except 0, by which would be divided.
        .max(most.max(1))
        .style(colour(paint, Color::Cyan))
        .data(data);
    frame.render_widget(curve, area);
}

fn draw_table(frame: &mut Frame<'_>, model: &Model, area: Rect, paint: Paint) {
    let nodes = model.nodes();
    let several = model.latest.services.len() > 1;
    let rows =
        nodes.iter().skip(model.scroll).map(|(node, rates)| row(node, *rates, several, paint));
    let sorted = match model.sort {
        SortBy::Name => 0,
        SortBy::State => 1,
        SortBy::Rate => 2,
        SortBy::Load => 4,
        SortBy::Latency => 7,
    };
    let heads = COLUMNS.iter().enumerate().map(|(at, (head, _))| {
        let underline = if at == sorted { Modifier::UNDERLINED } else { Modifier::empty() };
        Cell::from(align(head, at)).style(Style::new().add_modifier(Modifier::BOLD | underline))
    });
    let widths = COLUMNS.map(|(_, width)| width);
    let table = Table::new(rows, widths).header(Row::new(heads)).column_spacing(1);
    frame.render_widget(table, area);
}

fn row(node: &NodeStatus, rates: NodeRates, several: bool, paint: Paint) -> Row<'static> {
    let name = match several {
        true => format!("{}/{}", node.service, node.name),
        false => node.name.clone(),
    };
    let cells = [
        name,
        node.state.word().to_owned(),
        rate(rates.requests),
        bytes(rates.bytes as u64),
        count(node.outstanding_requests.into()),
        count(node.connections.into()),
        rate(rates.failures),
        latency(node.latency_us),
        node.weight.to_string(),
        format!("{}%", node.share_permille / 10),
    ];
    let cells = cells.into_iter().enumerate().map(|(at, text)| Cell::from(align(&text, at)));
    Row::new(cells).style(state_style(node.state, paint))
}

/// The current error, else the available keys.
fn foot_line(model: &Model, now: Instant, paint: Paint) -> Line<'static> {
    if let Some((since, why)) = &model.silence {
        let ms = u64::try_from(now.duration_since(*since).as_millis()).unwrap_or(u64::MAX);
        let text = format!("not answering for {}: {why}", duration(ms));
        return Line::styled(text, alarm(paint));
    }
    let trouble = model.nodes().into_iter().find_map(|(node, _)| {
        let reason = node.reason.as_ref()?;
        Some(format!("{} {}: {reason}", node.name, node.state.word()))
    });
    let silent = || model.latest.loads.iter().find(|report| report.is_stale).map(stale);
    let trouble = trouble.or_else(silent);
    let pause = if model.is_paused { "PAUSED  " } else { "" };
    match trouble {
        Some(trouble) => Line::styled(format!("{pause}{trouble}"), alarm(paint)),
        None => {
            let keys = "q quit  p pause  s sort  l load  ? help";
            Line::from(format!("{pause}{keys}  {}", model.source))
        }
    }
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let width = 52.min(area.width);
    let height = (HELP.len() as u16 + 2).min(area.height);
    let (x, y) = ((area.width - width) / 2, (area.height - height) / 2);
    let area = Rect { x, y, width, height };
    frame.render_widget(Clear, area);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), area);
}

/// Aligns text to the left, numbers to the right.
fn align(text: &str, column: usize) -> Line<'static> {
    let line = Line::from(text.to_owned());
    if column < 2 { line } else { line.right_aligned() }
}

fn bold(text: String) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn state_style(state: NodeState, paint: Paint) -> Style {
    match state {
        NodeState::Up => colour(paint, Color::Green),
        NodeState::Down => alarm(paint),
        NodeState::Joining | NodeState::Removing | NodeState::Draining | NodeState::Drained => {
            colour(paint, Color::Yellow)
        }
    }
}

fn alarm(paint: Paint) -> Style {
    colour(paint, Color::Red).add_modifier(Modifier::BOLD)
}

fn colour(paint: Paint, colour: Color) -> Style {
    match paint {
        Paint::Colours => Style::new().fg(colour),
        Paint::Plain => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    use super::*;
    use crate::show::tests::{node, process, report};
    use crate::top::model::KeyAction;

    fn model() -> Model {
        let mut model = Model::new("a.sock".into(), process(), SortBy::Name);
        let mut later = process();
        later.uptime_ms += 1000;
        later.traffic.requests_total += 500;
        later.traffic.sent_bytes_total += 3 << 20;
        later.services[0].nodes[0].requests_total += 500;
        model.look(Instant::now(), Ok(later));
        model
    }

    fn drawn(model: &Model, width: u16, height: u16, paint: Paint) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, Instant::now(), paint)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn lines(model: &Model) -> Vec<String> {
        text(&drawn(model, 80, 24, Paint::Plain))
    }

    fn text(buffer: &Buffer) -> Vec<String> {
        let cells = buffer.content().chunks(usize::from(buffer.area.width));
        let line =
            |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect();
        cells.map(line).map(|line: String| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn a_frame_of_80_by_24_shows_it_all() {
        let lines = lines(&model());
        let expected = [
            "cluster skep  dispatcher  up 1m 41s  generation 2  0.1.0",
            "500 req/s  3.00 MiB/s  4xx 0/s  5xx 0/s  in work 7  connections 64",
            "time now - on average; since the start p50 0.30 ms, p95 -, p99 1.90 ms",
            "web: proxy, round-robin on 127.0.0.1:8080",
            "requests per second, at most 500",
        ];
        assert_eq!(lines[..5], expected);
        assert!(lines[5..9].iter().all(|line| line.ends_with('█')), "{lines:#?}");
        let table = [
            "NODE           STATE     REQ/S   SENT/S  LOAD CONNS FAIL/S  LATENCY WEIGHT SHARE",
            "node-1         up          500      0 B     3     4      0  0.41 ms      1  100%",
            "node-2         down          0      0 B     3     4      0  0.41 ms      1  100%",
        ];
        assert_eq!(lines[9..12], table);
        assert_eq!(lines[23], "node-2 down: connection refused");
    }

    #[test]
    fn states_have_colours_unless_they_are_unwanted() {
        let colours = |paint| {
            let buffer = drawn(&model(), 80, 24, paint);
            [10, 11].map(|line| buffer[(0, line)].fg)
        };
        assert_eq!(colours(Paint::Colours), [Color::Green, Color::Red]);
        assert_eq!(colours(Paint::Plain), [Color::Reset, Color::Reset]);
    }

    #[test]
    fn silence_takes_the_last_line() {
        let mut model = model();
        let now = Instant::now();
        model.look(now, Err("no answer from a.sock: refused".into()));
        let buffer = {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            let later = now + Duration::from_secs(3);
            terminal.draw(|frame| draw(frame, &model, later, Paint::Plain)).unwrap();
            terminal.backend().buffer().clone()
        };
        assert_eq!(text(&buffer)[23], "not answering for 3s: no answer from a.sock: refused");
    }

    #[test]
    fn keys_pause_and_help_are_seen() {
        let mut model = model();
        model.latest.services[0].nodes = vec![node("node-1", NodeState::Up)];
        assert_eq!(lines(&model)[23], "q quit  p pause  s sort  l load  ? help  a.sock");
        model.press(KeyAction::Pause);
        assert!(lines(&model)[23].starts_with("PAUSED"));
        model.press(KeyAction::Help);
        assert!(lines(&model).iter().any(|line| line.contains("pause, and go on")));
    }

    #[test]
    fn loads_take_the_place_of_requests_or_stand_below() {
        let mut model = model();
        model.latest.services[0].nodes[1] = node("node-2", NodeState::Up);
        model.latest.loads = vec![report("node-1", 40), report("node-2", 3_200)];
        model.press(KeyAction::Loads);
        let expected = [
            "LOAD OF             CPU   MEMORY CONNS  TO SEND   SENT/S    HITS FILLED/S    AGE",
            "node-1           12.5 %  300 MiB    64 5.00 MiB 80.0 MiB  97.0 % 1.00 MiB  40 ms",
            "node-2           12.5 %  300 MiB    64 5.00 MiB 80.0 MiB  97.0 % 1.00 MiB     3s",
        ];
        assert_eq!(lines(&model)[9..12], expected);
        assert!(lines(&model)[23].starts_with("no load report of node-2 for 3s"));
        model.press(KeyAction::Loads);
        assert!(lines(&model)[9].starts_with("NODE "));
        model.shown = Shown::Both;
        assert!(lines(&model)[11].starts_with("node-2  "));
        assert_eq!(lines(&model)[13..16], expected);
    }

    #[test]
    fn scrolling_hides_the_first_nodes() {
        let mut model = model();
        model.press(KeyAction::Down);
        let lines = lines(&model);
        assert!(lines[10].starts_with("node-2") && lines[11].is_empty(), "{lines:#?}");
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut model = model();
        for is_helping in [false, true] {
            model.is_helping = is_helping;
            for (width, height) in [(1, 1), (10, 3), (40, 10), (79, 23), (300, 100)] {
                drawn(&model, width, height, Paint::Colours);
            }
        }
    }
}
