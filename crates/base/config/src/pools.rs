//! Settings of pools, and of routes to them: a part of the settings table.

use std::path::PathBuf;

use skep_units::{GIB, KIB, ServerAddress, WEIGHT_MAX};

use crate::gateways::{AjpConfig, FcgiConfig};
use crate::kind::{DAY_MS, Form, HOUR_MS, Kind, MINUTE_MS, TIB, bytes, count, ms, number, word};
use crate::limits::SERVER_CONNECTIONS_MAX;
use crate::number::Unit;
use crate::section::Row;
use crate::table::table;
use crate::words::{ConnectionsScope, POLICY_NAMES, PoolProtocol, SameSite, StatusAgent, StickyBy};

table! {
    /// A pool: the servers of an application, of which each request goes to one. Routes and sites
    /// lead to it by its name (`pool = "app"`). Every node watches the servers of its pools for
    /// itself.
    PoolConfig at "pool" {
        /// Its name, for routes, logs and metrics.
        name: String => Kind::Text(Form::Name), live;
        /// What its servers speak.
        protocol: PoolProtocol = PoolProtocol::Http
            => word(PoolProtocol::WORDS), live;
        /// How the server is chosen; the names are those of a service's `policy`.
        policy: String = "least-outstanding".into() => word(POLICY_NAMES), live;
        /// Whether Forwarded and X-Forwarded-* of clients are believed and extended. Only behind
        /// another proxy; else clients can lie about their address. Those of the cluster's own
        /// dispatchers are believed anyway, if they have an `address`.
        trust_forwarded: bool = false => Kind::Switch, live;
        /// Other servers that an idempotent request without a body is tried on after its first
        /// failed. 0 is none.
        retries_max: u32 = 2 => count(0..=10), live;
        /// Retries in a second, as a share of the pool's requests.
        retry_budget_percent: u32 = 20 => number(Unit::Percent, 0..=100), live;
        /// Time to connect to a server; over it the next one is tried.
        connect_timeout_ms: u64 = 1000 => ms(1..=MINUTE_MS), live;
        /// Time from the end of a request to the head of the response; over it the client gets 504.
        /// Long polls need more than they wait.
        response_timeout_ms: u64 = MINUTE_MS => ms(1..=HOUR_MS), live;
        /// Time without a byte of a response that has begun, or without a byte of a request that the
        /// server takes. A response of type `text/event-stream` has `tunnel_idle_ms`.
        stall_timeout_ms: u64 = MINUTE_MS => ms(1..=HOUR_MS), live;
        /// Time in which neither side of an upgraded connection, such as a WebSocket, sends anything;
        /// then it is closed.
        tunnel_idle_ms: u64 = HOUR_MS => ms(1000..=24 * HOUR_MS), live;
        /// Time that an unused connection to a server is kept: less than the server keeps it (Node.js
        /// 5 s, Tomcat 20 s), so that no request meets a closing one.
        idle_ms: u64 = 4000 => ms(1..=HOUR_MS), live;
        /// Requests that wait while all servers have `connections_max`. Over it: 503.
        queue_max: u32 = 1024 => count(0..=1_048_576), live;
        /// Time that a request waits for a server, at most; then 503.
        queue_timeout_ms: u64 = 10_000 => ms(1..=HOUR_MS), live;
        /// Whether a request takes a place at a server only when its body is whole, so that a slow client
        /// holds none; or when the node has as much of it as it may keep, by `buffer_bytes_max` and
        /// `[spool]`. Off, bodies are streamed from their first byte, as applications need it that answer
        /// while they read. Those of type `application/grpc`, and requests with `Incremental: ?1`, are
        /// streamed anyway.
        request_buffering: bool = true => Kind::Switch, live;
        /// Whether responses are read as fast as the server sends them, by the same bounds, so that its place
        /// is free before a slow client has all of it. What a client takes at once is sent at once. Never
        /// responses of type `text/event-stream`. The application overrides it with
        /// `X-Accel-Buffering: no` or `yes`.
        response_buffering: bool = true => Kind::Switch, live;
        /// Memory for the body of one request, and as much for that of one response, before it goes on in the
        /// spool. All of them share `spool.memory_bytes_max`.
        buffer_bytes_max: u64 = 256 * KIB => bytes(64 * KIB..=GIB), live;
    }
    tables {
        /// How servers are watched.
        health: PoolHealthConfig, live;
        /// How the requests of a session stay at one server.
        sticky: StickyConfig, live;
        /// FastCGI.
        fastcgi: FcgiConfig, live;
        /// AJP.
        ajp: AjpConfig, live;
        /// The status that servers report.
        status: PoolStatusConfig, live;
        /// The servers. A pool without any answers 503.
        servers: Vec<ServerConfig>, live;
    }
}

