//! A model of netguard: one order at a time, results in the same order. A crash loses orders and
//! results in transit, and its descriptors, but not the map.

use skep_handoff::{OfferKey, OrderResult};
use skep_wire::handoff::HandoffId;

use crate::kernel::{Entry, Flow, Id, Kernel, Socket};

/// A netguard.
#[derive(Clone, Debug)]
pub(crate) struct Netguard {
    pub(crate) is_up: bool,
    /// Increases with each start.
    pub(crate) start: u64,
    pub(crate) paused_until: u64,
    /// The start of the connected process.
    pub(crate) client: Option<u64>,
    /// When it executes the last order given, and when the last result arrives.
    pub(crate) busy_until: u64,
}

/// The core that waits for the result of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    Donor(HandoffId),
    Receiver(OfferKey),
    Nobody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    ForgetOrphans,
    Freeze(Flow),
    Redirect(Flow, Id),
    Thaw(Flow),
    Reset(Flow),
    Release(Flow),
    /// With the sequence numbers to be restored.
    Create(Flow, u32, u32),
    Start(Flow),
    Forget(Flow),
}

impl Order {
    /// Its name in traps, after execution.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Freeze(_) => "frozen",
            Self::Redirect(..) => "redirected",
            Self::Thaw(_) => "thawed",
            Self::Create(..) => "created",
            Self::Start(_) => "started",
            Self::ForgetOrphans | Self::Reset(_) | Self::Release(_) | Self::Forget(_) => "another",
        }
    }
}

/// The result of an order, and the RST that it caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    pub(crate) result: OrderResult,
    /// The flow, and the sequence number of the RST.
    pub(crate) reset: Option<(Flow, u32)>,
}

impl Netguard {
    pub(crate) fn new() -> Self {
        Self { is_up: true, start: 1, paused_until: 0, client: None, busy_until: 0 }
    }

    /// Executes a process's order on the machine's kernel.
    pub(crate) fn execute(kernel: &mut Kernel, process: u64, order: &Order) -> Executed {
        let mut reset = None;
        let is_done = match order {
            Order::ForgetOrphans => {
                // Earlier redirects stay forgotten: they may lead back to here.
                kernel.moves.retain(|_, entry| matches!(entry, Entry::Redirect(_)));
                true
            }
            Order::Freeze(flow) => freeze(kernel, *flow),
            Order::Thaw(flow) => match kernel.moves.get(flow) {
                Some(Entry::Redirect(_)) => false,
                _ => thaw(kernel, *flow),
            },
            Order::Redirect(flow, to) => redirect(kernel, *flow, *to),
            Order::Release(flow) => {
                if let Some(socket) = kernel.sockets.get_mut(flow) {
                    socket.is_held = false;
                }
                true
            }
            Order::Create(flow, send_next, receive_next) => {
                create(kernel, process, *flow, *send_next, *receive_next)
            }
            Order::Start(flow) => start(kernel, *flow),
            Order::Reset(flow) => {
                reset = kernel.sockets.remove(flow).map(|socket| (*flow, socket.send_next));
                kernel.forget(*flow);
                true
            }
            Order::Forget(flow) => {
                kernel.unblock(*flow);
                true
            }
        };
        let result = if is_done { OrderResult::Done } else { OrderResult::Refused };
        Executed { result, reset }
    }

    /// The process is gone: resets the connections held for it, and forgets its blocks.
    pub(crate) fn abandon(kernel: &mut Kernel) -> Vec<(Flow, u32)> {
        let held: Vec<Flow> =
            kernel.sockets.iter().filter(|it| it.1.is_held).map(|it| *it.0).collect();
        let resets = held.into_iter().map(|flow| {
            let socket = kernel.sockets.remove(&flow).unwrap();
            kernel.forget(flow);
            (flow, socket.send_next)
        });
        let resets = resets.collect();
        Self::execute(kernel, 0, &Order::ForgetOrphans);
        resets
    }
}

fn freeze(kernel: &mut Kernel, flow: Flow) -> bool {
    let Some(socket) = kernel.sockets.get_mut(&flow) else { return false };
    let behind = match kernel.moves.get(&flow) {
        Some(Entry::Redirect(to)) => Some(*to),
        _ => None,
    };
    kernel.moves.insert(flow, Entry::Blocked { behind });
    (socket.is_in_repair, socket.is_held, socket.is_donors) = (true, true, true);
    true
}

fn thaw(kernel: &mut Kernel, flow: Flow) -> bool {
    let Some(socket) = kernel.sockets.get_mut(&flow) else { return false };
    (socket.is_in_repair, socket.is_held) = (false, false);
    kernel.moves.remove(&flow);
    true
}

fn redirect(kernel: &mut Kernel, flow: Flow, to: Id) -> bool {
    match kernel.moves.get(&flow) {
        Some(Entry::Blocked { .. }) => {
            kernel.moves.insert(flow, Entry::Redirect(to));
            true
        }
        Some(Entry::Redirect(already)) => *already == to,
        None => false,
    }
}

fn create(
    kernel: &mut Kernel,
    process: u64,
    flow: Flow,
    send_next: u32,
    receive_next: u32,
) -> bool {
    if kernel.sockets.contains_key(&flow) {
        return false;
    }
    let behind = match kernel.moves.get(&flow) {
        Some(Entry::Redirect(to)) => Some(*to),
        Some(Entry::Blocked { behind }) => *behind,
        None => None,
    };
    kernel.moves.insert(flow, Entry::Blocked { behind });
    let socket = Socket {
        is_in_repair: true,
        receive_next,
        send_next,
        // Its descriptor is passed in the message to the process.
        process,
        is_held: false,
        is_donors: false,
    };
    kernel.sockets.insert(flow, socket);
    true
}

fn start(kernel: &mut Kernel, flow: Flow) -> bool {
    let Some(socket) = kernel.sockets.get_mut(&flow) else { return false };
    if socket.is_in_repair {
        socket.is_in_repair = false;
        kernel.moves.remove(&flow);
    }
    true
}
