//! HTTP dates (RFC 9110 5.6.7).

/// A point in time, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpDate(pub u64);

/// Length of an IMF-fixdate, in bytes.
pub const DATE_BYTES: usize = 29;

impl HttpDate {
    /// `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn format(self) -> [u8; DATE_BYTES] {
        unimplemented!("format")
    }

    /// Reads any of the three forms. `now_unix` settles the century of
    /// two-digit years: no more than 50 years ahead.
    pub fn parse(value: &[u8], now_unix: u64) -> Option<HttpDate> {
        let _ = (value, now_unix);
        unimplemented!("parse")
    }
}
