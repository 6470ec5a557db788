//! Tests of the registry, with a strict parser of the text format.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, HashSet};
use std::thread;
use std::time::Duration;

use super::*;
use crate::counters::Counter;

#[test]
fn totals_are_sums_over_threads_and_survive_their_end() {
    let registry = Registry::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            let core = registry.core();
            scope.spawn(move || {
                for _ in 0..1000 {
                    core.inc(Counter::Requests);
                    core.add(Counter::SentBytes, 10);
                    core.request_time_us(100);
                }
            });
        }
    });
    let live = registry.core();
    live.inc(Counter::Requests);
    let snapshot = registry.snapshot();
    assert_eq!((snapshot.totals.requests, snapshot.totals.sent_bytes), (4001, 40_000));
    assert_eq!((snapshot.latency.count, snapshot.latency.sum_us), (4000, 400_000));
    assert_eq!(registry.lock().cores.len(), 1, "ended threads leave no set behind");
}

#[test]
fn totals_never_fall_while_threads_come_and_go() {
    let registry = Registry::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..50)
            .map(|_| {
                let core = registry.core();
                scope.spawn(move || (0..1000).for_each(|_| core.inc(Counter::Requests)))
            })
            .collect();
        let mut last = 0;
        while !workers.iter().all(|worker| worker.is_finished()) {
            drop(registry.core());
            let now = registry.snapshot().totals.requests;
            assert!(now >= last, "fell from {last} to {now}");
            last = now;
        }
    });
    assert_eq!(registry.snapshot().totals.requests, 50_000);
}

#[test]
fn gauges_of_threads_add_up_even_when_one_is_below_zero() {
    let registry = Registry::new();
    let (a, b) = (registry.core(), registry.core());
    a.gauge_inc(CoreGauge::ConnectionsOpen);
    a.gauge_inc(CoreGauge::ConnectionsOpen);
    b.gauge_dec(CoreGauge::ConnectionsOpen);
    b.gauge_dec(CoreGauge::RequestsInFlight);
    let snapshot = registry.snapshot();
    assert_eq!((snapshot.connections_open, snapshot.requests_in_flight), (1, 0));
    b.gauge_move(CoreGauge::BytesOutstanding, 0, 100);
    b.gauge_move(CoreGauge::BytesOutstanding, 100, 30);
    a.inc(Counter::Requests);
    drop(a);
    drop(registry.core());
    assert_eq!(registry.snapshot().connections_open, 1, "also when a thread has ended");
    let gauges = CoreGauge::ALL.iter().map(|gauge| registry.gauge(*gauge));
    assert_eq!(gauges.collect::<Vec<_>>(), [1, 0, 30]);
    assert_eq!(registry.totals(), registry.snapshot().totals);
}

#[test]
fn snapshot_goes_through_json_and_back() {
    let registry = Registry::new();
    registry.core().inc(Counter::CacheHit);
    registry.register("skep_cache_bytes", &[], "Bytes kept.", Box::new(|| 12.0));
    let snapshot = registry.snapshot();
    let json = serde_json::to_value(&snapshot).unwrap();
    assert_eq!(json["totals"]["cache_hit"], 1);
    assert_eq!(serde_json::from_value::<Snapshot>(json).unwrap(), snapshot);
    let older: Snapshot = serde_json::from_str(
        r#"{"totals":{"requests":2},"connections_open":0,"requests_in_flight":0,
            "latency":{"count":0,"sum_us":0,"p50_us":0,"p95_us":0,"p99_us":0},"gauges":[]}"#,
    )
    .unwrap();
    assert_eq!(older.totals.requests, 2, "a node of an earlier version lacks newer counters");
}

#[test]
fn registered_gauges_are_read_on_asking_and_replaced_by_name_and_labels() {
    let registry = Registry::new();
    let node = |name| [("node", name)];
    registry.register("skep_node_up", &node("a"), "Up.", Box::new(|| 0.0));
    registry.register("skep_node_up", &node("b"), "Up.", Box::new(|| 0.5));
    registry.register("skep_node_up", &node("a"), "Up.", Box::new(|| 1.0));
    let family = parse(&registry.prometheus_text()).remove("skep_node_up").unwrap();
    let values: Vec<_> = family.samples.iter().map(|s| (s.labels[0].1.as_str(), s.value)).collect();
    assert_eq!(values, [("b", 0.5), ("a", 1.0)]);

    registry.register_samples(
        "skep_node_up",
        "Up.",
        Box::new(|| vec![(vec![("node".into(), "c".into())], 1.0)]),
    );
    let snapshot = registry.snapshot();
    assert_eq!(parse(&registry.prometheus_text())["skep_node_up"].kind, "gauge");
    assert_eq!(snapshot.metrics.len(), 1);
    assert_eq!(snapshot.metrics[0].labels, [("node".to_owned(), "c".to_owned())]);
}

