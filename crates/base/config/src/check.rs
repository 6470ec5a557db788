//! The last step of reading a config: finds contradictions between settings that are valid on their
//! own.
//!
//! Each check lists the settings that it reads. If one of them already has a fault, its value here
//! is a default, and the check is skipped since its result would be meaningless.

use std::net::SocketAddr;

use skep_units::{DIRECT_ADDRESSES_MAX, DISPATCHERS_MAX, did_you_mean, dispatcher_number};

use crate::error::{ErrorKind, Fault};
use crate::number::{Unit, plain};
use crate::raw::{Raw, RawValue, Span};
use crate::schema::{AGENT_PORT, Config, ServiceConfig};
use crate::section::Row;
use crate::words::{DIRECT_POLICY_NAMES, DispatchMode, StoreKind};

/// Adds the contradictions in `config`, which was read from `raw`.
pub(crate) fn check(config: &Config, raw: &Raw, faults: &mut Vec<Fault>) {
    let mut clashes = Vec::new();
    for (settings, check) in CHECKS {
        let at_fault = |setting: &&str| faults.iter().any(|fault| concerns(fault, setting));
        if !settings.iter().any(at_fault) {
            check(config, &mut clashes);
        }
    }
    let placed =
        clashes.into_iter().map(|Conflict { at, fault }| Fault { span: find(raw, &at), ..fault });
    faults.extend(placed);
}

mod arms;
mod client_networks;
mod pools;
mod power;
mod sites;

const KEY_HINT: &str = "head -c 32 /dev/urandom | base64 makes a key; every machine gets the same";

type Check = fn(&Config, &mut Vec<Conflict>);

/// Settings of a backend that determine its source.
const SOURCES: &[&str] = &[
    "site.root",
    "site.origins",
    "site.pool",
    "site.reply",
    "site.content",
    "site.listing",
    "site.spa_fallback",
    "site.route.root",
    "site.route.origins",
    "site.route.pool",
    "site.route.reply",
    "site.route.content",
    "site.route.listing",
    "site.route.spa_fallback",
];

