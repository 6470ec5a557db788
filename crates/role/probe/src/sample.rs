//! One measurement of one URL.

use serde_json::{Value, json};

/// The parts of a response time, in the order in which they pass. Together they are all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePhase {
    /// DNS, of the server that gave the response.
    Lookup,
    /// DNS, TCP and TLS of all servers that redirected: the paper has no name for it.
    RedirectConnect,
    /// From the request to the head of the redirect; of all redirects.
    Redirect,
    /// TCP's handshake.
    Connect,
    /// TLS's handshake; 0 without TLS.
    Tls,
    /// From the request to the first byte of the response.
    FirstByte,
    /// From the first byte to the last.
    Data,
}

impl ProbePhase {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All of them.
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
    /// As it was given.
    pub url: String,
    /// Number of the turn, from 0.
    pub turn: u64,
    /// When it began, by the wall clock.
    pub at_unix_ms: u64,
    /// When it began, since the run began, by the monotonic clock.
    pub since_begin_ms: u64,
    /// Microseconds of each phase that has ended, by [`ProbePhase::ALL`].
    pub phases_us: [Option<u64>; ProbePhase::COUNT],
    /// Microseconds from the beginning to the last byte, or to the failure.
    pub total_us: u64,
    /// Status of the last response.
    pub status: Option<u16>,
    /// Bytes of the body that have come in.
    pub body_bytes: u64,
    /// Redirects that were followed.
    pub redirects: u32,
    /// Who answered: `X-Skep-Node`, else the host that was redirected to.
    pub node: Option<String>,
    /// What went wrong; `None`: the response is whole, with a status of success.
    pub failure: Option<ProbeFailure>,
}

/// Why a sample has no response that counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeFailure {
    /// One word, for counting.
    pub kind: String,
    /// A sentence; part of it may come from the server.
    pub text: String,
}

impl ProbeSample {
    /// Microseconds of a phase, if it has ended.
    pub fn phase_us(&self, phase: ProbePhase) -> Option<u64> {
        self.phases_us[phase as usize]
    }

    pub(crate) fn set_phase(&mut self, phase: ProbePhase, us: u64) {
        self.phases_us[phase as usize] = Some(us);
    }

    /// Microseconds of a phase, which the sample has no longer.
    pub(crate) fn take_phase(&mut self, phase: ProbePhase) -> Option<u64> {
        self.phases_us[phase as usize].take()
    }

    pub(crate) fn add_to_phase(&mut self, phase: ProbePhase, us: u64) {
        self.set_phase(phase, self.phase_us(phase).unwrap_or(0) + us);
    }

    /// For programs: one object, with the names of the columns of exported files.
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