#[test]
fn what_ends_in_total_is_a_counter() {
    let registry = Registry::new();
    registry.register("skep_purges_total", &[], "Purges.", Box::new(|| 3.0));
    assert_eq!(parse(&registry.prometheus_text())["skep_purges_total"].kind, "counter");
}

#[test]
fn a_gauge_may_use_the_registry() {
    let registry = Arc::new(Registry::new());
    let weak = Arc::downgrade(&registry);
    let read = move || weak.upgrade().map_or(0.0, |r| r.core().get(Counter::Requests) as f64);
    registry.register("skep_self", &[], "Reads the registry.", Box::new(read));
    assert_eq!(registry.snapshot().metrics[0].value, 0.0);
}

#[test]
#[should_panic(expected = "metric name")]
fn a_gauge_without_our_prefix_is_our_bug() {
    Registry::new().register("cache_bytes", &[], "", Box::new(|| 0.0));
}

#[test]
#[should_panic(expected = "is a worker's")]
fn a_gauge_named_like_a_counter_is_our_bug() {
    Registry::new().register("skep_requests_total", &[], "", Box::new(|| 0.0));
}

#[test]
fn text_holds_every_counter_once_with_its_value() {
    let registry = Registry::new();
    let core = registry.core();
    for (n, &counter) in Counter::ALL.iter().enumerate() {
        core.add(counter, n as u64 + 1);
    }
    let families = parse(&registry.prometheus_text());
    for family in FAMILIES {
        let parsed = &families[family.name];
        assert_eq!((parsed.kind.as_str(), parsed.help.as_str()), ("counter", family.help));
        for &(counter, value) in family.samples {
            let sample = parsed.samples.iter().find(|s| match family.label {
                None => s.labels.is_empty(),
                Some(label) => s.labels == [(label.to_owned(), value.to_owned())],
            });
            assert_eq!(sample.unwrap().value, counter as u64 as f64 + 1.0, "{counter:?}");
        }
        assert_eq!(parsed.samples.len(), family.samples.len());
    }
}

#[test]
fn names_follow_the_rules_of_prometheus() {
    let registry = Registry::new();
    registry.register("skep_cache_bytes", &[], "Bytes kept.", Box::new(|| 12.0));
    for (name, family) in parse(&registry.prometheus_text()) {
        assert!(name.starts_with("skep_"), "{name}");
        assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name}");
        assert_eq!(name.ends_with("_seconds"), family.kind == "histogram", "{name}");
        for bad in ["_us", "_ms", "_kb", "_mb", "_kib", "_mib"] {
            assert!(
                !name.contains(&format!("{bad}_")) && !name.ends_with(bad),
                "{name}: base units"
            );
        }
        assert!(family.help.ends_with('.'), "{name}: {}", family.help);
    }
}

#[test]
fn label_values_and_help_are_escaped() {
    let registry = Registry::new();
    let nasty = "a\\b\"c\nd{},=é";
    registry.register("skep_x", &[("path", nasty)], "Line\nand \\.", Box::new(|| 1.5));
    let family = parse(&registry.prometheus_text()).remove("skep_x").unwrap();
    assert_eq!(family.samples[0].labels, [("path".to_owned(), nasty.to_owned())]);
    assert_eq!(family.help, "Line\nand \\.");
    assert_eq!(family.samples[0].value, 1.5);
}

#[test]
fn not_finite_values_are_spelt_as_prometheus_wants() {
    let spelt = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.25, 3.0].map(number);
    assert_eq!(spelt, ["+Inf", "-Inf", "NaN", "0.25", "3"]);
}

