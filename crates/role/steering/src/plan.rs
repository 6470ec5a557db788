//! Creates the input of the table from the config and the services' states.
//!
//! Only services that have changed, according to their revisions, are read again: without changes an update
//! costs one comparison per service.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use skep_cluster::table_publisher::{NodePlan, ServicePlan, TablePlan};
use skep_config::Config;
use skep_dispatcher::{Dispatcher, Openness};
use skep_policy::policies;
use skep_wire::message::{Name, NameTooLong};
use skep_wire::steer::{Measure, Network, Protocol};

/// The plan, and the services from which it is made.
pub struct Plans {
    addresses: Vec<Address>,
    services: Vec<Service>,
    /// Indexes in [`TablePlan::nodes`], by name.
    places: HashMap<Name, usize>,
    plan: TablePlan,
    /// Nodes of the plan that an operator drains or removes.
    closed: BTreeSet<Name>,
}

/// One address of a service in direct dispatch.
struct Address {
    listen: SocketAddr,
    /// Its index in [`Plans::services`].
    service: usize,
}

/// A service in direct dispatch, as of its last change.
struct Service {
    dispatcher: Arc<Dispatcher>,
    /// Revision of `dispatcher` when the rest was read.
    revision: Option<u64>,
    policy: Name,
    nodes: Vec<Member>,
    /// Their indexes in the plan.
    places: Arc<[usize]>,
}

/// A node of a service.
struct Member {
    name: Name,
    /// Its index in the plan.
    place: usize,
    address: SocketAddr,
    /// 0: it keeps existing flows and gets no new ones.
    weight: u32,
    /// It passes the health checks and is not shutting down.
    is_open: bool,
    is_closed: bool,
}

impl Plans {
    /// The addresses of all services in direct dispatch; the plan is still empty.
    pub fn new(config: &Config, dispatchers: &[Arc<Dispatcher>]) -> Self {
        let (mut addresses, mut services) = (Vec::new(), Vec::new());
        for (_, service) in config.steered_services() {
            let Some(dispatcher) = dispatchers.iter().find(|it| it.name() == service.name) else {
                continue;
            };
            let listens = service.listen.iter();
            addresses.extend(listens.map(|&listen| Address { listen, service: services.len() }));
            services.push(Service {
                dispatcher: Arc::clone(dispatcher),
                revision: None,
                policy: Name::default(),
                nodes: Vec::new(),
                places: Arc::default(),
            });
        }
        let (plan, closed) = (TablePlan::default(), BTreeSet::new());
        Self { addresses, services, places: HashMap::new(), plan, closed }
    }

    /// Updates the plan from the current states; returns true if the plan, or the set of closed nodes, has
    /// changed.
    ///
    /// # Errors
    /// A name is too long for the wire; the plan is then unchanged.
    pub fn look(&mut self) -> Result<bool, NameTooLong> {
        let mut has_changed = false;
        for service in &mut self.services {
            has_changed |= service.look(&mut self.places)?;
        }
        if !has_changed {
            return Ok(false);
        }
        self.forget_names();
        let latest = self.make();
        let is_other = latest.0 != self.plan || latest.1 != self.closed;
        (self.plan, self.closed) = latest;
        Ok(is_other)
    }

    /// The plan of the last update, without dispatchers.
    pub fn plan(&self) -> &TablePlan {
        &self.plan
    }

    /// Nodes of the plan that an operator drains or removes.
    pub fn closed(&self) -> &BTreeSet<Name> {
        &self.closed
    }

    /// The services in direct dispatch.
    pub fn dispatchers(&self) -> impl Iterator<Item = &Dispatcher> {
        self.services.iter().map(|service| &*service.dispatcher)
    }

    /// Removes the indexes of nodes that no service has any more.
    fn forget_names(&mut self) {
        let mut is_used = vec![false; self.places.len()];
        let members = self.services.iter().flat_map(|service| &service.nodes);
        members.for_each(|member| is_used[member.place] = true);
        if is_used.contains(&false) {
            self.places.clear();
            let members = self.services.iter_mut().flat_map(|service| &mut service.nodes);
            members.for_each(|member| member.place = place(&mut self.places, &member.name));
            self.services.iter_mut().for_each(Service::note_places);
        }
    }

