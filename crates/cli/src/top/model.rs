//! The data of `skep top`: the latest sample, the rates since the previous one, and the user's choices.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Instant;

use skep_console::{NodeStatus, ProcessStatus};

use crate::arguments::SortBy;

/// Samples kept for the graph: more than a terminal has columns.
const HISTORY_MAX: usize = 512;

pub(super) struct Model {
    /// The queried process.
    pub(super) source: String,
    pub(super) latest: ProcessStatus,
    pub(super) rates: Rates,
    /// Rates of the nodes, in the order of [`Self::nodes`] before sorting.
    node_rates: Vec<NodeRates>,
    /// Requests per second at each sample, the newest last.
    pub(super) history: VecDeque<u64>,
    /// Since when there is no answer, and why.
    pub(super) silence: Option<(Instant, String)>,
    pub(super) sort: SortBy,
    pub(super) is_paused: bool,
    pub(super) is_helping: bool,
    pub(super) shown: Shown,
    /// Number of nodes above the first one shown.
    pub(super) scroll: usize,
}

/// Which tables of nodes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The dispatcher's measurements of them.
    Requests,
    /// The loads that they report.
    Loads,
    /// Both, one above the other.
    Both,
}

/// Rates between two samples, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) requests: f64,
    pub(super) sent_bytes: f64,
    pub(super) responses_4xx: f64,
    pub(super) responses_5xx: f64,
    /// Mean time of the requests that ended, in microseconds; 0 if there are none.
    pub(super) mean_us: u64,
}

/// The same for one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NodeRates {
    pub(super) requests: f64,
    pub(super) bytes: f64,
    pub(super) failures: f64,
}

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Quit,
    Pause,
    Sort,
    Loads,
    Help,
    Up,
    Down,
}

impl Model {
    pub(super) fn new(source: String, first: ProcessStatus, sort: SortBy) -> Self {
        let node_rates = vec![NodeRates::default(); nodes_of(&first).count()];
        Self {
            source,
            latest: first,
            rates: Rates::default(),
            node_rates,
            history: VecDeque::new(),
            silence: None,
            sort,
            is_paused: false,
            is_helping: false,
            shown: Shown::Requests,
            scroll: 0,
        }
    }

    /// Records a sample, or that there was no answer. Has no effect while paused.
    pub(super) fn look(&mut self, now: Instant, look: Result<ProcessStatus, String>) {
        if self.is_paused {
            return;
        }
        match look {
            Ok(status) => {
                self.silence = None;
                self.advance(status);
            }
            Err(why) => {
                let since = self.silence.as_ref().map_or(now, |(since, _)| *since);
                self.silence = Some((since, why));
                self.rates = Rates::default();
                self.node_rates.fill(NodeRates::default());
            }
        }
        self.history.push_back(self.rates.requests.round() as u64);
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }

    /// Executes the action of a key; returns false to quit.
    pub(super) fn press(&mut self, key: KeyAction) -> bool {
        match key {
            KeyAction::Quit if self.is_helping => self.is_helping = false,
            KeyAction::Quit => return false,
            KeyAction::Pause => self.is_paused = !self.is_paused,
            KeyAction::Help => self.is_helping = !self.is_helping,
            KeyAction::Loads if self.shown == Shown::Requests => self.shown = Shown::Loads,
            KeyAction::Loads => self.shown = Shown::Requests,
            KeyAction::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyAction::Down => {
                let last = nodes_of(&self.latest).count().saturating_sub(1);
                self.scroll = (self.scroll + 1).min(last);
            }
            KeyAction::Sort => {
                self.sort = match self.sort {
                    SortBy::Name => SortBy::State,
                    SortBy::State => SortBy::Rate,
                    SortBy::Rate => SortBy::Load,
                    SortBy::Load => SortBy::Latency,
                    SortBy::Latency => SortBy::Name,
                };
            }
        }
        true
    }

