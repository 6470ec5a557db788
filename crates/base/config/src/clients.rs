//! Settings of clients' limits, timeouts and networks: a part of the settings table.

use skep_units::{GIB, KIB, MIB};

use crate::kind::{DAY_MS, Form, HOUR_MS, Kind, MINUTE_MS, TIB, bytes, count, ms, number, word};
use crate::number::Unit;
use crate::section::Row;
use crate::table::table;
use crate::words::UnderscoreFields;

table! {
    /// Limits of size and number for clients, and which header fields they may send. What exceeds a limit is
    /// refused with a clear answer.
    LimitsConfig at "limits" {
        /// Size of the head of a request: request line and header fields. Over it: 431.
        head_bytes_max: u64 = 16 * KIB => bytes(KIB..=256 * KIB), live;
        /// Number of header fields of a request. Over it: 431.
        fields_max: u32 = 100 => count(1..=128), live;
        /// What to do with a field that has `_` in its name, such as `User_Id`, which CGI-like applications
        /// read as `User-Id`: `"drop"` removes and counts it; `"pass"` passes it on, unless these applications
        /// would read it as a field that a proxy sets itself; `"refuse"` answers 400.
        underscore_fields: UnderscoreFields = UnderscoreFields::Drop
            => word(UnderscoreFields::WORDS), live;
        /// Size of path and query of a request. Over it: 414.
        target_bytes_max: u64 = 8 * KIB => bytes(64..=64 * KIB), live;
        /// Size of the body of a request through a dispatcher or to a pool. Over it: 413. Sites of files accept
        /// no bodies.
        body_bytes_max: u64 = GIB => bytes(0..=TIB), live;
        /// Memory that the replies to one client address (IPv6: one /64) may hold while they are sent without
        /// copying. Over it, replies are copied piece by piece, which takes more time; those that cannot be
        /// read in pieces get 503.
        pinned_per_address_bytes_max: u64 = 32 * MIB => bytes(4 * MIB..=TIB), live;
        /// Memory for the buffers of one connection.
        connection_bytes_max: u64 = 64 * KIB => bytes(4 * KIB..=16 * MIB), live;
        /// Open client connections of a process. Further ones get 503 and are closed.
        connections_max: u32 = 65_536 => count(1..=4_194_304), live;
        /// Open connections of one client address to a process. Further ones get 429 and are closed. Set it
        /// below `upstream_connections_max` of a service, so that one client cannot use all connections to a
        /// node. Nodes do not count dispatchers of the file that have an `address` as clients.
        connections_per_address_max: u32 = 512 => count(1..=4_194_304), live;
        /// Leading bits of an IPv6 address that identify a client: whoever has one address can use all
        /// addresses of its /64.
        client_ipv6_prefix_bits: u32 = 64 => count(1..=128), live;
        /// Requests in flight in a process. Further ones get 503, so that those in flight stay fast.
        requests_in_flight_max: u32 = 16_384 => count(1..=4_194_304), live;
        /// Requests on one connection, after which it is closed; 0 is no limit.
        requests_per_connection_max: u32 = 0 => count(0..=1_000_000_000), live;
        /// `Retry-After` of responses with 429 and 503: when the client may try again.
        retry_after_s: u32 = 1 => number(Unit::Seconds, 1..=3600), live;
    }
}

table! {
    /// Time limits for clients.
    TimeoutsConfig at "timeouts" {
        /// Time from the first byte of a request to the end of its head. Over it: 408.
        head_ms: u64 = 10_000 => ms(100..=HOUR_MS), live;
        /// Minimum rate of a request's body, after `body_grace_ms`. Below it: 408. 0 is no limit.
        body_min_bytes_per_s: u64 = KIB => number(Unit::BytesPerSecond, 0..=GIB), live;
        /// Time before the minimum rate of a body applies.
        body_grace_ms: u64 = 5000 => ms(0..=HOUR_MS), live;
        /// Averaging time of that rate: a client that was faster before may be silent for this time plus
        /// `body_grace_ms`, and no longer.
        body_average_ms: u64 = 2 * MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Time without acknowledgement of any byte of a response, after which the client is disconnected.
        /// Clients acknowledge in steps, which grow with their receive buffer. A step is assumed to be an
        /// eighth of what the client has received so far: a client that needs longer for it at
        /// `send_min_bytes_per_s` gets this time, up to `send_average_ms`.
        write_stall_ms: u64 = 20_000 => ms(100..=HOUR_MS), live;
        /// Minimum rate at which a client receives a response. Slower clients are disconnected. 0 is no limit;
        /// then a client that acknowledges nothing is disconnected after `write_stall_ms` or `send_average_ms`,
        /// whichever is longer.
        send_min_bytes_per_s: u64 = KIB => number(Unit::BytesPerSecond, 0..=GIB), live;
        /// Averaging time of that rate. Nodes behind `proxy` services wait twice as long, so that the
        /// dispatcher, which has the connection of the slow client, disconnects first.
        send_average_ms: u64 = 2 * MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Maximum time between two requests on a connection.
        idle_ms: u64 = MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Age at which a connection is closed after its current response, so that clients spread to new nodes.
        /// 0 is no limit.
        lifetime_ms: u64 = HOUR_MS => ms(0..=30 * DAY_MS), live;
        /// Time for requests in flight to complete after SIGTERM.
        drain_ms: u64 = 30_000 => ms(0..=HOUR_MS), live;
    }
}

table! {
    /// One or more networks of clients, such as those of an institution, whose sessions of pools are counted
    /// separately (`skep status --pools`). Of nested networks, the smallest that contains the client counts; a
    /// client in none of them counts as `other`.
    ClientNetworkConfig at "client_network" {
        /// Its name, for commands and metrics.
        name: String => Kind::Text(Form::Name), live;
        /// The networks, such as `["192.0.2.0/24", "2001:db8::/32"]`.
        networks: Vec<String> => Kind::Texts(Form::Network), live;
    }
}

impl Row for ClientNetworkConfig {
    fn row_name(&self) -> &str {
        &self.name
    }
}
