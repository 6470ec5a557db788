//! All results of a cell, as a row.

use super::super::load::{Sample, spread};

pub(super) fn details_head(first: &str) -> Vec<String> {
    let words = [
        "way", "conn/s", "Mbit/s", "CPU us", "moved", "stayed", "failed", "p50", "p99", "others %",
    ];
    std::iter::once(first).chain(words).map(str::to_owned).collect()
}

pub(super) fn details(first: &str, way: &str, samples: &[Sample]) -> Vec<String> {
    let middle = |figure: fn(&Sample) -> f64| spread(samples.iter().map(figure)).0;
    let sum = |figure: fn(&Sample) -> u64| samples.iter().map(figure).sum::<u64>();
    vec![
        first.to_owned(),
        way.to_owned(),
        format!("{:.0}", middle(Sample::per_s)),
        format!("{:.1}", middle(Sample::mbit_s)),
        format!("{:.0}", middle(Sample::cpu_us)),
        sum(Sample::moved).to_string(),
        sum(Sample::stayed).to_string(),
        sum(|it| it.failed).to_string(),
        format!("{:.1}", middle(|it| it.first_byte_p50_us as f64) / 1e3),
        format!("{:.1}", middle(|it| it.first_byte_p99_us as f64) / 1e3),
        format!("{:.0}", middle(|it| it.others_percent)),
    ]
}
