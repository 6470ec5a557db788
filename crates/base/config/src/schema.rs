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
    /// One cluster. The same file goes to every machine; each is identified
    /// by `skep run --config FILE --as NAME`. Relative paths start at the
    /// file's folder.
    Config at "" {
        /// Name of the cluster, shown by `skep status` and the console.
        cluster: String = "skep".into() => Kind::Text(Form::Name), restart;
        /// Directory for the runtime state of a process: its control socket
        /// and, in clusters that persist, its state.
        state_dir: PathBuf = "/var/lib/skep".into() => Kind::Text(Form::Path), restart;
        /// File with the secret that the cluster's machines share: a line of
        /// 32 characters or more. Machines trust every holder of the key, and
        /// nobody else. Needed for `dispatch = "direct"` and `"handoff"`, for nodes that share memory, report
        /// loads and sizes of objects to dispatchers, or return their memory when elasticity has them off.
        key_file: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
        /// Where dispatchers keep persistent state, and which
        /// of them is active when they cannot agree: `embedded` is a file of
        /// each, `etcd` a cluster of etcd.
        store: StoreKind = StoreKind::Embedded => word(StoreKind::WORDS), restart;
    }
    tables {
        /// What a process takes of its machine.
        machine: MachineConfig, live;
        /// The processes that take the clients' requests; a file without one
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
        /// What nodes tell dispatchers.
        agent: AgentConfig, restart;
        /// What dispatchers offer to clients.
        services: Vec<ServiceConfig>, restart;
        /// How machines of nodes are switched on and off.
        power: PowerConfig, live;
        /// What nodes serve.
        sites: Vec<SiteConfig>, live;
        /// Applications that nodes pass requests to.
        pools: Vec<PoolConfig>, live;
        /// Where clients are.
        client_networks: Vec<ClientNetworkConfig>, live;
        /// The nodes' memory of files.
        cache: CacheConfig, live;
        /// Bodies that wait for slow clients of pools.
        spool: SpoolConfig, restart;
        /// Limits of size and number.
        limits: LimitsConfig, live;
        /// Limits of time.
        timeouts: TimeoutsConfig, live;
        /// What a process writes down.
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
    /// What a process takes of the machine it runs on.
    MachineConfig at "machine" {
        /// Worker threads of a process, each with its own event loop and
        /// listener; 0 is one per core.
        threads: u32 = 0 => count(0..=1024), restart;
        /// The user as whom a process serves that was started as root: a name
        /// or number of this machine. Once its addresses are taken it becomes that user
        /// for good, without any capability, so sites, logs and `state_dir` must
        /// be open to it. Unset, it is `skep` if there is such a user, else
        /// `nobody`. Of no effect where it was not started as root.
        user: Option<String> = None => Kind::Text(Form::Name), restart;
        /// Groups that it has then beside the user's own one, such as that of
        /// an application's socket; it has no others.
        groups: Vec<String> = Vec::new() => Kind::Texts(Form::Name), restart;
    }
}

table! {
    /// A dispatcher: takes the clients' requests and sends each to a node. A
    /// node of the same name runs in the same process.
    DispatcherConfig at "dispatcher" {
        /// Its name, for `--as`, logs and metrics.
        name: String => Kind::Text(Form::Name), restart;
        /// Where the other dispatchers and the nodes reach it: by UDP for what
        /// nodes tell of their load and for `dispatch = "direct"`, by TCP as
        /// coordinator of the nodes' caches.
        address: Option<SocketAddr> = None => Kind::AddressOrOff, restart;
        /// Decides which healthy dispatcher is active: the one
        /// with the highest number.
        priority: u32 = 100 => count(1..=255), restart;
        /// The network device by which packets come in and go out; unset, the
        /// one that has `address`.
        device: Option<String> = None => Kind::Text(Form::Name), restart;
    }
}