/// Each check with the settings or tables that it reads.
const CHECKS: &[(&[&str], Check)] = &[
    (&["node.name"], nodes_exist),
    (&["site.root", "site.origins", "site.pool", "site.reply"], sites::sites_exist),
    (SOURCES, sites::backends_have_one_source),
    (SOURCES, sites::origins_have_no_files),
    (&["site"], sites::folders_are_not_fetched),
    (&["site"], sites::what_is_compressed_is_sent),
    (&["pool.name"], pools::pools_have_names_of_their_own),
    (&["pool.server"], pools::servers_are_told_apart),
    (&["pool.server.connections_scope", "node.name"], pools::counted_servers_are_few),
    (&["pool.protocol", "pool.fastcgi", "pool.ajp"], pools::protocols_have_their_tables),
    (&["pool.protocol", "pool.fastcgi"], pools::scripts_have_a_place),
    (&["pool.protocol", "pool.ajp", "pool.server"], pools::ajp_beyond_this_machine_has_a_secret),
    (
        &["pool.health.timeout_ms", "pool.health.interval_ms"],
        pools::checks_of_servers_do_not_overlap,
    ),
    (&["pool.status", "pool.protocol"], pools::status_can_be_asked),
    (&["pool.sticky.by"], pools::sessions_can_be_told),
    (&["client_network"], client_networks::have_names_of_their_own),
    (&["client_network"], client_networks::are_told_apart),
    (&["client_network"], client_networks::are_few),
    (&["pool.name", "site.pool", "site.route.pool"], pools::routes_know_their_pools),
    (&["site"], pools::others_are_not_forwarded),
    (&["site"], pools::what_is_no_file_goes_to_the_pool),
    (&["site"], pools::prefixes_are_there),
    (&["site"], pools::named_files_have_a_folder),
    (&["site"], pools::written_fields_are_not_set),
    (&["site", "limits.body_bytes_max"], pools::routes_keep_to_the_limit_of_bodies),
    (&["site.reply", "site.route.reply"], sites::replies_are_whole),
    (&["site.route.path", "site.route.reply"], sites::replies_lead_somewhere),
    (
        &["site.route.path", "site.route.methods", "site.route.match_headers"],
        sites::routes_can_be_reached,
    ),
    (
        &["site.route.path", "site.spa_fallback", "site.route.spa_fallback"],
        sites::fallbacks_are_in_their_route,
    ),
    (&["dispatcher.name", "service.name"], dispatchers_and_services_need_each_other),
    (&["node.name", "dispatcher.name", "service.name"], names_are_unique),
    (&["dispatcher.name"], dispatchers_are_few),
    (&["dispatcher.name"], dispatchers_have_numbers_of_their_own),
    (&["node.name", "service.nodes"], services_know_their_nodes),
    (&["service.arm"], arms::are_a_test),
    (&["service.arm", "service.dispatch"], arms::are_not_of_packets),
    (&["service.arm", "service.nodes", "node.name"], arms::know_their_nodes),
    (&["node.address", "dispatcher.name"], dispatchers_can_reach_nodes),
    (
        &["node.name", "node.address", "node.public_address", "service.dispatch", "service.nodes"],
        clients_can_reach_nodes,
    ),
    (
        &["node.address", "service.listen", "dispatcher.name", "metrics.listen", "admin.listen"],
        listeners_do_not_overlap,
    ),
    (
        &["key_file", "dispatcher.name", "dispatcher.address", "node.address", "node.agent"],
        agents_do_not_overlap,
    ),
    (&["service.dispatch", "service.listen"], virtual_addresses_are_real),
    (&["service.dispatch", "service.listen"], virtual_addresses_are_few),
    (&["service.dispatch", "service.policy"], direct_policies_see_no_requests),
    (&["service.dispatch", "key_file"], direct_needs_a_key),
    (&["service.dispatch", "dispatcher.address"], direct_dispatchers_can_be_reached),
    (&["store", "etcd.endpoints"], etcd_has_endpoints),
    (&["site", "cache.cooperate", "key_file"], sites::cooperation_needs_a_key),
    (&["site", "cache.cooperate", "dispatcher.address"], sites::cooperation_needs_addresses),
    (&["site", "cache.cooperate", "dispatcher.name"], sites::partitions_need_each_other),
    (&["site"], sites::partitions_are_not_listed),
    (&["admin.listen", "admin.token_file"], open_admin_needs_token),
    (&["service.upstream_idle_ms", "timeouts.idle_ms"], dispatcher_closes_first),
    (&["service.health.timeout_ms", "service.health.interval_ms"], checks_do_not_overlap),
    (&["service.elastic", "service.dispatch"], elasticity_is_possible),
    (&["power", "node.power", "node.power_id"], power::commands_can_be_run),
    (&["power", "node.power", "service.elastic"], power::commands_end_in_time),
    (&["power", "node.power", "site"], power::parts_stay_on),
    (&["site.hosts"], sites::hosts_are_unique),
    (&["site"], sites::one_answer_for_folders),
    (&["site.redirect.from", "site.redirect.to"], sites::redirects_lead_elsewhere),
    (&["limits.target_bytes_max", "limits.head_bytes_max"], target_fits_head),
    (&["limits.head_bytes_max", "limits.connection_bytes_max"], head_fits_connection),
];

