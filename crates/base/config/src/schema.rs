//! The settings table: every setting of Skep, defined once, here.
//!
//! The order of the entries is that of `docs/config.md` and of `skep config show`. Changing an
//! entry changes all of them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::LazyLock;

use skep_units::{GIB, MIB, WEIGHT_MAX};

use crate::arms::ArmConfig;
use crate::clients::{ClientNetworkConfig, LimitsConfig, TimeoutsConfig};
use crate::compress::CompressConfig;
use crate::elastic::ElasticConfig;
use crate::kind::{DAY_MS, Form, HOUR_MS, Kind, MINUTE_MS, TIB, bytes, count, ms, number, word};
use crate::number::Unit;
use crate::pools::{ForwardConfig, PoolConfig};
use crate::power::PowerConfig;
use crate::recorder::RecorderConfig;
use crate::replies::ReplyConfig;
use crate::response_cache::ResponseCacheConfig;
use crate::section::{Section, Setting, TableDoc};
use crate::table::table;
use crate::words::{
    AccessLogTarget, Attach, ContentPlacement, DispatchMode, HandoffDecision, HandoffTransport,
    Level, LogFormat, POLICY_NAMES, StoreKind, Symlinks,
};

/// UDP and TCP port of a node's agent, if the config names none.
pub const AGENT_PORT: u16 = 7071;

/// Every table of the file, in the order of the reference.
pub fn tables() -> &'static [TableDoc] {
    static TABLES: LazyLock<Vec<TableDoc>> = LazyLock::new(|| {
        let mut tables = Vec::new();
        Config::describe("", &mut tables);
        tables
    });
    &TABLES
}

/// Every setting, in the order of the reference.
pub fn settings() -> &'static [Setting] {
    static SETTINGS: LazyLock<Vec<Setting>> =
        LazyLock::new(|| tables().iter().flat_map(|table| table.settings.clone()).collect());
    &SETTINGS
}

/// Returns the setting with this path, such as `limits.head_bytes_max`.
pub fn setting(path: &str) -> Option<&'static Setting> {
    settings().iter().find(|setting| setting.path == path)
}

table! {
    /// The cluster. The same file is used on every machine; `skep run --config FILE --as NAME` selects the
    /// dispatcher or node that a process runs. Relative paths start at the file's folder.
    Config at "" {
        /// Name of the cluster, shown by `skep status` and the console.
        cluster: String = "skep".into() => Kind::Text(Form::Name), restart;
        /// Directory for the runtime state of a process: its control socket and, if it persists any, its state.
        state_dir: PathBuf = "/var/lib/skep".into() => Kind::Text(Form::Path), restart;
        /// File with the secret that the cluster's machines share: a line of 32 characters or more. Machines
        /// trust every holder of the key, and nobody else. Required for `dispatch = "direct"` and `"handoff"`,
        /// and for nodes to share memory, to report their load and the sizes of objects to dispatchers, or to
        /// return their memory while elasticity has them off.
        key_file: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
        /// Where dispatchers keep persistent state: `embedded` in a file on each of them, `etcd` in an etcd
        /// cluster, whose lease also decides which dispatcher is active when they disagree.
        store: StoreKind = StoreKind::Embedded => word(StoreKind::WORDS), restart;
    }
    tables {
        /// Threads, user and groups of a process.
        machine: MachineConfig, live;
        /// The processes that receive the clients' requests; a file without one
        /// describes nodes that clients reach directly.
        dispatchers: Vec<DispatcherConfig>, restart;
        /// How packets get to nodes where `dispatch` is `"direct"` or `"handoff"`.
        direct: DirectConfig, live;
        /// How connections move between nodes where `dispatch = "handoff"`.
        handoff: HandoffConfig, restart;
        /// The etcd of `store = "etcd"`.
        etcd: EtcdConfig, restart;
        /// The web servers.
        nodes: Vec<NodeConfig>, live;
        /// Load reports of nodes.
        agent: AgentConfig, restart;
        /// What dispatchers offer to clients.
        services: Vec<ServiceConfig>, restart;
        /// How machines of nodes are switched on and off.
        power: PowerConfig, live;
        /// What nodes serve.
        sites: Vec<SiteConfig>, live;
        /// Applications that nodes pass requests to.
        pools: Vec<PoolConfig>, live;
        /// Networks of clients.
        client_networks: Vec<ClientNetworkConfig>, live;
        /// The nodes' memory of files.
        cache: CacheConfig, live;
        /// Bodies that wait for slow clients of pools.
        spool: SpoolConfig, restart;
        /// Limits of size and number.
        limits: LimitsConfig, live;
        /// Limits of time.
        timeouts: TimeoutsConfig, live;
        /// What a process logs.
        log: LogConfig, live;
        /// A history of each process and its machine.
        recorder: RecorderConfig, restart;
        /// Metrics for Prometheus.
        metrics: MetricsConfig, live;
        /// The management API.
        admin: AdminConfig, live;
    }
}

