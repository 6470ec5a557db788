//! Settings of clients' limits, timeouts and networks: a part of the settings table.

use skep_units::{GIB, KIB, MIB};

use crate::kind::{DAY_MS, Form, HOUR_MS, Kind, MINUTE_MS, TIB, bytes, count, ms, number, word};
use crate::number::Unit;
use crate::section::Row;
use crate::table::table;
use crate::words::UnderscoreFields;

table! {
    /// What clients may take, in size and number, and which fields. Over a limit
    /// the answer is a clear refusal.
    LimitsConfig at "limits" {
        /// Head of a request: request line and header fields. Over it: 431.
        head_bytes_max: u64 = 16 * KIB => bytes(KIB..=256 * KIB), live;
        /// Header fields of a request. Over it: 431.
        fields_max: u32 = 100 => count(1..=128), live;
        /// What becomes of a field with `_` in its name, such as `User_Id`, which
        /// CGI-like applications take for `User-Id`: `"drop"` leaves it out and
        /// counts it, `"pass"` passes it on, but not what they would take for a
        /// field that a proxy writes itself, and `"refuse"` answers 400.
        underscore_fields: UnderscoreFields = UnderscoreFields::Drop
            => word(UnderscoreFields::WORDS), live;
        /// Path and query of a request. Over it: 414.
        target_bytes_max: u64 = 8 * KIB => bytes(64..=64 * KIB), live;
        /// Body of a request through a dispatcher, or to a pool. Over it: 413. Sites of
        /// files take no bodies.
        body_bytes_max: u64 = GIB => bytes(0..=TIB), live;
        /// Memory that replies to one address hold while they are sent without
        /// being copied (IPv6: one /64). Over it they are copied piece by piece,
        /// which costs more time; what can't be got by pieces gets 503.
        pinned_per_address_bytes_max: u64 = 32 * MIB => bytes(4 * MIB..=TIB), live;
        /// Memory of one connection for its buffers.
        connection_bytes_max: u64 = 64 * KIB => bytes(4 * KIB..=16 * MIB), live;
        /// Open connections of clients to a process. Over it new ones get
        /// 503 and are closed.
        connections_max: u32 = 65_536 => count(1..=4_194_304), live;
        /// Open connections of one client address to a process. Over it new
        /// ones get 429 and are closed. Below `upstream_connections_max` of a
        /// service, so that no client takes all connections to a node. For
        /// nodes, dispatchers of the file that have an `address` are no
        /// clients.
        connections_per_address_max: u32 = 512 => count(1..=4_194_304), live;
        /// Leading bits of an IPv6 address that make one client address: who
        /// has one address has its whole /64.
        client_ipv6_prefix_bits: u32 = 64 => count(1..=128), live;
        /// Requests in flight in a process. Over it: 503, so that those in flight
        /// stay fast.
        requests_in_flight_max: u32 = 16_384 => count(1..=4_194_304), live;
        /// Requests of one connection, which then is closed; 0 is no limit.
        requests_per_connection_max: u32 = 0 => count(0..=1_000_000_000), live;
        /// `Retry-After` of 429 and 503: when the client may come back.
        retry_after_s: u32 = 1 => number(Unit::Seconds, 1..=3600), live;
    }
}

table! {
    /// How long clients may take.
    TimeoutsConfig at "timeouts" {
        /// From the first byte of a request to the end of its head. Over it:
        /// 408.
        head_ms: u64 = 10_000 => ms(100..=HOUR_MS), live;
        /// Least rate of a request's body, after `body_grace_ms`. Below it:
        /// 408. 0 is no limit.
        body_min_bytes_per_s: u64 = KIB => number(Unit::BytesPerSecond, 0..=GIB), live;
        /// Time before the rate of a body counts.
        body_grace_ms: u64 = 5000 => ms(0..=HOUR_MS), live;
        /// Time over which that rate is an average: who was faster before may be
        /// silent for this and `body_grace_ms`, and not longer.
        body_average_ms: u64 = 2 * MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Time in which a client acknowledges no byte of a response; then it
        /// is cut off. Clients acknowledge in steps, the larger the larger their
        /// buffer is: who may need longer for one at `send_min_bytes_per_s`, an
        /// eighth of all that it has taken, gets it, but at most `send_average_ms`.
        write_stall_ms: u64 = 20_000 => ms(100..=HOUR_MS), live;
        /// Least rate at which a client takes a response. Slower clients are
        /// disconnected. 0 is no limit; then a client that acknowledges nothing is cut
        /// off after `write_stall_ms` or `send_average_ms`, whichever is longer.
        send_min_bytes_per_s: u64 = KIB => number(Unit::BytesPerSecond, 0..=GIB), live;
        /// Time over which that rate is an average. Nodes behind `proxy`
        /// services are twice as patient: the dispatcher, whose client it is,
        /// cuts first.
        send_average_ms: u64 = 2 * MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Time between two requests of a connection.
        idle_ms: u64 = MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Age at which a connection is closed after its current response, so
        /// that clients spread over new nodes. 0 is no limit.
        lifetime_ms: u64 = HOUR_MS => ms(0..=30 * DAY_MS), live;
        /// Time that requests in flight get to end after SIGTERM.
        drain_ms: u64 = 30_000 => ms(0..=HOUR_MS), live;
    }
}

table! {
    /// A network of clients, or several, such as those of an institution, by which the sessions of pools are
    /// counted (`skep status --pools`). Of networks that contain each other the smallest with the client
    /// counts; who is in none is `other`.
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