/// Whether `fault` concerns `setting`, a table that contains it or is nested in it, or an unknown
/// key that probably meant it.
fn concerns(fault: &Fault, setting: &str) -> bool {
    let is_within = |a: &str, b: &str| {
        a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let related = |path: &str| is_within(path, setting) || is_within(setting, path);
    let known = fault.kind != ErrorKind::UnknownKey;
    (known && related(&fault.setting)) || fault.meant.is_some_and(related)
}

/// A fault whose position in the file is not yet known.
struct Conflict {
    at: Vec<Step>,
    fault: Fault,
}

/// One step of a path in the file: to a key, or to the n-th element of a list.
#[derive(Clone, Copy)]
enum Step {
    Key(&'static str),
    Nth(usize),
}

use Step::{Key, Nth};

impl Conflict {
    fn new(at: &[Step], expected: impl Into<String>, found: impl Into<String>) -> Self {
        let keys = at.iter().filter_map(|step| match step {
            Key(key) => Some(*key),
            Nth(_) => None,
        });
        let setting = keys.collect::<Vec<_>>().join(".");
        let fault = Fault::new(ErrorKind::Contradiction, 0..0, &setting, expected, found);
        Self { at: at.to_vec(), fault }
    }

    fn kind(mut self, kind: ErrorKind) -> Self {
        self.fault.kind = kind;
        self
    }

    fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.fault.hint = hint.into();
        self
    }
}

/// The position of `at` in the file; for settings with their default, that of the enclosing table.
fn find(raw: &Raw, at: &[Step]) -> Span {
    let mut here = raw;
    for step in at {
        let next = match (step, &here.value) {
            (Key(key), _) => here.get(key).map(|entry| &entry.raw),
            (Nth(n), RawValue::List(raws)) => raws.get(*n),
            // A single value in place of a list.
            (Nth(0), _) => Some(here),
            _ => None,
        };
        match next {
            Some(next) => here = next,
            None => break,
        }
    }
    here.span.clone()
}

fn nodes_exist(config: &Config, clashes: &mut Vec<Conflict>) {
    if config.nodes.is_empty() {
        let clash = Conflict::new(&[Key("node")], "at least one [[node]]", "none");
        let how = "a node needs a `name` and an `address`";
        clashes.push(clash.kind(ErrorKind::Missing).hint(how.to_owned()));
    }
}

fn dispatchers_and_services_need_each_other(config: &Config, clashes: &mut Vec<Conflict>) {
    if config.dispatchers.is_empty() && !config.services.is_empty() {
        let at = [Key("service"), Nth(0)];
        clashes.push(
            Conflict::new(&at, "a [[dispatcher]] that offers this service", "none")
                .hint("add a [[dispatcher]] with a `name`".to_owned()),
        );
    }
    if config.services.is_empty() && !config.dispatchers.is_empty() {
        let at = [Key("dispatcher"), Nth(0)];
        clashes.push(
            Conflict::new(&at, "a [[service]] that this dispatcher offers", "none")
                .hint("add a [[service]] with a `name` and a `listen`".to_owned()),
        );
    }
}

fn names_are_unique(config: &Config, clashes: &mut Vec<Conflict>) {
    unique_rows(&config.dispatchers, clashes);
    unique_rows(&config.nodes, clashes);
    unique_rows(&config.services, clashes);
}

fn unique_rows<T: Row>(rows: &[T], clashes: &mut Vec<Conflict>) {
    for (i, row) in rows.iter().enumerate() {
        let name = row.row_name();
        if rows[..i].iter().any(|earlier| earlier.row_name() == name) {
            let at = [Key(T::NAME), Nth(i), Key("name")];
            let expected = format!("each {} with a name of its own", T::NAME);
            let found = format!("a second {name:?}");
            clashes.push(Conflict::new(&at, expected, found).kind(ErrorKind::Duplicate));
        }
    }
}

fn dispatchers_are_few(config: &Config, clashes: &mut Vec<Conflict>) {
    let count = config.dispatchers.len();
    if count > DISPATCHERS_MAX {
        let at = [Key("dispatcher"), Nth(DISPATCHERS_MAX)];
        let expected = format!("at most {DISPATCHERS_MAX} [[dispatcher]]");
        let clash = Conflict::new(&at, expected, format!("{count}"));
        let why = "one is active in direct dispatch, and each checks all nodes: two or three do";
        clashes.push(clash.kind(ErrorKind::OutOfRange).hint(why.to_owned()));
    }
}

fn dispatchers_have_numbers_of_their_own(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, dispatcher) in config.dispatchers.iter().enumerate() {
        let (name, number) = (&dispatcher.name, dispatcher_number(&dispatcher.name));
        let is_its = |other: &str| other != name && dispatcher_number(other) == number;
        let other = config.dispatchers[..i].iter().find(|other| is_its(&other.name));
        if let Some(other) = other {
            let at = [Key("dispatcher"), Nth(i), Key("name")];
            let expected = "a name whose hash no other dispatcher has";
            let found = format!("{name:?}, with the hash of {:?}", other.name);
            let why = "by 16 bits of a hash of their names, dispatchers tell their terms and purges \
                       apart: rename one of the two";
            clashes.push(Conflict::new(&at, expected, found).hint(why.to_owned()));
        }
    }
}

fn services_know_their_nodes(config: &Config, clashes: &mut Vec<Conflict>) {
    let names = || config.nodes.iter().map(|node| node.name.as_str());
    for (i, service) in config.services.iter().enumerate() {
        for (j, name) in service.nodes.iter().enumerate() {
            if !names().any(|known| known == name) {
                let at = [Key("service"), Nth(i), Key("nodes"), Nth(j)];
                let clash = Conflict::new(&at, "the name of a [[node]]", format!("{name:?}"));
                clashes.push(clash.hint(did_you_mean(name, names())));
            }
        }
    }
}