table! {
    /// How packets get to nodes in services with `dispatch = "direct"` or `"handoff"`. The
    /// address of such a service moves between dispatchers and is also on
    /// every node, which answers clients itself; dispatchers and nodes are in
    /// one layer-2 network.
    DirectConfig at "direct" {
        /// Where in a dispatcher's kernel packets are steered. `auto` takes
        /// the first of the others that the device can do, and logs which.
        attach: Attach = Attach::Auto => word(Attach::WORDS), restart;
        /// Folder of netguard: its socket, and what it changed on the machine.
        /// Nobody else may be able to write there, least of all the user who
        /// serves; it is made if it is missing.
        guard_dir: PathBuf = "/run/skep-netguard".into() => Kind::Text(Form::Path), restart;
        /// Time from one heartbeat of a dispatcher to the next.
        heartbeat_ms: u64 = 20 => ms(10..=10_000), restart;
        /// Heartbeats missed in a row after which a standby takes over.
        heartbeats_missed_max: u32 = 5 => count(2..=100), restart;
        /// Time from one heartbeat of a node to the next.
        node_heartbeat_ms: u64 = 50 => ms(10..=10_000), restart;
        /// Heartbeats of a node missed in a row after which it gets no more
        /// packets. Its connections end then, so a network that loses a fifth
        /// of its packets must not look like a death.
        node_heartbeats_missed_max: u32 = 10 => count(2..=100), restart;
        /// Whether a dispatcher that comes back takes over again because its
        /// priority is higher. Else the active one stays.
        preempt: bool = false => Kind::Switch, restart;
        /// Flows that a dispatcher remembers, about 150 bytes each. Flows
        /// beyond it, the longest unused, are found by their row.
        flows_max: u32 = 524_288 => count(1024..=4_194_304), restart;
        /// New flows a second that are remembered; over it, as under a flood
        /// of SYNs, flows are steered by their row alone.
        new_flows_per_s_max: u64 = 200_000 => count(1..=1_000_000_000), live;
        /// The same for the flows of one client address.
        new_flows_per_client_per_s_max: u64 = 20_000 => count(1..=1_000_000_000), live;
        /// Networks that may come in, such as `["192.0.2.0/24"]`. Empty is
        /// all. Packets steered here never meet the rules of the dispatcher's
        /// own firewall.
        allow: Vec<String> = Vec::new() => Kind::Texts(Form::Network), live;
        /// Networks that may not come in. Of networks that contain each other
        /// the smaller counts.
        deny: Vec<String> = Vec::new() => Kind::Texts(Form::Network), live;
    }
}

table! {
    /// How connections move to the node that answers in services with `dispatch =
    /// "handoff"`. Where a connection cannot be moved, the node that accepted it answers,
    /// out of the cluster's memory.
    HandoffConfig at "handoff" {
        /// Who decides: `local`, the node that read the request, without asking anybody, or
        /// `coordinator`, the active dispatcher, which counts what all nodes send each
        /// other. Without an answer within 20 ms the node that read the request answers.
        decide: HandoffDecision = HandoffDecision::Local => word(HandoffDecision::WORDS), restart;
        /// What carries messages between nodes: `ip`, by protocol number 253, or
        /// `udp`, where a network drops protocols that it does not know.
        transport: HandoffTransport = HandoffTransport::Ip => word(HandoffTransport::WORDS), restart;
        /// UDP port of nodes, with `transport = "udp"`, at the address of `node.agent`.
        port: u16 = 7072 => count(1..=65_535), restart;
        /// How long a node waits for another one to take a connection before it answers
        /// the request itself. Raise it if `skep_handoffs_total{outcome="silent"}` grows
        /// although no node is down. Set the same value on all nodes.
        ready_timeout_ms: u64 = 50 => ms(10..=300), restart;
        /// Size of a reply from which a connection that has had replies is moved
        /// for another one. For smaller replies the node that has the connection
        /// asks the others' memory.
        again_bytes_min: u64 = 1024 * 1024 => bytes(1..=1 << 40), restart;
        /// How often a connection may move.
        moves_max: u32 = 4 => count(1..=16), restart;
        /// For measurements only: a connection that could stay is handed off to the node
        /// that already has it, so that even one node shows what a move costs. A move that
        /// takes longer than `ready_timeout_ms` resets the connection.
        to_self: bool = false => Kind::Switch, restart;
    }
}

