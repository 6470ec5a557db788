//! One measurement of one URL.

use serde_json::{Value, json};

/// The phases of a response time, in order. They add up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePhase {
    /// DNS look-up of the server that sent the response.
    Lookup,
    /// DNS, TCP and TLS of all servers that redirected; the paper does not name this phase.
    RedirectConnect,
    /// From the request to the head of the redirect; sum of all redirects.
    Redirect,
    /// TCP handshake.
    Connect,
    /// TLS handshake; 0 without TLS.
    Tls,
    /// From the request to the first byte of the response.
    FirstByte,
    /// From the first byte to the last.
    Data,
}

impl ProbePhase {
    /// Number of phases.
    pub const COUNT: usize = 7;

    /// All phases.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Lookup,
        Self::RedirectConnect,
        Self::Redirect,
        Self::Connect,
        Self::Tls,
        Self::FirstByte,
        Self::Data,
    ];

    /// Its name in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::RedirectConnect => "redirect connect",
            Self::Redirect => "redirect",
            Self::Connect => "connect",
            Self::Tls => "TLS",
            Self::FirstByte => "first byte",
            Self::Data => "data",
        }
    }

    /// Its column in files.
    pub(crate) fn column(self) -> &'static str {
        match self {
            Self::Lookup => "lookup_us",
            Self::RedirectConnect => "redirect_connect_us",
            Self::Redirect => "redirect_us",
            Self::Connect => "connect_us",
            Self::Tls => "tls_us",
            Self::FirstByte => "first_byte_us",
            Self::Data => "data_us",
        }
    }
}

/// One measurement of one URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeSample {
    /// The URL as given.
    pub url: String,
    /// Number of the turn, from 0.
    pub turn: u64,
    /// Time of its beginning, by the wall clock.
    pub at_unix_ms: u64,
    /// Time of its beginning since that of the run, by the monotonic clock.
    pub since_begin_ms: u64,
    /// Duration of each phase that has ended, in microseconds, in the order of [`ProbePhase::ALL`].
    pub phases_us: [Option<u64>; ProbePhase::COUNT],
    /// Time from the beginning to the last byte, or to the failure, in microseconds.
    pub total_us: u64,
    /// Status of the last response.
    pub status: Option<u16>,
    /// Bytes of the body received.
    pub body_bytes: u64,
    /// Number of redirects followed.
    pub redirects: u32,
    /// The node that answered: `X-Skep-Node`, otherwise the host of the last redirect.
    pub node: Option<String>,
    /// The failure; `None`: the response is complete, with a status of success.
    pub failure: Option<ProbeFailure>,
}

/// Why a sample has no valid response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeFailure {
    /// One word, for counts.
    pub kind: String,
    /// A sentence; part of it may come from the server.
    pub text: String,
}

impl ProbeSample {
    /// Duration of a phase in microseconds, if it has ended.
    pub fn phase_us(&self, phase: ProbePhase) -> Option<u64> {
        self.phases_us[phase as usize]
    }

    pub(crate) fn set_phase(&mut self, phase: ProbePhase, us: u64) {
        self.phases_us[phase as usize] = Some(us);
    }

    /// Removes a phase, and returns its duration in microseconds.
    pub(crate) fn take_phase(&mut self, phase: ProbePhase) -> Option<u64> {
        self.phases_us[phase as usize].take()
    }

    pub(crate) fn add_to_phase(&mut self, phase: ProbePhase, us: u64) {
        self.set_phase(phase, self.phase_us(phase).unwrap_or(0) + us);
    }

    /// The sample for programs: one object, with the names of the columns of exported files.
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "turn": self.turn,
            "at_unix_ms": self.at_unix_ms,
            "since_begin_ms": self.since_begin_ms,
            "url": self.url,
        });
        for phase in ProbePhase::ALL {
            value[phase.column()] = json!(self.phase_us(phase));
        }
        value["total_us"] = json!(self.total_us);
        value["status"] = json!(self.status);
        value["body_bytes"] = json!(self.body_bytes);
        value["redirects"] = json!(self.redirects);
        value["node"] = json!(self.node);
        value["failure"] = json!(self.failure.as_ref().map(|failure| &failure.kind));
        value["failure_text"] = json!(self.failure.as_ref().map(|failure| &failure.text));
        value
    }
}
