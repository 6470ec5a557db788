//! Contradictions in the arms of A/B tests.

use skep_units::{ARMS_MAX, did_you_mean};

use super::Step::{Key, Nth};
use super::{Conflict, Step};
use crate::arms::ArmConfig;
use crate::error::ErrorKind;
use crate::schema::Config;
use crate::words::DispatchMode;

/// A valid number of arms, with unique names, for all nodes or for disjoint groups of nodes.
pub(super) fn are_a_test(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, service) in config.services.iter().enumerate() {
        let (count, at) = (service.arms.len(), |j| [Key("service"), Nth(i), Key("arm"), Nth(j)]);
        if count == 1 || count > ARMS_MAX {
            let expected = format!("2 to {ARMS_MAX} [[service.arm]], or none");
            clashes.push(Conflict::new(&at(0), expected, format!("{count}")));
        }
        for (j, arm) in service.arms.iter().enumerate() {
            for earlier in &service.arms[..j] {
                clashes.extend(clash_of(&at(j), earlier, arm));
            }
        }
    }
}

fn clash_of(at: &[Step; 4], earlier: &ArmConfig, arm: &ArmConfig) -> Option<Conflict> {
    let at = |key| [at[0], at[1], at[2], at[3], Key(key)];
    if earlier.name == arm.name {
        let clash = Conflict::new(
            &at("name"),
            "each arm with a name of its own",
            format!("a second {:?}", arm.name),
        );
        return Some(clash.kind(ErrorKind::Duplicate));
    }
    if earlier.nodes.is_empty() != arm.nodes.is_empty() {
        let found =
            format!("one of {:?} and {:?} with nodes, and one without", earlier.name, arm.name);
        return Some(Conflict::new(
            &at("nodes"),
            "all arms with nodes of their own, or none",
            found,
        ));
    }
    let shared = arm.nodes.iter().find(|node| earlier.nodes.contains(node))?;
    let found = format!("{shared:?}, which arm {:?} has", earlier.name);
    Some(Conflict::new(&at("nodes"), "groups that have no node in common", found))
}

pub(super) fn are_not_of_packets(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, service) in config.services.iter().enumerate() {
        let chooses = service.dispatch != DispatchMode::Direct;
        if !service.arms.is_empty() && !chooses {
            let at = [Key("service"), Nth(i), Key("arm"), Nth(0)];
            let expected = "no arms with dispatch \"direct\"";
            let found = format!("dispatch {:?}", service.dispatch.word());
            let why = "there packet programs choose the node, for each connection";
            clashes.push(Conflict::new(&at, expected, found).hint(why.to_owned()));
        }
    }
}

pub(super) fn know_their_nodes(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, service) in config.services.iter().enumerate() {
        let names = || config.nodes_of(service).map(|(_, node)| node.name.as_str());
        for (j, arm) in service.arms.iter().enumerate() {
            for (k, name) in arm.nodes.iter().enumerate() {
                if !names().any(|known| known == name) {
                    let at = [Key("service"), Nth(i), Key("arm"), Nth(j), Key("nodes"), Nth(k)];
                    let clash = Conflict::new(
                        &at,
                        "the name of a node of this service",
                        format!("{name:?}"),
                    );
                    clashes.push(clash.hint(did_you_mean(name, names())));
                }
            }
        }
    }
}
