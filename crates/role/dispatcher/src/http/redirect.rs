//! `redirect` mode: redirects the client to a node.
//!
//! Allocates nothing: everything but the target is prepared per node. The target is sent as
//! received; the parser rejects any byte that could end a line.

use std::net::SocketAddr;

use skep_engine::Reply;
use skep_http::RequestHead;
use skep_telemetry::Counter;

use crate::http::handler::DispatcherHandler;

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
        let Some(target) = self.pick(request, client, &[]) else {
            return self.refuse_for_want_of_nodes(reply);
        };
        self.counters().inc(Counter::Redirects);
        target.node().totals.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        target.node().reported.sent_on();
        let status = target.settings().redirect_status;
        reply.prebuilt(status, &target.redirect_head);
        reply.lines(request.path);
        if let Some(query) = request.query {
            reply.lines(b"?");
            reply.lines(query);
        }
        reply.lines(b"\r\n");
        reply.end_head();
        reply.summary().node = Some(std::sync::Arc::clone(&target.node().name));
        // What the client does there is not seen here.
        self.balancer().finished(target.node().id, 0, 0);
    }
}