table! {
    /// Threads, user and groups of a process.
    MachineConfig at "machine" {
        /// Worker threads of a process, each with its own event loop and listener; 0 is one per core.
        threads: u32 = 0 => count(0..=1024), restart;
        /// User, by name or number, that a process started as root changes to once it has bound its addresses.
        /// The change is permanent, and no capability is kept, so this user must have access to sites, logs and
        /// `state_dir`. If unset, it is `skep` if this user exists, else `nobody`. No effect on a process that
        /// was not started as root.
        user: Option<String> = None => Kind::Text(Form::Name), restart;
        /// Groups that the process then has in addition to the user's own one, such as that of an application's
        /// socket; it has no others.
        groups: Vec<String> = Vec::new() => Kind::Texts(Form::Name), restart;
    }
}

table! {
    /// A dispatcher: receives the clients' requests and sends each to a node. A node of the same name runs in
    /// the same process.
    DispatcherConfig at "dispatcher" {
        /// Its name, for `--as`, logs and metrics.
        name: String => Kind::Text(Form::Name), restart;
        /// Where the other dispatchers and the nodes reach it: by UDP for load reports of nodes and for
        /// `dispatch = "direct"`, by TCP as coordinator of the nodes' caches.
        address: Option<SocketAddr> = None => Kind::AddressOrOff, restart;
        /// Decides which healthy dispatcher is active: the one
        /// with the highest number.
        priority: u32 = 100 => count(1..=255), restart;
        /// Network device on which packets arrive and leave; if unset, the one that has `address`.
        device: Option<String> = None => Kind::Text(Form::Name), restart;
    }
}

table! {
    /// How packets get to nodes in services with `dispatch = "direct"` or `"handoff"`. The address of such a
    /// service moves between dispatchers; every node has it as well, and answers clients directly. Dispatchers
    /// and nodes must be in one layer-2 network.
    DirectConfig at "direct" {
        /// Where in a dispatcher's kernel packets are steered. `auto` selects the first of the others that the
        /// device supports, and logs which.
        attach: Attach = Attach::Auto => word(Attach::WORDS), restart;
        /// Folder of netguard: its socket, and a record of what it changed on the machine. No other user may
        /// have write access to it, least of all the serving user. It is created if it is missing.
        guard_dir: PathBuf = "/run/skep-netguard".into() => Kind::Text(Form::Path), restart;
        /// Interval between heartbeats of a dispatcher.
        heartbeat_ms: u64 = 20 => ms(10..=10_000), restart;
        /// Heartbeats missed in a row after which a standby takes over.
        heartbeats_missed_max: u32 = 5 => count(2..=100), restart;
        /// Interval between heartbeats of a node.
        node_heartbeat_ms: u64 = 50 => ms(10..=10_000), restart;
        /// Heartbeats of a node missed in a row after which it gets no more packets. This ends its connections,
        /// so the number must be high enough for a network that loses a fifth of its packets.
        node_heartbeats_missed_max: u32 = 10 => count(2..=100), restart;
        /// Whether a dispatcher that comes back takes over again because its priority is higher. Otherwise the
        /// active one stays active.
        preempt: bool = false => Kind::Switch, restart;
        /// Size of a dispatcher's flow table, about 150 bytes per flow. When it is full, the least recently
        /// used flows are removed from it and steered by their row.
        flows_max: u32 = 524_288 => count(1024..=4_194_304), restart;
        /// New flows per second that are added to the flow table. Above this rate, as in a SYN flood, flows are
        /// steered only by their row.
        new_flows_per_s_max: u64 = 200_000 => count(1..=1_000_000_000), live;
        /// The same limit for the flows of one client address.
        new_flows_per_client_per_s_max: u64 = 20_000 => count(1..=1_000_000_000), live;
        /// Networks whose packets are accepted, such as `["192.0.2.0/24"]`. Empty accepts all. Packets steered
        /// here bypass the rules of the dispatcher's own firewall.
        allow: Vec<String> = Vec::new() => Kind::Texts(Form::Network), live;
        /// Networks whose packets are dropped. Of nested networks in `allow` and `deny`, the smallest applies.
        deny: Vec<String> = Vec::new() => Kind::Texts(Form::Network), live;
    }
}

