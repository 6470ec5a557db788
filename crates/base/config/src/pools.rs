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
    /// A pool: the servers of an application, one of which gets each request. Routes and sites refer to it by
    /// its name (`pool = "app"`). Every node watches the servers of its pools itself.
    PoolConfig at "pool" {
        /// Its name, for routes, logs and metrics.
        name: String => Kind::Text(Form::Name), live;
        /// Protocol of its servers.
        protocol: PoolProtocol = PoolProtocol::Http
            => word(PoolProtocol::WORDS), live;
        /// How the server is chosen; the names are those of a service's `policy`.
        policy: String = "least-outstanding".into() => word(POLICY_NAMES), live;
        /// Whether Forwarded and X-Forwarded-* of clients are trusted and extended. Enable it only behind
        /// another proxy; otherwise clients can forge their address. Those of the cluster's own dispatchers are
        /// always trusted if they have an `address`.
        trust_forwarded: bool = false => Kind::Switch, live;
        /// Maximum number of other servers on which an idempotent request without a body is retried after a
        /// failure. 0 disables retries.
        retries_max: u32 = 2 => count(0..=10), live;
        /// Maximum number of retries per second, as a share of the pool's requests.
        retry_budget_percent: u32 = 20 => number(Unit::Percent, 0..=100), live;
        /// Time to connect to a server, after which the next one is tried.
        connect_timeout_ms: u64 = 1000 => ms(1..=MINUTE_MS), live;
        /// Time from the end of a request to the head of the response, after which the client gets 504. It
        /// should be longer than long polls wait.
        response_timeout_ms: u64 = MINUTE_MS => ms(1..=HOUR_MS), live;
        /// Time without a byte of a response that has begun, or in which the server accepts no byte of a
        /// request. For responses of type `text/event-stream`, `tunnel_idle_ms` applies.
        stall_timeout_ms: u64 = MINUTE_MS => ms(1..=HOUR_MS), live;
        /// Time after which an upgraded connection, such as a WebSocket, is closed if neither side has sent
        /// anything.
        tunnel_idle_ms: u64 = HOUR_MS => ms(1000..=24 * HOUR_MS), live;
        /// Time for which an unused connection to a server is kept. It should be shorter than the server's own
        /// (Node.js 5 s, Tomcat 20 s), so that no request is sent on a connection that the server is closing.
        idle_ms: u64 = 4000 => ms(1..=HOUR_MS), live;
        /// Requests that wait while all servers have reached `connections_max`. Further ones get 503.
        queue_max: u32 = 1024 => count(0..=1_048_576), live;
        /// Maximum time that a request waits for a server; then it gets 503.
        queue_timeout_ms: u64 = 10_000 => ms(1..=HOUR_MS), live;
        /// Whether a request takes a slot of a server only when its body is complete, so that a slow client
        /// occupies none, or when the node has collected as much of it as `buffer_bytes_max` and `[spool]`
        /// allow. If off, bodies are streamed from their first byte, which is required by applications that
        /// answer while they read. Bodies of type `application/grpc`, and of requests with `Incremental: ?1`,
        /// are always streamed.
        request_buffering: bool = true => Kind::Switch, live;
        /// Whether responses are read as fast as the server sends them, within the same bounds, so that the
        /// slot of the server is free before a slow client has received everything. Bytes that a client accepts
        /// at once are sent at once. Never applies to responses of type `text/event-stream`. The application
        /// can override it with `X-Accel-Buffering: no` or `yes`.
        response_buffering: bool = true => Kind::Switch, live;
        /// Memory for the body of one request, and the same for the body of one response, before the rest goes
        /// to the spool. All bodies share `spool.memory_bytes_max`.
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
        /// (`"unix:/run/php/php8.2-fpm.sock"`), which may require `machine.groups`.
        address: ServerAddress => Kind::ServerAddress, live;
        /// Its share of the work under weighted policies, relative to the other servers' weights.
        weight: u32 = 1 => count(1..=WEIGHT_MAX as u64), live;
        /// Maximum number of requests and upgraded connections at a time. Further ones wait in the pool's
        /// queue. Nodes without a coordinator have equal shares of it, at least one each.
        connections_max: u32 = 256 => count(1..=SERVER_CONNECTIONS_MAX as u64), live;
        /// What `connections_max` applies to: the requests of the whole cluster (`cluster`), or those of each
        /// node (`node`). `auto`: of each node for servers on its own machine (Unix sockets, loopback
        /// addresses) if no two nodes have the same IP address, otherwise of the cluster.
        connections_scope: ConnectionsScope = ConnectionsScope::Auto
            => word(ConnectionsScope::WORDS), live;
        /// Address of its status, if it differs from `address`: over HTTP (`tomcat`, `json`), or over FastCGI
        /// (`php-fpm`, for which it is `pm.status_listen`). If unset, the status is requested at `address`,
        /// over the protocol of the pool.
        status_address: Option<ServerAddress> = None => Kind::ServerAddress, live;
    }
}

