//! The measured systems: what runs on the dispatcher's machine and on each node, and their settings, which
//! are files in `lab/peers/` in which `@NAME@` is replaced by values that differ from run to run.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

const SKEP: &str = include_str!("../../peers/skep.toml");
const NGINX: &str = include_str!("../../peers/nginx-cache.conf");
const HAPROXY: &str = include_str!("../../peers/haproxy.cfg");
const VARNISH: &str = include_str!("../../peers/varnish.vcl");

/// How Varnish's nodes check each other.
const VARNISH_PROBE: &str =
    ".probe = { .url = \"@PROBE@\"; .interval = 1s; .threshold = 1; .window = 2; .initial = 2; } ";

/// The port of nodes at their own addresses.
pub(super) const NODE_PORT: u16 = 8080;

/// The target of peers' health checks, which the nodes answer themselves.
const PROBE: &str = "/health";

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TableRow {
    /// Skep's proxy, round robin, one cluster cache.
    SkepProxy,
    /// Skep's proxy by the hash of the URL, one cluster cache.
    SkepUrl,
    /// Skep's direct dispatch, round robin, one cluster cache.
    SkepDirect,
    /// Skep's proxy, round robin, separate caches.
    SkepAlone,
    /// nginx behind HAProxy, round robin.
    NginxTurns,
    /// nginx behind HAProxy, consistent hash of the URL.
    NginxUrl,
    /// Varnish with its shard director behind HAProxy, round robin.
    Varnish,
}

impl TableRow {
    /// All rows, in the order of the tables.
    pub(crate) const ALL: [Self; 7] = [
        Self::SkepProxy,
        Self::SkepUrl,
        Self::SkepDirect,
        Self::SkepAlone,
        Self::NginxTurns,
        Self::NginxUrl,
        Self::Varnish,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SkepProxy => "Skep, proxy",
            Self::SkepUrl => "Skep, proxy by URL",
            Self::SkepDirect => "Skep, direct",
            Self::SkepAlone => "Skep, caches apart",
            Self::NginxTurns => "nginx, HAProxy round robin",
            Self::NginxUrl => "nginx, HAProxy URL hash",
            Self::Varnish => "Varnish shards, HAProxy",
        }
    }

    /// The key in `--rows`.
    pub(crate) fn key(self) -> String {
        let said = serde_json::to_value(self).unwrap_or_default();
        said.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn is_skep(self) -> bool {
        matches!(self, Self::SkepProxy | Self::SkepUrl | Self::SkepDirect | Self::SkepAlone)
    }
}

/// The values that replace names in settings.
pub(super) struct Names {
    /// The cell's own folder, in memory.
    pub(super) folder: PathBuf,
    pub(super) skep: PathBuf,
    pub(super) cache_bytes: u64,
    /// The number of objects that fit into that, given the data set's mean.
    pub(super) cache_objects: u64,
    /// Rate of each node's link; 0: not stated.
    pub(super) link_mbit_s: u64,
    pub(super) dispatcher: Ipv4Addr,
    pub(super) vip: Ipv4Addr,
    pub(super) origin: Ipv4Addr,
    /// Addresses of all nodes of the bed, in use from the beginning or not.
    pub(super) nodes: Vec<Ipv4Addr>,
    /// Number of nodes in use from the beginning.
    pub(super) in_use: usize,
    /// Lines for the sites of Skep's nodes.
    pub(super) site: String,
}

/// A process to start: the files in its folder, and its command line.
pub(super) struct Program {
    pub(super) files: Vec<(&'static str, String)>,
    pub(super) words: Vec<String>,
}

impl Names {
    /// The address that clients of a row use.
    pub(super) fn target(&self, row: TableRow) -> SocketAddr {
        let address = if row == TableRow::SkepDirect { self.vip } else { self.dispatcher };
        (address, 80).into()
    }

    /// The program on the dispatcher's machine.
    pub(super) fn dispatcher(&self, row: TableRow) -> Program {
        if row.is_skep() {
            return self.skep(row, "dispatcher-1", self.in_use);
        }
        let balance = match row {
            TableRow::NginxUrl => "balance uri\n    hash-type consistent",
            _ => "balance roundrobin",
        };
        let server = |(index, address): (usize, &Ipv4Addr)| {
            let later = if index < self.in_use { "" } else { " disabled" };
            format!("    server node-{} {address}:{NODE_PORT}{later}\n", index + 1)
        };
        let servers: String = self.nodes.iter().enumerate().map(server).collect();
        let folder = self.folder("dispatcher-1");
        let text = self
            .fill(HAPROXY, "dispatcher-1")
            .replace("@BALANCE@", balance)
            .replace("@SERVERS@", &servers);
        let words = format!("haproxy -db -f {}/haproxy.cfg", folder.display());
        Program { files: vec![("haproxy.cfg", text)], words: split(&words) }
    }