table! {
    /// How connections move to the node that answers, in services with `dispatch = "handoff"`. If a connection
    /// cannot be moved, the node that accepted it answers from the cluster's memory.
    HandoffConfig at "handoff" {
        /// Who decides: `local`, the node that read the request, by itself; or `coordinator`, the active
        /// dispatcher, which counts all connections that nodes move. If it does not answer within 20 ms, the
        /// node that read the request answers.
        decide: HandoffDecision = HandoffDecision::Local => word(HandoffDecision::WORDS), restart;
        /// Transport of messages between nodes: `ip`, with protocol number 253, or `udp`, for networks that
        /// drop unknown protocols.
        transport: HandoffTransport = HandoffTransport::Ip => word(HandoffTransport::WORDS), restart;
        /// UDP port of nodes for `transport = "udp"`, at the IP address of `node.agent`.
        port: u16 = 7072 => count(1..=65_535), restart;
        /// How long a node waits for another one to accept a connection before it answers the request itself.
        /// Raise it if `skep_handoffs_total{outcome="silent"}` grows although no node is down. Set the same
        /// value on all nodes.
        ready_timeout_ms: u64 = 50 => ms(10..=300), restart;
        /// Minimum size of a reply for which a connection that has already had replies is moved. For smaller
        /// replies, the node that has the connection fetches the bytes from the memory of the others.
        again_bytes_min: u64 = 1024 * 1024 => bytes(1..=1 << 40), restart;
        /// Maximum number of moves of a connection.
        moves_max: u32 = 4 => count(1..=16), restart;
        /// For measurements only: a connection that could stay is handed off to the node that already has it,
        /// so that the cost of a move can be measured even on one node. A move that takes longer than
        /// `ready_timeout_ms` resets the connection.
        to_self: bool = false => Kind::Switch, restart;
    }
}

table! {
    /// The etcd cluster of `store = "etcd"`. While it is down, packets and requests are forwarded as without
    /// it.
    EtcdConfig at "etcd" {
        /// Its members, such as `["10.0.0.5:2379"]`.
        endpoints: Vec<String> = Vec::new() => Kind::Texts(Form::Authority), restart;
        /// Time after which a dispatcher that has failed loses its lease in etcd. Takeover does not wait for
        /// this.
        lease_ms: u64 = 5000 => ms(1000..=60_000), restart;
    }
}

table! {
    /// A node: a web server with its share of the cluster's memory.
    NodeConfig at "node" {
        /// Its name, for `--as`, `nodes` of a service, logs and metrics.
        name: String => Kind::Text(Form::Name), restart;
        /// Where the node listens and dispatchers reach it.
        address: SocketAddr => Kind::Address, restart;
        /// Its share of the work under weighted policies, relative to the other nodes' weights.
        weight: u32 = 1 => count(1..=WEIGHT_MAX as u64), live;
        /// Rate at which its link can send, in Mbit/s, for the policy `transfer-time`. 0: unknown; the policy then
        /// assumes 1 Gbit/s, scaled by weight.
        link_mbit_s: u32 = 0 => count(0..=1_000_000), live;
        /// Where `dispatch = "redirect"` sends clients; if unset, it is `address`.
        public_address: Option<String> = None => Kind::Text(Form::Authority), live;
        /// Where dispatchers reach it by UDP, and where other nodes reach it by TCP for what it has in memory;
        /// if unset, it is port 7071 of `address`.
        agent: Option<SocketAddr> = None => Kind::Address, restart;
        /// Network device on which steered packets arrive; if unset, the one that has `address`.
        device: Option<String> = None => Kind::Text(Form::Name), restart;
        /// Value of `{id}` in commands of `power`: an instance, a management controller, a MAC address.
        power_id: Option<String> = None => Kind::Text(Form::FieldValue), live;
    }
    tables {
        /// How its machine is switched, in place of the commands for all nodes.
        power: PowerConfig, live;
    }
}

