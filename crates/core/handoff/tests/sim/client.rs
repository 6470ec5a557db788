//! Clients: each sends requests on one connection, one after the other, and counts the bytes of the
//! replies.

use skep_units::Rng;

/// A connection, from its client's view.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) end: End,
    /// Bytes of requests that it has begun to send.
    pub(crate) sent: u32,
    /// Of these, those acknowledged.
    pub(crate) acknowledged: u32,
    /// Bytes of replies expected, and received.
    pub(crate) wanted: u32,
    pub(crate) received: u32,
    pub(crate) requests_left: u32,
    /// The machine to which the dispatcher steers it.
    pub(crate) steered_to: usize,
    /// When its last packet, and the last one to it, arrive: packets do not overtake each other.
    pub(crate) to_client_at: u64,
    /// The last request for which a node has decided where to answer it.
    pub(crate) decided: u32,
    pub(crate) moves: u8,
    /// Whether a crash has affected it: it may be closed.
    pub(crate) is_touched: bool,
    /// Whether process and netguard were both lost while it was frozen.
    pub(crate) is_bereft: bool,
    /// The number of request bytes before the current request.
    pub(crate) request_begins: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    /// It has received all its replies.
    Served,
    /// It has received an RST.
    Reset,
}

impl Client {
    pub(crate) fn new(steered_to: usize, rng: &mut Rng) -> Self {
        Self {
            end: End::Open,
            sent: 0,
            acknowledged: 0,
            wanted: 0,
            received: 0,
            requests_left: 1 + rng.below(6) as u32,
            steered_to,
            to_client_at: 0,
            decided: 0,
            moves: 0,
            is_touched: false,
            is_bereft: false,
            request_begins: 0,
        }
    }

    /// Begins the next request.
    pub(crate) fn request(&mut self, rng: &mut Rng) {
        self.request_begins = self.sent;
        self.sent += 1 + rng.below(4) as u32;
        self.wanted += 1 + rng.below(5) as u32;
        self.requests_left -= 1;
    }

    /// A byte of a reply arrives.
    ///
    /// # Errors
    /// It is not the next one.
    pub(crate) fn reply(&mut self, sequence: u32) -> Result<(), &'static str> {
        match self.end {
            End::Open if sequence == self.received => {
                self.received += 1;
                Ok(())
            }
            End::Open => Err("a byte of a reply comes twice, or is missing"),
            End::Served | End::Reset => Ok(()),
        }
    }

    /// An RST arrives: it counts if it has the expected sequence number (RFC 5961 3.2).
    pub(crate) fn rst(&mut self, sequence: u32) -> bool {
        let is_closed = self.end == End::Open && sequence == self.received;
        if is_closed {
            self.end = End::Reset;
        }
        is_closed
    }
}
