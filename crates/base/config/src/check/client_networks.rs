//! Contradictions in the networks of clients.

use skep_units::Subnet;

use super::Step::{Key, Nth};
use super::{Conflict, unique_rows};
use crate::error::ErrorKind;
use crate::limits::{CLIENT_NETWORK_OTHER, CLIENT_NETWORKS_MAX, CLIENT_SUBNETS_MAX};
use crate::schema::Config;

const TABLE: &str = "client_network";

pub(super) fn have_names_of_their_own(config: &Config, clashes: &mut Vec<Conflict>) {
    unique_rows(&config.client_networks, clashes);
    for (i, network) in config.client_networks.iter().enumerate() {
        if network.name == CLIENT_NETWORK_OTHER {
            let at = [Key(TABLE), Nth(i), Key("name")];
            let expected = format!("another name than {CLIENT_NETWORK_OTHER:?}");
            let clash = Conflict::new(&at, expected, format!("{:?}", network.name));
            clashes.push(clash.hint("it is for clients that are in no network".to_owned()));
        }
    }
}

/// Each client has exactly one network name.
pub(super) fn are_told_apart(config: &Config, clashes: &mut Vec<Conflict>) {
    let mut earlier: Vec<(Subnet, &str)> = Vec::new();
    for (i, network) in config.client_networks.iter().enumerate() {
        let at = [Key(TABLE), Nth(i), Key("networks")];
        if network.networks.is_empty() {
            let clash = Conflict::new(&at, "at least one network", "none");
            clashes.push(clash.kind(ErrorKind::Missing));
        }
        for text in &network.networks {
            let Ok(subnet) = text.parse::<Subnet>() else { continue };
            if let Some((_, name)) = earlier.iter().find(|(it, _)| *it == subnet) {
                let found = format!("{text:?}, which {name:?} has");
                let clash = Conflict::new(&at, "each network once", found);
                clashes.push(clash.kind(ErrorKind::Duplicate));
            }
            earlier.push((subnet, &network.name));
        }
    }
}

pub(super) fn are_few(config: &Config, clashes: &mut Vec<Conflict>) {
    let names = config.client_networks.len();
    let subnets: usize = config.client_networks.iter().map(|it| it.networks.len()).sum();
    for (count, count_max, what) in [
        (names, CLIENT_NETWORKS_MAX, "[[client_network]]"),
        (subnets, CLIENT_SUBNETS_MAX, "networks of all [[client_network]] together"),
    ] {
        if count > count_max {
            let at = [Key(TABLE), Nth(names - 1)];
            let clash =
                Conflict::new(&at, format!("at most {count_max} {what}"), format!("{count}"));
            let why = "each pool counts by each name, and compares clients with each network";
            clashes.push(clash.kind(ErrorKind::OutOfRange).hint(why.to_owned()));
        }
    }
}
