//! Each core step by step; `tests/sim` tests both together under faults.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod donor;
mod moved;
mod receiver;

use skep_wire::handoff::lccp::{Lccp, LccpCommand};
use skep_wire::handoff::tcp::{TcpOptions, TcpState, TcpWindow};
use skep_wire::handoff::{HandoffId, HandoffInfo, SocketId};

/// How long donors wait.
const READY_MS: u64 = 50;

fn socket(port: u16) -> SocketId {
    let client = std::net::SocketAddr::from(([192, 168, 7, 9], port));
    SocketId::new(client, "192.168.7.80:80".parse().unwrap()).unwrap()
}

fn info(received: usize) -> HandoffInfo {
    let window = TcpWindow {
        send_updated_at: 1,
        send: 65_535,
        send_max: 65_535,
        receive: 65_535,
        receive_updated_at: 1,
    };
    let options = TcpOptions { sack: true, window_scales: None, timestamp: None };
    let tcp = TcpState {
        send_next: 1,
        receive_next: 1,
        mss_clamp: 1_460,
        options,
        window,
        congestion_window: 10,
        rtt_us: 300,
        received: vec![b'x'; received],
    };
    HandoffInfo { tcp, read_ahead: Vec::new(), moves: 1, accepted_by: 0 }
}

fn message(id: HandoffId, command: LccpCommand) -> Lccp {
    Lccp { id, command }
}

/// The names of the messages.
fn name(command: &LccpCommand) -> &'static str {
    match command {
        LccpCommand::Offer(..) => "OFFER",
        LccpCommand::Ready(_) => "READY",
        LccpCommand::Refuse(..) => "REFUSE",
        LccpCommand::Go(_) => "GO",
        LccpCommand::Done(_) => "DONE",
        LccpCommand::Gone(_) => "GONE",
        LccpCommand::Abort(_) => "ABORT",
        LccpCommand::Aborted(_) => "ABORTED",
        _ => "another",
    }
}