table! {
    /// A server of a pool.
    ServerConfig at "server" {
        /// Its name, for commands, logs and metrics.
        name: String => Kind::Text(Form::Name), live;
        /// Where nodes connect to it: an IP address and a port, or a Unix socket
        /// (`"unix:/run/php/php8.2-fpm.sock"`), for which `machine.groups` may be needed.
        address: ServerAddress => Kind::ServerAddress, live;
        /// Its share of the work under weighted policies, against the other servers' weights.
        weight: u32 = 1 => count(1..=WEIGHT_MAX as u64), live;
        /// Requests and upgraded connections that there are at a time, at most. More wait in the
        /// pool's queue. Nodes without a coordinator have equal shares of it, at least one each.
        connections_max: u32 = 256 => count(1..=SERVER_CONNECTIONS_MAX as u64), live;
        /// Whose requests these are: those of the whole cluster (`cluster`), or those of each node
        /// (`node`). `auto`: of each node for servers on its own machine (Unix sockets, loopback
        /// addresses) if no two nodes have the same IP address, else of the cluster.
        connections_scope: ConnectionsScope = ConnectionsScope::Auto
            => word(ConnectionsScope::WORDS), live;
        /// Address of its status, if not at `address`: over HTTP (`tomcat`, `json`), or over FastCGI
        /// (`php-fpm`, where it is `pm.status_listen`). Unset, it is asked at `address`, over the protocol
        /// of the pool.
        status_address: Option<ServerAddress> = None => Kind::ServerAddress, live;
    }
}

table! {
    /// What nodes ask the servers of a pool about themselves, for `skep status --pools`, metrics and the
    /// management API. It has no effect on which server gets requests. Every node asks for itself.
    PoolStatusConfig at "status" {
        /// What the servers are. `tomcat`: Tomcat with its manager application, of which memory and
        /// threads are shown. `php-fpm`: processes and listen queue. `json`: an application of your own,
        /// with `values`. `off`: they are not asked.
        agent: StatusAgent = StatusAgent::Off
            => word(StatusAgent::WORDS), live;
        /// Path that is asked for. Unset, it is `/manager/status` for `tomcat`, `/status` for `php-fpm`
        /// (`pm.status_path`), and must be set for `json`.
        path: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Field Host; unset, it is the server's address.
        host: Option<String> = None => Kind::Text(Form::Authority), live;
        /// File whose only line is NAME:PASSWORD of a user with the role `manager-status`, or as the
        /// application requires; not readable by everybody. They are sent in plain text.
        credentials_file: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Whether a Tomcat is asked for its version and sessions as well, by the JMX proxy of its manager.
        /// The role that this needs, `manager-jmx`, may change everything there.
        jmx: bool = false => Kind::Switch, live;
        /// For `json`: names, and where each value is in the answer (RFC 6901), such as `{ queue =
        /// "/jobs/waiting" }`. Values are numbers, or true and false; one called `version` is any text.
        values: Vec<(String, String)> = Vec::new() => Kind::Params, live;
        /// Time from one question to the next.
        interval_ms: u64 = 10_000 => ms(100..=HOUR_MS), live;
        /// Time for the answer.
        timeout_ms: u64 = 2000 => ms(10..=MINUTE_MS), live;
    }
}

