//! Nodes die, restart, are drained and added under load: how far the hit ratio falls, how soon it recovers,
//! and what clients notice.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use skep_lab::load::{MixReport, Second};

use super::cell::{Load, pause, warm_up};
use super::data::{DataSet, PopularityLaw};
use super::machine::MachineDescription;
use super::page::{Better, Column, Page, bold, ms, percent, setting};
use super::plot::{Line, Plot};
use super::rows::{TableRow, node_name};
use super::settings::Settings;
use super::stage::{ServingBed, StagePlan};
use super::{Failure, Run};

/// Nodes in use at the beginning; one more is added later.
const NODES: usize = 4;

/// A node's cache, and the data set, in bytes: three nodes hold all of it.
const CACHE_BYTES: u64 = 8_000_000;
const DATA_BYTES: u64 = 20_000_000;
const QUICK_PART: u64 = 4;

/// Rows, with the same meaning as in table 2.
const ROWS: [TableRow; 5] = [
    TableRow::SkepProxy,
    TableRow::SkepDirect,
    TableRow::SkepAlone,
    TableRow::NginxTurns,
    TableRow::NginxUrl,
];

const COLUMNS: [Column; 11] = [
    ("right answers", Better::More),
    ("failed", Better::Less),
    ("wrong bytes", Better::Less),
    ("replaced", Better::Less),
    ("own memory %", Better::Neither),
    ("peers' %", Better::Neither),
    ("origin %", Better::Less),
    ("redundant", Better::Less),
    ("p50", Better::Less),
    ("p99", Better::Less),
    ("longest", Better::Less),
];

/// Time between two events, in milliseconds.
const STEP_MS: u64 = 12_000;
const QUICK_STEP_MS: u64 = 3_000;

/// Seconds before an event whose mean the hit ratio must reach again.
const BEFORE_S: usize = 3;

