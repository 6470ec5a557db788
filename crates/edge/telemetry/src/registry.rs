//! The registry of all threads' counters: sums for `status`, text for Prometheus.
//!
//! Invariant: counts are never lost. The counts of a thread that has ended are added to `retired`, so totals
//! never decrease, and workers may start and end at any time.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::counters::{CoreCounters, CoreGauge, FAMILIES, Totals};
use crate::latency::{Histogram, LE, LE_FINE, LatencySummary, Merged};

/// `Content-Type` of [`Registry::prometheus_text`].
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Label names and values of one sample.
pub type Labels = Vec<(String, String)>;

/// All counters and gauges of a process, to be shared by `Arc`.
#[derive(Default)]
pub struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    cores: Vec<Arc<CoreCounters>>,
    retired: CoreCounters,
    families: Vec<RegisteredFamily>,
}

/// A registered metric, whose value a callback reads.
#[derive(Clone)]
struct RegisteredFamily {
    name: String,
    kind: Kind,
    help: String,
    sources: Vec<GaugeSource>,
}

/// A metric's type in the text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// The type of a metric by its name: names of counters end in `_total`.
    fn of(name: &str) -> Self {
        if name.ends_with("_total") { Self::Counter } else { Self::Gauge }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

#[derive(Clone)]
enum GaugeSource {
    Histogram { labels: Labels, times: Arc<Histogram> },
    One { labels: Labels, read: Arc<dyn Fn() -> f64 + Send + Sync> },
    Many(Arc<dyn Fn() -> Vec<(Labels, f64)> + Send + Sync>),
}

/// All sums at one moment, for `skep status --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Counters since the start.
    pub totals: Totals,
    /// Currently open client connections.
    pub connections_open: u64,
    /// Requests whose reply isn't complete.
    pub requests_in_flight: u64,
    /// Request times since the start.
    pub latency: LatencySummary,
    /// The present values of registered metrics.
    #[serde(alias = "gauges")] // The name before counters were included.
    pub metrics: Vec<MetricSample>,
}

