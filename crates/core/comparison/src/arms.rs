//! The arms of a test, as specified by an operator, validated.

use skep_units::stable_hash;

use crate::limits::{ARM_NAME_BYTES_MAX, ARM_WEIGHT_MAX, ARMS_MAX};

/// One arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmSpec {
    pub name: String,
    /// Name of its policy; the caller checks that it exists.
    pub policy: String,
    /// Its share of the clients, relative to those of the other arms.
    pub weight: u32,
    /// Its group of nodes; if empty, all nodes. The caller checks that they exist.
    pub nodes: Vec<String>,
}

/// The arms of one test: at least two, with distinct names, either over all nodes or over disjoint
/// groups of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arms {
    arms: Vec<ArmSpec>,
    id: u64,
}

/// Why the arms do not form a valid test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArmsError {
    #[error("{0} arms: a comparison has 2 to {ARMS_MAX}")]
    Count(usize),
    #[error(
        "{0:?} is no name of an arm: up to {ARM_NAME_BYTES_MAX} letters, digits, `.`, `_` and `-`"
    )]
    Name(String),
    #[error("two arms are called \"{0}\"")]
    SameName(String),
    #[error("arm \"{arm}\" has weight {weight}: from 1 to {ARM_WEIGHT_MAX}")]
    Weight { arm: String, weight: u32 },
    #[error("arm \"{0}\" names an empty group of nodes: leave the group out for all nodes")]
    EmptyGroup(String),
    #[error(
        "arm \"{with}\" has nodes of its own and arm \"{without}\" has all: give each a group, or none"
    )]
    SomeGroups { with: String, without: String },
    #[error(
        "node \"{node}\" is in arm \"{one}\" and in arm \"{other}\": groups have no node in common"
    )]
    SharedNode { node: String, one: String, other: String },
}

impl Arms {
    /// Validates the arms of a test of `service`.
    ///
    /// # Errors
    /// [`ArmsError`].
    pub fn new(service: &str, arms: Vec<ArmSpec>) -> Result<Self, ArmsError> {
        if !(2..=ARMS_MAX).contains(&arms.len()) {
            return Err(ArmsError::Count(arms.len()));
        }
        for (at, arm) in arms.iter().enumerate() {
            check_arm(arm)?;
            arms[..at].iter().try_for_each(|earlier| check_pair(earlier, arm))?;
        }
        let id = id_of(service, &arms);
        Ok(Self { arms, id })
    }

    pub fn list(&self) -> &[ArmSpec] {
        &self.arms
    }

    /// An id that is equal on all machines for the same arms of the same service, and differs for
    /// others.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The weights, in the order of the arms.
    pub fn weights(&self) -> Vec<u32> {
        self.arms.iter().map(|arm| arm.weight).collect()
    }
}

fn check_arm(arm: &ArmSpec) -> Result<(), ArmsError> {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = (1..=ARM_NAME_BYTES_MAX).contains(&arm.name.len());
    if !is_name || !arm.name.bytes().all(is_name_byte) {
        return Err(ArmsError::Name(arm.name.clone()));
    }
    if !(1..=ARM_WEIGHT_MAX).contains(&arm.weight) {
        return Err(ArmsError::Weight { arm: arm.name.clone(), weight: arm.weight });
    }
    // An empty list means all nodes; an empty name results from `NAME=POLICY:`.
    if arm.nodes.iter().any(String::is_empty) {
        return Err(ArmsError::EmptyGroup(arm.name.clone()));
    }
    Ok(())
}

fn check_pair(earlier: &ArmSpec, arm: &ArmSpec) -> Result<(), ArmsError> {
    if earlier.name == arm.name {
        return Err(ArmsError::SameName(arm.name.clone()));
    }
    if earlier.nodes.is_empty() != arm.nodes.is_empty() {
        let (with, without) = if arm.nodes.is_empty() { (earlier, arm) } else { (arm, earlier) };
        let (with, without) = (with.name.clone(), without.name.clone());
        return Err(ArmsError::SomeGroups { with, without });
    }
    match arm.nodes.iter().find(|node| earlier.nodes.contains(node)) {
        Some(node) => Err(ArmsError::SharedNode {
            node: node.clone(),
            one: earlier.name.clone(),
            other: arm.name.clone(),
        }),
        None => Ok(()),
    }
}