table! {
    /// Status that nodes request from the servers of a pool, for `skep status --pools`, metrics and the
    /// management API. It does not affect which server gets requests. Every node requests it separately.
    PoolStatusConfig at "status" {
        /// Type of the servers. `tomcat`: Tomcat with its manager application; memory and threads are shown.
        /// `php-fpm`: processes and the listen queue are shown. `json`: an application of your own, with
        /// `values`. `off`: no status is requested.
        agent: StatusAgent = StatusAgent::Off
            => word(StatusAgent::WORDS), live;
        /// Path of the status. If unset, it is `/manager/status` for `tomcat` and `/status` for `php-fpm`
        /// (`pm.status_path`). Required for `json`.
        path: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Host field; if unset, the server's address.
        host: Option<String> = None => Kind::Text(Form::Authority), live;
        /// File whose only line is NAME:PASSWORD of a user with the role `manager-status`, or as the
        /// application requires. It must not be readable by everybody. The credentials are sent in plain text.
        credentials_file: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Whether a Tomcat is also asked for its version and sessions, through the JMX proxy of its manager.
        /// This requires the role `manager-jmx`, which may change everything there.
        jmx: bool = false => Kind::Switch, live;
        /// For `json`: names of values, and where each is in the answer (RFC 6901), such as `{ queue =
        /// "/jobs/waiting" }`. Values are numbers, or true and false; one with the name `version` may be any
        /// text.
        values: Vec<(String, String)> = Vec::new() => Kind::Params, live;
        /// Interval between requests for the status.
        interval_ms: u64 = 10_000 => ms(100..=HOUR_MS), live;
        /// Time for the answer.
        timeout_ms: u64 = 2000 => ms(10..=MINUTE_MS), live;
    }
}

table! {
    /// How nodes watch the servers of a pool.
    PoolHealthConfig at "health" {
        /// Path that checks request. If unset, a server passes a check if it accepts a connection (`http`),
        /// answers GET_VALUES (`fastcgi`), or answers CPING and `OPTIONS *` with the secret (`ajp`). For
        /// php-fpm, set it to `ping.path`. An answer of 503 whose body contains the word `draining` takes the
        /// server out without marking it as down.
        path: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Host field of checks; if unset, the server's address.
        host: Option<String> = None => Kind::Text(Form::Authority), live;
        /// Status of a successful check.
        expect_status: u16 = 200 => number(Unit::Status, 100..=599), live;
        /// Time from the start of one check of a server to the start of the next.
        interval_ms: u64 = 2000 => ms(50..=HOUR_MS), live;
        /// Time for the response; at most `interval_ms`.
        timeout_ms: u64 = 2000 => ms(10..=HOUR_MS), live;
        /// Successful checks in a row that bring a server back.
        rise: u32 = 2 => count(1..=100), live;
        /// Failed checks in a row that take a server out.
        fall: u32 = 3 => count(1..=100), live;
        /// Time in which the load of a server that came back grows to its full share. 0: it gets its full share
        /// at once.
        slow_start_ms: u64 = 0 => ms(0..=HOUR_MS), live;
        /// Failed requests in a row that take a server out without waiting for checks: the connection cannot be
        /// established, or ends before a response. A refused connection takes it out at once.
        passive_failures_max: u32 = 3 => count(1..=1000), live;
        /// Share of the pool's servers that may be out at a time because of failed requests: at least one,
        /// never the last that is up. 0: only refused connections take servers out.
        ejected_max_percent: u32 = 50 => number(Unit::Percent, 0..=100), live;
    }
}

table! {
    /// How the requests of a session stay at one server while it is up. No node stores anything about a
    /// session, so any of them finds its server.
    StickyConfig at "sticky" {
        /// How a request identifies its server. `cookie`: by a cookie that nodes insert, and that servers do
        /// not see. `route`: by the server's name, which the application appends to the session id, as in
        /// `JSESSIONID=ID.NAME`; Tomcat does so if `jvmRoute` is the name. `cookie-hash`, `field-hash`: by the
        /// hash of the value of `cookie` or `field`.
        by: StickyBy = StickyBy::Off
            => word(StickyBy::WORDS), live;
        /// Name of the cookie; if unset, `skep-` and the pool's name with `by = "cookie"`, and `JSESSIONID`
        /// with `by = "route"`.
        cookie: Option<String> = None => Kind::Text(Form::Name), live;
        /// Path parameter that is searched for a session first, with `by = "route"`.
        path_parameter: String = "jsessionid".into() => Kind::Text(Form::Name), live;
        /// Request field for `by = "field-hash"`.
        field: Option<String> = None => Kind::Text(Form::FieldName), live;
        /// Path of the inserted cookie.
        path: String = "/".into() => Kind::Text(Form::UrlPath), live;
        /// Whether clients send the inserted cookie only over https. If unset: those that sent their request
        /// over https do, as reported by the cluster's dispatchers and trusted proxies (`trust_forwarded`).
        secure: Option<bool> = None => Kind::Switch, live;
        /// With which requests from other sites the inserted cookie is sent.
        same_site: SameSite = SameSite::Lax
            => word(SameSite::WORDS), live;
        /// Cookie whose value identifies a session, for the counts of `skep status --pools`, such as
        /// `"PHPSESSID"`. If unset, what `by` uses identifies it: the id before the server's name with `route`,
        /// or the value that is hashed. The cookie of `by = "cookie"` identifies a server, not a session, so no
        /// sessions are counted there unless this is set. Values are hashed, and not stored.
        counted_cookie: Option<String> = None => Kind::Text(Form::Name), live;
    }
}