table! {
    /// Load reports of nodes to dispatchers: CPU, memory, connections, bytes to send, rates. Dispatchers with
    /// an `address` receive them if there is a `key_file`.
    AgentConfig at "agent" {
        /// Interval between load reports of a node. In clusters with a service under `dispatch = "direct"` or
        /// `"handoff"`, heartbeats carry the load instead, every `direct.node_heartbeat_ms`.
        report_ms: u64 = 100 => ms(10..=10_000), restart;
    }
}

table! {
    /// A service: an address for clients, the nodes behind it and the way a
    /// request gets to one.
    ServiceConfig at "service" {
        /// Its name, for logs and metrics.
        name: String => Kind::Text(Form::Name), restart;
        /// Where the dispatchers listen for clients.
        listen: Vec<SocketAddr> => Kind::Addresses, restart;
        /// How a request gets to a node. `proxy`: request and response pass through the dispatcher. `redirect`:
        /// the client is redirected to the node. `direct`: the client's packets are steered to a node, which
        /// answers directly. `handoff`: the same, and that node moves the connection to the node that should
        /// answer the request.
        dispatch: DispatchMode = DispatchMode::Proxy
            => word(DispatchMode::WORDS), live;
        /// How the node is chosen.
        policy: String = "round-robin".into() => word(POLICY_NAMES), live;
        /// Names of the nodes behind this service; empty is all nodes of the file.
        nodes: Vec<String> = Vec::new() => Kind::Texts(Form::Name), live;
        /// Status of `dispatch = "redirect"`: 307 keeps the method and the body, 302 is for old clients that do
        /// not support 307.
        redirect_status: u16 = 307 => Kind::Status(&[302, 307]), live;
        /// Whether Forwarded and X-Forwarded-* of clients are trusted and extended. Enable it only behind
        /// another proxy; otherwise clients can forge their address.
        trust_forwarded: bool = false => Kind::Switch, live;
        /// Whether responses carry `X-Skep-Node`, the name of the node.
        node_header: bool = false => Kind::Switch, live;
        /// Maximum number of other nodes on which an idempotent request is retried after a failure. 0 disables
        /// retries.
        retries_max: u32 = 2 => count(0..=10), live;
        /// Maximum number of retries per second, as a share of the service's requests, so that retries do not
        /// overload a cluster that fails.
        retry_budget_percent: u32 = 20 => number(Unit::Percent, 0..=100), live;
        /// Time to connect to a node, after which the next one is tried.
        connect_timeout_ms: u64 = 1000 => ms(1..=MINUTE_MS), live;
        /// Time from the end of a request to the head of the node's response, after which the client gets 504.
        response_timeout_ms: u64 = MINUTE_MS => ms(1..=HOUR_MS), live;
        /// Time for which an unused connection to a node is kept. It must be shorter than `timeouts.idle_ms`,
        /// so that the dispatcher closes first and no request is sent on a connection that the node is closing.
        upstream_idle_ms: u64 = 30_000 => ms(1..=HOUR_MS), live;
        /// Connections to one node from one worker thread of a dispatcher; further requests get 503.
        upstream_connections_max: u32 = 1024 => count(1..=65_536), live;
    }
    tables {
        /// How nodes are watched.
        health: HealthConfig, live;
        /// Policies that are compared.
        arms: Vec<ArmConfig>, live;
        /// Whether nodes are started and stopped by the load.
        elastic: ElasticConfig, live;
    }
}