    fn make(&self) -> (TablePlan, BTreeSet<Name>) {
        let mut nodes: Vec<Option<NodePlan>> = vec![None; self.places.len()];
        let mut closed = BTreeSet::new();
        for member in self.services.iter().flat_map(|service| &service.nodes) {
            if member.is_closed {
                closed.insert(member.name.clone());
            }
            match &mut nodes[member.place] {
                Some(node) => {
                    node.weight = node.weight.min(member.weight);
                    node.is_open &= member.is_open;
                }
                none => {
                    let name = member.name.clone();
                    let Member { address, weight, is_open, .. } = *member;
                    *none = Some(NodePlan { name, address, weight, is_open });
                }
            }
        }
        let plan_of = |address: &Address| self.services[address.service].plan_at(address.listen);
        let services = self.addresses.iter().map(plan_of).collect();
        // Every index belongs to some member.
        let nodes = nodes.into_iter().flatten().collect();
        (TablePlan { services, nodes, dispatchers: Vec::new() }, closed)
    }
}

impl Service {
    /// Reads the service if it has changed; true if it was read.
    fn look(&mut self, places: &mut HashMap<Name, usize>) -> Result<bool, NameTooLong> {
        // Read before the rest: a change in between is then noticed the next time.
        let revision = Some(self.dispatcher.group().revision());
        if revision == self.revision {
            return Ok(false);
        }
        self.revision = revision;
        let policy = Name::new(&self.dispatcher.group().policy())?;
        let candidates = self.dispatcher.group().candidates();
        let are_shut = are_all_shut(candidates.iter().map(|it| it.openness));
        let mut nodes = Vec::with_capacity(candidates.len());
        for (at, candidate) in candidates.iter().enumerate() {
            // A node is nearly always at the same position.
            let known = self.nodes.get(at).filter(|it| it.name.as_str() == &*candidate.name);
            let (name, place) = match known {
                Some(known) => (known.name.clone(), known.place),
                None => {
                    let name = Name::new(&candidate.name)?;
                    let place = place(places, &name);
                    (name, place)
                }
            };
            nodes.push(Member {
                name,
                place,
                address: candidate.address,
                weight: candidate.weight,
                is_open: is_open(candidate.openness, are_shut),
                is_closed: candidate.openness == Openness::Closing,
            });
        }
        (self.policy, self.nodes) = (policy, nodes);
        self.note_places();
        Ok(true)
    }

    fn plan_at(&self, address: SocketAddr) -> ServicePlan {
        // Under handoff policies are applied by nodes, and SYNs are spread by hash.
        let info = policies().iter().find(|info| info.name == self.policy.as_str());
        let direct = info.and_then(|info| info.direct);
        ServicePlan {
            address,
            protocol: Protocol::Tcp,
            choices: direct.map_or(1, |direct| direct.choices),
            measure: direct.map_or(Measure::First, |direct| direct.measure),
            by_address: direct.is_some_and(|direct| direct.by_address),
            policy: self.policy.clone(),
            nodes: Arc::clone(&self.places),
        }
    }

    fn note_places(&mut self) {
        self.places = self.nodes.iter().map(|member| member.place).collect();
    }
}

/// The index of a node; a new one if it has none.
fn place(places: &mut HashMap<Name, usize>, name: &Name) -> usize {
    if let Some(&place) = places.get(name) {
        return place;
    }
    let place = places.len();
    places.insert(name.clone(), place);
    place
}

/// Whether all nodes that stay fail their checks. This machine is then probably cut off, so all nodes count
/// as open; nodes refuse requests themselves.
fn are_all_shut(nodes: impl IntoIterator<Item = Openness>) -> bool {
    let stays = |it: &Openness| !matches!(it, Openness::Closing | Openness::Leaving);
    nodes.into_iter().filter(stays).all(|openness| openness == Openness::Shut)
}

fn is_open(openness: Openness, are_all_shut: bool) -> bool {
    match openness {
        Openness::Leaving => false,
        Openness::Shut => are_all_shut,
        // An operator's drains are part of the table, and operators send them to all dispatchers.
        Openness::Open | Openness::Closing | Openness::Unknown => true,
    }
}

/// Whether the policy of this name uses weights.
pub(crate) fn is_weighted(policy: &str) -> bool {
    policies().iter().any(|info| info.name == policy && info.weighted)
}

/// The networks of a setting, whose syntax was validated with the config.
pub(crate) fn networks(texts: &[String]) -> Vec<Network> {
    texts.iter().filter_map(|text| network(text)).collect()
}