    /// The nodes in display order.
    pub(super) fn nodes(&self) -> Vec<(&NodeStatus, NodeRates)> {
        let rates = self.node_rates.iter().copied();
        let mut nodes: Vec<_> = nodes_of(&self.latest).zip(rates).collect();
        nodes.sort_by(|one, other| self.order(one, other));
        nodes
    }

    /// Descending by value, ascending by name; ties are broken by name.
    fn order(&self, one: &(&NodeStatus, NodeRates), other: &(&NodeStatus, NodeRates)) -> Ordering {
        let by_name = natural(&one.0.name, &other.0.name);
        let order = match self.sort {
            SortBy::Name => by_name,
            SortBy::State => one.0.state.cmp(&other.0.state),
            SortBy::Rate => other.1.requests.total_cmp(&one.1.requests),
            SortBy::Load => other.0.outstanding_requests.cmp(&one.0.outstanding_requests),
            SortBy::Latency => other.0.latency_us.cmp(&one.0.latency_us),
        };
        order.then(by_name)
    }

    fn advance(&mut self, status: ProcessStatus) {
        let old = &self.latest;
        let is_same = old.pid == status.pid && old.started_unix_s == status.started_unix_s;
        let ms = status.uptime_ms.saturating_sub(old.uptime_ms);
        if is_same && ms > 0 {
            self.rates = rates(old, &status, ms);
            self.node_rates = nodes_of(&status).map(|node| node_rates(old, node, ms)).collect();
        } else {
            // Another process, whose totals begin at zero.
            self.rates = Rates::default();
            self.node_rates = vec![NodeRates::default(); nodes_of(&status).count()];
        }
        self.latest = status;
    }
}

fn nodes_of(status: &ProcessStatus) -> impl Iterator<Item = &NodeStatus> {
    status.services.iter().flat_map(|service| &service.nodes)
}

fn rates(old: &ProcessStatus, new: &ProcessStatus, ms: u64) -> Rates {
    let (old, new) = (&old.traffic, &new.traffic);
    let ended = new.latency.count.saturating_sub(old.latency.count);
    let sum_us = new.latency.sum_us.saturating_sub(old.latency.sum_us);
    Rates {
        requests: per_second(old.requests_total, new.requests_total, ms),
        sent_bytes: per_second(old.sent_bytes_total, new.sent_bytes_total, ms),
        responses_4xx: per_second(old.responses_4xx_total, new.responses_4xx_total, ms),
        responses_5xx: per_second(old.responses_5xx_total, new.responses_5xx_total, ms),
        mean_us: sum_us.checked_div(ended).unwrap_or(0),
    }
}

fn node_rates(old: &ProcessStatus, new: &NodeStatus, ms: u64) -> NodeRates {
    let same = |old: &&NodeStatus| old.name == new.name && old.service == new.service;
    let Some(old) = nodes_of(old).find(same) else { return NodeRates::default() };
    NodeRates {
        requests: per_second(old.requests_total, new.requests_total, ms),
        bytes: per_second(old.bytes_total, new.bytes_total, ms),
        failures: per_second(old.failures_total, new.failures_total, ms),
    }
}

fn per_second(old: u64, new: u64, ms: u64) -> f64 {
    new.saturating_sub(old) as f64 * 1000.0 / ms as f64
}