table! {
    /// How the dispatchers watch the nodes of a service.
    HealthConfig at "health" {
        /// Path that checks request; nodes answer the default one themselves.
        path: String = "/.well-known/skep/health".into() => Kind::Text(Form::UrlPath), live;
        /// Maximum time from the start of one check of a node to the start of the next: a node that hangs is
        /// out after `fall` intervals and `timeout_ms`.
        interval_ms: u64 = 1000 => ms(50..=HOUR_MS), live;
        /// Time for the response; at most `interval_ms`.
        timeout_ms: u64 = 1000 => ms(10..=HOUR_MS), live;
        /// Successful checks in a row that bring a node back.
        rise: u32 = 2 => count(1..=100), live;
        /// Failed checks in a row that take a node out.
        fall: u32 = 3 => count(1..=100), live;
        /// Status of a successful check.
        expect_status: u16 = 200 => number(Unit::Status, 100..=599), live;
        /// Time in which the load of a node that came back grows to its full share, so that its cache can warm
        /// up. 0: it gets its full share at once.
        slow_start_ms: u64 = 0 => ms(0..=HOUR_MS), live;
        /// Failed requests in a row that take a node out without waiting for checks. A refused connection takes
        /// it out at once. Only failures that may be the node's own fault count: no connection, or one that
        /// ends before the first byte of a response.
        passive_failures_max: u32 = 3 => count(1..=1000), live;
        /// Share of the service's nodes that may be out at a time because of failed requests: at least one,
        /// never the last that is up. 0: only refused connections take nodes out.
        ejected_max_percent: u32 = 10 => number(Unit::Percent, 0..=100), live;
    }
}

table! {
    /// A site: host names and what is served under them. Its `root`, `origins` or `pool` answers for all paths
    /// that none of its routes matches.
    SiteConfig at "site" {
        /// Host names of the site: `example.org`, `*.example.org` (any name below it), `*` or an empty list
        /// (every host without a site of its own).
        hosts: Vec<String> = Vec::new() => Kind::Texts(Form::HostPattern), live;
        /// Header fields added to every response, of all routes. `Content-Type` replaces that of files, fixed
        /// replies, and responses of origins and pools; texts of Skep, such as errors and listings, keep
        /// theirs.
        headers: Vec<(String, String)> = Vec::new() => Kind::Headers, live;
        /// Pages that are the body of responses with a status, such as `{ "404" = "/404.html" }`. Each is
        /// served by the route of its path.
        error_pages: BTreeMap<u16, String> = BTreeMap::new() => Kind::ErrorPages, live;
    }
    shared {
        /// What answers if no route matches.
        backend: BackendConfig,
    }
    tables {
        /// Paths that are served from elsewhere; the first that matches answers.
        routes: Vec<RouteConfig>, live;
        /// Paths that moved; the first that matches answers, before any route.
        redirects: Vec<RedirectConfig>, live;
    }
}

table! {
    /// A route: paths of a site that have a folder, origins, a pool or a reply of their own, with their own
    /// cache rules. Routes are tried in the order of the file. A route inherits only `headers` from its site.
    /// The whole path is looked up below its `root`, or requested from its `origins`: a route `/api/*` does not
    /// remove `/api`; `forward.strip_prefix` does.
    RouteConfig at "route" {
        /// Paths of the route: exactly this one, or a pattern in which `*` stands for any characters, including
        /// `/` and none, such as `/api/*` or `*.php`. All spellings of a path have the same route: `/%61pi//x`
        /// is `/api/x`. Queries are ignored.
        path: String => Kind::Text(Form::RoutePattern), live;
        /// Methods of its requests, such as `["GET", "HEAD"]`: exactly these. Empty is all. Requests with other
        /// methods are matched against the next routes.
        methods: Vec<String> = Vec::new() => Kind::Texts(Form::Method), live;
        /// Header fields that its requests must have, all of them: `"*"` is any value, `"abc*"` a value with
        /// this prefix, and `"abc"` exactly this value. If a field has several lines, one of them must match.
        /// Other requests are matched against the next routes. Responses get `Vary`.
        match_headers: Vec<(String, String)> = Vec::new() => Kind::FieldPatterns, live;
        /// Header fields added to every response of the route; they replace those of the same name that the
        /// site adds.
        headers: Vec<(String, String)> = Vec::new() => Kind::Headers, live;
    }
    shared {
        /// What answers.
        backend: BackendConfig,
    }
}

