//! Compares policies side by side: the same seeds, and so the same requests, for each.

use skep_policy::UnknownPolicy;

use crate::cluster::SimulatedCluster;
use crate::outcome::RunOutcome;
use crate::statistics::{Estimate, RatioEstimate};
use crate::workload::SiteKind;
use crate::world::{OfferedLoad, SiteRun};

/// The setting in which policies are compared.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub site: SiteKind,
    pub scale: f64,
    pub zipf_exponent: f64,
    pub cluster: SimulatedCluster,
    pub load: OfferedLoad,
    pub requests: u64,
    pub warm_up_share: f64,
    /// Number of seeds, which begin at 1.
    pub seeds: u64,
}

/// The outcomes of one policy, by seed.
#[derive(Clone, Debug)]
pub struct PolicyOutcomes {
    pub policy: String,
    pub outcomes: Vec<RunOutcome>,
}

impl Experiment {
    /// Runs one policy on all seeds.
    pub fn run(&self, policy: &str) -> Result<PolicyOutcomes, UnknownPolicy> {
        let outcomes = (1..=self.seeds).map(|seed| self.run_seed(policy, seed));
        Ok(PolicyOutcomes {
            policy: policy.to_owned(),
            outcomes: outcomes.collect::<Result<_, _>>()?,
        })
    }

    fn run_seed(&self, policy: &str, seed: u64) -> Result<RunOutcome, UnknownPolicy> {
        let site = self.site.workload(self.scale, self.zipf_exponent, seed);
        let run = SiteRun {
            site: &site,
            cluster: &self.cluster,
            load: self.load,
            requests: self.requests,
            warm_up_share: self.warm_up_share,
            seed,
        };
        run.under(policy)
    }
}

impl PolicyOutcomes {
    /// The estimate of a measure over the seeds.
    pub fn estimate(&self, measure: impl Fn(&RunOutcome) -> f64) -> Estimate {
        Estimate::of(self.outcomes.iter().map(measure))
    }

    /// The estimate of a measure relative to another policy, over pairs of the same seed.
    pub fn ratio(&self, base: &Self, measure: impl Fn(&RunOutcome) -> f64) -> RatioEstimate {
        let pairs = self.outcomes.iter().zip(&base.outcomes);
        RatioEstimate::of(pairs.map(|(own, base)| (measure(own), measure(base))))
    }
}
