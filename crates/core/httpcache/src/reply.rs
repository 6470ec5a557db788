//! The reply from a stored response to a request with conditions and ranges (RFC 9111 4.3.2, RFC
//! 9110 13.2.2 and 14.2): 304, 412, 206, 416, or the whole. HEAD is answered with the head that GET
//! would be.

use skep_http::conditional::{Precondition, evaluate};
use skep_http::range::{Parts, RangeVerdict, ranges};
use skep_http::{Method, RequestHead};

use crate::response::ResponseMeta;

/// What to send from a complete stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredReply {
    /// The whole response, with its own status.
    Whole,
    /// 206 with these parts.
    Parts(Parts),
    /// 304 with the validators.
    NotModified,
    /// 412.
    PreconditionFailed,
    /// 416.
    Unsatisfiable,
}

/// The reply from a complete stored response of `bytes`, which may be used. Range applies only to
/// GET and status 200.
pub fn stored_reply(
    head: &RequestHead<'_, '_>,
    stored: &ResponseMeta,
    bytes: u64,
    ranges_max: usize,
    now_unix_s: u64,
) -> StoredReply {
    if stored.status != 200 {
        return StoredReply::Whole;
    }
    let validators = stored.validators();
    match evaluate(head, &validators, now_unix_s) {
        Precondition::NotModified => return StoredReply::NotModified,
        Precondition::Failed => return StoredReply::PreconditionFailed,
        Precondition::Proceed => {}
    }
    if head.method != Method::Get {
        return StoredReply::Whole;
    }
    match ranges(head, &validators, stored.made_unix_s(), bytes, ranges_max) {
        RangeVerdict::Whole => StoredReply::Whole,
        RangeVerdict::Parts(parts) => StoredReply::Parts(parts),
        RangeVerdict::Unsatisfiable => StoredReply::Unsatisfiable,
    }
}