fn dispatchers_can_reach_nodes(config: &Config, clashes: &mut Vec<Conflict>) {
    if config.dispatchers.is_empty() {
        return;
    }
    for (i, node) in config.nodes.iter().enumerate() {
        if node.address.ip().is_unspecified() || node.address.port() == 0 {
            let at = [Key("node"), Nth(i), Key("address")];
            let expected = "an address that dispatchers can connect to";
            let clash = Conflict::new(&at, expected, format!("\"{}\"", node.address));
            clashes.push(clash.hint("name the machine's own IP address and a port".to_owned()));
        }
    }
}

fn clients_can_reach_nodes(config: &Config, clashes: &mut Vec<Conflict>) {
    let redirecting = |service: &&ServiceConfig| service.dispatch == DispatchMode::Redirect;
    for (i, node) in config.nodes.iter().enumerate() {
        let behind =
            |service: &ServiceConfig| config.nodes_of(service).any(|(_, n)| n.name == node.name);
        let needed = config.services.iter().filter(redirecting).any(behind);
        let reachable = node.public_address.is_some() || !node.address.ip().is_unspecified();
        if needed && !reachable {
            let at = [Key("node"), Nth(i)];
            let expected = "a `public_address`, because a service redirects clients here";
            clashes.push(Conflict::new(&at, expected, format!("only \"{}\"", node.address)));
        }
    }
}

/// Listeners on one machine; those of nodes only conflict with equal ones, since nodes may be on
/// other machines.
fn listeners_do_not_overlap(config: &Config, clashes: &mut Vec<Conflict>) {
    let mut shared: Vec<(SocketAddr, String)> = Vec::new();
    let mut claim =
        |address: SocketAddr, owner: String, at: &[Step], clashes: &mut Vec<Conflict>| {
            if let Some((_, taken)) = shared.iter().find(|(other, _)| overlap(*other, address)) {
                let clash = Conflict::new(at, "an address of its own", format!("that of {taken}"));
                clashes.push(clash.kind(ErrorKind::Duplicate));
            }
            shared.push((address, owner));
        };
    for (i, service) in config.services.iter().enumerate() {
        for (j, address) in service.listen.iter().enumerate() {
            let at = [Key("service"), Nth(i), Key("listen"), Nth(j)];
            claim(*address, format!("service {:?} ({address})", service.name), &at, clashes);
        }
    }
    if let Some(address) = config.metrics.listen {
        let at = [Key("metrics"), Key("listen")];
        claim(address, format!("metrics.listen ({address})"), &at, clashes);
    }
    // Without dispatchers, nothing listens for the admin API over TCP.
    if let Some(address) = config.admin.listen.filter(|_| !config.dispatchers.is_empty()) {
        let at = [Key("admin"), Key("listen")];
        claim(address, format!("admin.listen ({address})"), &at, clashes);
    }
    nodes_do_not_overlap(config, &shared, clashes);
}

fn nodes_do_not_overlap(
    config: &Config,
    shared: &[(SocketAddr, String)],
    clashes: &mut Vec<Conflict>,
) {
    for (i, node) in config.nodes.iter().enumerate() {
        let equal = |address: SocketAddr| address == node.address && address.port() != 0;
        let node_before = config.nodes[..i].iter().find(|other| equal(other.address));
        let node_before = node_before.map(|other| format!("node {:?}", other.name));
        let other = shared.iter().find(|(address, _)| equal(*address));
        let other = other.map(|(_, owner)| owner.clone());
        if let Some(taken) = node_before.or(other) {
            let at = [Key("node"), Nth(i), Key("address")];
            let clash = Conflict::new(&at, "an address of its own", format!("that of {taken}"));
            clashes.push(clash.kind(ErrorKind::Duplicate));
        }
    }
}