/// The events in their order, one per step; nodes by their index.
const EVENTS: [Event; 5] =
    [Event::Kill(1), Event::Start(1), Event::Drain(2), Event::Resume(2), Event::Add(NODES)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Event {
    Kill(usize),
    Start(usize),
    Drain(usize),
    Resume(usize),
    Add(usize),
}

/// The run of one row.
#[derive(Serialize, Deserialize)]
struct Course {
    row: TableRow,
    report: MixReport,
    /// Each with the second in which it was done.
    events: Vec<(f64, Event)>,
    /// Bytes sent by the origin over those of distinct objects, from the beginning.
    redundancy: f64,
}

/// The results as written to JSON.
#[derive(Serialize, Deserialize)]
struct Results {
    machine: MachineDescription,
    settings: Settings,
    courses: Vec<Course>,
    /// Rows that could not be measured or have unacceptable results, and why.
    troubles: Vec<String>,
}

pub(super) fn run(run: &Run) -> Result<(), Failure> {
    let part = if run.is_quick { QUICK_PART } else { 1 };
    let step_ms = if run.is_quick { QUICK_STEP_MS } else { STEP_MS };
    let data = DataSet::of_bytes(DATA_BYTES / part);
    let machine = MachineDescription::describe(&run.settings.skep);
    let (settings, courses, troubles) = (run.settings.clone(), Vec::new(), Vec::new());
    let mut results = Results { machine, settings, courses, troubles };
    for row in run.rows_of(&ROWS) {
        let cache_bytes = CACHE_BYTES / part;
        let popularity = PopularityLaw::Zipf;
        let load = Load { row, nodes: NODES, popularity, data: &data, cache_bytes };
        match go_through(&load, step_ms, &run.settings) {
            Ok(course) => {
                course.print();
                results.troubles.extend(course.trouble());
                results.courses.push(course);
            }
            Err(error) => {
                super::interrupted()?;
                eprintln!("skep-lab: {}: {error}", row.name());
                results.troubles.push(format!("{}: {error}", row.name()));
            }
        }
    }
    let page = results.page(CACHE_BYTES / part, &data);
    page.finish(run.out.as_deref(), &results, &results.troubles)
}

fn go_through(load: &Load<'_>, step_ms: u64, settings: &Settings) -> Result<Course, Failure> {
    let &Load { row, nodes, data, cache_bytes, .. } = load;
    let mut stage = ServingBed::new(&StagePlan {
        row,
        nodes,
        spares: 1,
        cache_bytes,
        link_mbit_s: 0,
        data,
        settings,
    })?;
    let mix = warm_up(&stage, load, settings)?;
    mix.measure();
    let begin = Instant::now();
    let mut events = Vec::new();
    for event in EVENTS {
        pause(step_ms)?;
        events.push((begin.elapsed().as_secs_f64(), event));
        event.happen(&mut stage)?;
    }
    pause(step_ms)?;
    let counts = stage.origin_counts()?;
    let redundancy = counts.bytes as f64 / counts.unique_bytes.max(1) as f64;
    Ok(Course { row, report: mix.stop()?, events, redundancy })
}

impl Event {
    pub(super) fn happen(self, stage: &mut ServingBed) -> Result<(), Failure> {
        match self {
            Self::Kill(index) => {
                stage.kill_node(index);
                Ok(())
            }
            Self::Start(index) => stage.start_node(index),
            Self::Drain(index) => stage.drain_node(index),
            Self::Resume(index) => stage.resume_node(index),
            Self::Add(index) => stage.add_node(index),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Kill(index) => format!("kill -9 {}", node_name(index)),
            Self::Start(index) => format!("start {}", node_name(index)),
            Self::Drain(index) => format!("drain {}", node_name(index)),
            Self::Resume(index) => format!("resume {}", node_name(index)),
            Self::Add(index) => format!("add {}", node_name(index)),
        }
    }
}

/// Answers from memory in percent of all right ones.
fn hit_percent(second: &Second) -> f64 {
    let requests = &second.requests;
    (requests.local + requests.peer) as f64 * 100.0 / requests.sum().max(1) as f64
}

impl Course {
    fn print(&self) {
        let report = &self.report;
        println!(
            "  {:<28} {:>7} right answers, {} failed, {} of them wrong, p99 {} ms, longest {} ms",
            self.row.name(),
            report.succeeded,
            report.failed,
            report.wrong,
            ms(report.first_byte_us.p99),
            ms(report.first_byte_us.max),
        );
        report.examples.iter().take(3).for_each(|example| println!("    {example}"));
    }

    /// Unacceptable results: wrong bytes, and failures where Skep is a proxy before its nodes. (Clients that
    /// are steered to a node directly lose the replies in progress when it is killed.)
    fn trouble(&self) -> Option<String> {
        let MixReport { failed, wrong, .. } = self.report;
        let is_amiss = wrong > 0 || failed > 0 && self.row == TableRow::SkepProxy;
        is_amiss.then(|| format!("{}: {failed} failed, {wrong} of them wrong", self.row.name()))
    }

    /// The hit ratio before an event, its minimum after it until the next one, and the seconds until it is
    /// within one point of the former value.
    fn dip(&self, number: usize) -> (f64, f64, Option<usize>) {
        let at = self.events[number].0 as usize;
        let end = self.events.get(number + 1).map_or(self.report.seconds.len(), |it| it.0 as usize);
        let seconds = &self.report.seconds;
        let ratios: Vec<f64> = seconds.iter().map(hit_percent).collect();
        let before = &ratios[at.saturating_sub(BEFORE_S).min(ratios.len())..at.min(ratios.len())];
        let mean = before.iter().sum::<f64>() / before.len().max(1) as f64;
        // The last second is not complete.
        let after = &ratios[at.min(ratios.len())..end.min(ratios.len().saturating_sub(1)).max(at)];
        let least = after.iter().copied().fold(mean, f64::min);
        let is_low = |ratio: &f64| *ratio < mean - 1.0;
        let back = match after.iter().rposition(is_low) {
            None => Some(0),
            Some(last) if last + 1 < after.len() => Some(last + 1),
            Some(_) => None,
        };
        (mean, least, back)
    }
}

impl Results {
    fn page(&self, cache_bytes: u64, data: &DataSet) -> Page {
        let mut page = Page::new("churn");
        page.add("# Nodes come and go\n");
        page.add("`skep-lab churn` makes this page ([how](README.md)).\n");
        page.add(&setting(&self.settings, &self.machine));
        page.add(&format!(
            "\n{NODES} nodes with a cache of {:.0} MB each, a data set of {:.0} MB, popularity \
             Zipf 1.0. One after the other: {}. Failed: no correct answer in 10 s, or a connection \
             that ended within a reply. If a kept connection turns out to be closed before a byte of the answer \
             arrives, the client replaces it, once (RFC 9112, 9.3.1); it counts as replaced. Bold: a peer is better there.\n",
            cache_bytes as f64 / 1e6,
            data.bytes() as f64 / 1e6,
            EVENTS.map(Event::text).join(", "),
        ));
        self.add_sums(&mut page);
        self.add_dips(&mut page);
        let hits = |second: &Second| hit_percent(second);
        page.add_plot("hits", self.plot("Answers from memory", "% of answers", hits));
        let rate = |second: &Second| second.requests.sum() as f64;
        page.add_plot("rate", self.plot("Right answers", "answers/s", rate));
        self.add_failures(&mut page);
        page
    }

    fn add_sums(&self, page: &mut Page) {
        let row = |course: &Course| {
            let MixReport { requests, succeeded, first_byte_us, .. } = &course.report;
            let figures = vec![
                succeeded.to_string(),
                course.report.failed.to_string(),
                course.report.wrong.to_string(),
                course.report.reopened.to_string(),
                percent(requests.local, *succeeded),
                percent(requests.peer, *succeeded),
                percent(requests.origin + requests.unknown, *succeeded),
                format!("{:.2}", course.redundancy),
                ms(first_byte_us.p50),
                ms(first_byte_us.p99),
                ms(first_byte_us.max),
            ];
            (course.row, figures)
        };
        page.add_compared("row", &COLUMNS, self.courses.iter().map(row).collect());
    }

    fn add_dips(&self, page: &mut Page) {
        page.add(
            "Answers from memory in percent: before the event, in the worst second after it, and seconds until it \
             stays within one point of the earlier value (-: not before the next event). Bold: a peer's worst second \
             is better.\n",
        );
        let peers = || self.courses.iter().filter(|course| !course.row.is_skep());
        let best = |number| peers().map(|it| it.dip(number).1).fold(0.0, f64::max);
        let head = std::iter::once("row".to_owned()).chain(EVENTS.map(Event::text));
        let row = |course: &Course| {
            let cell = |number| {
                let (before, least, back) = course.dip(number);
                let back = back.map_or("-".to_owned(), |seconds| format!("{seconds} s"));
                let loses = course.row.is_skep() && least < best(number);
                bold(&format!("{before:.1} -> {least:.1}, {back}"), loses)
            };
            std::iter::once(course.row.name().to_owned())
                .chain((0..course.events.len()).map(cell))
                .collect()
        };
        let rows: Vec<Vec<String>> = self.courses.iter().map(row).collect();
        page.add_table(&head.collect::<Vec<_>>(), &rows);
    }

    fn add_failures(&self, page: &mut Page) {
        for course in self.courses.iter().filter(|course| course.report.failed > 0) {
            page.add(&format!("The first failures of {}:\n", course.row.name()));
            course.report.examples.iter().for_each(|example| page.add(&format!("- {example}")));
            page.add("");
        }
        self.troubles.iter().for_each(|it| page.add(&format!("Amiss: {it}\n")));
    }

    fn plot(&self, title: &str, y: &'static str, of: impl Fn(&Second) -> f64) -> Plot {
        let line = |course: &Course| {
            let seconds = &course.report.seconds;
            // The last second is not complete.
            let whole = &seconds[..seconds.len().saturating_sub(1)];
            Line {
                name: course.row.name().to_owned(),
                colour: course.row as usize,
                points: whole.iter().enumerate().map(|(at, it)| (at as f64, of(it))).collect(),
                has_dots: false,
            }
        };
        let events = self.courses.first().map(|course| course.events.as_slice());
        let mark = |(at, event): &(f64, Event)| (*at, event.text());
        let lines: Vec<Line> = self.courses.iter().map(line).collect();
        let points = lines.iter().flat_map(|line| &line.points);
        // A dip of a few percent must be visible.
        let least = points.map(|point| point.1).fold(f64::MAX, f64::min);
        let y_begin = if y.starts_with('%') { (least / 10.0).floor() * 10.0 } else { 0.0 };
        Plot {
            title: title.to_owned(),
            x: "seconds",
            y,
            y_begin,
            lines,
            marks: events.unwrap_or_default().iter().map(mark).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dip_is_measured_from_what_was_before() {
        let second = |hits: u64| {
            let mut second = Second::default();
            (second.requests.local, second.requests.origin) = (hits, 100 - hits);
            second
        };
        let seconds = [90, 90, 90, 40, 60, 89, 90, 90, 90, 20, 20, 20].map(second).into();
        let report = MixReport { seconds, ..MixReport::default() };
        let events = vec![(3.2, Event::Kill(1)), (9.0, Event::Start(1))];
        let course = Course { row: TableRow::SkepProxy, report, events, redundancy: 1.0 };
        assert_eq!(course.dip(0), (90.0, 40.0, Some(2)));
        assert_eq!(course.dip(1), (90.0, 20.0, None));
    }
}
