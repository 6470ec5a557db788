//! The map `moves` of the node's program: connections that are being handed off or were handed off.
//!
//! A handle separate from [`crate::NodeProgram`], so that a thread of its own can use it. It has no lock: one
//! thread changes the map, the program reads it.
//!
//! **Invariants:** every change is one update of one entry, so a packet meets the state before or after it.
//! Only a blocked connection is redirected: while it was not blocked, packets may have reached the kernel.
//! The map is pinned, so a restarted netguard finds the connections unchanged.

use std::os::fd::AsFd;
use std::time::Duration;

use aya::maps::{HashMap, IterableMap, Map, MapData, MapError};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use skep_wire::handoff::SocketId;
use skep_wire::steer::{NO_NODE, NODES_MAX, NodeIndex};

use crate::limits::MOVES_MAX;
use crate::sys::MapPlace;
use crate::tables::check;
use crate::{DatapathError, PinPath, abi, sys};

#[derive(Debug)]
pub struct Moves {
    map: HashMap<MapData, abi::MoveKey, abi::Move>,
    /// Where the next search by [`Moves::make_room`] begins.
    looked_up_to: MapPlace,
}

/// What the node's program does with a connection's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveState {
    /// They are dropped.
    Blocked,
    /// They are forwarded to this node.
    Redirected(NodeIndex),
}

/// The numbers of entries that [`Moves::expire`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiredMoves {
    pub blocked: usize,
    pub redirected: usize,
}

const MAP: &str = "moves";

/// `BPF_EXIST`: update only an existing entry.
const EXIST: u64 = 2;

impl Moves {
    /// Opens the map of a program whose pins are at `place`.
    pub(crate) fn pinned(place: &PinPath) -> Result<Self, DatapathError> {
        let data = MapData::from_pin(place.pins.join(MAP)).map_err(DatapathError::map(MAP))?;
        let map = Map::from_map_data(data).and_then(HashMap::try_from);
        let map = map.map_err(DatapathError::map(MAP))?;
        Ok(Self { map, looked_up_to: MapPlace::default() })
    }

    /// Returns the state of a connection; `None` if its packets are treated as all others.
    pub fn state(&self, id: SocketId) -> Result<Option<MoveState>, DatapathError> {
        Ok(self.entry(id.into())?.map(|entry| match entry.state {
            abi::MOVE_REDIRECT => MoveState::Redirected(entry.node),
            _ => MoveState::Blocked,
        }))
    }

    /// Drops packets of the connection from now on, even if it is redirected, until [`Self::forget`].
    ///
    /// # Errors
    /// [`DatapathError::TooManyMoves`] if there is no room.
    pub fn block(&mut self, id: SocketId) -> Result<(), DatapathError> {
        let key = id.into();
        let node = self.entry(key)?.map_or(NO_NODE, |entry| entry.node);
        self.write(key, abi::MOVE_BLOCKED, node, 0).map_err(|error| match errno_of(&error) {
            Some(Errno::TOOBIG | Errno::NOMEM) => DatapathError::TooManyMoves { limit: MOVES_MAX },
            _ => DatapathError::map(MAP)(error),
        })
    }

    /// Redirects the packets of a blocked connection to `node`. Succeeds if they are redirected there
    /// already.
    ///
    /// # Errors
    /// [`DatapathError::NotBlocked`] if the connection is not blocked.
    pub fn redirect(&mut self, id: SocketId, node: NodeIndex) -> Result<(), DatapathError> {
        check("place of a node", node, 0, NODES_MAX as u64 - 1)?;
        let written = match self.state(id)? {
            Some(MoveState::Redirected(before)) if before == node => Ok(()),
            Some(MoveState::Blocked) => self.write(id.into(), abi::MOVE_REDIRECT, node, EXIST),
            _ => return Err(DatapathError::NotBlocked(id)),
        };
        written.map_err(DatapathError::map(MAP))
    }

    /// The connection is at this node: its packets are treated as all others. Succeeds if they are already.
    pub fn release(&mut self, id: SocketId) -> Result<(), DatapathError> {
        self.remove(id.into())
    }

    /// The connection did not move to this node: if it is blocked, the state before [`Self::block`] is
    /// restored: redirected or without an entry.
    pub fn forget(&mut self, id: SocketId) -> Result<(), DatapathError> {
        let key = id.into();
        match self.entry(key)? {
            Some(entry) if entry.state == abi::MOVE_BLOCKED => self.unblock(key, entry),
            _ => Ok(()),
        }
    }