/// Where load is reported and caches are shared, each machine needs its own address.
fn agents_do_not_overlap(config: &Config, clashes: &mut Vec<Conflict>) {
    if !config.reports_load() {
        return;
    }
    let dispatchers = config.dispatchers.iter().filter_map(|it| Some((&it.name, it.address?)));
    let mut taken: Vec<(&String, SocketAddr)> = dispatchers.collect();
    for (i, node) in config.nodes.iter().enumerate() {
        let address = node.agent_address();
        if let Some((owner, _)) = taken.iter().find(|(_, other)| overlap(*other, address)) {
            let at = [Key("node"), Nth(i), Key("agent")];
            let found = format!("\"{address}\", that of {owner:?}");
            let clash = Conflict::new(&at, "an address \"IP:PORT\" of its own", found);
            let how = "nodes on one machine each need an `agent` with a port of its own";
            clashes.push(clash.kind(ErrorKind::Duplicate).hint(how.to_owned()));
        }
        taken.push((&node.name, address));
    }
}

/// Whether the kernel would refuse the second of two listeners. Port 0 is any free port.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_family = a.is_ipv4() == b.is_ipv4();
    let same_ip = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && same_family && same_ip
}

fn virtual_addresses_are_real(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, service) in config.steered_services() {
        for (j, address) in service.listen.iter().enumerate() {
            let ip = address.ip();
            let own = config.nodes.iter().any(|node| node.address.ip() == ip);
            if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || address.port() == 0 {
                let at = [Key("service"), Nth(i), Key("listen"), Nth(j)];
                let expected = "a virtual address and port, because packets are steered by it";
                let clash = Conflict::new(&at, expected, format!("\"{address}\""));
                let how = "take a free address of the nodes' network; it moves between dispatchers";
                clashes.push(clash.hint(how.to_owned()));
            } else if own {
                let at = [Key("service"), Nth(i), Key("listen"), Nth(j)];
                let expected = "a virtual address that is no machine's own";
                let clash = Conflict::new(&at, expected, format!("a node's address, {ip}"));
                clashes.push(clash.kind(ErrorKind::Duplicate));
            }
        }
    }
}

fn virtual_addresses_are_few(config: &Config, clashes: &mut Vec<Conflict>) {
    let addresses = config.steered_services().flat_map(|(i, service)| {
        (0..service.listen.len()).map(move |j| [Key("service"), Nth(i), Key("listen"), Nth(j)])
    });
    let places: Vec<_> = addresses.collect();
    if let Some(at) = places.get(DIRECT_ADDRESSES_MAX) {
        let expected =
            format!("at most {DIRECT_ADDRESSES_MAX} addresses of services in direct dispatch");
        let clash = Conflict::new(at, expected, format!("{}", places.len()));
        let how = "let several sites have one address, or make two clusters";
        clashes.push(clash.kind(ErrorKind::OutOfRange).hint(how.to_owned()));
    }
}

fn direct_policies_see_no_requests(config: &Config, clashes: &mut Vec<Conflict>) {
    let services = config.services.iter().enumerate();
    for (i, service) in services.filter(|(_, it)| it.dispatch == DispatchMode::Direct) {
        if !DIRECT_POLICY_NAMES.contains(&service.policy.as_str()) {
            let at = [Key("service"), Nth(i), Key("policy")];
            let expected = "a policy that reads no request and measures no reply, because dispatch is \"direct\"";
            let clash = Conflict::new(&at, expected, format!("{:?}", service.policy));
            let known = format!("one of {}", DIRECT_POLICY_NAMES.join(", "));
            clashes.push(clash.hint(known));
        }
    }
}

fn direct_needs_a_key(config: &Config, clashes: &mut Vec<Conflict>) {
    if let (Some((i, service)), None) = (config.steered_services().next(), &config.key_file) {
        let at = [Key("service"), Nth(i), Key("dispatch")];
        let expected = format!(
            "a `key_file` at the top of the file, because dispatch is \"{}\"",
            service.dispatch
        );
        clashes.push(Conflict::new(&at, expected, "none").hint(KEY_HINT.to_owned()));
    }
}

fn direct_dispatchers_can_be_reached(config: &Config, clashes: &mut Vec<Conflict>) {
    let Some((_, service)) = config.steered_services().next() else { return };
    for (i, dispatcher) in config.dispatchers.iter().enumerate() {
        let usable = |address: SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
        if !dispatcher.address.is_some_and(usable) {
            let at = [Key("dispatcher"), Nth(i), Key("address")];
            let expected = format!(
                "an `address` \"IP:PORT\" for heartbeats, because a service is \"{}\"",
                service.dispatch
            );
            let found =
                dispatcher.address.map_or("none".to_owned(), |found| format!("\"{found}\""));
            let how = format!("the machine's own IP address and a UDP port such as {AGENT_PORT}");
            clashes.push(Conflict::new(&at, expected, found).hint(how));
        }
    }
}

