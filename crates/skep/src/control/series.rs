//! Requests of all nodes over time.

use std::collections::BTreeMap;

use skep_console::{ClusterPoint, ClusterSeries, ControlError, TrafficSeries};
use skep_wire::cache::NodeQuestion;

use super::nodes;
use crate::running::Running;

/// The requests of all nodes that can be asked, in steps of `step_s` seconds.
pub(super) fn of_cluster(running: &Running, step_s: u64) -> Result<ClusterSeries, ControlError> {
    let own = running.series.show(step_s)?;
    let kept_s = own.kept_s;
    let answers = nodes::ask(running, NodeQuestion::Series { step_s }, || own);
    let missing = nodes::missing(&answers);
    let known = answers.into_iter().filter_map(|(node, answer)| Some((node, answer.ok()?)));
    let (nodes, series): (Vec<String>, Vec<TrafficSeries>) = known.unzip();
    Ok(ClusterSeries { step_s, kept_s, nodes, missing, points: sum(&series) })
}

/// Adds up the series; steps begin at the same times at all nodes.
fn sum(series: &[TrafficSeries]) -> Vec<ClusterPoint> {
    let mut points = BTreeMap::<u64, ClusterPoint>::new();
    for point in series.iter().flat_map(|it| &it.points) {
        let sum = points.entry(point.at_unix_s).or_default();
        sum.at_unix_s = point.at_unix_s;
        sum.nodes += 1;
        sum.requests += point.requests;
        sum.to_pools += point.to_pools;
        sum.pool_failures += point.pool_failures;
        sum.responses_5xx += point.responses_5xx;
        sum.sent_bytes += point.sent_bytes;
    }
    points.into_values().collect()
}

#[cfg(test)]
mod tests {
    use skep_console::TrafficPoint;

    use super::*;

    #[test]
    fn steps_are_added_up_and_say_how_many_nodes_know_them() {
        let point = |at_unix_s, requests| TrafficPoint {
            at_unix_s,
            requests,
            to_pools: 1,
            pool_failures: 0,
            responses_5xx: 0,
            sent_bytes: 10,
        };
        let series = |points| TrafficSeries { step_s: 60, kept_s: 120, points };
        let all = [series(vec![point(60, 5), point(120, 7)]), series(vec![point(120, 30)])];
        let told: Vec<_> =
            sum(&all).iter().map(|it| (it.at_unix_s, it.nodes, it.requests, it.to_pools)).collect();
        assert_eq!(told, [(60, 1, 5, 1), (120, 2, 37, 2)]);
    }
}