table! {
    /// The etcd of `store = "etcd"`. Packets and requests go on without it.
    EtcdConfig at "etcd" {
        /// Its members, such as `["10.0.0.5:2379"]`.
        endpoints: Vec<String> = Vec::new() => Kind::Texts(Form::Authority), restart;
        /// Time after which a dispatcher that is gone no longer leads in
        /// etcd's eyes. Take-over does not wait for it.
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
        /// Its share of the work under weighted policies, against the other nodes' weights.
        weight: u32 = 1 => count(1..=WEIGHT_MAX as u64), live;
        /// Where `dispatch = "redirect"` sends clients; unset, it is
        /// `address`.
        public_address: Option<String> = None => Kind::Text(Form::Authority), live;
        /// Where it is reached by dispatchers, by UDP, and by other nodes, by
        /// TCP for what it has in memory; unset, it is port 7071 of `address`.
        agent: Option<SocketAddr> = None => Kind::Address, restart;
        /// The network device that steered packets come in by; unset, the one that has `address`.
        device: Option<String> = None => Kind::Text(Form::Name), restart;
        /// What `{id}` in commands of `power` is: an instance, a management controller, a MAC address.
        power_id: Option<String> = None => Kind::Text(Form::FieldValue), live;
    }
    tables {
        /// How its machine is switched, in place of the commands for all nodes.
        power: PowerConfig, live;
    }
}

table! {
    /// Load reports of nodes to dispatchers: CPU, memory, connections,
    /// bytes to send, rates. Dispatchers with an `address` receive it, if there is a
    /// `key_file`.
    AgentConfig at "agent" {
        /// Time from one report of a node's load to the next. In clusters with a service under `dispatch =
        /// "direct"` or `"handoff"` heartbeats carry it, every `direct.node_heartbeat_ms`.
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
        /// How a request gets to a node: `proxy` passes both ways through the
        /// dispatcher, `redirect` sends the client to the node, `direct` steers
        /// the client's packets to a node that answers by itself, `handoff` does
        /// the same, and that node moves the connection to the one that should
        /// answer the request.
        dispatch: DispatchMode = DispatchMode::Proxy
            => word(DispatchMode::WORDS), live;
        /// How the node is chosen.
        policy: String = "round-robin".into() => word(POLICY_NAMES), live;
        /// Names of the nodes behind this service; empty is all of the file.
        nodes: Vec<String> = Vec::new() => Kind::Texts(Form::Name), live;
        /// Status of `dispatch = "redirect"`: 307 keeps the method and the
        /// body, 302 is for clients older than 307.
        redirect_status: u16 = 307 => Kind::Status(&[302, 307]), live;
        /// Whether Forwarded and X-Forwarded-* of clients are believed and
        /// extended. Only behind another proxy; else clients can lie about
        /// their address.
        trust_forwarded: bool = false => Kind::Switch, live;
        /// Whether responses carry `X-Skep-Node`, the name of the node.
        node_header: bool = false => Kind::Switch, live;
        /// Other nodes that an idempotent request is tried on after its first
        /// failed. 0 is none.
        retries_max: u32 = 2 => count(0..=10), live;
        /// Retries in a second, as a share of its requests: a cluster that
        /// fails must not also be flooded.
        retry_budget_percent: u32 = 20 => number(Unit::Percent, 0..=100), live;
        /// Time to connect to a node; over it the next node is tried.
        connect_timeout_ms: u64 = 1000 => ms(1..=MINUTE_MS), live;
        /// Time from the end of a request to the head of the node's response;
        /// over it the client gets 504.
        response_timeout_ms: u64 = MINUTE_MS => ms(1..=HOUR_MS), live;
        /// Time that an unused connection to a node is kept. Below
        /// `timeouts.idle_ms`, so that the dispatcher closes first and no
        /// request meets a closing connection.
        upstream_idle_ms: u64 = 30_000 => ms(1..=HOUR_MS), live;
        /// Connections to one node from one core of a dispatcher; requests
        /// over it get 503.
        upstream_connections_max: u32 = 1024 => count(1..=65_536), live;
    }
    tables {
        /// How nodes are watched.
        health: HealthConfig, live;
        /// Policies that are compared.
        arms: Vec<ArmConfig>, live;
        /// Whether nodes come and go with the load.
        elastic: ElasticConfig, live;
    }
}