table! {
    /// How nodes watch the servers of a pool.
    PoolHealthConfig at "health" {
        /// Path that checks ask for. Unset, a server that takes a connection is good (`http`), that
        /// answers GET_VALUES (`fastcgi`), or CPING and `OPTIONS *` with the secret (`ajp`). For
        /// php-fpm it is its `ping.path`. An answer of
        /// 503 whose body has the word `draining` takes the server out without calling it down.
        path: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Field Host of checks; unset, it is the server's address.
        host: Option<String> = None => Kind::Text(Form::Authority), live;
        /// Status of a good check.
        expect_status: u16 = 200 => number(Unit::Status, 100..=599), live;
        /// Time from the start of one check of a server to that of the next.
        interval_ms: u64 = 2000 => ms(50..=HOUR_MS), live;
        /// Time for the response; at most `interval_ms`.
        timeout_ms: u64 = 2000 => ms(10..=HOUR_MS), live;
        /// Good checks in a row that bring a server back.
        rise: u32 = 2 => count(1..=100), live;
        /// Failed checks in a row that take a server out.
        fall: u32 = 3 => count(1..=100), live;
        /// Time in which a server that came back grows to its full share. 0 is at once.
        slow_start_ms: u64 = 0 => ms(0..=HOUR_MS), live;
        /// Failed requests in a row that take a server out without waiting for checks: a connection
        /// that can't be made, or ends before a response. A refused one does so at once.
        passive_failures_max: u32 = 3 => count(1..=1000), live;
        /// Servers that may be out at a time for requests that failed, as a share of the pool: at
        /// least one, never the last that is up. 0 takes none out but for refused connections.
        ejected_max_percent: u32 = 50 => number(Unit::Percent, 0..=100), live;
    }
}

table! {
    /// How the requests of a session stay at one server, as long as it is up. No node stores
    /// anything about a session, so any of them finds its server.
    StickyConfig at "sticky" {
        /// How a request identifies its server. `cookie`: by a cookie that nodes insert, and that servers
        /// do not see. `route`: by the server's name behind the id that the application gives the
        /// session, as in `JSESSIONID=ID.NAME`, which Tomcat does where `jvmRoute` is the name.
        /// `cookie-hash`, `field-hash`: by the hash of the value of `cookie` or `field`.
        by: StickyBy = StickyBy::Off
            => word(StickyBy::WORDS), live;
        /// Name of the cookie; unset, it is `skep-` and the pool's name under `by = "cookie"`, and
        /// `JSESSIONID` under `by = "route"`.
        cookie: Option<String> = None => Kind::Text(Form::Name), live;
        /// Parameter of paths in which a session is looked for first, under `by = "route"`.
        path_parameter: String = "jsessionid".into() => Kind::Text(Form::Name), live;
        /// Field under `by = "field-hash"`.
        field: Option<String> = None => Kind::Text(Form::FieldName), live;
        /// Path of the inserted cookie.
        path: String = "/".into() => Kind::Text(Form::UrlPath), live;
        /// Whether clients send the inserted cookie by https only. Unset: those do that have asked by https, as the
        /// cluster's dispatchers and trusted proxies (`trust_forwarded`) say.
        secure: Option<bool> = None => Kind::Switch, live;
        /// Which requests from other sites have the inserted cookie.
        same_site: SameSite = SameSite::Lax
            => word(SameSite::WORDS), live;
        /// Cookie whose value identifies a session, by which `skep status --pools` counts them, such as
        /// `"PHPSESSID"`. Unset, it is what `by` looks at: the id before the server's name under `route`,
        /// or what is hashed. The cookie of `by = "cookie"` identifies a server, not a session, so that
        /// none are counted unless this is set. Values are hashed, and not kept.
        counted_cookie: Option<String> = None => Kind::Text(Form::Name), live;
    }
}