#[test]
fn histogram_is_cumulative_and_ends_with_all() {
    let registry = Registry::new();
    let core = registry.core();
    for us in [50, 400, 2_000_000, 90_000_000] {
        core.request_time_us(us);
    }
    let families = parse(&registry.prometheus_text());
    let samples = &families["skep_request_duration_seconds"].samples;
    let value = |suffix: &str, le: &str| {
        let labels: Labels =
            if le.is_empty() { vec![] } else { vec![("le".to_owned(), le.to_owned())] };
        samples.iter().find(|s| s.suffix == suffix && s.labels == labels).unwrap().value
    };
    assert_eq!(value("_bucket", "0.0001"), 1.0);
    assert_eq!(value("_bucket", "0.0005"), 2.0);
    assert_eq!(value("_bucket", "5"), 3.0);
    assert_eq!(value("_bucket", "30"), 3.0);
    assert_eq!(value("_bucket", "+Inf"), 4.0);
    assert_eq!(value("_count", ""), 4.0);
    assert!((value("_sum", "") - 92.00045).abs() < 1e-9);
    let buckets: Vec<f64> =
        samples.iter().filter(|s| s.suffix == "_bucket").map(|s| s.value).collect();
    assert!(buckets.len() == LE.len() + 1 && buckets.is_sorted());
}

#[test]
fn registered_histograms_have_their_labels_in_each_line() {
    let registry = Registry::new();
    let times = Arc::new(Histogram::default());
    times.record(Duration::from_nanos(9_600));
    times.record(Duration::from_micros(70));
    let labels = [("step", "freeze")];
    registry.register_histogram("skep_t_seconds", &labels, "Times.", Arc::clone(&times));
    registry.register_histogram("skep_t_seconds", &[("step", "go")], "Times.", Arc::default());
    let families = parse(&registry.prometheus_text());
    let family = &families["skep_t_seconds"];
    assert_eq!(family.kind, "histogram");
    let step = ("step".to_owned(), "freeze".to_owned());
    let value = |suffix: &str, le: &str| {
        let le = (!le.is_empty()).then(|| ("le".to_owned(), le.to_owned()));
        let labels: Labels = [step.clone()].into_iter().chain(le).collect();
        family.samples.iter().find(|s| s.suffix == suffix && s.labels == labels).unwrap().value
    };
    assert_eq!([value("_bucket", "0.000008"), value("_bucket", "0.00001")], [0.0, 1.0]);
    assert_eq!([value("_bucket", "+Inf"), value("_count", "")], [2.0, 2.0]);
    assert!((value("_sum", "") - 80e-6).abs() < 1e-9);
    let samples = registry.snapshot().metrics;
    let count = samples.iter().find(|it| it.name == "skep_t_seconds_count").unwrap();
    assert_eq!((count.value, &count.labels), (2.0, &vec![step]));
}

struct Parsed {
    kind: String,
    help: String,
    samples: Vec<Sample>,
}

struct Sample {
    suffix: String,
    labels: Labels,
    value: f64,
}

/// Parses the text format strictly: HELP, TYPE, then that family's samples; each family once, no sample
/// twice, every line terminated.
fn parse(text: &str) -> BTreeMap<String, Parsed> {
    assert!(text.ends_with('\n'));
    let mut families: BTreeMap<String, Parsed> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut current = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            let help = help.replace("\\n", "\n").replace("\\\\", "\\");
            let family = Parsed { kind: kind.to_owned(), help, samples: vec![] };
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} twice");
            name.clone_into(&mut current);
            continue;
        }
        let (name, labels, value) = parse_sample(line);
        assert!(seen.insert((name.to_owned(), labels.clone())), "twice: {line}");
        let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("stray: {line}"));
        let family = families.get_mut(&current).unwrap();
        let suffixes: &[&str] =
            if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "stray: {line}");
        family.samples.push(Sample { suffix: suffix.to_owned(), labels, value });
    }
    families
}

/// Parses `name value` or `name{label="value",...} value`.
fn parse_sample(line: &str) -> (&str, Labels, f64) {
    let name_end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(name_end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label), "{line}");
            let (value, after) = parse_quoted(after);
            labels.push((label.to_owned(), value));
            rest = after;
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap();
    let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap() };
    (name, labels, value)
}

/// Returns the text up to the closing quote, unescaped, and the rest.
fn parse_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next().unwrap().1 {
                'n' => value.push('\n'),
                c @ ('"' | '\\') => value.push(c),
                c => panic!("escape of {c:?}"),
            },
            c => value.push(c),
        }
    }
    panic!("no closing quote in {text:?}");
}
