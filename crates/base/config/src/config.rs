//! Operations on a [`Config`]: reading, writing, comparison and queries.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::check::check;
use crate::error::{ConfigErrors, ErrorKind, Fault};
use crate::limits::TEXT_BYTES_MAX;
use crate::pools::ServerConfig;
use crate::power::{PowerConfig, with_values};
use crate::raw::Raw;
use crate::schema::{
    AGENT_PORT, BackendConfig, Config, DispatcherConfig, NodeConfig, RedirectConfig, RouteConfig,
    ServiceConfig, SiteConfig, settings, tables,
};
use crate::section::{Row, Section, last_part};
use crate::words::{AccessLogTarget, ConnectionsScope, ContentPlacement, DispatchMode};
use crate::write::Writer;

impl Config {
    /// Parses `text` into a config, or returns all its faults. `file_name` is for the errors. Opens
    /// no file: the role that uses a path checks whether it exists.
    ///
    /// If the text is not TOML, only the first error is found.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        let refuse = |faults| Err(ConfigErrors::new(file_name, text, faults));
        if text.len() > TEXT_BYTES_MAX {
            let expected = format!("at most {TEXT_BYTES_MAX} bytes");
            let found = format!("{} bytes", text.len());
            return refuse(vec![Fault::new(ErrorKind::OutOfRange, 0..0, "", expected, found)]);
        }
        let raw = match Raw::parse(text) {
            Ok(raw) => raw,
            Err(error) => return refuse(vec![syntax_fault(text, &error)]),
        };
        let mut faults = Vec::new();
        let config = Self::read("", &raw, &mut faults);
        faults.iter_mut().for_each(belongs_elsewhere);
        check(&config, &raw, &mut faults);
        if faults.is_empty() { Ok(config) } else { refuse(faults) }
    }

    /// Checks a config that was built in code by the rules for files.
    pub fn validate(&self) -> Result<(), ConfigErrors> {
        Self::parse("(built in code)", &self.to_toml()).map(|_| ())
    }

    /// Returns the shortest file for this config: settings with their default are omitted.
    /// [`Config::parse`] reads it back to an equal config.
    pub fn to_toml(&self) -> String {
        self.written(false)
    }

    /// Returns the file with every setting; those with their default are marked by a comment.
    /// [`Config::parse`] reads it back to an equal config.
    pub fn to_toml_full(&self) -> String {
        self.written(true)
    }

    fn written(&self, full: bool) -> String {
        let mut out = Writer::new(full);
        self.write("", false, &mut out);
        out.finish()
    }

    /// Resolves relative paths against `folder`, the folder of the file.
    pub fn resolve_paths(&mut self, folder: &Path) {
        let resolve = |path: &mut PathBuf| *path = folder.join(&path);
        resolve(&mut self.state_dir);
        resolve(&mut self.direct.guard_dir);
        for BackendConfig { root, reply, .. } in self.backends_mut() {
            root.iter_mut().chain(&mut reply.file).for_each(resolve);
        }
        if let AccessLogTarget::File(path) = &mut self.log.access {
            resolve(path);
        }
        self.admin.socket.iter_mut().for_each(resolve);
        self.key_file.iter_mut().for_each(resolve);
        self.spool.folder.iter_mut().for_each(resolve);
        self.recorder.file.iter_mut().for_each(resolve);
        self.admin.token_file.iter_mut().for_each(resolve);
        let secrets = self.pools.iter_mut().filter_map(|pool| pool.ajp.secret_file.as_mut());
        secrets.for_each(resolve);
    }

    pub fn node(&self, name: &str) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.name == name)
    }

    pub fn dispatcher(&self, name: &str) -> Option<&DispatcherConfig> {
        self.dispatchers.iter().find(|dispatcher| dispatcher.name == name)
    }

    /// The nodes of a service, each with its index in `nodes`.
    pub fn nodes_of<'a>(
        &'a self,
        service: &'a ServiceConfig,
    ) -> impl Iterator<Item = (usize, &'a NodeConfig)> {
        let is_behind =
            |node: &NodeConfig| service.nodes.is_empty() || service.nodes.contains(&node.name);
        self.nodes.iter().enumerate().filter(move |(_, node)| is_behind(node))
    }

    /// The services whose packets are steered, by direct dispatch or before a handoff, each with its
    /// index in `services`.
    pub fn steered_services(&self) -> impl Iterator<Item = (usize, &ServiceConfig)> {
        let services = self.services.iter().enumerate();
        services.filter(|(_, service)| service.dispatch.is_steered())
    }

    /// Whether any service uses handoffs.
    pub fn hands_off(&self) -> bool {
        self.services.iter().any(|service| service.dispatch == DispatchMode::Handoff)
    }

    /// The steered services of a node.
    pub fn steered_services_of<'a>(
        &'a self,
        node: &'a str,
    ) -> impl Iterator<Item = &'a ServiceConfig> {
        let services = self.steered_services().map(|(_, service)| service);
        services.filter(move |service| self.nodes_of(service).any(|(_, it)| it.name == node))
    }

    /// The backends of all sites.
    pub fn backends(&self) -> impl Iterator<Item = &BackendConfig> {
        self.sites.iter().flat_map(SiteConfig::backends)
    }

    /// The backends of all sites, mutable.
    pub fn backends_mut(&mut self) -> impl Iterator<Item = &mut BackendConfig> {
        self.sites.iter_mut().flat_map(|site| {
            let routes = site.routes.iter_mut().map(|route| &mut route.backend);
            routes.chain([&mut site.backend])
        })
    }

    /// The source addresses of requests from dispatchers, as far as the file specifies them.
    pub fn dispatcher_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let known = self.dispatchers.iter().filter_map(|it| it.address);
        // Dispatchers that listen on a specific address rather than on all addresses.
        let listening = self.services.iter().flat_map(|it| it.listen.iter().copied());
        let ips = known.chain(listening).map(|it| it.ip().to_canonical());
        ips.filter(|ip| !ip.is_unspecified())
    }

    /// Whether clients reach nodes through a proxying dispatcher.
    pub fn is_proxied(&self) -> bool {
        self.services.iter().any(|service| service.dispatch == DispatchMode::Proxy)
    }

    /// Whether nodes fetch content from each other's memory: there are dispatchers to coordinate
    /// this, and sites that benefit from it.
    pub fn cooperates(&self) -> bool {
        self.cache.cooperate
            && !self.dispatchers.is_empty()
            && self.backends().any(BackendConfig::is_shared)
    }

    /// Whether nodes can count their requests at servers together: there are several nodes, and
    /// dispatchers to which they can link.
    pub fn can_count_slots(&self) -> bool {
        self.cache.cooperate && self.nodes.len() > 1 && self.reports_load()
    }

    /// Whether nodes link to the coordinators of dispatchers: for the cache, to count requests at
    /// servers of pools (including those added at run time) and report them, or to receive whether
    /// they are to be off.
    pub fn links_nodes(&self) -> bool {
        let is_elastic = self.services.iter().any(|service| service.elastic.enabled);
        self.cooperates()
            || (self.can_count_slots() && !self.pools.is_empty())
            || (is_elastic && self.reports_load())
    }

    /// Whether `connections_max` of `server` limits the total requests of all nodes.
    pub fn is_of_cluster(&self, server: &ServerConfig) -> bool {
        match server.connections_scope {
            ConnectionsScope::Auto => !server.address.is_local() || self.nodes_share_machines(),
            ConnectionsScope::Cluster => true,
            ConnectionsScope::Node => false,
        }
    }

    fn nodes_share_machines(&self) -> bool {
        let machines: BTreeSet<_> = self.nodes.iter().map(|it| it.agent_address().ip()).collect();
        machines.len() < self.nodes.len()
    }

    /// A node's share of the allowed concurrent requests at `server`.
    pub fn share_of(&self, server: &ServerConfig) -> u32 {
        let nodes = u32::try_from(self.nodes.len().max(1)).unwrap_or(u32::MAX);
        match self.is_of_cluster(server) {
            true => (server.connections_max / nodes).max(1),
            false => server.connections_max,
        }
    }

    /// Whether nodes report their load to dispatchers: there is a shared key, and some dispatcher
    /// has an address for reports.
    pub fn reports_load(&self) -> bool {
        self.key_file.is_some() && self.dispatchers.iter().any(|it| it.address.is_some())
    }

    /// Interval of a node's load reports, in milliseconds. In direct dispatch, heartbeats carry the
    /// load.
    pub fn report_interval_ms(&self) -> u64 {
        let is_direct = self.steered_services().next().is_some();
        if is_direct { self.direct.node_heartbeat_ms } else { self.agent.report_ms }
    }

    /// The commands for the machine of `node`.
    pub fn power_of<'c>(&'c self, node: &'c NodeConfig) -> &'c PowerConfig {
        if node.power.has_commands() { &node.power } else { &self.power }
    }

    /// Whether elasticity switches machines on and off.
    pub fn switches_machines(&self) -> bool {
        self.nodes.iter().any(|node| self.power_of(node).has_commands())
    }

    /// The control socket of the process that runs as `name`.
    pub fn socket_of(&self, name: &str) -> PathBuf {
        let default = || self.state_dir.join(format!("{name}.sock"));
        self.admin.socket.clone().unwrap_or_else(default)
    }
}

