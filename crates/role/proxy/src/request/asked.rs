//! The request fields that decide how its response is forwarded.

use skep_http::{BackRewrite, Method};

use crate::request::coding::ReplyCoding;
use crate::request::times::OwnTimes;

/// The request that the response answers.
pub(super) struct Asked<'b> {
    pub(super) method: Method<'b>,
    /// Whether the request has a body.
    pub(super) has_body: bool,
    /// The protocols that the client may be switched to.
    pub(super) upgrade: Option<&'b [u8]>,
    /// Whether the client takes trailers.
    pub(super) trailers: bool,
    /// What becomes of the fields of its response.
    pub(super) rules: &'b ReplyRules<'b>,
    /// Host of the client's request.
    pub(super) host: &'b [u8],
    /// Whether the response gives the client a session with the member.
    pub(super) begins_session: bool,
    /// Whether the client asks by https, as far as who may say so says.
    pub(super) is_secure: bool,
}

/// What holds for an exchange beside what the group says.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyRules<'a> {
    /// The body of the request is not collected before a member gets it.
    pub streams_request: bool,
    /// The response is not read ahead of the client.
    pub streams_response: bool,
    /// In place of those of the group.
    pub times: OwnTimes,
    /// Fields that are left out; names in any case.
    pub without: &'a [String],
    /// Further fields, each `Name: value\r\n`: of all responses, and of this one.
    pub extra: [&'a [u8]; 2],
    /// What may encode its body.
    pub coding: Option<&'a dyn ReplyCoding>,
    /// What the member says of its own places becomes what clients know.
    pub back: Option<&'a BackRewrite>,
}
