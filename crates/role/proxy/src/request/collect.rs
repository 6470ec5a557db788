//! Collects the body of a request before its admission, so that a slow client occupies no slot at a member.

use std::rc::Rc;

use skep_http::{BodyFraming, RequestHead};
use skep_spool::Shortage;

use super::{ForwardError, RefusalScope, Refused};
use crate::members::protocol::MemberProtocol;
use crate::members::session::Session;
use crate::request::asked::ReplyRules;
use crate::request::collected_body::{CollectedBody, Collection};
use crate::request::recipient::Recipient;
use crate::worker_group::WorkerGroup;

impl WorkerGroup {
    /// Collects the body of `request` before it takes a slot at a member, and returns how the body is framed
    /// then.
    ///
    /// # Errors
    /// The client failed; or the members need the length, and there is no room to determine it.
    pub(super) async fn collect(
        &self,
        request: &RequestHead<'_, '_>,
        recipient: &mut Recipient<'_, '_>,
        rules: &ReplyRules<'_>,
    ) -> Result<(CollectedBody, BodyFraming), ForwardError> {
        let in_force = Rc::clone(self.balancer().sync());
        let settings = &in_force.settings;
        // CGI requires the length in advance (RFC 3875 4.1.2).
        let length_bytes_max = match (request.framing, &settings.protocol) {
            (BodyFraming::Chunked, MemberProtocol::Fcgi(spec)) => Some(spec.collect_bytes_max),
            _ => None,
        };
        let must = length_bytes_max.is_some();
        let mut collection = Collection::of(request, settings.buffering.as_ref(), rules, must);
        // A client must not send a large body only to be told that no member is available.
        if collection.is_buffered() && !must {
            let session = Session::of(request, settings.sticky.as_ref());
            if !self.balancer().may_wait(&session, &[]) {
                collection = Collection::Streamed;
            }
        }
        let mut collected = CollectedBody::new(collection);
        let Some(body) = recipient.body() else { return Ok((collected, request.framing)) };
        if settings.protocol == MemberProtocol::Http {
            body.keep_trailers();
        }
        let bytes_max = length_bytes_max.unwrap_or(u64::MAX);
        let short = collected.collect(body, bytes_max).await?;
        match short.filter(|_| must) {
            None if must => {
                let framing = BodyFraming::Length(collected.collected());
                Ok((collected, framing))
            }
            None => Ok((collected, request.framing)),
            Some(Shortage::Body) => Err(ForwardError::Refused(Refused::plain(411))),
            Some(_) => {
                let lines = settings.retry_after_line.clone();
                let scope = RefusalScope::Session;
                Err(ForwardError::Refused(Refused { lines, scope, ..Refused::plain(503) }))
            }
        }
    }
}
