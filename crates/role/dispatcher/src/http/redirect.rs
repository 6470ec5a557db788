//! `redirect` mode: redirects the client to a node.
//!
//! Allocates nothing. The target is sent as received; the parser rejects bytes that could end a
//! line.

use std::net::SocketAddr;

use skep_engine::Reply;
use skep_http::{Method, RequestHead};
use skep_telemetry::Counter;

use crate::http::handler::DispatcherHandler;

/// Fields of every redirect.
const COMMON_LINES: &[u8] = b"Cache-Control: no-store\r\nContent-Length: 0\r\n";

impl DispatcherHandler {
    /// Answers `request` with the address of a node.
    pub(crate) fn redirect(
        &self,
        request: &RequestHead<'_, '_>,
        client: SocketAddr,
        reply: &mut Reply<'_>,
    ) {
        if request.path.first() != Some(&b'/') {
            // `OPTIONS *` asks about this server, not about a resource.
            return reply.plain(204, b"");
        }
        let Some(target) = self.nodes().send_away(request, client) else {
            return self.nodes().refuse_for_want_of_members(reply);
        };
        self.counters().inc(Counter::Redirects);
        reply.start(self.redirect_status(request.method));
        reply.lines(COMMON_LINES);
        reply.lines(target.name_line());
        reply.lines(b"Location: http://");
        reply.lines(target.authority().as_bytes());
        reply.lines(request.path);
        if let Some(query) = request.query {
            reply.lines(b"?");
            reply.lines(query);
        }
        reply.lines(b"\r\n");
        reply.end_head();
        reply.summary().node = Some(std::sync::Arc::clone(target.name()));
    }

    /// The configured status; but when a client follows a 302, it may turn any method other than
    /// these two into a GET (RFC 9110 15.4.3).
    fn redirect_status(&self, method: Method<'_>) -> u16 {
        match method {
            Method::Get | Method::Head => self.with_settings(|settings| settings.redirect_status),
            _ => 307,
        }
    }
}