/// Each part is hashed with the hash of the previous parts as the seed; counts mark the ends of
/// lists.
fn id_of(service: &str, arms: &[ArmSpec]) -> u64 {
    let seed = stable_hash(service.as_bytes(), arms.len() as u64);
    arms.iter().fold(seed, |seed, arm| {
        let named = stable_hash(arm.name.as_bytes(), seed);
        let policy = stable_hash(arm.policy.as_bytes(), named);
        let counted = policy ^ u64::from(arm.weight) ^ ((arm.nodes.len() as u64) << 32);
        let seed = stable_hash(b"nodes", counted);
        arm.nodes.iter().fold(seed, |seed, node| stable_hash(node.as_bytes(), seed))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn arm(name: &str, weight: u32, nodes: &[&str]) -> ArmSpec {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        ArmSpec { name: name.into(), policy: "random".into(), weight, nodes }
    }

    #[test]
    fn what_is_no_test_is_refused_by_name() {
        let many = (0..=ARMS_MAX).map(|at| arm(&format!("a{at}"), 1, &[])).collect();
        for (arms, told) in [
            (vec![], "0 arms"),
            (vec![arm("a", 1, &[])], "1 arms: a comparison has 2 to 8"),
            (many, "9 arms"),
            (vec![arm("", 1, &[]), arm("b", 1, &[])], "\"\" is no name of an arm"),
            (vec![arm("a b", 1, &[]), arm("b", 1, &[])], "\"a b\" is no name"),
            (
                vec![arm(&"x".repeat(ARM_NAME_BYTES_MAX + 1), 1, &[]), arm("b", 1, &[])],
                "is no name of an arm",
            ),
            (vec![arm("a", 1, &[]), arm("a", 1, &[])], "two arms are called \"a\""),
            (vec![arm("a", 1, &[]), arm("b", 0, &[])], "arm \"b\" has weight 0: from 1 to 256"),
            (vec![arm("a", 257, &[]), arm("b", 1, &[])], "arm \"a\" has weight 257"),
            (vec![arm("a", 1, &["n1"]), arm("b", 1, &[""])], "arm \"b\" names an empty group"),
            (
                vec![arm("a", 1, &["n1"]), arm("b", 1, &[])],
                "arm \"a\" has nodes of its own and arm \"b\" has all",
            ),
            (
                vec![arm("a", 1, &[]), arm("b", 1, &["n1"])],
                "arm \"b\" has nodes of its own and arm \"a\" has all",
            ),
            (
                vec![arm("a", 1, &["n1", "n2"]), arm("b", 1, &["n2"])],
                "node \"n2\" is in arm \"a\" and in arm \"b\"",
            ),
        ] {
            let error = Arms::new("web", arms).unwrap_err().to_string();
            assert!(error.contains(told), "{error} / {told}");
        }
    }

    #[test]
    fn the_same_arms_have_the_same_id_and_others_have_another() {
        let two = |nodes: [&[&str]; 2]| {
            Arms::new("web", vec![arm("a", 1, nodes[0]), arm("b", 2, nodes[1])]).unwrap().id()
        };
        let id = two([&["n1"], &["n2", "n3"]]);
        assert_eq!(id, two([&["n1"], &["n2", "n3"]]));
        for other in [
            two([&["n1", "n2"], &["n3"]]),
            two([&[], &[]]),
            Arms::new("www", vec![arm("a", 1, &["n1"]), arm("b", 2, &["n2", "n3"])]).unwrap().id(),
            Arms::new("web", vec![arm("a", 2, &["n1"]), arm("b", 1, &["n2", "n3"])]).unwrap().id(),
        ] {
            assert_ne!(id, other);
        }
    }
}