impl SiteConfig {
    /// A site for all hosts, with this backend and no routes.
    pub fn of(backend: BackendConfig) -> Self {
        Self { backend, ..Self::default() }
    }

    /// The sources of its bytes: the backends of its routes, then the site's own.
    pub fn backends(&self) -> impl Iterator<Item = &BackendConfig> {
        self.routes.iter().map(|route| &route.backend).chain([&self.backend])
    }
}

impl BackendConfig {
    /// Whether its bytes are shared by all nodes: reading them once is enough.
    pub fn is_shared(&self) -> bool {
        self.content != ContentPlacement::Local || !self.origins.is_empty() || self.cache.enabled
    }
}

impl NodeConfig {
    /// An argument of a command for its machine, with the placeholders replaced.
    pub fn power_argument(&self, argument: &str) -> String {
        with_values(argument, |placeholder| match placeholder {
            "name" => Some(self.name.clone()),
            "address" => Some(self.address.ip().to_string()),
            "port" => Some(self.address.port().to_string()),
            "id" => self.power_id.clone(),
            _ => None,
        })
    }

    /// The address at which dispatchers reach this node's agent.
    pub fn agent_address(&self) -> SocketAddr {
        self.agent.unwrap_or_else(|| SocketAddr::new(self.address.ip(), AGENT_PORT))
    }

