//! What each order of a handoff does.
//!
//! **Invariants:** only connections of the config's services are touched, and only descriptors that are
//! their sockets. A donor's socket is deaf before its connection is blocked, and blocked before it is in repair
//! mode; the way back is the reverse. A socket that is started has the connection: an order that would start
//! one of a connection that is redirected is refused.

use std::io::PipeReader;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use skep_datapath::{
    DatapathError, MoveState, Moves, SocketError, SocketSwitch, check_any_state, check_socket,
    control_socket, is_in_repair,
};
use skep_guard::{ClientNumber, ServeHandoffs};
use skep_wire::guard::Side;
use skep_wire::handoff::SocketId;
use skep_wire::handoff::guard::{HandoffOrder, HandoffResult};

use super::HandoffPlan;
use super::held::{HeldConnection, HeldConnections};
use crate::error::NetguardError;
use crate::limits::{
    BLOCKED_MS_MAX, HANDOFF_LOOK, HANDOFF_LOOK_IDLE, IDLE_MOVE_MS, IDLE_MOVE_MS_MIN, MOVES_LOOK,
    ROOM_LOOKED, ROOM_MOVES, ROOM_MS,
};

/// Executes orders.
pub(crate) struct Handoffs {
    plan: HandoffPlan,
    /// Of the packet program, while there is one.
    moves: Option<Moves>,
    /// Other programs.
    incoming: Receiver<Option<Moves>>,
    /// Closed at the end.
    end: PipeReader,
    switch: SocketSwitch,
    held: HeldConnections,
    held_max: usize,
    swept_at: Instant,
    /// When what was looked at of the full map had nothing that could go.
    found_full_at: Option<Instant>,
}

/// Why an order is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Datapath(#[from] DatapathError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Netguard(#[from] NetguardError),
    #[error("the order has no descriptor")]
    NoDescriptor,
    #[error("{0} connections are being handed off already")]
    TooMany(usize),
    #[error("the client is of another version of IP than the service")]
    OtherFamily,
    #[error("the connection is redirected: another node has it")]
    Redirected,
    #[error("the connection is here already")]
    Here,
    #[error("the connection is frozen here: thaw or reset it")]
    Frozen,
}

type Outcome<T = HandoffResult> = Result<T, Refusal>;

impl Handoffs {
    /// Of no program yet.
    pub(crate) fn new(
        plan: HandoffPlan,
        incoming: Receiver<Option<Moves>>,
        end: PipeReader,
        held_max: usize,
    ) -> Result<Self, NetguardError> {
        Ok(Self {
            plan,
            moves: None,
            incoming,
            end,
            switch: SocketSwitch::new()?,
            held: HeldConnections::default(),
            held_max,
            swept_at: Instant::now(),
            found_full_at: None,
        })
    }

    fn try_perform(
        &mut self,
        client: ClientNumber,
        order: HandoffOrder,
        descriptor: Option<OwnedFd>,
    ) -> Outcome<(HandoffResult, Option<OwnedFd>)> {
        let own = || descriptor.as_ref().map(AsFd::as_fd).ok_or(Refusal::NoDescriptor);
        let result = match order {
            HandoffOrder::Create(id) => return self.create(client, self.known(id)?),
            HandoffOrder::Recreate(id) => return self.recreate(client, self.known(id)?),
            HandoffOrder::OpenControlSocket(side) => {
                let own = self.own(side)?;
                return Ok((HandoffResult::Created, Some(control_socket(own)?)));
            }
            HandoffOrder::ForgetOrphans => self.forget_orphans(),
            HandoffOrder::Freeze(id) => {
                let own = descriptor.ok_or(Refusal::NoDescriptor)?;
                self.freeze(client, self.known(id)?, own)
            }
            HandoffOrder::Thaw(id) => self.thaw(self.known(id)?, own()?),
            HandoffOrder::Redirect(id, node) => {
                let id = self.known(id)?;
                self.moves()?.redirect(id, node)?;
                Ok(HandoffResult::Done)
            }
            HandoffOrder::Release(id) => self.release(self.known(id)?),
            HandoffOrder::Start(id) => self.start(self.known(id)?, own()?),
            HandoffOrder::Reset(id) => self.reset(self.known(id)?, own()?),
            HandoffOrder::Forget(id) => self.forget(self.known(id)?),
        };
        result.map(|result| (result, None))
    }

    /// The address of a part of this machine.
    fn own(&self, side: Side) -> Outcome<IpAddr> {
        let (own, what) = match side {
            Side::Node => (self.plan.of_node, "node"),
            Side::Dispatch => (self.plan.of_dispatcher, "dispatch"),
        };
        own.ok_or_else(|| NetguardError::NotOpen(what).into())
    }

