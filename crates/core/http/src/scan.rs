//! Finds the end of a message head.
use crate::{HeadLimits, Reject};

/// Finds the end of a head in a buffer that grows; resumable, and never looks
/// twice at what it saw, so a client that dribbles single bytes costs O(n).
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScanner {
    seen: usize,
}

impl HeadScanner {
    /// A scanner for a response; the default one is for a request.
    pub fn response() -> HeadScanner {
        HeadScanner { seen: 0 }
    }

    /// Looks at `buf`, all bytes since the start of the message. `Some(len)`:
    /// the complete head is `buf[..len]`, its CRLFCRLF included.
    pub fn scan(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<Option<usize>, Reject> {
        let _ = (self.seen, buf, limits);
        unimplemented!("scan")
    }
}