/// One value of a registered metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricSample {
    /// Prometheus name.
    pub name: String,
    /// Label names and values.
    pub labels: Labels,
    pub value: f64,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a set of counters for the calling thread; each thread uses its own.
    pub fn core(&self) -> Arc<CoreCounters> {
        let mut inner = self.lock();
        inner.retire();
        let core = Arc::new(CoreCounters::default());
        inner.cores.push(Arc::clone(&core));
        core
    }

    /// Adds a metric whose value is read by `read` on every query: a counter if its name ends in
    /// `_total`, else a gauge. The same name with the same labels replaces the earlier one. `read`
    /// runs on the querying thread and must not block.
    ///
    /// # Panics
    /// If the name is invalid (it must begin with `skep_`, consist of `a-z0-9_`, and differ from a worker's
    /// counters), or a label's name is: a bug in Skep, found by the first test.
    pub fn register(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        help: &str,
        read: Box<dyn Fn() -> f64 + Send + Sync>,
    ) {
        assert!(labels.iter().all(|(label, _)| is_name(label)), "label names of {name}");
        let labels: Labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let mut inner = self.lock();
        let family = inner.family(name, help);
        family.sources.retain(
            |source| !matches!(source, GaugeSource::One { labels: theirs, .. } if *theirs == labels),
        );
        family.sources.push(GaugeSource::One { labels, read: Arc::from(read) });
    }

    /// Adds a metric whose samples come and go, such as one per node: `read` returns labels and value of
    /// each. Replaces any metric of the same name.
    ///
    /// # Panics
    /// As [`Self::register`].
    pub fn register_samples(
        &self,
        name: &str,
        help: &str,
        read: Box<dyn Fn() -> Vec<(Labels, f64)> + Send + Sync>,
    ) {
        self.lock().family(name, help).sources = vec![GaugeSource::Many(Arc::from(read))];
    }

    /// Adds a histogram. The same name with the same labels replaces the earlier one. Snapshots contain its
    /// count and its sum, as samples whose names have the suffixes `_count` and `_sum`.
    ///
    /// # Panics
    /// As [`Self::register`].
    pub fn register_histogram(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        help: &str,
        times: Arc<Histogram>,
    ) {
        assert!(labels.iter().all(|(label, _)| is_name(label)), "label names of {name}");
        let labels: Labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let mut inner = self.lock();
        let family = inner.family(name, help);
        family.kind = Kind::Histogram;
        let is_it = |source: &GaugeSource| matches!(source, GaugeSource::Histogram { labels: theirs, .. } if *theirs == labels);
        family.sources.retain(|source| !is_it(source));
        family.sources.push(GaugeSource::Histogram { labels, times });
    }

    /// The sums of the counters alone: the cheapest query, made ten times a second.
    pub fn totals(&self) -> Totals {
        let inner = self.lock();
        let mut totals = Totals::default();
        totals.absorb(&inner.retired);
        inner.cores.iter().for_each(|core| totals.absorb(core));
        totals
    }

    /// The sum of one gauge over all threads.
    pub fn gauge(&self, gauge: CoreGauge) -> u64 {
        let inner = self.lock();
        let cores = inner.cores.iter().map(|core| core.gauge(gauge));
        not_below_zero(cores.fold(inner.retired.gauge(gauge), u64::wrapping_add))
    }

    /// All sums at this moment. Threads continue to count meanwhile: each number is exact, but two of them
    /// may be some requests apart.
    pub fn snapshot(&self) -> Snapshot {
        let (sums, families) = self.read();
        let mut samples = Vec::new();
        for family in &families {
            family.each_sample(|labels, value| {
                samples.push(MetricSample { name: family.name.clone(), labels, value });
            });
            family.each_histogram(|labels, times| {
                let (count, sum) = (times.count() as f64, times.sum_us() as f64 / 1e6);
                for (suffix, value) in [("_count", count), ("_sum", sum)] {
                    let (name, labels) = (format!("{}{suffix}", family.name), labels.clone());
                    samples.push(MetricSample { name, labels, value });
                }
            });
        }
        Snapshot {
            totals: sums.totals,
            connections_open: sums.gauges[CoreGauge::ConnectionsOpen as usize],
            requests_in_flight: sums.gauges[CoreGauge::RequestsInFlight as usize],
            latency: sums.latency.summary(),
            metrics: samples,
        }
    }

    /// All metrics in the Prometheus text format, version 0.0.4.
    pub fn prometheus_text(&self) -> String {
        let (sums, families) = self.read();
        let mut text = Text(String::with_capacity(16 * 1024));
        text.counters(&sums.totals);
        for &gauge in CoreGauge::ALL {
            let (name, help) = gauge.describe();
            text.head(name, "gauge", help);
            text.sample(name, &[], &sums.gauges[gauge as usize].to_string());
        }
        text.latency(&sums.latency);
        for family in &families {
            text.head(&family.name, family.kind.name(), &family.help);
            family.each_sample(|labels, value| {
                text.sample(&family.name, &labels, &number(value));
            });
            family.each_histogram(|labels, times| {
                text.histogram(&family.name, labels, &times, &LE_FINE);
            });
        }
        text.0
    }

    /// Returns sums and families; the families' callbacks are called later, without the lock.
    fn read(&self) -> (Sums, Vec<RegisteredFamily>) {
        let inner = self.lock();
        let mut sums = Sums::new();
        sums.absorb(&inner.retired);
        inner.cores.iter().for_each(|core| sums.absorb(core));
        (sums.finish(), inner.families.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change under the lock is a single push, so a panic leaves consistent data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes over the counts of threads that have ended. `Arc::get_mut` succeeds only for the last holder,
    /// and then everything that the thread wrote is visible.
    fn retire(&mut self) {
        let retired = &self.retired;
        self.cores.retain_mut(|core| match Arc::get_mut(core) {
            Some(ended) => {
                retired.absorb(ended);
                false
            }
            None => true,
        });
    }

    fn family(&mut self, name: &str, help: &str) -> &mut RegisteredFamily {
        assert!(is_name(name) && name.starts_with("skep_"), "metric name {name:?}");
        assert!(FAMILIES.iter().all(|family| family.name != name), "{name} is a worker's");
        let at = self.families.iter().position(|family| family.name == name).unwrap_or_else(|| {
            let (name, kind, help) = (name.to_owned(), Kind::of(name), help.to_owned());
            self.families.push(RegisteredFamily { name, kind, help, sources: Vec::new() });
            self.families.len() - 1
        });
        &mut self.families[at]
    }
}

impl RegisteredFamily {
    fn each_sample(&self, mut each: impl FnMut(Labels, f64)) {
        for source in &self.sources {
            match source {
                GaugeSource::One { labels, read } => each(labels.clone(), read()),
                GaugeSource::Many(read) => read().into_iter().for_each(|(l, value)| each(l, value)),
                GaugeSource::Histogram { .. } => {}
            }
        }
    }

    fn each_histogram(&self, mut each: impl FnMut(&Labels, Merged)) {
        for source in &self.sources {
            if let GaugeSource::Histogram { labels, times } = source {
                each(labels, times.merged());
            }
        }
    }
}

/// Sums over threads.
struct Sums {
    totals: Totals,
    gauges: [u64; CoreGauge::ALL.len()],
    latency: Merged,
}

impl Sums {
    fn new() -> Self {
        Self { totals: Totals::default(), gauges: Default::default(), latency: Merged::new() }
    }

    fn absorb(&mut self, core: &CoreCounters) {
        self.totals.absorb(core);
        self.latency.absorb(&core.latency);
        for &gauge in CoreGauge::ALL {
            let sum = &mut self.gauges[gauge as usize];
            *sum = sum.wrapping_add(core.gauge(gauge));
        }
    }

    fn finish(mut self) -> Self {
        self.gauges = self.gauges.map(not_below_zero);
        self
    }
}

/// During concurrent updates a sum may be negative for a moment.
fn not_below_zero(sum: u64) -> u64 {
    u64::try_from(sum as i64).unwrap_or(0)
}

/// The text format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.
struct Text(String);

impl Text {
    fn counters(&mut self, totals: &Totals) {
        for family in FAMILIES {
            self.head(family.name, "counter", family.help);
            for &(counter, value) in family.samples {
                let label = family.label.map(|label| (label.to_owned(), value.to_owned()));
                self.sample(family.name, label.as_slice(), &totals.get(counter).to_string());
            }
        }
    }

    fn latency(&mut self, latency: &Merged) {
        const NAME: &str = "skep_request_duration_seconds";
        self.head(NAME, "histogram", "Time from a request's first byte to its reply's last.");
        self.histogram(NAME, &[], latency, &LE);
    }

    fn histogram(
        &mut self,
        name: &str,
        labels: &[(String, String)],
        times: &Merged,
        bounds: &[(&str, u64)],
    ) {
        let bucket = format!("{name}_bucket");
        let count = times.count().to_string();
        let le = |bound: &str| [labels, &[("le".to_owned(), bound.to_owned())]].concat();
        for (text, bound_us) in bounds {
            self.sample(&bucket, &le(text), &times.count_le(*bound_us).to_string());
        }
        self.sample(&bucket, &le("+Inf"), &count);
        self.sample(&format!("{name}_sum"), labels, &number(times.sum_us() as f64 / 1e6));
        self.sample(&format!("{name}_count"), labels, &count);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(String, String)], value: &str) {
        let labels: Vec<String> =
            labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape_label(v))).collect();
        if labels.is_empty() {
            self.line(format_args!("{name} {value}"));
        } else {
            self.line(format_args!("{name}{{{}}} {value}", labels.join(",")));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String can't fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

/// Whether a metric's or label's name is permitted here; Prometheus permits more.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests;