table! {
    /// How requests go to `pool`, and responses come back.
    ForwardConfig at "forward" {
        /// What is cut off the beginning of the path: with `"/app"`, `/app/x` is asked for as `/x`.
        /// All paths of the route must begin so.
        strip_prefix: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// What is put before the path then.
        add_prefix: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Field Host of requests; unset, it is the client's.
        host: Option<String> = None => Kind::Text(Form::Authority), live;
        /// Whether what responses say of the application's own places is put into the words of clients: behind
        /// `strip_prefix` and `add_prefix`, `Location`, `Content-Location`, `Refresh` and the paths of cookies in
        /// `Set-Cookie`; and URLs at `host`, at `application_hosts`, or at the address of a server, which become
        /// paths.
        rewrite_responses: bool = true => Kind::Switch, live;
        /// Further beginnings of paths in these fields, and what takes their place: `{ "/internal" = "/app" }`.
        response_prefixes: Vec<(String, String)> = Vec::new() => Kind::PathMap, live;
        /// Further hosts by which the application calls itself in these fields, with their ports.
        application_hosts: Vec<String> = Vec::new() => Kind::Texts(Form::Authority), live;
        /// Domain of the cookies for which the application names one; unset, it is the application's.
        cookie_domain: Option<String> = None => Kind::Text(Form::Name), live;
        /// Methods that may pass, such as `["GET", "HEAD"]`; others get 405. Empty is all but
        /// TRACE.
        methods: Vec<String> = Vec::new() => Kind::Texts(Form::Method), live;
        /// Fields that requests get, in place of those of the same name.
        request_headers: Vec<(String, String)> = Vec::new() => Kind::Headers, live;
        /// Request fields to remove.
        request_headers_removed: Vec<String> = Vec::new() => Kind::Texts(Form::FieldName), live;
        /// Fields that responses lose. `headers` of the route and site take the place of those of the
        /// same name.
        response_headers_removed: Vec<String> = Vec::new() => Kind::Texts(Form::FieldName), live;
        /// Folder of files that the application may name in place of a body, for the node to send:
        /// with `X-Sendfile`, a path below this folder, or with `X-Accel-Redirect`, one below
        /// `sendfile_path`. Unset, both are fields like any other. `symlinks` and `dotfiles` of the
        /// route apply.
        sendfile_root: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// How paths in `X-Accel-Redirect` begin: with `"/protected"`, `/protected/a.pdf` is `a.pdf` in
        /// `sendfile_root`.
        sendfile_path: String = "/".into() => Kind::Text(Form::UrlPath), live;
        /// Whether connections may be upgraded, to WebSockets for instance; never to h2c.
        upgrade: bool = true => Kind::Switch, live;
        /// Body of a request, at most that of `limits`; unset, it is that. Over it: 413.
        body_bytes_max: Option<u64> = None => bytes(0..=TIB), live;
        /// Time for the body of a request, from when the first of it is waited for. Time in which
        /// the server takes none does not count. Over it: 408. Unset, only its rate has a bound
        /// (`timeouts.body_min_bytes_per_s`).
        upload_timeout_ms: Option<u64> = None => ms(1..=DAY_MS), live;
        /// Whether bodies of requests may be collected before a server gets them, if the pool's
        /// `request_buffering` is on.
        request_buffering: bool = true => Kind::Switch, live;
        /// Whether responses may be read ahead of the client, if the pool's `response_buffering` is on or the
        /// application asks for it.
        response_buffering: bool = true => Kind::Switch, live;
        /// In place of the pool's `response_timeout_ms`.
        response_timeout_ms: Option<u64> = None => ms(1..=HOUR_MS), live;
        /// In place of the pool's `stall_timeout_ms`.
        stall_timeout_ms: Option<u64> = None => ms(1..=HOUR_MS), live;
    }
}

impl PoolConfig {
    /// Whether requests may be sent to `address`: without a secret, anyone who can connect to an
    /// AJP port of another machine can forge the client's identity (CVE-2020-1938).
    pub fn may_reach(&self, address: ServerAddress) -> bool {
        self.protocol != PoolProtocol::Ajp || self.ajp.secret_file.is_some() || address.is_local()
    }
}

impl Row for PoolConfig {
    fn row_name(&self) -> &str {
        &self.name
    }
}

impl Row for ServerConfig {
    fn row_name(&self) -> &str {
        &self.name
    }
}
