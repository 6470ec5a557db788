//! The table of policies: names, purposes, constructors.

use skep_units::Rng;
use skep_wire::steer::{self, CHOICES_MAX};

use crate::Policy;
use crate::idlest_half::IdlestHalf;
use crate::lard::Lard;
use crate::least::{CostMeasure, Least, PowerOfTwo};
use crate::limits::LARD_REPLICAS_MAX;
use crate::maglev::{HashKey, Maglev};
use crate::peak_ewma::PeakEwma;
use crate::prequal::Prequal;
use crate::random::Random;
use crate::rotation::{RoundRobin, WeightedRoundRobin};
use crate::size_intervals::SizeIntervals;
use crate::transfer_time::TransferTime;

/// A policy, as shown in help texts, the config and the console.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// Its name in the config.
    pub name: &'static str,
    /// Description, in one line.
    pub about: &'static str,
    /// Description of the quantity on which it bases its decisions.
    pub goes_by: &'static str,
    /// Whether it reads requests: it uses host, path or query. Not possible in dispatch mode
    /// `direct`.
    pub content_aware: bool,
    /// Whether it uses weights.
    pub weighted: bool,
    /// Whether it uses the latencies of nodes, which only `proxy` and pools measure.
    pub learns_latencies: bool,
    /// Whether it uses the sizes of objects: `proxy` and pools see them, and nodes report them
    /// under `redirect` and `handoff`.
    pub learns_sizes: bool,
    /// Its source.
    pub source: &'static str,
    /// How it selects, with its parameters, in sentences.
    pub details: &'static str,
    /// Its form in dispatch mode `direct`.
    pub direct: Option<DirectPolicy>,
    make: fn(&'static str, u64) -> Box<dyn Policy>,
}

/// A policy as rows of nodes and a measure among them, which is all that a packet program can
/// evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectPolicy {
    /// Candidates per row.
    pub choices: u8,
    /// The measure that selects the candidate for a new flow.
    pub measure: steer::Measure,
    /// The measure of a node's load.
    pub load: DirectLoad,
    /// Whether all flows of a client go to the same node.
    pub by_address: bool,
}

/// The quantity that counts as a node's load in dispatch mode `direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectLoad {
    /// Client connections.
    Connections,
    /// Unanswered requests.
    Requests,
    /// Bytes to send, counted in replies ([`Work::replies`](crate::Work)).
    Bytes,
}

const fn direct(choices: usize, measure: steer::Measure, load: DirectLoad) -> Option<DirectPolicy> {
    Some(DirectPolicy { choices: choices as u8, measure, load, by_address: false })
}

const fn hashed(by_address: bool) -> Option<DirectPolicy> {
    let (measure, load) = (steer::Measure::First, DirectLoad::Connections);
    Some(DirectPolicy { choices: 1, measure, load, by_address })
}

/// The error for an unknown policy name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy \"{name}\"{}; known: {}", suggestion(*did_you_mean), known.join(", "))]
pub struct UnknownPolicy {
    /// The unknown name.
    pub name: String,
    /// The most similar name, if there is one.
    pub did_you_mean: Option<&'static str>,
    /// All names.
    pub known: Vec<&'static str>,
}

/// Builds the policy called `name`. `seed` determines all its random choices.
pub fn build(name: &str, seed: u64) -> Result<Box<dyn Policy>, UnknownPolicy> {
    match TABLE.iter().find(|info| info.name == name) {
        Some(info) => Ok((info.make)(info.name, seed)),
        None => Err(UnknownPolicy {
            name: name.to_owned(),
            // Names have hyphens; those of other programs often have other separators.
            did_you_mean: skep_units::nearest(&name.replace(['_', ' '], "-"), names()),
            known: names().collect(),
        }),
    }
}

/// All names, in the order of the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|info| info.name)
}

/// The table itself.
pub fn policies() -> &'static [PolicyInfo] {
    TABLE
}