    /// A connection to one of the config's addresses.
    fn known(&self, id: SocketId) -> Outcome<SocketId> {
        if !self.plan.addresses.contains(&id.server) {
            return Err(NetguardError::ForeignAddress(id.server).into());
        }
        // By no second name.
        let is_plain = SocketId::new(id.client, id.server) == Some(id);
        if is_plain { Ok(id) } else { Err(Refusal::OtherFamily) }
    }

    fn moves(&mut self) -> Outcome<&mut Moves> {
        self.moves.as_mut().ok_or_else(|| NetguardError::NotOpen("node").into())
    }

    /// After an earlier netguard, whose clients have ended with it.
    fn forget_orphans(&mut self) -> Outcome {
        // Before, it is not known what is blocked.
        self.moves()?;
        for (id, held) in self.held.take_orphans() {
            self.end(id, held);
        }
        Ok(HandoffResult::Done)
    }

    fn freeze(&mut self, client: ClientNumber, id: SocketId, socket: OwnedFd) -> Outcome {
        let fd = socket.as_fd();
        check_socket(fd, id)?;
        self.check_room(id)?;
        self.switch.deafen(fd)?;
        let frozen = self.block_and_repair(id, fd);
        if frozen.is_err() {
            self.switch.hear(fd)?;
        } else {
            self.held.insert(id, client, Some(socket));
        }
        frozen
    }

    /// Both or neither.
    fn block_and_repair(&mut self, id: SocketId, fd: BorrowedFd<'_>) -> Outcome {
        self.block(id)?;
        if let Err(error) = self.switch.repair(fd) {
            self.moves()?.release(id)?;
            return Err(error.into());
        }
        Ok(HandoffResult::Done)
    }

    fn thaw(&mut self, id: SocketId, fd: BorrowedFd<'_>) -> Outcome {
        check_any_state(fd, id)?;
        if self.is_redirected(id)? {
            return Err(Refusal::Redirected);
        }
        if is_in_repair(fd)? {
            self.switch.leave_repair(fd)?;
        }
        self.switch.hear(fd)?;
        self.moves()?.release(id)?;
        self.held.remove(id);
        Ok(HandoffResult::Done)
    }

    /// The duplicate is closed in repair mode: silently.
    fn release(&mut self, id: SocketId) -> Outcome {
        if self.held.has_frozen(id) {
            if !self.is_redirected(id)? {
                return Err(Refusal::Frozen);
            }
            self.held.remove(id);
        }
        Ok(HandoffResult::Done)
    }

    fn create(
        &mut self,
        client: ClientNumber,
        id: SocketId,
    ) -> Outcome<(HandoffResult, Option<OwnedFd>)> {
        self.check_room(id)?;
        if self.held.has_frozen(id) {
            return Err(Refusal::Frozen);
        }
        if self.switch.has_connection(id)? {
            return Err(Refusal::Here);
        }
        self.block(id)?;
        match self.switch.create(id) {
            Ok(socket) => {
                self.held.insert(id, client, None);
                Ok((HandoffResult::Created, Some(socket)))
            }
            Err(error) => {
                self.moves()?.forget(id)?;
                Err(error.into())
            }
        }
    }

    /// Without a socket of this connection none can be reset: if its process dies now, the client gets its RST
    /// with its next packet.
    fn recreate(
        &mut self,
        client: ClientNumber,
        id: SocketId,
    ) -> Outcome<(HandoffResult, Option<OwnedFd>)> {
        if self.is_redirected(id)? {
            return Err(Refusal::Redirected);
        }
        if self.held.has_frozen(id) {
            self.held.insert(id, client, None);
        }
        self.create(client, id)
    }

    fn start(&mut self, id: SocketId, fd: BorrowedFd<'_>) -> Outcome {
        if !is_in_repair(fd)? {
            check_any_state(fd, id)?;
            return Ok(HandoffResult::Done);
        }
        check_socket(fd, id)?;
        if self.held.has_frozen(id) {
            return Err(Refusal::Frozen);
        }
        if self.is_redirected(id)? {
            return Err(Refusal::Redirected);
        }
        // First: the socket is complete, and the answer to the probe may come at once.
        self.switch.hear(fd)?;
        self.moves()?.release(id)?;
        self.switch.start(fd)?;
        self.held.remove(id);
        Ok(HandoffResult::Done)
    }

    fn reset(&mut self, id: SocketId, fd: BorrowedFd<'_>) -> Outcome {
        check_any_state(fd, id)?;
        self.switch.reset(fd)?;
        // A redirect would lead to nobody, too.
        self.moves()?.release(id)?;
        self.held.remove(id);
        Ok(HandoffResult::Done)
    }

    fn forget(&mut self, id: SocketId) -> Outcome {
        if self.held.has_frozen(id) {
            return Err(Refusal::Frozen);
        }
        self.moves()?.forget(id)?;
        self.held.remove(id);
        Ok(HandoffResult::Done)
    }