table! {
    /// How the dispatchers watch the nodes of a service.
    HealthConfig at "health" {
        /// Path that checks ask for; nodes answer the default one themselves.
        path: String = "/.well-known/skep/health".into() => Kind::Text(Form::UrlPath), live;
        /// Time from the start of one check of a node to that of the next, at
        /// most: a node that hangs is out after `fall` of them and
        /// `timeout_ms`.
        interval_ms: u64 = 1000 => ms(50..=HOUR_MS), live;
        /// Time for the response; at most `interval_ms`.
        timeout_ms: u64 = 1000 => ms(10..=HOUR_MS), live;
        /// Good checks in a row that bring a node back.
        rise: u32 = 2 => count(1..=100), live;
        /// Failed checks in a row that take a node out.
        fall: u32 = 3 => count(1..=100), live;
        /// Status of a good check.
        expect_status: u16 = 200 => number(Unit::Status, 100..=599), live;
        /// Time in which a node that came back grows to its full share, so
        /// that its cache can warm up. 0 is at once.
        slow_start_ms: u64 = 0 => ms(0..=HOUR_MS), live;
        /// Failed requests in a row that take a node out without waiting for
        /// checks. A refused connection does so at once. Only what may be the
        /// node's own fault counts: no connection, or one that ends before the
        /// first byte of a response.
        passive_failures_max: u32 = 3 => count(1..=1000), live;
        /// Nodes that may be out at a time for requests that failed, as a share
        /// of the service's nodes: at least one, never the last that is up. 0
        /// takes no node out but for refused connections.
        ejected_max_percent: u32 = 10 => number(Unit::Percent, 0..=100), live;
    }
}

