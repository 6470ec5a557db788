//! `skep netguard`: the small process that may change packet programs, devices and addresses, on behalf
//! of a serving process that may not.
//!
//! ```text
//!   skep run  (reads HTTP and datagrams; no capability)
//!      |  orders, over a unix socket; peer credentials from the kernel
//!      v
//!   skep netguard  (BPF, NET_ADMIN, NET_RAW; reads the config and orders)
//!      |
//!      v
//!   packet programs, virtual addresses, announcements
//! ```
//!
//! Invariants: devices, pins and virtual addresses come from the config as netguard itself reads
//! it, never from an order; the serving user cannot change that file, nor the folder in which
//! netguard records its changes. Pinned programs and maps outlive both processes: packets of known
//! flows are still steered while either restarts.

#![forbid(unsafe_code)]

mod dispatch;
mod error;
mod handoff;
mod limits;
mod linger;
mod look;
mod node;
mod orders;
mod pid_file;
mod plan;

use std::path::Path;

use skep_config::Config;
use skep_guard::{
    HandoffListener, Listener, Serve, User, UserError, Visit, confine, privileges, trust,
};
use skep_netif::Netif;
use skep_peer::RealtimePriority;
use skep_wire::guard::{MachineState, Order, OrderReply, Side};

use dispatch::DispatchSide;
pub use error::NetguardError;
use handoff::HandoffThread;
use limits::SILENCE_MAX;
pub use linger::Leash;
use node::NodeSide;
use pid_file::PidFile;
pub use plan::{NetguardPlan, handoff_socket_of, socket_of};

/// Executes the orders of a serving process, within its plan.
pub struct Netguard {
    plan: NetguardPlan,
    /// The socket for orders, until it is used.
    listener: Option<Listener>,
    /// Written when the socket is created.
    pid_file: Option<PidFile>,
    netif: Netif,
    dispatch: Option<DispatchSide>,
    node: Option<NodeSide>,
    /// Executes the orders of handoffs.
    handoffs: Option<HandoffThread>,
    /// The sides of which nothing was on this machine before this netguard's orders.
    is_fresh: Fresh,
    messages_dropped: Box<dyn Fn() -> u64>,
}

/// Ends the process, for the reason given.
pub type Fail = fn(&str);

#[derive(Default)]
struct Fresh {
    dispatch: bool,
    node: bool,
}

impl Netguard {
    /// The netguard of the process `name` in `config`, which was read from `file`, on whose path is no link; takes no orders.
    /// Needs root, and then keeps only the privileges that [`privileges::NETGUARD`] lists.
    pub fn new(config: &Config, file: &Path, name: &str) -> Result<Self, NetguardError> {
        let plan = NetguardPlan::of(config, name)?;
        skep_datapath::prepare()?;
        check_files(config, file)?;
        Self::unprivileged(plan, None)
    }

    /// The same at its socket, where it takes orders from processes of the serving user, of its own
    /// user and of root. `fail` ends the process; it is called by a thread without which netguard must not go
    /// on.
    pub fn at_socket(
        config: &Config,
        file: &Path,
        name: &str,
        fail: Fail,
    ) -> Result<Self, NetguardError> {
        let plan = NetguardPlan::of(config, name)?;
        skep_datapath::prepare()?;
        let server = check_files(config, file)?;
        let path = socket_of(config, name);
        let users = [Some(0), Some(plan::own_user()), server.as_ref().map(|it| it.uid)];
        let group = server.map(|it| it.gid).filter(|gid| plan::may_give_to(*gid));
        let users: Vec<u32> = users.into_iter().flatten().collect();
        let listener = Listener::bind(&path, users.clone(), group)
            .map_err(|error| NetguardError::Socket { path, error })?;
        let bind = |path: &Path| {
            HandoffListener::bind(path, users, group)
                .map_err(|error| NetguardError::Socket { path: path.to_owned(), error })
        };
        let handoffs = plan.handoffs.as_ref().map(|it| bind(&it.socket)).transpose()?;
        let pid_file = PidFile::write(&plan.pid_file);
        let handoffs = plan.handoffs.clone().zip(handoffs);
        // Connections are frozen while this thread has orders.
        let raised = handoffs.is_some().then(RealtimePriority::try_new).flatten();
        let mut netguard = Self::unprivileged(plan, Some((listener, pid_file)))?;
        if let Some(raised) = raised {
            raised.keep(1).map_err(NetguardError::Thread)?;
        }
        if let Some((plan, listener)) = handoffs {
            netguard.handoffs = Some(HandoffThread::start(plan, listener, fail)?);
        }
        Ok(netguard)
    }

    fn unprivileged(
        plan: NetguardPlan,
        place: Option<(Listener, PidFile)>,
    ) -> Result<Self, NetguardError> {
        privileges::keep_only(plan.kept()).map_err(NetguardError::Privileges)?;
        if let Err(error) = confine::deny_calls(confine::Bpf::Allowed) {
            tracing::warn!(%error, "system calls are not restricted");
        }
        let (listener, pid_file) = place.unzip();
        Ok(Self {
            plan,
            listener,
            pid_file,
            netif: Netif::open()?,
            dispatch: None,
            node: None,
            handoffs: None,
            is_fresh: Fresh::default(),
            messages_dropped: Box::new(|| 0),
        })
    }

    /// Sets the function that returns how many messages were not logged.
    pub fn count_dropped_messages(&mut self, count: impl Fn() -> u64 + 'static) {
        self.messages_dropped = Box::new(count);
    }

