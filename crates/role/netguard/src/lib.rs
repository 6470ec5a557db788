//! `skep netguard`: the small process that may touch programs, devices and
//! addresses, for a serving process that may not.
//!
//! ```text
//!   skep run  (reads HTTP and datagrams; no capability)
//!      |  orders, over a unix socket; peers as the kernel names them
//!      v
//!   skep netguard  (BPF, NET_ADMIN, NET_RAW; reads the config and orders)
//!      |
//!      v
//!   packet programs, virtual addresses, announcements
//! ```
//!
//! Invariants: devices, pins and virtual addresses come from the guard's own
//! reading of the config, never from an order. What is pinned outlives both
//! processes: packets of known flows go on while either restarts.

#![forbid(unsafe_code)]

mod dispatch;
mod error;
mod limits;
mod node;
mod plan;

use std::path::Path;

use skep_config::Config;
use skep_guard::{Listener, Visit, privileges};
use skep_netif::Netif;
use skep_wire::guard::{Answer, Order, Side};

use dispatch::DispatchSide;
pub use error::NetguardError;
use node::NodeSide;
pub use plan::{Plan, socket_of};

/// Does what a serving process orders, within its plan.
pub struct Netguard {
    plan: Plan,
    netif: Netif,
    dispatch: Option<DispatchSide>,
    node: Option<NodeSide>,
    /// Sides of which nothing was here before this guard's orders.
    is_fresh: Fresh,
}

#[derive(Default)]
struct Fresh {
    dispatch: bool,
    node: bool,
}

impl Netguard {
    /// The guard of the process that is `name` in `config`. Needs root, and then
    /// keeps of it only what [`privileges::NETGUARD`] lists.
    pub fn new(config: &Config, name: &str) -> Result<Self, NetguardError> {
        let plan = Plan::of(config, name)?;
        skep_datapath::prepare()?;
        privileges::keep_only(privileges::NETGUARD).map_err(NetguardError::Privileges)?;
        Ok(Self {
            plan,
            netif: Netif::open()?,
            dispatch: None,
            node: None,
            is_fresh: Fresh::default(),
        })
    }

    /// Takes orders at `socket`, from processes of the guard's own user and of
    /// root. With `once`, ends with the first of them, and the socket is gone as
    /// soon as that one is there: the next has a guard of its own. Else never.
    pub fn listen(
        mut self,
        socket: &Path,
        once: bool,
        ready: impl FnOnce(),
    ) -> Result<(), NetguardError> {
        let failed = |error| NetguardError::Socket { path: socket.to_owned(), error };
        let users = vec![0, plan::own_user()];
        let listener = Listener::bind(socket, users).map_err(failed)?;
        ready();
        if once {
            let visit = listener.accept().map_err(failed)?;
            drop(listener);
            self.serve(visit);
            return Ok(());
        }
        loop {
            let visit = listener.accept().map_err(failed)?;
            self.serve(visit);
        }
    }

    fn serve(&mut self, visit: Visit) {
        if let Err(error) = visit.serve(|order| self.perform(order)) {
            tracing::warn!(%error, "the serving process has gone in the middle of an order");
        }
    }

    /// Does one order.
    pub fn perform(&mut self, order: Order) -> Answer {
        self.try_perform(order).unwrap_or_else(|error| Answer::Refused(error.to_string()))
    }

    /// Takes everything away that this or an earlier guard has left on the
    /// machine.
    pub fn clear(&mut self) -> Result<(), NetguardError> {
        self.close(Side::Dispatch)?;
        self.close(Side::Node)
    }

    fn try_perform(&mut self, order: Order) -> Result<Answer, NetguardError> {
        match order {
            Order::Open(Side::Dispatch) => {
                self.is_fresh.dispatch = !dispatch::is_here(&self.plan);
                let side = DispatchSide::open(&self.plan, &mut self.netif)?;
                let opened = side.opened().clone();
                self.dispatch = Some(side);
                Ok(Answer::Opened(opened))
            }
            Order::Open(Side::Node) => {
                let side = NodeSide::open(&self.plan, &mut self.netif)?;
                let opened = side.opened().clone();
                self.node = Some(side);
                Ok(Answer::Opened(opened))
            }
            Order::Abort => self.abort().map(|()| Answer::Done),
            Order::Hold => self.hold().map(|()| Answer::Done),
            Order::Settings(Side::Node, _)
            | Order::Services(Side::Node, _)
            | Order::Rows { side: Side::Node, .. }
            | Order::Nodes(Side::Node, _)
            | Order::Steerers(Side::Node, _)
            | Order::Counters(Side::Node)
            | Order::Check(Side::Node, _) => {
                let side = self.node.as_mut().ok_or(NetguardError::NotOpen("node"))?;
                side.perform(order, &self.plan, &mut self.netif)
            }
            _ => {
                let side = self.dispatch.as_mut().ok_or(NetguardError::NotOpen("dispatch"))?;
                side.perform(order, &self.plan, &mut self.netif)
            }
        }
    }

    /// Takes away what this guard's orders have put here; what an earlier
    /// process left stays, since packets may go by it.
    fn abort(&mut self) -> Result<(), NetguardError> {
        let Fresh { dispatch, node } = std::mem::take(&mut self.is_fresh);
        if dispatch {
            self.close(Side::Dispatch)?;
        }
        if node {
            self.close(Side::Node)?;
        }
        Ok(())
    }

    fn hold(&mut self) -> Result<(), NetguardError> {
        self.is_fresh.node = !node::is_here(&self.plan);
        node::hold(&self.plan, &mut self.netif)
    }

    fn close(&mut self, side: Side) -> Result<(), NetguardError> {
        match side {
            Side::Dispatch => {
                self.dispatch = None;
                dispatch::close(&self.plan, &mut self.netif)
            }
            Side::Node => {
                self.node = None;
                node::close(&self.plan, &mut self.netif)
            }
        }
    }
}