table! {
    /// Where the bytes of a site or route come from, and how they may be cached.
    BackendConfig {
        /// Folder of the files. Set this, `origins`, `pool` or a `reply`; or this and `pool`: then requests for
        /// what is not a file go to the pool.
        root: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Web servers from which content is fetched in place of a folder, such as
        /// `["http://10.0.0.9:8080/base"]`: the first that is healthy is used, over plain HTTP, without the
        /// clients' cookies and credentials. Content that they allow caches to store is fetched once for the
        /// whole cluster.
        origins: Vec<String> = Vec::new() => Kind::Texts(Form::OriginUrl), live;
        /// Name of the [[pool]] whose servers answer. Requests of all methods are passed on with everything
        /// that clients send; responses are cached, where the application allows it, if `cache.enabled` is set.
        pool: Option<String> = None => Kind::Text(Form::Name), live;
        /// Where the files of the folder are. `local`: on each node, complete. `shared`: in one folder that all
        /// nodes see under the same path, such as a network file system. `partition`: in parts, one on each
        /// node; nodes announce their files, and any node answers for all. Files that are not `local` are read
        /// once for the whole cluster: nodes get them from each other's memory.
        content: ContentPlacement = ContentPlacement::Local => word(ContentPlacement::WORDS), live;
        /// Files that answer for a folder: the first that exists and has no other route is served.
        index: Vec<String> = vec!["index.html".into()] => Kind::Texts(Form::FileName), live;
        /// Page that is served, with status 200, for paths without a file, for applications that route in the
        /// browser.
        spa_fallback: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Whether a folder without an index file is listed.
        listing: bool = false => Kind::Switch, live;
        /// Whether files and folders whose names begin with `.` are served. `/.well-known/` always is.
        dotfiles: bool = false => Kind::Switch, live;
        /// Which symbolic links are followed: those whose target is `beneath` the root, none (`refuse`), or all
        /// (`follow`).
        symlinks: Symlinks = Symlinks::Beneath => word(Symlinks::WORDS), live;
        /// Whether `FILE.br`, `FILE.zst` and `FILE.gz` are sent in place of
        /// `FILE` to clients that accept them.
        precompressed: bool = true => Kind::Switch, live;
        /// `Cache-Control` of successful responses; if unset, none is sent.
        cache_control: Option<String> = None => Kind::Text(Form::FieldValue), live;
    }
    tables {
        /// How bytes come from `origins`.
        fetch: FetchConfig, live;
        /// How requests go to `pool`.
        forward: ForwardConfig, live;
        /// The same reply to every request.
        reply: ReplyConfig, live;
        /// How responses of `pool` are cached.
        cache: ResponseCacheConfig, live;
        /// How responses are compressed.
        compress: CompressConfig, live;
    }
}

table! {
    /// How content is fetched from `origins`.
    FetchConfig at "fetch" {
        /// Host field of requests to origins; if unset, the site's first host if that is a complete name, else
        /// the origin's own.
        host: Option<String> = None => Kind::Text(Form::Authority), live;
        /// How long a response is used without asking the origin again if it has neither Cache-Control nor
        /// Expires.
        fresh_ms: u64 = 1000 => ms(0..=DAY_MS), live;
        /// Time to connect to an origin, after which the next one is tried.
        connect_timeout_ms: u64 = 3000 => ms(1..=MINUTE_MS), live;
        /// Time from a request to the head of the response, after which the next origin is tried. If there is
        /// none, clients get 504.
        response_timeout_ms: u64 = 30_000 => ms(1..=HOUR_MS), live;
        /// Time without any byte of a body, after which the origin has failed and the rest is requested again.
        /// An origin has also failed if 256 KiB of a body that is stored take six times as long.
        stall_timeout_ms: u64 = 10_000 => ms(1..=HOUR_MS), live;
        /// Connections to one origin from one worker thread of a node; further requests wait for up to 1 s,
        /// then get 503. Responses that are passed on without being stored use at most half of them; of that
        /// half, slow clients of one address, below 64 KiB/s, may use an eighth: further ones are disconnected.
        connections_max: u32 = 64 => count(1..=65_536), live;
    }
}

