//! The table of policies: name, purpose, constructor.

use skep_units::Rng;
use skep_wire::steer::{self, CHOICES_MAX};

use crate::Policy;
use crate::least::{Least, Measure, PowerOfTwo};
use crate::maglev::{Key, Maglev};
use crate::random::Random;
use crate::rotation::{RoundRobin, WeightedRoundRobin};

/// One policy, as help texts, the config and the console show it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// Its name in the config.
    pub name: &'static str,
    /// Description, in one line.
    pub about: &'static str,
    /// Whether it uses host, path, query or size. Such a policy needs a dispatcher
    /// that reads requests: not dispatch mode `direct`.
    pub content_aware: bool,
    /// Whether it uses weights.
    pub weighted: bool,
    /// Its form in dispatch mode `direct`.
    pub direct: Option<DirectPolicy>,
    make: fn(&'static str, u64) -> Box<dyn Policy>,
}

/// A policy as rows of nodes and a measure among them, which is all that a
/// packet program can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectPolicy {
    /// Candidates of a row.
    pub choices: u8,
    /// Which of them takes a new flow.
    pub measure: steer::Measure,
    /// The measure of a node's load.
    pub load: DirectLoad,
    /// Whether all flows of a client stay together.
    pub by_address: bool,
}

/// What counts as a node's load in dispatch mode `direct`.
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

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy \"{name}\"{}; known: {}", suggestion(*did_you_mean), known.join(", "))]
pub struct UnknownPolicy {
    /// The unknown name.
    pub name: String,
    /// The most similar name, if one is similar.
    pub did_you_mean: Option<&'static str>,
    /// All names.
    pub known: Vec<&'static str>,
}

/// Makes the policy called `name`. `seed` drives all its random choices.
pub fn build(name: &str, seed: u64) -> Result<Box<dyn Policy>, UnknownPolicy> {
    match TABLE.iter().find(|info| info.name == name) {
        Some(info) => Ok((info.make)(info.name, seed)),
        None => Err(UnknownPolicy {
            name: name.to_owned(),
            // Names are written with hyphens, as other programs' often are not.
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

const TABLE: &[PolicyInfo] = &[
    PolicyInfo {
        name: "random",
        about: "any node, with equal chances",
        content_aware: false,
        weighted: false,
        direct: hashed(false),
        make: |name, seed| Box::new(Random::new(name, Rng::new(seed))),
    },
    PolicyInfo {
        name: "round-robin",
        about: "one node after the other",
        content_aware: false,
        weighted: false,
        direct: direct(CHOICES_MAX, steer::Measure::Turns, DirectLoad::Connections),
        make: |name, seed| Box::new(RoundRobin::new(name, Rng::new(seed))),
    },
    PolicyInfo {
        name: "weighted-round-robin",
        about: "turns in proportion to weights, spread evenly",
        content_aware: false,
        weighted: true,
        direct: direct(CHOICES_MAX, steer::Measure::Turns, DirectLoad::Connections),
        make: |name, seed| Box::new(WeightedRoundRobin::new(name, Rng::new(seed))),
    },
    PolicyInfo {
        name: "least-connections",
        about: "the node with the fewest client connections",
        content_aware: false,
        weighted: false,
        direct: direct(CHOICES_MAX, steer::Measure::Load, DirectLoad::Connections),
        make: |name, seed| Box::new(Least::new(name, Measure::Connections, Rng::new(seed))),
    },
    PolicyInfo {
        name: "weighted-least-connections",
        about: "the node with the fewest client connections for its weight",
        content_aware: false,
        weighted: true,
        direct: direct(CHOICES_MAX, steer::Measure::Load, DirectLoad::Connections),
        make: |name, seed| {
            Box::new(Least::new(name, Measure::ConnectionsPerWeight, Rng::new(seed)))
        },
    },
    PolicyInfo {
        name: "least-outstanding",
        about: "the node with the fewest unanswered requests",
        content_aware: false,
        weighted: false,
        direct: direct(CHOICES_MAX, steer::Measure::Load, DirectLoad::Requests),
        make: |name, seed| Box::new(Least::new(name, Measure::Requests, Rng::new(seed))),
    },
    PolicyInfo {
        name: "least-bytes",
        about: "the node with the fewest bytes to send",
        content_aware: false,
        weighted: false,
        direct: direct(CHOICES_MAX, steer::Measure::Load, DirectLoad::Bytes),
        make: |name, seed| Box::new(Least::new(name, Measure::Bytes, Rng::new(seed))),
    },
    PolicyInfo {
        name: "power-of-two",
        about: "of two random nodes, the one with fewer unanswered requests",
        content_aware: false,
        weighted: false,
        direct: direct(2, steer::Measure::Load, DirectLoad::Requests),
        make: |name, seed| Box::new(PowerOfTwo::new(name, Rng::new(seed))),
    },
    PolicyInfo {
        name: "maglev-address",
        about: "each client address sticks to a node, in proportion to weights",
        content_aware: false,
        weighted: true,
        direct: hashed(true),
        make: |name, _| Box::new(Maglev::new(name, Key::Address)),
    },
    PolicyInfo {
        name: "maglev-connection",
        about: "each client connection gets a node by its hash, in proportion to weights",
        content_aware: false,
        weighted: true,
        direct: hashed(false),
        make: |name, _| Box::new(Maglev::new(name, Key::Connection)),
    },
    PolicyInfo {
        name: "maglev-url",
        about: "each URL sticks to a node, in proportion to weights",
        content_aware: true,
        weighted: true,
        direct: None,
        make: |name, _| Box::new(Maglev::new(name, Key::Url)),
    },
    PolicyInfo {
        name: "bounded-maglev-url",
        about: "each URL sticks to a node as long as that has not too much to do",
        content_aware: true,
        weighted: true,
        direct: None,
        make: |name, _| Box::new(Maglev::bounded(name, Key::Url)),
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
        assert_eq!(seen.len(), 12);
    }

    #[test]
    fn an_unknown_name_suggests_its_neighbour_and_lists_the_known() {
        let error = build("round_robbin", 1).err().unwrap();
        assert_eq!(error.did_you_mean, Some("round-robin"));
        assert_eq!(error.known.len(), 12);
        let text = error.to_string();
        assert!(text.starts_with("unknown policy \"round_robbin\"; did you mean \"round-robin\"?"));
        assert!(text.contains("maglev-url"));
    }

    #[test]
    fn a_word_that_is_far_from_all_names_suggests_nothing() {
        for word in ["", "x", "sticky-cookie", "lru"] {
            assert_eq!(build(word, 1).err().unwrap().did_you_mean, None, "{word}");
        }
    }
}