fn network(text: &str) -> Option<Network> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let prefix_bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
    Some(Network { address, prefix_bits })
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Two services: `web` at two addresses with nodes a, b and c, `api` at one with only b.
    pub(crate) fn config() -> Config {
        let mut text = "key_file = \"/key\"\n[[dispatcher]]\nname = \"d1\"\n\
            address = \"10.0.0.1:7071\"\n"
            .to_owned();
        for (number, name) in ["a", "b", "c"].iter().enumerate() {
            text += &format!("[[node]]\nname = \"{name}\"\naddress = \"10.0.1.{number}:80\"\n");
        }
        for (name, listen, nodes) in [
            ("web", "\"192.0.2.1:80\", \"192.0.2.2:80\"", ""),
            ("api", "\"192.0.2.3:80\"", "\"b\""),
        ] {
            text += &format!(
                "[[service]]\nname = \"{name}\"\nlisten = [{listen}]\nnodes = [{nodes}]\n\
                 dispatch = \"direct\"\n"
            );
        }
        text += "[[site]]\nroot = \"/srv\"\n";
        Config::parse("skep.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn plans() -> (Plans, Vec<Arc<Dispatcher>>) {
        let config = config();
        let dispatchers = dispatchers(&config);
        (Plans::new(&config, &dispatchers), dispatchers)
    }

    pub(crate) fn dispatchers(config: &Config) -> Vec<Arc<Dispatcher>> {
        ["web", "api"].map(|name| Dispatcher::new(config, name, 1).unwrap()).into()
    }

    fn weights(plans: &Plans) -> Vec<(&str, u32)> {
        plans.plan().nodes.iter().map(|node| (node.name.as_str(), node.weight)).collect()
    }

    fn closed(plans: &Plans) -> Vec<&str> {
        plans.closed().iter().map(Name::as_str).collect()
    }

    #[test]
    fn addresses_of_a_service_have_its_nodes_and_a_node_its_least_weight() {
        let (mut plans, dispatchers) = plans();
        assert_eq!(plans.look(), Ok(true));
        let nodes: Vec<&[usize]> = plans.plan().services.iter().map(|it| &*it.nodes).collect();
        assert_eq!(nodes, [&[0, 1, 2][..], &[0, 1, 2], &[1]]);
        dispatchers[0].group().set_weight("b", 9).unwrap();
        dispatchers[1].group().set_weight("b", 5).unwrap();
        assert_eq!(plans.look(), Ok(true));
        assert_eq!(weights(&plans), [("a", 1), ("b", 5), ("c", 1)]);
        assert_eq!(plans.look(), Ok(false));
    }

    #[test]
    fn only_what_has_changed_is_read_again() {
        let (mut plans, dispatchers) = plans();
        plans.look().unwrap();
        // A service that is read again would get its nodes back.
        plans.services[0].nodes.clear();
        assert_eq!(plans.look(), Ok(false));
        assert_eq!(weights(&plans).len(), 3);
        dispatchers[1].group().set_weight("b", 4).unwrap();
        assert_eq!(plans.look(), Ok(true));
        assert_eq!(weights(&plans), [("b", 4)]);
    }

    #[test]
    fn every_command_of_an_operator_is_seen() {
        let (mut plans, dispatchers) = plans();
        plans.look().unwrap();
        let web = &dispatchers[0];
        web.group().drain("c").unwrap();
        assert_eq!((plans.look(), closed(&plans)), (Ok(true), vec!["c"]));
        web.group().resume("c").unwrap();
        assert_eq!((plans.look(), closed(&plans)), (Ok(true), vec![]));
        web.group().set_policy("power-of-two").unwrap();
        assert_eq!(plans.look(), Ok(true));
        assert_eq!(plans.plan().services[0].policy.as_str(), "power-of-two");
        web.group()
            .add("d", "10.0.1.9:80".parse::<std::net::SocketAddr>().unwrap(), 3, None)
            .unwrap();
        assert_eq!(plans.look(), Ok(true));
        assert_eq!(weights(&plans).last(), Some(&("d", 3)));
    }

    #[test]
    fn nodes_whose_checks_fail_are_shut_unless_all_do() {
        use Openness::{Closing, Leaving, Open, Shut, Unknown};
        let open = |nodes: [Openness; 3]| {
            let are_shut = are_all_shut(nodes);
            nodes.map(|openness| is_open(openness, are_shut))
        };
        assert_eq!(open([Open, Shut, Unknown]), [true, false, true]);
        assert_eq!(open([Open, Leaving, Open]), [true, false, true]);
        assert_eq!(open([Shut, Shut, Shut]), [true; 3]);
        assert_eq!(open([Shut, Leaving, Closing]), [true, false, true]);
    }

    #[test]
    fn a_node_that_is_gone_leaves_no_hole() {
        let (mut plans, dispatchers) = plans();
        plans.look().unwrap();
        dispatchers[0].group().remove("a", 0).unwrap();
        assert_eq!((plans.look(), closed(&plans)), (Ok(true), vec!["a"]));
        // This ends removals, too.
        dispatchers[0].reload(&config());
        assert_eq!(plans.look(), Ok(true));
        assert_eq!(weights(&plans), [("b", 1), ("c", 1)]);
        assert!(closed(&plans).is_empty());
        assert_eq!(*plans.plan().services[2].nodes, [0]);
    }
}
