//! What the bed says beside what the simulator says: estimates, and pairs of policies that both rank.

use skep_site_sim::{Estimate, RatioEstimate};

use super::limits::HIT_POINTS_MAX;
use super::{CellRuns, PolicyRuns, Results, RunFigures};

/// A figure of a run.
pub(super) type Figure = fn(&RunFigures) -> f64;

/// Pairs of policies, and what bed and simulator say of which is better.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ranking {
    /// All pairs.
    pub(super) pairs: usize,
    /// Those whose difference in the bed exceeds its 95 % interval.
    pub(super) significant: usize,
    /// Of these, those that the simulator ranks the other way.
    pub(super) contradictions: Vec<Pair>,
}

/// Two policies that the simulator ranks in the opposite order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) better: String,
    pub(super) worse: String,
    /// Of the worse one over the better one, in the bed, and in the simulator.
    pub(super) bed: RatioEstimate,
    pub(super) simulated: RatioEstimate,
}

/// Of a cell's pairs of policies.
pub(super) fn ranking(cell: &CellRuns, figure: Figure) -> Ranking {
    let mut ranking = Ranking::default();
    for (at, one) in cell.policies.iter().enumerate() {
        for other in &cell.policies[at + 1..] {
            ranking.pairs += 1;
            let forwards = ratio(&one.bed, &other.bed, figure);
            let (worse, better) = match forwards {
                RatioEstimate { low, .. } if low > 1.0 => (one, other),
                RatioEstimate { high, .. } if high < 1.0 => (other, one),
                _ => continue,
            };
            ranking.significant += 1;
            let simulated = ratio(&worse.simulated, &better.simulated, figure);
            if simulated.mean <= 1.0 {
                let bed = ratio(&worse.bed, &better.bed, figure);
                let (better, worse) = (better.policy.clone(), worse.policy.clone());
                ranking.contradictions.push(Pair { better, worse, bed, simulated });
            }
        }
    }
    ranking
}

/// Over the seeds.
fn ratio(runs: &[RunFigures], base: &[RunFigures], figure: Figure) -> RatioEstimate {
    RatioEstimate::of(runs.iter().zip(base).map(|(run, base)| (figure(run), figure(base))))
}

pub(super) fn mean(runs: &[RunFigures], figure: Figure) -> f64 {
    Estimate::of(runs.iter().map(figure)).mean
}

/// How far the simulator's hit ratio is from the bed's, in points.
pub(super) fn hit_difference_points(policy: &PolicyRuns) -> f64 {
    let hits = |runs: &[RunFigures]| mean(runs, |run| run.hit_share);
    (hits(&policy.simulated) - hits(&policy.bed)) * 100.0
}

/// Policies of a cell whose hit ratios agree.
pub(super) fn agreeing_hits(cell: &CellRuns) -> usize {
    cell.policies
        .iter()
        .filter(|policy| hit_difference_points(policy).abs() <= HIT_POINTS_MAX)
        .count()
}

/// What is amiss with the runs themselves.
pub(super) fn failed_requests(results: &Results) -> Vec<String> {
    let mut failed_requests = Vec::new();
    for cell in &results.cells {
        for policy in &cell.policies {
            let failed: u64 = policy.bed.iter().map(|run| run.failed).sum();
            if failed > 0 {
                let (name, runs) = (cell.cell.name(), policy.bed.len());
                let text = format!("{name}, {}: {failed} in {runs} runs", policy.policy);
                failed_requests.push(text);
            }
        }
    }
    failed_requests
}
