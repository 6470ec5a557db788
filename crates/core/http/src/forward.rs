//! Writes heads for the next hop, from the parsed form only.
use crate::date::DATE_BYTES;
use crate::{RequestHead, ResponseFraming, ResponseHead, Version};
use std::net::IpAddr;

/// What the next hop sees as Host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPolicy<'a> {
    /// The client's.
    Keep,
    /// This one.
    Set(&'a [u8]),
}

/// How a request is passed on.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a> {
    /// Address of the client.
    pub client: IpAddr,
    /// Scheme the client used: `http` or `https`.
    pub proto: &'a str,
    /// Host for the next hop.
    pub host: HostPolicy<'a>,
    /// Whether the client is a trusted proxy: its Forwarded and X-Forwarded-*
    /// are kept and added to; else they are discarded.
    pub trusted: bool,
    /// Target to send; `None`: the client's path and query as sent.
    pub target: Option<&'a [u8]>,
    /// Whether an upgrade may pass (never h2c).
    pub upgrade: bool,
    /// Further fields, each `Name: value\r\n`; put in as they are.
    pub extra: &'a [u8],
}

/// Appends the head of `head` for the next hop, CRLFCRLF included. The body
/// follows with the framing of `head.framing`.
pub fn write_request(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, forward: &Forward<'_>) {
    let _ = (out, head, forward);
    unimplemented!("write_request")
}

/// How a reply is passed back.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// Version the client speaks.
    pub version: Version,
    /// Whether the client's connection stays open afterwards.
    pub keep_alive: bool,
    /// Date for a reply that has none.
    pub date: &'a [u8; DATE_BYTES],
    /// Further fields, each `Name: value\r\n`; put in as they are.
    pub extra: &'a [u8],
}

/// Appends the head of a reply, CRLFCRLF included, and says how the body must
/// be framed for the client. `UntilClose` means that the connection closes.
pub fn write_response(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_, '_>,
    reply: &Reply<'_>,
) -> ResponseFraming {
    let _ = (out, head, reply);
    unimplemented!("write_response")
}
