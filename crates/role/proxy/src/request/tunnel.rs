//! Forwards bytes in both directions after an upgrade.

use skep_engine::{ExchangeError, TunnelEnd, tunnel};
use skep_serve::{Pace, TimeoutCause};
use skep_telemetry::Counter;
use skep_upstream::PooledConn;

use super::ProxiedRequest;
use crate::request::in_flight::InFlight;
use crate::request::times::Silence;

impl ProxiedRequest<'_, '_, '_, '_, '_> {
    /// Copies bytes in both directions, from the 101 on. Bytes that the client sent after its
    /// request's head are sent to the member now and not earlier (CVE-2026-2833).
    pub(super) async fn tunnel(
        &mut self,
        lease: &PooledConn,
        behind: Vec<u8>,
        in_flight: &mut InFlight,
    ) -> Result<(), ExchangeError> {
        in_flight.become_tunnel();
        self.group.counters().inc(Counter::Upgrades);
        // Without a client there is no upgrade to accept.
        let Some(exchange) = self.recipient.client() else { return Ok(()) };
        exchange.reply.flush().await?;
        let early = exchange.body.take_rest();
        let settings = in_flight.target().settings();
        let silence = Silence::new(settings, self.rules.times);
        let client = TunnelEnd { conn: exchange.conn(), pace: exchange.reply.pace() };
        let member = TunnelEnd { conn: &lease.conn, pace: Pace::stall(silence.inside_body_ms) };
        match tunnel(client, member, early, behind, silence.between_events_ms).await {
            Ok((_, bytes)) => {
                in_flight.tunnelled(bytes);
                exchange.reply.write().summary().body_bytes = bytes;
            }
            // The client receives nothing, or too slowly: counted like a client that receives a
            // reply too slowly.
            Err(error) if client.conn.timer().expired() == Some(TimeoutCause::WriteStall) => {
                return Err(error.into());
            }
            // One side has closed, so the other is closed as well.
            Err(error) => tracing::debug!(%error, "tunnel ended"),
        }
        Ok(())
    }
}