    /// Returns the blocked connections.
    pub fn blocked(&self) -> Result<Vec<SocketId>, DatapathError> {
        let mut blocked = Vec::new();
        self.each(|key, entry| {
            if entry.state == abi::MOVE_BLOCKED {
                blocked.push(key.into());
            }
        })?;
        Ok(blocked)
    }

    /// Removes connections that have been blocked for `blocked_max`, and redirected ones whose last packet
    /// arrived `idle_max` ago or earlier.
    pub fn expire(
        &mut self,
        blocked_max: Duration,
        idle_max: Duration,
    ) -> Result<ExpiredMoves, DatapathError> {
        let (now_ns, mut old) = (now_ns(), Vec::new());
        self.each(|key, entry| {
            let is_blocked = entry.state == abi::MOVE_BLOCKED;
            if age(now_ns, entry) >= if is_blocked { blocked_max } else { idle_max } {
                old.push((key, is_blocked));
            }
        })?;
        for (key, _) in &old {
            self.remove(*key)?;
        }
        let blocked = old.iter().filter(|(_, is_blocked)| *is_blocked).count();
        Ok(ExpiredMoves { blocked, redirected: old.len() - blocked })
    }

    /// Examines about `looked` connections, each time the next ones, and removes at most `count` redirected
    /// ones of them: those whose last packet is the oldest, provided that it is older than `idle_min`.
    /// Returns the number removed.
    ///
    /// The position of an entry in the map does not depend on its age: the oldest eighth of a sample is about
    /// as old as the oldest eighth of all, and the time taken is proportional to the sample.
    pub fn make_room(
        &mut self,
        looked: usize,
        count: usize,
        idle_min: Duration,
    ) -> Result<usize, DatapathError> {
        let (now_ns, mut idle) = (now_ns(), Vec::new());
        let note = |key, entry: abi::Move| {
            if entry.state == abi::MOVE_REDIRECT && age(now_ns, entry) >= idle_min {
                idle.push((entry.used_ns, key));
            }
        };
        sys::each_behind(self.map.map().fd().as_fd(), &mut self.looked_up_to, looked, note)
            .map_err(DatapathError::map_io(MAP))?;
        if idle.len() > count {
            idle.select_nth_unstable_by_key(count, |(used_ns, _)| *used_ns);
            idle.truncate(count);
        }
        for (_, key) in &idle {
            self.remove(*key)?;
        }
        Ok(idle.len())
    }

    /// Restores the entry that the connection had before it was blocked.
    fn unblock(&mut self, key: abi::MoveKey, blocked: abi::Move) -> Result<(), DatapathError> {
        if blocked.node == NO_NODE {
            return self.remove(key);
        }
        let written = self.write(key, abi::MOVE_REDIRECT, blocked.node, EXIST);
        written.map_err(DatapathError::map(MAP))
    }

    fn entry(&self, key: abi::MoveKey) -> Result<Option<abi::Move>, DatapathError> {
        match self.map.get(&key, 0) {
            Ok(entry) => Ok(Some(entry)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(DatapathError::map(MAP)(error)),
        }
    }

    fn write(
        &mut self,
        key: abi::MoveKey,
        state: u16,
        node: u16,
        flags: u64,
    ) -> Result<(), MapError> {
        let entry = abi::Move { state, node, zero: 0, used_ns: now_ns() };
        self.map.insert(key, entry, flags)
    }

    fn remove(&mut self, key: abi::MoveKey) -> Result<(), DatapathError> {
        sys::delete(self.map.map().fd().as_fd(), &key).map_err(DatapathError::map_io(MAP))
    }

    fn each(&self, show: impl FnMut(abi::MoveKey, abi::Move)) -> Result<(), DatapathError> {
        sys::each(self.map.map().fd().as_fd(), show).map_err(DatapathError::map_io(MAP))
    }
}

/// Returns the current time by the program's clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The program reads the time of the last tick, which may be behind.
fn age(now_ns: u64, entry: abi::Move) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(entry.used_ns))
}

fn errno_of(error: &MapError) -> Option<Errno> {
    match error {
        MapError::SyscallError(error) => Errno::from_io_error(&error.io_error),
        MapError::IoError(error) => Errno::from_io_error(error),
        _ => None,
    }
}