table! {
    /// How requests are forwarded to `pool`, and how responses are returned.
    ForwardConfig at "forward" {
        /// Prefix that is removed from the path: with `"/app"`, `/app/x` is requested as `/x`. All paths of the
        /// route must begin with it.
        strip_prefix: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Prefix that is then added to the path.
        add_prefix: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Host field of requests; if unset, the client's.
        host: Option<String> = None => Kind::Text(Form::Authority), live;
        /// Whether the application's own paths and hosts in responses are replaced by those that clients use:
        /// with `strip_prefix` and `add_prefix`, paths in `Location`, `Content-Location` and `Refresh`, and the
        /// paths of cookies in `Set-Cookie`; and URLs at `host`, at `application_hosts`, or at the address of a
        /// server, which become paths.
        rewrite_responses: bool = true => Kind::Switch, live;
        /// Additional path prefixes in these fields, with their replacements: `{ "/internal" = "/app" }`.
        response_prefixes: Vec<(String, String)> = Vec::new() => Kind::PathMap, live;
        /// Additional hosts that the application uses for itself in these fields, with their ports.
        application_hosts: Vec<String> = Vec::new() => Kind::Texts(Form::Authority), live;
        /// Domain of the cookies for which the application sets one; if unset, the application's is kept.
        cookie_domain: Option<String> = None => Kind::Text(Form::Name), live;
        /// Allowed methods, such as `["GET", "HEAD"]`; others get 405. Empty allows all but TRACE.
        methods: Vec<String> = Vec::new() => Kind::Texts(Form::Method), live;
        /// Header fields that are added to requests; they replace those of the same name.
        request_headers: Vec<(String, String)> = Vec::new() => Kind::Headers, live;
        /// Request fields to remove.
        request_headers_removed: Vec<String> = Vec::new() => Kind::Texts(Form::FieldName), live;
        /// Response fields to remove. `headers` of the route and site replace those of the same name.
        response_headers_removed: Vec<String> = Vec::new() => Kind::Texts(Form::FieldName), live;
        /// Folder of files that the application may name for the node to send in place of its body: with
        /// `X-Sendfile`, a path below this folder, or with `X-Accel-Redirect`, one below `sendfile_path`. If
        /// unset, both are ordinary fields. `symlinks` and `dotfiles` of the route apply.
        sendfile_root: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Prefix of paths in `X-Accel-Redirect`: with `"/protected"`, `/protected/a.pdf` is `a.pdf` in
        /// `sendfile_root`.
        sendfile_path: String = "/".into() => Kind::Text(Form::UrlPath), live;
        /// Whether connections may be upgraded, for example to WebSocket; never to h2c.
        upgrade: bool = true => Kind::Switch, live;
        /// Size of the body of a request, at most that of `limits`, which applies if this is unset. Over it:
        /// 413.
        body_bytes_max: Option<u64> = None => bytes(0..=TIB), live;
        /// Time for the body of a request, from when the node begins to wait for it. Time in which the server
        /// accepts none of it does not count. Over it: 408. If unset, only the rate is limited
        /// (`timeouts.body_min_bytes_per_s`).
        upload_timeout_ms: Option<u64> = None => ms(1..=DAY_MS), live;
        /// Whether bodies of requests may be collected before a server gets them, if the pool's
        /// `request_buffering` is on.
        request_buffering: bool = true => Kind::Switch, live;
        /// Whether responses may be read ahead of the client, if the pool's `response_buffering` is on or the
        /// application asks for it.
        response_buffering: bool = true => Kind::Switch, live;
        /// Replaces the pool's `response_timeout_ms`.
        response_timeout_ms: Option<u64> = None => ms(1..=HOUR_MS), live;
        /// Replaces the pool's `stall_timeout_ms`.
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
