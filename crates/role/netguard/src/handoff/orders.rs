//! What each order of a handoff does.
//!
//! **Invariants:** only connections of the config's services are changed, and only descriptors that are
//! their sockets. A donor's socket is deafened before its connection is blocked, and blocked before it enters
//! repair mode; the way back is the reverse. A started socket owns the connection: an order to start a socket
//! of a redirected connection is refused.
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
    /// The packet program's map of moves, while a program is loaded.
    moves: Option<Moves>,
    /// Receives the maps of newly loaded programs.
    incoming: Receiver<Option<Moves>>,
    /// Closed to end the thread.
    end: PipeReader,
    switch: SocketSwitch,
    held: HeldConnections,
    held_max: usize,
    swept_at: Instant,
    /// When the examined entries of the full map last contained none that could be removed.
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
    /// Creates the state without a packet program.
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

    /// Returns the address of one side of this machine.
    fn own(&self, side: Side) -> Outcome<IpAddr> {
        let (own, what) = match side {
            Side::Node => (self.plan.of_node, "node"),
            Side::Dispatch => (self.plan.of_dispatcher, "dispatch"),
        };
        own.ok_or_else(|| NetguardError::NotOpen(what).into())
    }

    /// Returns `id` if it is a connection to one of the config's addresses.
    fn known(&self, id: SocketId) -> Outcome<SocketId> {
        if !self.plan.addresses.contains(&id.server) {
            return Err(NetguardError::ForeignAddress(id.server).into());
        }
        // Each connection has only one valid `SocketId`.
        let is_plain = SocketId::new(id.client, id.server) == Some(id);
        if is_plain { Ok(id) } else { Err(Refusal::OtherFamily) }
    }

    fn moves(&mut self) -> Outcome<&mut Moves> {
        self.moves.as_mut().ok_or_else(|| NetguardError::NotOpen("node").into())
    }

    /// Ends the connections blocked by an earlier netguard, whose clients have ended with it.
    fn forget_orphans(&mut self) -> Outcome {
        // Without the map it is unknown what is blocked.
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

    /// Blocks the connection and sets repair mode: both or neither.
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

    /// Drops the duplicate of a redirected connection's socket; in repair mode it closes silently.
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

    /// Creates the socket again. Until it exists, no socket of this connection can be reset: if the
    /// process dies now, the client receives an RST only in reply to its next packet.
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
        // Done first: the socket is complete, and the answer to the probe may arrive immediately.
        self.switch.hear(fd)?;
        self.moves()?.release(id)?;
        self.switch.start(fd)?;
        self.held.remove(id);
        Ok(HandoffResult::Done)
    }

    fn reset(&mut self, id: SocketId, fd: BorrowedFd<'_>) -> Outcome {
        check_any_state(fd, id)?;
        self.switch.reset(fd)?;
        // A redirect would lead nowhere, too, and is released as well.
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

    /// Blocks a connection; if redirects have filled the map, removes old ones first.
    fn block(&mut self, id: SocketId) -> Outcome<()> {
        match self.moves()?.block(id) {
            Err(DatapathError::TooManyMoves { .. }) if self.make_room()? => {
                Ok(self.moves()?.block(id)?)
            }
            blocked => Ok(blocked?),
        }
    }

    /// Tries to remove old redirects; returns whether there is room now.
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

    /// Ends a handoff whose process is gone: resets the donor's connection. The map entry from before the
    /// connection was blocked is not restored: it may lead to the donor, whose own entry may lead here.
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

    /// Ends all handoffs, as nothing will thaw the connections after this thread.
    fn end_all(&mut self) {
        for (id, held) in self.held.take_all() {
            self.end(id, held);
        }
    }

    /// Takes over newly loaded programs. Returns whether the thread continues.
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

    /// Finds connections that an earlier netguard blocked.
    fn find_orphans(&mut self) {
        let Some(moves) = &self.moves else { return };
        match moves.blocked() {
            Ok(blocked) => {
                blocked.into_iter().for_each(|id| self.held.insert_orphan(id));
            }
            Err(error) => tracing::warn!(%error, "cannot unblock connections yet"),
        }
    }

    /// Removes entries of the map that are no longer needed.
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
