//! The request fields that decide how its response is forwarded.

use skep_http::{BackRewrite, Method};

use crate::request::coding::ReplyCoding;
use crate::request::times::OwnTimes;

/// The request that the response answers.
pub(super) struct Asked<'b> {
    pub(super) method: Method<'b>,
    /// Whether the request has a body.
    pub(super) has_body: bool,
    /// The protocols to which the client may be switched.
    pub(super) upgrade: Option<&'b [u8]>,
    /// Whether the client accepts trailers.
    pub(super) trailers: bool,
    /// The rules for the fields of its response.
    pub(super) rules: &'b ReplyRules<'b>,
    /// The Host of the client's request.
    pub(super) host: &'b [u8],
    /// Whether the response gives the client a session with the member.
    pub(super) begins_session: bool,
    /// Whether the client uses https, according to the sources that are trusted to state it.
    pub(super) is_secure: bool,
}

/// The rules of an exchange, in addition to the group's settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyRules<'a> {
    /// Whether the body of the request is sent on without being collected first.
    pub streams_request: bool,
    /// Whether the response is not read ahead of the client.
    pub streams_response: bool,
    /// Replace those of the group.
    pub times: OwnTimes,
    /// Names of fields that are left out, in any case.
    pub without: &'a [String],
    /// Additional fields, each `Name: value\r
    /// `: of all responses, and of this one.
    pub extra: [&'a [u8]; 2],
    /// May encode its body.
    pub coding: Option<&'a dyn ReplyCoding>,
    /// Rewrites the member's own locations to those that clients use.
    pub back: Option<&'a BackRewrite>,
}