table! {
    /// A path that moved.
    RedirectConfig at "redirect" {
        /// The path: exactly this one or, if it ends in `*`, all paths with this prefix.
        from: String => Kind::Text(Form::UrlPattern), live;
        /// Target; a `*` at its end stands for what the `*` of `from` matched.
        to: String => Kind::Text(Form::UrlTarget), live;
        /// Status of the response.
        status: u16 = 301 => Kind::Status(&[301, 302, 307, 308]), live;
    }
}

table! {
    /// The nodes' memory for the content that they serve.
    CacheConfig at "cache" {
        /// Memory of a node for everything that it keeps: bytes, heads and indexes. Local files larger than
        /// this are streamed without being kept.
        size_bytes_max: u64 = 256 * MIB => bytes(MIB..=TIB), restart;
        /// Number of segments that are kept, and also of heads of objects, whatever their size.
        entries_max: u32 = 262_144 => count(1024..=16_777_216), restart;
        /// Maximum time for which a change of a file can go unnoticed where the kernel does not report changes.
        check_interval_ms: u64 = 1000 => ms(10..=MINUTE_MS), live;
        /// Whether nodes get content that is not `local` from each other's memory.
        cooperate: bool = true => Kind::Switch, restart;
        /// How long a node waits for the coordinator, which knows the holders, before it asks the owner. It
        /// should be longer than an answer takes on an overloaded machine: more requests to origins would not
        /// help there.
        coordinator_timeout_ms: u64 = 500 => ms(1..=10_000), restart;
        /// Bytes that a node has to send at a time: to other nodes, and an eighth of those to clients, which
        /// are slower. Over it, the node has other nodes ask elsewhere.
        outstanding_bytes_max: u64 = 512 * MIB => bytes(MIB..=TIB), restart;
    }
}

table! {
    /// Where a node keeps bodies that wait for slow clients of its pools: in memory, then in files without
    /// names, which disappear with the process.
    SpoolConfig at "spool" {
        /// Memory of a node for all these bodies, in addition to that of its cache.
        memory_bytes_max: u64 = 64 * MIB => bytes(MIB..=TIB), restart;
        /// Folder of the files. If unset, there are none, and bytes that do not fit into memory wait at the
        /// client or at the server. Use a local disk that has no other important purpose, with a file system
        /// that supports files without names (ext4, XFS, Btrfs, tmpfs). The folder is created if it is missing.
        folder: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
        /// Size of all files of a node together.
        files_bytes_max: u64 = 4 * GIB => bytes(MIB..=TIB), restart;
        /// Size of the file of one body.
        body_bytes_max: u64 = GIB => bytes(MIB..=TIB), restart;
    }
}

table! {
    /// What a process logs: a line for each request, and messages.
    LogConfig at "log" {
        /// Where requests are logged: `"off"`, `"-"` (standard output) or a
        /// file, to which lines are appended.
        access: AccessLogTarget = AccessLogTarget::Off => Kind::Text(Form::AccessLog), restart;
        /// Format of the lines: the Combined Log Format, or one JSON object.
        format: LogFormat = LogFormat::Combined => word(LogFormat::WORDS), restart;
        /// Lowest severity of the messages that go to standard error.
        level: Level = Level::Info => word(Level::WORDS), restart;
    }
}

table! {
    /// Metrics in the Prometheus format.
    MetricsConfig at "metrics" {
        /// Where a process serves `/metrics`; `"off"` is nowhere.
        listen: Option<SocketAddr> = None => Kind::AddressOrOff, restart;
    }
}

table! {
    /// The management API, which `skep status`, `skep node` and the console
    /// use.
    AdminConfig at "admin" {
        /// Where a dispatcher offers it over TCP; `"off"` is nowhere. An address other than loopback requires
        /// `token_file`.
        listen: Option<SocketAddr> = Some((Ipv4Addr::LOCALHOST, 7070).into())
            => Kind::AddressOrOff, restart;
        /// Its socket for commands on the same machine; if unset, it is `STATE_DIR/NAME.sock`.
        socket: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
        /// Networks of clients that may use it over TCP, in addition to this machine, such as
        /// `["192.0.2.0/24"]`: the API shows them the status of applications. Empty allows all that can reach
        /// it.
        networks: Vec<String> = Vec::new() => Kind::Texts(Form::Network), restart;
        /// File whose only line is the token that TCP clients must send; if unset, no token is required.
        token_file: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
    }
}
