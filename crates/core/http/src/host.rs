//! Host and authority: validation and comparison (RFC 9110 7.2, RFC 3986 3.2).
use crate::Reject;

/// A validated host with its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host<'b> {
    /// Name or address as sent, IPv6 with brackets; without a trailing dot.
    pub name: &'b [u8],
    /// Port, when one was given.
    pub port: Option<u16>,
}

impl<'b> Host<'b> {
    /// Checks and splits `value`.
    pub fn parse(value: &'b [u8]) -> Result<Host<'b>, Reject> {
        let _ = value;
        unimplemented!("parse")
    }

    /// Same name without case, and same port, `port_default` standing in for none.
    pub fn same_as(&self, other: &Host<'_>, port_default: u16) -> bool {
        let _ = (other, port_default);
        unimplemented!("same_as")
    }

    /// Whether the name equals `lower`, which is in lower case.
    pub fn name_is(&self, lower: &[u8]) -> bool {
        let _ = lower;
        unimplemented!("name_is")
    }
}
