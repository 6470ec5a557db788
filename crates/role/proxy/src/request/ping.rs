//! CPING before a request: tests whether a servlet engine is still at the other end of a connection
//! that was idle for long. It may have died silently, and a request that must not be sent twice would
//! be lost (`ping` of mod_proxy_ajp, `cping` of mod_jk).
//!
//! ```text
//!  kept, idle for long --CPING--> CPONG in time: it gets the request
//!                         | ended: a new one gets it
//!                         '-- silence: a new one --CPING--> CPONG in time: it gets the request
//!                                                   '-- another member
//! ```
//! A member that was silent must answer a CPING before each request, until it does.

use std::sync::atomic::Ordering::Relaxed;

use skep_ajp::{CPING, Pong};
use skep_serve::{Conn, ConnError, Output, TimeoutCause};
use skep_upstream::PooledConn;

use crate::members::conn_io;
use crate::members::member::SharedMember;
use crate::members::protocol::{MemberProtocol, PingSettings};
use crate::worker_balancer::PickedMember;

/// The result of a CPING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PingOutcome {
    Answered,
    /// The connection ended, or the answer was not AJP.
    Broken,
    /// Nothing was received in time: the whole member may be down.
    Silent,
}

/// Returns `lease`, a connection to `target`, if it may get a request.
pub(super) async fn if_answered(lease: PooledConn, target: &PickedMember) -> Option<PooledConn> {
    let member = target.member();
    let is_due =
        |it: &PingSettings| member.is_silent() || lease.reused && lease.idle_ms >= it.idle_ms;
    match settings(target).filter(is_due) {
        // Boxed because it is rare and large.
        Some(ping) => Box::pin(answers(&lease, member, ping.timeout_ms)).await.then_some(lease),
        None => Some(lease),
    }
}

async fn answers(lease: &PooledConn, member: &SharedMember, timeout_ms: u64) -> bool {
    let outcome = ask(&lease.conn, timeout_ms).await;
    let totals = &member.totals.gateway;
    totals.pings.fetch_add(1, Relaxed);
    if outcome != PingOutcome::Answered {
        totals.pings_failed.fetch_add(1, Relaxed);
    }
    match outcome {
        PingOutcome::Answered => member.set_silent(false),
        PingOutcome::Silent => member.set_silent(true),
        PingOutcome::Broken => {}
    }
    outcome == PingOutcome::Answered
}

fn settings(target: &PickedMember) -> Option<PingSettings> {
    match &target.settings().protocol {
        MemberProtocol::Ajp(spec) => Some(spec.ping),
        MemberProtocol::Http | MemberProtocol::Fcgi(_) => None,
    }
}

async fn ask(conn: &Conn, timeout_ms: u64) -> PingOutcome {
    conn.expire_after(timeout_ms, TimeoutCause::Response);
    let outcome = exchange(conn).await.unwrap_or_else(|error| match error {
        ConnError::Expired(_) => PingOutcome::Silent,
        ConnError::Io(_) => PingOutcome::Broken,
    });
    conn.timer().clear();
    outcome
}

async fn exchange(conn: &Conn) -> Result<PingOutcome, ConnError> {
    let mut output = Output::default();
    output.copy(&CPING);
    conn_io::send(conn, output).await?;
    let (mut pong, mut received) = (Pong::default(), Vec::new());
    while conn_io::read_more(conn, &mut received).await? {
        match pong.receive(&received) {
            Ok(true) => return Ok(PingOutcome::Answered),
            Ok(false) => received.clear(),
            Err(_) => break,
        }
    }
    Ok(PingOutcome::Broken)
}