table! {
    /// A site: host names and what is served under them. Its `root`, `origins` or `pool` answers for
    /// all paths that none of its routes is for.
    SiteConfig at "site" {
        /// Host names of the site: `example.org`, `*.example.org` (any name
        /// below it), `*` or an empty list (every host without a site).
        hosts: Vec<String> = Vec::new() => Kind::Texts(Form::HostPattern), live;
        /// Header fields added to every response, of all routes. `Content-Type` takes the place
        /// of that of files, fixed replies, and responses of origins and pools; texts of Skep,
        /// such as errors and listings, keep theirs.
        headers: Vec<(String, String)> = Vec::new() => Kind::Headers, live;
        /// Pages that are the body of responses with a status, such as
        /// `{ "404" = "/404.html" }`. Each comes from the route that its path has.
        error_pages: BTreeMap<u16, String> = BTreeMap::new() => Kind::ErrorPages, live;
    }
    shared {
        /// What answers where no route does.
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
    /// A route: paths of a site that have a folder, origins, a pool or a reply of their own, with
    /// their own cache rules. Routes are tried in the order of the file. A route inherits nothing of
    /// its site but `headers`. The whole path is looked up below its `root`, or requested of its
    /// `origins`: `/api/*` does not cut `/api` off; `forward.strip_prefix` does.
    RouteConfig at "route" {
        /// The paths: exactly this one, or a pattern in which `*` stands for any characters,
        /// including `/` and none, such as `/api/*` or `*.php`. However a request spells its path, it
        /// has one route: `/%61pi//x` is `/api/x`. Queries do not count.
        path: String => Kind::Text(Form::RoutePattern), live;
        /// Methods of its requests, such as `["GET", "HEAD"]`: exactly these. Empty is all. Requests
        /// with others try the next routes.
        methods: Vec<String> = Vec::new() => Kind::Texts(Form::Method), live;
        /// Header fields that its requests must have, all of them: `"*"` is any value, `"abc*"` one
        /// that begins so, and `"abc"` exactly this one. If a field stands on several lines, one of
        /// them must. Requests without them try the next routes. Responses get `Vary`.
        match_headers: Vec<(String, String)> = Vec::new() => Kind::FieldPatterns, live;
        /// Header fields added to every response of the route, in place of those of the same
        /// name that the site adds.
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
        /// Folder of the files; this, `origins`, `pool` or a `reply` is set, or this and `pool`: then
        /// what is no file goes to the pool.
        root: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Web servers that the bytes come from in place of a folder,
        /// such as `["http://10.0.0.9:8080/base"]`: the first that is healthy
        /// is used, by plain HTTP, without the clients' cookies and credentials.
        /// What they let caches keep is fetched once by the cluster.
        origins: Vec<String> = Vec::new() => Kind::Texts(Form::OriginUrl), live;
        /// Name of the [[pool]] whose servers answer: all methods, with all that clients send;
        /// what it allows is cached if `cache.enabled` is set.
        pool: Option<String> = None => Kind::Text(Form::Name), live;
        /// Whether the folder is `local`, a whole one on each node;
        /// `shared`, one that all nodes see under the same path, such as a
        /// network file system; or `partition`, one of which each node has a
        /// part: nodes announce their files, and any node answers for all.
        /// What is not local is read once by the cluster: nodes get it out of
        /// each other's memory.
        content: ContentPlacement = ContentPlacement::Local => word(ContentPlacement::WORDS), live;
        /// Files that answer for a folder; the first that exists, and has no other route, does.
        index: Vec<String> = vec!["index.html".into()] => Kind::Texts(Form::FileName), live;
        /// Page that answers for paths without a file, with status 200, for
        /// applications that route in the browser.
        spa_fallback: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Whether a folder without an index file is listed.
        listing: bool = false => Kind::Switch, live;
        /// Whether files and folders whose name begins with `.` are served.
        /// `/.well-known/` always is.
        dotfiles: bool = false => Kind::Switch, live;
        /// Which symbolic links are followed: those that stay `beneath` the
        /// root, none (`refuse`), all (`follow`).
        symlinks: Symlinks = Symlinks::Beneath => word(Symlinks::WORDS), live;
        /// Whether `FILE.br`, `FILE.zst` and `FILE.gz` are sent in place of
        /// `FILE` to clients that accept them.
        precompressed: bool = true => Kind::Switch, live;
        /// `Cache-Control` of successful responses; unset sends none.
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
    /// How bytes come from `origins`.
    FetchConfig at "fetch" {
        /// Field Host of requests to origins; unset, it is the site's first
        /// host if that is a whole name, else the origin's own.
        host: Option<String> = None => Kind::Text(Form::Authority), live;
        /// How long a response is used without asking again where the origin
        /// does not say it: without Cache-Control and Expires.
        fresh_ms: u64 = 1000 => ms(0..=DAY_MS), live;
        /// Time to connect to an origin; over it the next one is asked.
        connect_timeout_ms: u64 = 3000 => ms(1..=MINUTE_MS), live;
        /// Time from a request to the head of the response; over it the next
        /// origin is asked. Without one clients get 504.
        response_timeout_ms: u64 = 30_000 => ms(1..=HOUR_MS), live;
        /// Time without any byte of a body; then the origin has failed, and
        /// the rest is requested again. So it is if 256 KiB of what is kept take
        /// six times as long.
        stall_timeout_ms: u64 = 10_000 => ms(1..=HOUR_MS), live;
        /// Connections to one origin from one core of a node; requests over it
        /// wait for 1 s, then get 503. What is passed on without being kept takes
        /// half of them at most; of that half slow clients of one address, below
        /// 64 KiB/s, an eighth: further ones are disconnected.
        connections_max: u32 = 64 => count(1..=65_536), live;
    }
}

table! {
    /// A path that moved.
    RedirectConfig at "redirect" {
        /// The path: exactly this one, or all that begin so when it ends in
        /// `*`.
        from: String => Kind::Text(Form::UrlPattern), live;
        /// Where to; a `*` at the end is what the `*` of `from` stood for.
        to: String => Kind::Text(Form::UrlTarget), live;
        /// Status of the response.
        status: u16 = 301 => Kind::Status(&[301, 302, 307, 308]), live;
    }
}

table! {
    /// The nodes' memory of files.
    CacheConfig at "cache" {
        /// Memory of a node for what it keeps, in all: bytes, heads and indexes.
        /// Local files larger than it stream past it.
        size_bytes_max: u64 = 256 * MIB => bytes(MIB..=TIB), restart;
        /// Segments that are kept, and heads of objects: a bound on each, whatever
        /// their size.
        entries_max: u32 = 262_144 => count(1024..=16_777_216), restart;
        /// The longest that a changed file can go unnoticed where the kernel
        /// does not tell of changes.
        check_interval_ms: u64 = 1000 => ms(10..=MINUTE_MS), live;
        /// Whether nodes get from each other's memory what is not `local` to
        /// each.
        cooperate: bool = true => Kind::Switch, restart;
        /// How long a node waits for the coordinator, which knows the
        /// holders, before it asks the owner. Longer than an answer
        /// takes on a machine that is overloaded: then more requests to origins
        /// would be the last thing that helps.
        coordinator_timeout_ms: u64 = 500 => ms(1..=10_000), restart;
        /// Bytes that a node has to send at a time: to other nodes, and an
        /// eighth of those to clients, who are slower. Over it, it lets other
        /// nodes ask elsewhere.
        outstanding_bytes_max: u64 = 512 * MIB => bytes(MIB..=TIB), restart;
    }
}

table! {
    /// Where a node keeps bodies that wait for slow clients of its pools: in memory, then in files that have
    /// no name and go with the process.
    SpoolConfig at "spool" {
        /// Memory of a node for all of them, beside that of its cache.
        memory_bytes_max: u64 = 64 * MIB => bytes(MIB..=TIB), restart;
        /// Folder of the files; unset, there are none, and what does not fit the memory waits at the client
        /// or at the server. On a disk of this machine that is not needed for more, with a file system that
        /// has files without names (ext4, XFS, Btrfs, tmpfs). It is made if it is missing.
        folder: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
        /// Files of a node, in all.
        files_bytes_max: u64 = 4 * GIB => bytes(MIB..=TIB), restart;
        /// The file of one body.
        body_bytes_max: u64 = GIB => bytes(MIB..=TIB), restart;
    }
}

table! {
    /// What a process writes down: a line for each request, and messages.
    LogConfig at "log" {
        /// Where requests are logged: `"off"`, `"-"` (standard output) or a
        /// file, to which lines are appended.
        access: AccessLogTarget = AccessLogTarget::Off => Kind::Text(Form::AccessLog), restart;
        /// Form of the lines: the Combined Log Format, or one JSON object.
        format: LogFormat = LogFormat::Combined => word(LogFormat::WORDS), restart;
        /// The least severe message that goes to standard error.
        level: Level = Level::Info => word(Level::WORDS), restart;
    }
}

table! {
    /// Metrics in the form of Prometheus.
    MetricsConfig at "metrics" {
        /// Where a process answers `/metrics`; `"off"` is nowhere.
        listen: Option<SocketAddr> = None => Kind::AddressOrOff, restart;
    }
}

table! {
    /// The management API, which `skep status`, `skep node` and the console
    /// use.
    AdminConfig at "admin" {
        /// Where a dispatcher offers it over TCP; `"off"` is nowhere. An
        /// address beyond this machine needs `token_file`.
        listen: Option<SocketAddr> = Some((Ipv4Addr::LOCALHOST, 7070).into())
            => Kind::AddressOrOff, restart;
        /// Its socket for commands on the same machine; unset, it is
        /// `STATE_DIR/NAME.sock`.
        socket: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
        /// Networks of those who may use it over TCP, such as `["192.0.2.0/24"]`, beside this machine:
        /// they are shown the status of applications. Empty is all that reach it.
        networks: Vec<String> = Vec::new() => Kind::Texts(Form::Network), restart;
        /// File whose only line is the token that TCP clients must send;
        /// unset, there is no token.
        token_file: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
    }
}