    /// Accepts orders until the socket fails; returns at once without a socket.
    pub fn listen(mut self) -> Result<(), NetguardError> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        loop {
            let visit = listener.accept(SILENCE_MAX).map_err(|error| NetguardError::Socket {
                path: listener.path().to_owned(),
                error,
            })?;
            match visit {
                Some(visit) => self.serve(visit),
                None => self.release_if_abandoned(),
            }
        }
    }

    fn serve(&mut self, visit: Visit) {
        if let Err(error) = visit.serve(SILENCE_MAX, self) {
            tracing::warn!(%error, "the serving process disconnected during an order");
        }
    }

    /// Removes everything that this or an earlier netguard has left on the machine.
    pub fn clear(&mut self) -> Result<(), NetguardError> {
        // Left by a killed netguard. A lingering one ends once the addresses are gone.
        let _ = std::fs::remove_file(&self.plan.pid_file);
        self.close(Side::Dispatch)?;
        self.close(Side::Node)
    }

    fn try_perform(&mut self, order: Order) -> Result<OrderReply, NetguardError> {
        match order {
            Order::Open(Side::Dispatch) => {
                self.is_fresh.dispatch = !dispatch::is_here(&self.plan);
                let side = DispatchSide::open(&self.plan, &mut self.netif)?;
                let opened = side.opened().clone();
                self.dispatch = Some(side);
                Ok(OrderReply::Opened(opened))
            }
            Order::Open(Side::Node) => {
                let side = NodeSide::open(&self.plan, &mut self.netif)?;
                if let Some(handoffs) = &self.handoffs {
                    handoffs.set_moves(Some(side.moves()?))?;
                }
                let opened = side.opened().clone();
                self.node = Some(side);
                Ok(OrderReply::Opened(opened))
            }
            Order::Abort => self.abort().map(|()| OrderReply::Done),
            Order::Hold => self.hold().map(|()| OrderReply::Done),
            Order::Settings(Side::Node, _)
            | Order::Services(Side::Node, _)
            | Order::Rows { side: Side::Node, .. }
            | Order::Nodes(Side::Node, _)
            | Order::Steerers(Side::Node, _)
            | Order::Counters(Side::Node)
            | Order::Look { side: Side::Node, .. }
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

    /// Releases the virtual addresses of a dead or stopped dispatcher once another machine has them:
    /// until then it is better that packets are steered by the last table than not at all.
    fn release_if_abandoned(&mut self) {
        if let Err(error) = self.release_abandoned() {
            tracing::error!(%error, "cannot release the virtual addresses of a silent dispatcher");
        }
    }

    fn release_abandoned(&mut self) -> Result<(), NetguardError> {
        if !self.plan.has_other_dispatcher || !dispatch::is_here(&self.plan) {
            return Ok(());
        }
        let are_elsewhere = dispatch::are_elsewhere(&self.plan, &mut self.netif)?;
        // A new dispatcher with this name may have claimed them meanwhile.
        if !are_elsewhere || self.is_replaced() {
            return Ok(());
        }
        if let Some(side) = &mut self.dispatch {
            side.forget_addresses();
        }
        if dispatch::release(&self.plan, &mut self.netif)? {
            tracing::warn!(
                "no order of the dispatcher for {} s: its virtual addresses are released, as \
                 another machine has them; packets that still arrive are steered by the last table",
                SILENCE_MAX.as_secs()
            );
        }
        Ok(())
    }

    fn is_replaced(&self) -> bool {
        self.pid_file.as_ref().is_some_and(PidFile::is_replaced)
    }

    /// Removes what this netguard's orders have put on the machine; what an earlier process left stays,
    /// since packets may be steered by it.
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
        // Not cleared if an earlier order of this process has already put something here.
        self.is_fresh.node |= !node::is_here(&self.plan);
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
                if let Some(handoffs) = &self.handoffs {
                    handoffs.set_moves(None)?;
                }
                node::close(&self.plan, &mut self.netif)
            }
        }
    }
}

impl Serve for Netguard {
    fn perform(&mut self, order: Order) -> OrderReply {
        match self.try_perform(order) {
            Ok(OrderReply::Machine(state)) => {
                let messages_dropped = (self.messages_dropped)();
                OrderReply::Machine(MachineState { messages_dropped, ..state })
            }
            Ok(answer) => answer,
            Err(error) => OrderReply::Refused(error.to_string()),
        }
    }

    fn silent(&mut self) {
        self.release_if_abandoned();
    }
}

/// The user that serves by this config, if this machine has one: whom the config has to be kept from.
pub fn serving_user(config: &Config) -> Result<Option<User>, UserError> {
    match User::find(config.machine.user.as_deref(), &config.machine.groups) {
        // Where nobody is named nobody has to be there.
        Err(UserError::NobodyAtAll) => Ok(None),
        server => server.map(Some),
    }
}

/// Makes netguard's folder, and checks that the serving user can change neither it nor the config.
/// Returns that user, if this machine has one.
fn check_files(config: &Config, file: &Path) -> Result<Option<User>, NetguardError> {
    trust::make_own_folder("netguard's folder (direct.guard_dir)", &config.direct.guard_dir)?;
    let Some(server) = serving_user(config)? else { return Ok(None) };
    trust::check_unchangeable("the config", file, &server)?;
    if server.uid == plan::own_user() {
        tracing::warn!(user = server.name, "netguard and skep run as the same user: no protection");
    }
    Ok(Some(server))
}