/// Defaults of a table entry; each entry sets its name, texts and constructor.
const PLAIN: PolicyInfo = PolicyInfo {
    name: "",
    about: "",
    goes_by: "",
    content_aware: false,
    weighted: false,
    learns_latencies: false,
    learns_sizes: false,
    source: "-",
    details: "",
    direct: None,
    make: |name, seed| Box::new(Random::new(name, Rng::new(seed))),
};

const TABLE: &[PolicyInfo] = &[
    PolicyInfo {
        name: "random",
        about: "any node, with equal chances",
        goes_by: "nothing",
        details: "Equal chances for all nodes. Needs no state, and suits nodes of equal speed with many short requests.",
        direct: hashed(false),
        make: |name, seed| Box::new(Random::new(name, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "round-robin",
        about: "one node after the other",
        goes_by: "turns",
        details: "One node after the other, for each worker that chooses. Ignores how long requests take.",
        direct: direct(CHOICES_MAX, steer::Measure::Turns, DirectLoad::Connections),
        make: |name, seed| Box::new(RoundRobin::new(name, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "weighted-round-robin",
        about: "turns in proportion to weights, spread evenly",
        goes_by: "turns and weights",
        weighted: true,
        source: "nginx's smooth weighted round robin",
        details: "In each turn every node's current weight grows by its weight; the node with the largest is chosen, and its is reduced by the sum of all weights. Weights are those of the config, or of `skep node weight`.",
        direct: direct(CHOICES_MAX, steer::Measure::Turns, DirectLoad::Connections),
        make: |name, seed| Box::new(WeightedRoundRobin::new(name, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "least-connections",
        about: "the node with the fewest client connections",
        goes_by: "load",
        source: "Linux IPVS `lc`",
        details: "Fewest client connections, idle ones included; ties are drawn. Suits long-lived connections.",
        direct: direct(CHOICES_MAX, steer::Measure::Load, DirectLoad::Connections),
        make: |name, seed| Box::new(Least::new(name, CostMeasure::Connections, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "weighted-least-connections",
        about: "the node with the fewest client connections for its weight",
        goes_by: "load and weights",
        weighted: true,
        source: "Linux IPVS `wlc`",
        details: "Fewest client connections for the weight of the node.",
        direct: direct(CHOICES_MAX, steer::Measure::Load, DirectLoad::Connections),
        make: |name, seed| {
            Box::new(Least::new(name, CostMeasure::ConnectionsPerWeight, Rng::new(seed)))
        },
        ..PLAIN
    },
    PolicyInfo {
        name: "least-outstanding",
        about: "the node with the fewest unanswered requests",
        goes_by: "load",
        details: "Fewest unanswered requests; ties are drawn. Suits requests of uneven length.",
        direct: direct(CHOICES_MAX, steer::Measure::Load, DirectLoad::Requests),
        make: |name, seed| Box::new(Least::new(name, CostMeasure::Requests, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "least-bytes",
        about: "the node with the fewest bytes to send",
        goes_by: "load",
        details: "Fewest bytes to send, where a request whose length is not known yet counts as 16 KiB. Suits large files of uneven size.",
        direct: direct(CHOICES_MAX, steer::Measure::Load, DirectLoad::Bytes),
        make: |name, seed| Box::new(Least::new(name, CostMeasure::Bytes, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "power-of-two",
        about: "of two random nodes, the one with fewer unanswered requests",
        goes_by: "load",
        source: "Mitzenmacher, IEEE TPDS 12(10), 2001",
        details: "Two nodes are drawn, and the one with fewer unanswered requests is chosen. Almost as good as looking at all of them, and several that choose by old loads do not run to the same node.",
        direct: direct(2, steer::Measure::Load, DirectLoad::Requests),
        make: |name, seed| Box::new(PowerOfTwo::new(name, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "maglev-address",
        about: "each client address sticks to a node, in proportion to weights",
        goes_by: "client address and weights",
        weighted: true,
        source: "Eisenbud et al., NSDI 2016",
        details: "All connections of a client address go to one node; when nodes come or go, few addresses move.",
        direct: hashed(true),
        make: |name, _| Box::new(Maglev::new(name, HashKey::Address)),
        ..PLAIN
    },
    PolicyInfo {
        name: "maglev-connection",
        about: "each client connection gets a node by its hash, in proportion to weights",
        goes_by: "connection and weights",
        weighted: true,
        source: "Eisenbud et al., NSDI 2016",
        details: "Each connection has a node by the hash of its addresses and ports, the same on every dispatcher.",
        direct: hashed(false),
        make: |name, _| Box::new(Maglev::new(name, HashKey::Connection)),
        ..PLAIN
    },
    PolicyInfo {
        name: "idlest-half",
        about: "turns among the half of the nodes with the fewest unanswered requests",
        goes_by: "load and turns",
        source: "Summers, Thompson, Awesome Web Server, CMU 15-418, 2012",
        details: "The half of the nodes with the fewest unanswered requests take turns; which half that is, is determined anew when each of them has had one. Its authors found it slightly worse than `least-outstanding`.",
        make: |name, seed| Box::new(IdlestHalf::new(name, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "maglev-url",
        about: "each URL sticks to a node, in proportion to weights",
        goes_by: "URL and weights",
        content_aware: true,
        weighted: true,
        source: "Eisenbud et al., NSDI 2016",
        details: "Each URL has a node, so that it is in one memory only. A URL that is asked for much loads one node.",
        make: |name, _| Box::new(Maglev::new(name, HashKey::Url)),
        ..PLAIN
    },
    PolicyInfo {
        name: "bounded-maglev-url",
        about: "each URL sticks to a node as long as that has not too much to do",
        goes_by: "URL, load and weights",
        content_aware: true,
        weighted: true,
        source: "Mirrokni, Thorup, Zadimoghaddam, SODA 2018",
        details: "As `maglev-url`, but a node with more than 1.25 times its share of the unanswered requests (and at least 4) is passed over.",
        make: |name, _| Box::new(Maglev::bounded(name, HashKey::Url)),
        ..PLAIN
    },
    PolicyInfo {
        name: "lard",
        about: "each URL keeps the node that was idlest, until that has too much to do (LARD)",
        goes_by: "URL and load",
        content_aware: true,
        source: "Pai et al., ASPLOS 1998 (LARD)",
        details: "A new URL goes to the node with the fewest unanswered requests, and stays there until that node has more than 65 while another has fewer than 25, or has 130 while another has half as many. Each worker that chooses remembers 65,536 URLs for itself; of equally idle nodes all prefer the same one for a URL.",
        make: |name, _| Box::new(Lard::<1>::new(name)),
        ..PLAIN
    },
    PolicyInfo {
        name: "lard-r",
        about: "each URL keeps a few nodes, one more while these have too much to do (LARD/R)",
        goes_by: "URL and load",
        content_aware: true,
        source: "Pai et al., ASPLOS 1998 (LARD/R)",
        details: "As `lard`, but a URL has up to 8 nodes: one more when the idlest of them has too much to do, one less after 20 s without change; the ninth replaces the busiest.",
        make: |name, _| Box::new(Lard::<LARD_REPLICAS_MAX>::new(name)),
        ..PLAIN
    },
    PolicyInfo {
        name: "equiload",
        about: "each node has an interval of sizes, with as many bytes (EquiLoad)",
        goes_by: "size of the object and weights",
        content_aware: true,
        weighted: true,
        learns_sizes: true,
        source: "Ciardo, Riska, Smirni, Performance Evaluation 46, 2001 (EquiLoad)",
        details: "Each node answers for the objects of an interval of sizes; boundaries are set so that all nodes send as many bytes, by the first 16,384 requests for objects whose size is known, and stay. An object of unknown size goes to the node with the fewest unanswered requests.",
        make: |name, seed| Box::new(SizeIntervals::equiload(name, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "adaptload",
        about: "as equiload, with boundaries that follow the requests (AdaptLoad)",
        goes_by: "size of the object and weights",
        content_aware: true,
        weighted: true,
        learns_sizes: true,
        source: "Riska, Sun, Smirni, Ciardo, ICDCS 2002 (AdaptLoad)",
        details: "As `equiload`, but boundaries are set anew every 4,096 requests, older ones counting half as much each time, and a size on a boundary belongs to both nodes, in proportion.",
        make: |name, seed| Box::new(SizeIntervals::adaptload(name, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "transfer-time",
        about: "the node that will have sent the object soonest, counting bytes to fetch and to send",
        goes_by: "URL, size of the object, load and weights",
        content_aware: true,
        weighted: true,
        learns_sizes: true,
        source: "Skep",
        details: "A node's cost is the time until it would have sent the object, and what others are delayed by: the object's bytes and those that go before them over the rate of its link, and 50 us for each request; where it is not thought to have the object in memory, it fetches meanwhile, 5 ms and a quarter of that rate, or from a node that has it, whose link that costs. The cheapest node is chosen, or one that has the object if it costs at most a quarter more, and the time of 4 MiB. docs/policies.md has the formula.",
        make: |name, _| Box::new(TransferTime::new(name)),
        ..PLAIN
    },
    PolicyInfo {
        name: "peak-ewma",
        about: "of two random nodes, the one that answers sooner by its latency and its queue",
        goes_by: "latency and load",
        learns_latencies: true,
        source: "Finagle's and linkerd's balancer",
        details: "Two nodes are drawn, and the one with the lower product of latency and unanswered requests is chosen. The latency is a mean over 10 s that follows a rise at once.",
        make: |name, seed| Box::new(PeakEwma::new(name, Rng::new(seed))),
        ..PLAIN
    },
    PolicyInfo {
        name: "prequal",
        about: "of the nodes that are not the busiest, the one that answers fastest",
        goes_by: "latency and load",
        learns_latencies: true,
        source: "Wydrowski et al., NSDI 2024",
        details: "Of up to 16 nodes those with more unanswered requests than 84 % of them are left out (of fewer than five none is); of the others the one with the lowest latency (a mean over 10 s that follows a rise at once) is chosen.",
        make: |name, seed| Box::new(Prequal::new(name, Rng::new(seed))),
        ..PLAIN
    },
];

fn suggestion(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_name_is_unique_kebab_case_and_builds_a_policy_of_that_name() {
        let mut seen = std::collections::HashSet::new();
        for info in policies() {
            assert!(seen.insert(info.name));
            assert!(info.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
            assert_eq!(build(info.name, 1).unwrap().name(), info.name);
        }
        assert_eq!(seen.len(), 20);
    }

    #[test]
    fn the_config_knows_all_of_them_and_which_work_under_direct() {
        let all: Vec<_> = names().collect();
        assert_eq!(all, skep_config::POLICY_NAMES);
        let direct = policies().iter().filter(|info| info.direct.is_some());
        let direct: Vec<_> = direct.map(|info| info.name).collect();
        assert_eq!(direct, skep_config::DIRECT_POLICY_NAMES);
    }

    #[test]
    fn an_unknown_name_suggests_its_neighbour_and_lists_the_known() {
        let error = build("round_robbin", 1).err().unwrap();
        assert_eq!(error.did_you_mean, Some("round-robin"));
        assert_eq!(error.known.len(), 20);
        let text = error.to_string();
        assert!(text.starts_with("unknown policy \"round_robbin\"; did you mean \"round-robin\"?"));
        assert!(text.contains("maglev-url"));
    }

    #[test]
    fn a_word_that_is_far_from_all_names_suggests_nothing() {
        for word in ["", "x", "sticky-cookie", "fifo"] {
            assert_eq!(build(word, 1).err().unwrap().did_you_mean, None, "{word}");
        }
    }
}