    /// The program on the node with this index.
    pub(super) fn node(&self, row: TableRow, index: usize) -> Program {
        let name = node_name(index);
        let folder = self.folder(&name);
        let folder = folder.display();
        match row {
            TableRow::Varnish => {
                let cache = self.cache_bytes;
                let words = format!(
                    "varnishd -F -j none -n {folder}/varnish -a :{NODE_PORT} -f {folder}/varnish.vcl \
                     -s malloc,{cache} -p thread_pools=1 -p timeout_idle=3600 \
                     -p nuke_limit=1000"
                );
                let files = vec![("varnish.vcl", self.varnish(index))];
                Program { files, words: split(&words) }
            }
            TableRow::NginxTurns | TableRow::NginxUrl => {
                let words =
                    format!("nginx -c {folder}/nginx.conf -p {folder} -e {folder}/error.log");
                let files = vec![("nginx.conf", self.fill(NGINX, &name))];
                Program { files, words: split(&words) }
            }
            // A node that is added later is contained in its own file.
            _ => self.skep(row, &name, self.in_use.max(index + 1)),
        }
    }

    /// A machine's own folder.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn skep(&self, row: TableRow, name: &str, nodes: usize) -> Program {
        let node = |index: usize| {
            let (name, address, link) = (node_name(index), self.nodes[index], self.link_mbit_s);
            format!(
                "[[node]]\nname = \"{name}\"\naddress = \"{address}:{NODE_PORT}\"\nlink_mbit_s = {link}\n"
            )
        };
        let (dispatch, policy) = match row {
            TableRow::SkepDirect => ("direct", "round-robin"),
            TableRow::SkepUrl => ("proxy", "bounded-maglev-url"),
            _ => ("proxy", "round-robin"),
        };
        let text = self
            .fill(SKEP, name)
            .replace("@COOPERATE@", if row == TableRow::SkepAlone { "false" } else { "true" })
            .replace("@NODES@", &(0..nodes).map(node).collect::<String>())
            .replace("@LISTEN@", &self.target(row).to_string())
            .replace("@DISPATCH@", dispatch)
            .replace("@POLICY@", policy)
            .replace("@SITE@", &self.site);
        let (skep, folder) = (self.skep.display(), self.folder(name));
        let words = format!("{skep} run --config {}/skep.toml --as {name}", folder.display());
        let key = "0123456789abcdef0123456789abcdef\n".to_owned();
        Program { files: vec![("skep.toml", text), ("key", key)], words: split(&words) }
    }

    fn varnish(&self, own: usize) -> String {
        let backend = |(index, address): (usize, &Ipv4Addr)| {
            let probe = if index == own { "" } else { VARNISH_PROBE };
            format!(
                "backend node{index} {{ .host = \"{address}\"; .port = \"{NODE_PORT}\"; {probe}}}\n"
            )
        };
        let backends: String = self.nodes[..self.in_use].iter().enumerate().map(backend).collect();
        let adds: String =
            (0..self.in_use).map(|it| format!("    nodes.add_backend(node{it});\n")).collect();
        let text = VARNISH
            .replace("@BACKENDS@", &backends)
            .replace("@ADDS@", &adds)
            .replace("@OWN@", &format!("node{own}"));
        self.fill(&text, &node_name(own))
    }

    fn fill(&self, text: &str, name: &str) -> String {
        text.replace("@DIR@", &self.folder(name).display().to_string())
            .replace("@CACHE@", &self.cache_bytes.to_string())
            .replace("@ZONE@", &nginx_zone_bytes(self.cache_objects).to_string())
            .replace("@DISPATCHER@", &self.dispatcher.to_string())
            .replace("@ORIGIN@", &self.origin.to_string())
            .replace("@PROBE@", PROBE)
    }
}

/// The size of an nginx zone with room for this many keys: 32 per page, with a table entry for each page, and
/// some pages for the zone itself (`ngx_slab.c`).
fn nginx_zone_bytes(keys: u64) -> u64 {
    let (page, entry, own) = (4096, 24, 2);
    (keys.div_ceil(32) + own) * (page + entry)
}

/// The name of the node with this index, and of its machine.
pub(super) fn node_name(index: usize) -> String {
    format!("node-{}", index + 1)
}

/// Splits at spaces: no argument contains one.
fn split(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_filled() {
        let address = Ipv4Addr::LOCALHOST;
        let names = Names {
            folder: "/f".into(),
            skep: "/s".into(),
            cache_bytes: 1 << 20,
            cache_objects: 200,
            dispatcher: address,
            vip: address,
            origin: address,
            nodes: vec![address; 3],
            in_use: 2,
            link_mbit_s: 0,
            site: String::new(),
        };
        for row in TableRow::ALL {
            for program in [names.dispatcher(row), names.node(row, 0), names.node(row, 2)] {
                let texts = program.files.iter().map(|(_, text)| text).chain(&program.words);
                texts.for_each(|text| assert!(!text.contains('@'), "{row:?}: {text}"));
            }
        }
    }
}