    /// Host and port at which clients reach this node.
    pub fn client_authority(&self) -> String {
        self.public_address.clone().unwrap_or_else(|| self.address.to_string())
    }
}

/// Returns the paths of the settings and tables that differ between `old` and `new` and that a
/// reload does not apply. Rows are compared by name.
pub fn changes_needing_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let mut paths = Vec::new();
    old.restarts(new, "", true, &mut paths);
    // Nodes join the cluster's cache only at their start.
    if new.cooperates() && !old.cooperates() {
        paths.push("site.content");
    } else if new.links_nodes() && !old.links_nodes() {
        let is_for_pools = new.can_count_slots() && !new.pools.is_empty();
        paths.push(if is_for_pools { "pool" } else { "service.elastic" });
    }
    // The process that runs commands is started only before privileges are dropped.
    if new.switches_machines() && !old.switches_machines() {
        paths.push("power");
    }
    paths.sort_unstable();
    paths.dedup();
    paths
}

impl Row for DispatcherConfig {
    fn row_name(&self) -> &str {
        &self.name
    }
}

impl Row for NodeConfig {
    fn row_name(&self) -> &str {
        &self.name
    }
}

impl Row for ServiceConfig {
    fn row_name(&self) -> &str {
        &self.name
    }
}

impl Row for SiteConfig {
    fn row_name(&self) -> &str {
        self.hosts.first().map_or("*", String::as_str)
    }
}

impl Row for RouteConfig {
    fn row_name(&self) -> &str {
        &self.path
    }
}

impl Row for RedirectConfig {
    fn row_name(&self) -> &str {
        &self.from
    }
}

/// For a key that is unknown in its table, adds a hint with the table that has it.
fn belongs_elsewhere(fault: &mut Fault) {
    if fault.kind != ErrorKind::UnknownKey || fault.meant.is_some() {
        return;
    }
    let key = last_part(&fault.setting);
    let mut paths = settings().iter().map(|s| s.path).chain(tables().iter().map(|t| t.path));
    if let Some(elsewhere) = paths.find(|path| last_part(path) == key) {
        let place = match elsewhere.rsplit_once('.') {
            Some((table, _)) => format!("[{table}]"),
            None => "the top of the file".to_owned(),
        };
        fault.hint = Some(format!("`{key}` belongs in {place}"));
        fault.meant = Some(elsewhere);
    }
}

fn syntax_fault(text: &str, error: &toml_edit::TomlError) -> Fault {
    let span = error.span().unwrap_or(text.len()..text.len());
    let message = error.message();
    let written = text.get(span.clone()).map(str::trim).filter(|written| !written.is_empty());
    let found = written.map_or_else(|| "the end of the line".into(), crate::raw::quote);
    if message.starts_with("duplicate key") {
        let expected = "each key and table once";
        return Fault::new(ErrorKind::Duplicate, span, "", expected, format!("{found} twice"));
    }
    let hint = "strings stand in quotes, tables begin with [name], rows with [[name]]";
    Fault::new(ErrorKind::Syntax, span, "", format!("TOML ({message})"), found)
        .hint(hint.to_owned())
}