    /// Where redirects have filled the map, old ones go.
    fn block(&mut self, id: SocketId) -> Outcome<()> {
        match self.moves()?.block(id) {
            Err(DatapathError::TooManyMoves { .. }) if self.make_room()? => {
                Ok(self.moves()?.block(id)?)
            }
            blocked => Ok(blocked?),
        }
    }

    /// Whether there is room now.
    fn make_room(&mut self) -> Outcome<bool> {
        let pause = Duration::from_millis(ROOM_MS);
        if self.found_full_at.is_some_and(|at| at.elapsed() < pause) {
            return Ok(false);
        }
        let idle_min = Duration::from_millis(IDLE_MOVE_MS_MIN);
        let removed = self.moves()?.make_room(ROOM_LOOKED, ROOM_MOVES, idle_min)?;
        tracing::debug!(removed, "the map of moves was full");
        self.found_full_at = (removed == 0).then(Instant::now);
        Ok(removed > 0)
    }

    fn is_redirected(&mut self, id: SocketId) -> Outcome<bool> {
        Ok(matches!(self.moves()?.state(id)?, Some(MoveState::Redirected(_))))
    }

    fn check_room(&self, id: SocketId) -> Outcome<()> {
        let has_room = self.held.len() < self.held_max || self.held.has(id);
        if has_room { Ok(()) } else { Err(Refusal::TooMany(self.held_max)) }
    }

    /// Its process is gone: who had the connection is told that it is lost. What stood in the map before it was
    /// blocked is not put back: it may lead to the donor, which may lead here.
    fn end(&mut self, id: SocketId, held: HeldConnection) {
        if let Err(error) = self.try_end(id, held) {
            tracing::warn!(client = %id.client, server = %id.server, %error, "cannot abort a handoff");
        }
    }

    fn try_end(&mut self, id: SocketId, held: HeldConnection) -> Outcome<()> {
        if let Some(frozen) = &held.frozen {
            self.switch.reset(frozen.as_fd())?;
        }
        match &mut self.moves {
            Some(moves) if moves.state(id)? == Some(MoveState::Blocked) => Ok(moves.release(id)?),
            _ => Ok(()),
        }
    }

    /// Nobody is here to thaw them any more.
    fn end_all(&mut self) {
        for (id, held) in self.held.take_all() {
            self.end(id, held);
        }
    }

    /// Whether the thread goes on.
    fn take_programs(&mut self) -> bool {
        loop {
            match self.incoming.try_recv() {
                Ok(moves) => {
                    self.moves = moves;
                    self.find_orphans();
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Connections that an earlier netguard has blocked.
    fn find_orphans(&mut self) {
        let Some(moves) = &self.moves else { return };
        match moves.blocked() {
            Ok(blocked) => {
                blocked.into_iter().for_each(|id| self.held.insert_orphan(id));
            }
            Err(error) => tracing::warn!(%error, "cannot unblock connections yet"),
        }
    }

    /// Removes entries of the map that nobody needs any more.
    fn sweep(&mut self) {
        if self.swept_at.elapsed() < MOVES_LOOK {
            return;
        }
        self.swept_at = Instant::now();
        let Some(moves) = &mut self.moves else { return };
        let [blocked_max, idle_max] = [BLOCKED_MS_MAX, IDLE_MOVE_MS].map(Duration::from_millis);
        match moves.expire(blocked_max, idle_max) {
            Ok(expired) if expired.blocked > 0 => {
                tracing::warn!(
                    connections = expired.blocked,
                    "unblocked connections that no process owns"
                );
            }
            Ok(expired) => tracing::debug!(?expired, "old moves are forgotten"),
            Err(error) => tracing::warn!(%error, "old moves are not forgotten"),
        }
    }
}

impl ServeHandoffs for Handoffs {
    fn perform(
        &mut self,
        client: ClientNumber,
        order: HandoffOrder,
        descriptor: Option<OwnedFd>,
    ) -> (HandoffResult, Option<OwnedFd>) {
        self.take_programs();
        match self.try_perform(client, order, descriptor) {
            Ok(outcome) => outcome,
            Err(error) => (HandoffResult::Refused(error.to_string()), None),
        }
    }

    fn gone(&mut self, client: ClientNumber) {
        for (id, held) in self.held.take_of(client) {
            self.end(id, held);
        }
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.end.as_fd())
    }

    fn tick(&mut self) -> Option<Duration> {
        if !self.take_programs() {
            self.end_all();
            return None;
        }
        for (id, held) in self.held.take_old() {
            if held.client.is_some() {
                tracing::warn!(client = %id.client, "a handoff did not finish in time: aborted");
            }
            self.end(id, held);
        }
        self.sweep();
        Some(if self.held.is_empty() { HANDOFF_LOOK_IDLE } else { HANDOFF_LOOK })
    }
}