/// Natural order of names: `node-2` before `node-10`.
fn natural(one: &str, other: &str) -> Ordering {
    fn split(name: &str) -> (&str, Option<u64>) {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, number) = name.split_at(name.len() - digits);
        (stem, number.parse().ok())
    }
    split(one).cmp(&split(other)).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use skep_console::NodeState;

    use super::*;
    use crate::show::tests::{node, process};

    fn model() -> Model {
        Model::new("a.sock".into(), process(), SortBy::Name)
    }

    /// A status one second later, with 500 more requests, 100 of them at the first node.
    fn later(status: &ProcessStatus) -> ProcessStatus {
        let mut later = status.clone();
        later.uptime_ms += 1000;
        later.traffic.requests_total += 500;
        later.traffic.latency.count += 500;
        later.traffic.latency.sum_us += 500 * 400;
        later.services[0].nodes[0].requests_total += 100;
        later
    }

    #[test]
    fn rates_are_what_happened_between_two_looks() {
        let mut model = model();
        model.look(Instant::now(), Ok(later(&process())));
        assert_eq!((model.rates.requests, model.rates.mean_us), (500.0, 400));
        assert_eq!(model.nodes()[0].1.requests, 100.0);
        assert_eq!(model.history, [500]);
    }

    #[test]
    fn a_restarted_process_has_no_rates_yet() {
        let mut model = model();
        let restarted = ProcessStatus { pid: 2, uptime_ms: 5, ..process() };
        model.look(Instant::now(), Ok(restarted.clone()));
        assert_eq!(model.rates, Rates::default());
        model.look(Instant::now(), Ok(later(&restarted)));
        assert_eq!(model.rates.requests, 500.0);
    }

    #[test]
    fn silence_is_told_until_there_is_an_answer() {
        let mut model = model();
        model.look(Instant::now(), Ok(later(&process())));
        let since = Instant::now();
        model.look(since, Err("refused".into()));
        model.look(Instant::now(), Err("refused".into()));
        assert_eq!(model.silence, Some((since, "refused".into())));
        assert_eq!(model.rates, Rates::default());
        let latest = model.latest.clone();
        model.look(Instant::now(), Ok(later(&latest)));
        assert_eq!((&model.silence, &model.history), (&None, &[500, 0, 0, 500].into()));
    }

    #[test]
    fn nothing_moves_while_paused() {
        let mut model = model();
        assert!(model.press(KeyAction::Pause));
        model.look(Instant::now(), Ok(later(&process())));
        assert_eq!((model.latest.uptime_ms, model.history.len()), (process().uptime_ms, 0));
        assert!(model.press(KeyAction::Pause));
        model.look(Instant::now(), Ok(later(&process())));
        assert_eq!(model.history.len(), 1);
    }

    #[test]
    fn the_curve_forgets() {
        let mut model = model();
        for _ in 0..2 * HISTORY_MAX {
            model.look(Instant::now(), Err(String::new()));
        }
        assert_eq!(model.history.len(), HISTORY_MAX);
    }

    #[test]
    fn every_order_and_names_as_people_count() {
        let mut first = process();
        let mut nodes = vec![
            node("node-10", NodeState::Up),
            node("node-2", NodeState::Up),
            node("node-1", NodeState::Down),
        ];
        nodes[0].outstanding_requests = 9;
        nodes[1].latency_us = 9_000;
        first.services[0].nodes = nodes;
        let mut model = Model::new("a.sock".into(), first.clone(), SortBy::Name);
        let mut second = later(&first);
        second.services[0].nodes[2].requests_total += 900;
        model.look(Instant::now(), Ok(second));
        let names = |model: &Model| -> Vec<String> {
            model.nodes().iter().map(|(node, _)| node.name.clone()).collect()
        };
        for order in [
            ["node-1", "node-2", "node-10"],
            ["node-1", "node-2", "node-10"],
            ["node-1", "node-10", "node-2"],
            ["node-10", "node-1", "node-2"],
            ["node-2", "node-1", "node-10"],
            ["node-1", "node-2", "node-10"],
        ] {
            assert_eq!(names(&model), order, "{:?}", model.sort);
            model.press(KeyAction::Sort);
        }
    }

    #[test]
    fn keys_scroll_within_bounds_and_quit_leaves_the_help_first() {
        let mut model = model();
        model.press(KeyAction::Up);
        assert_eq!(model.scroll, 0);
        for _ in 0..9 {
            model.press(KeyAction::Down);
        }
        assert_eq!(model.scroll, 1);
        model.press(KeyAction::Help);
        assert!(model.press(KeyAction::Quit));
        assert!(!model.press(KeyAction::Quit));
    }
}
