//! The parts of a request besides its URL, and the expected response.

use hyper::header::{HeaderName, IF_NONE_MATCH, RANGE};
use skep_workload::LoggedRequest;

/// The form of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestForm {
    pub(crate) is_head: bool,
    /// A field in addition to the usual ones.
    pub(crate) field: Option<(HeaderName, String)>,
    /// A status that is correct in addition to 200 to 299. If it is a redirect it is not followed: the
    /// client's next request is another line of the log.
    pub(crate) status: Option<u16>,
}

impl RequestForm {
    /// The form for which the response resembles the logged one. A log contains neither ranges nor
    /// conditions: for a part (206) that number of bytes is requested from the beginning, and for 304 the
    /// condition is that the object does not exist.
    pub(crate) fn as_logged(request: &LoggedRequest) -> Self {
        let field = match (request.status, request.bytes) {
            (206, bytes @ 1..) => Some((RANGE, format!("bytes=0-{}", bytes - 1))),
            (304, _) => Some((IF_NONE_MATCH, "*".to_owned())),
            _ => None,
        };
        Self { is_head: request.is_head, field, status: Some(request.status) }
    }

    pub(crate) fn is_right(&self, status: u16) -> bool {
        (200..300).contains(&status) || self.status == Some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_asks_for_what_was_logged() {
        let logged = |status, bytes| {
            let (at_ms, client, object, is_head) = (0, 0, 0, false);
            RequestForm::as_logged(&LoggedRequest { at_ms, client, object, bytes, status, is_head })
        };
        assert_eq!(logged(206, 100).field, Some((RANGE, "bytes=0-99".to_owned())));
        assert_eq!(logged(304, 0).field, Some((IF_NONE_MATCH, "*".to_owned())));
        for (status, bytes) in [(200, 5), (206, 0), (404, 162)] {
            assert_eq!(logged(status, bytes).field, None, "{status}");
        }
        assert!(logged(404, 0).is_right(404) && logged(404, 0).is_right(200));
        assert!(!logged(200, 0).is_right(404) && !RequestForm::default().is_right(304));
    }
}