fn etcd_has_endpoints(config: &Config, clashes: &mut Vec<Conflict>) {
    if config.store == StoreKind::Etcd && config.etcd.endpoints.is_empty() {
        let clash = Conflict::new(&[Key("store")], "`endpoints` in [etcd]", "none");
        clashes.push(clash.hint("endpoints = [\"10.0.0.5:2379\"]".to_owned()));
    }
}

fn open_admin_needs_token(config: &Config, clashes: &mut Vec<Conflict>) {
    let Some(address) = config.admin.listen else { return };
    if !address.ip().is_loopback() && config.admin.token_file.is_none() {
        let at = [Key("admin"), Key("listen")];
        let expected = "an address of this machine alone, or a `token_file`";
        let clash = Conflict::new(&at, expected, format!("\"{address}\" without a token"));
        clashes.push(clash.hint("anyone who can reach this address could drain nodes".to_owned()));
    }
}

fn dispatcher_closes_first(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, service) in config.services.iter().enumerate() {
        if service.upstream_idle_ms >= config.timeouts.idle_ms {
            let at = [Key("service"), Nth(i), Key("upstream_idle_ms")];
            let expected = format!("less than timeouts.idle_ms ({})", ms(config.timeouts.idle_ms));
            let clash = Conflict::new(&at, expected, ms(service.upstream_idle_ms));
            let why = "else a node closes a connection while a request is on its way";
            clashes.push(clash.hint(why.to_owned()));
        }
    }
}

fn checks_do_not_overlap(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, service) in config.services.iter().enumerate() {
        let health = &service.health;
        if health.timeout_ms > health.interval_ms {
            let at = [Key("service"), Nth(i), Key("health"), Key("timeout_ms")];
            let expected = format!("at most interval_ms ({})", ms(health.interval_ms));
            clashes.push(Conflict::new(&at, expected, ms(health.timeout_ms)));
        }
    }
}

fn elasticity_is_possible(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, service) in config.services.iter().enumerate().filter(|(_, it)| it.elastic.enabled) {
        let elastic = &service.elastic;
        let at = |name| [Key("service"), Nth(i), Key("elastic"), Key(name)];
        if elastic.target_requests == 0 && elastic.target_bytes_max == 0 {
            let expected = "target_requests or target_bytes_max of more than 0".to_owned();
            clashes.push(Conflict::new(&at("enabled"), expected, "neither".to_owned()));
        }
        if elastic.nodes_min > elastic.nodes_max {
            let expected = format!("at most nodes_max ({})", elastic.nodes_max);
            clashes.push(Conflict::new(&at("nodes_min"), expected, elastic.nodes_min.to_string()));
        }
        if service.dispatch != DispatchMode::Proxy {
            let expected = "proxy, with elasticity".to_owned();
            let dispatch = [Key("service"), Nth(i), Key("dispatch")];
            clashes.push(Conflict::new(&dispatch, expected, service.dispatch.word().to_owned()));
        }
    }
}

fn target_fits_head(config: &Config, clashes: &mut Vec<Conflict>) {
    let limits = &config.limits;
    if limits.target_bytes_max >= limits.head_bytes_max {
        let at = [Key("limits"), Key("target_bytes_max")];
        let expected = format!("less than head_bytes_max ({})", bytes(limits.head_bytes_max));
        clashes.push(Conflict::new(&at, expected, bytes(limits.target_bytes_max)));
    }
}

fn head_fits_connection(config: &Config, clashes: &mut Vec<Conflict>) {
    let limits = &config.limits;
    if limits.head_bytes_max > limits.connection_bytes_max {
        let at = [Key("limits"), Key("head_bytes_max")];
        let room = bytes(limits.connection_bytes_max);
        let expected = format!("at most connection_bytes_max ({room})");
        clashes.push(Conflict::new(&at, expected, bytes(limits.head_bytes_max)));
    }
}

fn ms(number: u64) -> String {
    plain(Unit::Milliseconds, number)
}

fn bytes(number: u64) -> String {
    plain(Unit::Bytes, number)
}
