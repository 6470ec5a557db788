//! Each member's counters and gauges as Prometheus metrics, whose names the roles choose.

use std::sync::Arc;

use skep_telemetry::{Labels, Registry};

use crate::members::cause::CAUSES;
use crate::members::group::Group;
use crate::members::status::MemberStatus;

/// Name, help and value of a metric.
pub type MemberMetric = (&'static str, &'static str, fn(&MemberStatus) -> f64);

/// The current groups: they may be added and removed.
pub type Groups = Arc<dyn Fn() -> Vec<Arc<Group>> + Send + Sync>;

/// Registers `metrics` of the members of `groups`, with labels for the names of group and member.
/// Call it once for each table: a second call replaces the first.
pub fn register_members(
    registry: &Registry,
    metrics: &[MemberMetric],
    labels: [&'static str; 2],
    groups: &Groups,
) {
    for &(name, help, value) in metrics {
        let groups = Arc::clone(groups);
        let read = move || samples(&groups(), labels, |member| vec![(Vec::new(), value(member))]);
        registry.register_samples(name, help, Box::new(read));
    }
}

/// Registers the metric `name`: failures by member and `cause`.
pub fn register_failures(
    registry: &Registry,
    (name, help): (&str, &str),
    labels: [&'static str; 2],
    groups: &Groups,
) {
    let groups = Arc::clone(groups);
    let read = move || {
        samples(&groups(), labels, |member| {
            let label = |word: &str| vec![("cause".to_owned(), word.to_owned())];
            let counts = CAUSES.iter().zip(member.failures_by_cause);
            counts.map(|(word, count)| (label(word), count as f64)).collect()
        })
    };
    registry.register_samples(name, help, Box::new(read));
}

fn samples(
    groups: &[Arc<Group>],
    [group_label, member_label]: [&str; 2],
    of: impl Fn(&MemberStatus) -> Vec<(Labels, f64)>,
) -> Vec<(Labels, f64)> {
    let mut samples = Vec::new();
    for group in groups {
        for member in group.members() {
            for (more, value) in of(&member) {
                let mut labels = vec![
                    (group_label.to_owned(), group.name().to_owned()),
                    (member_label.to_owned(), member.name.clone()),
                ];
                labels.extend(more);
                samples.push((labels, value));
            }
        }
    }
    samples
}
