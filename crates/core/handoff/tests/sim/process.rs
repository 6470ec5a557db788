//! A serving process: its cores, and its state about netguard and other machines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use skep_handoff::{Donor, MovedReports, OfferKey, Receiver};
use skep_wire::handoff::{HandoffId, HandoffInfo};

use crate::kernel::{Flow, Id};
use crate::netguard::{Asker, Order};

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) is_up: bool,
    /// Its incarnation.
    pub(crate) start: u64,
    pub(crate) paused_until: u64,
    pub(crate) donor: Donor,
    pub(crate) receiver: Receiver,
    pub(crate) reports: MovedReports,
    /// Orders whose result is pending.
    pub(crate) outstanding: VecDeque<(u64, Asker, Order)>,
    /// Connections in its event loop.
    pub(crate) serving: BTreeSet<Flow>,
    /// The incarnations of other machines that it echoes, and those that it has received.
    pub(crate) known: Vec<u64>,
    pub(crate) heard: Vec<u64>,
    /// Moves away in progress: the target, and since when.
    pub(crate) moving: BTreeMap<HandoffId, (Flow, Id, u64)>,
    /// When each offer was first sent.
    pub(crate) offered_at: BTreeMap<HandoffId, u64>,
    pub(crate) created: BTreeMap<OfferKey, HandoffInfo>,
    /// Moves to this machine for which it has sent READY.
    pub(crate) ready: BTreeSet<OfferKey>,
    /// Moves to this machine that it has refused, or otherwise declined.
    pub(crate) declined: BTreeSet<OfferKey>,
    /// Moves to this machine whose connection it has closed or reset.
    pub(crate) let_go: BTreeSet<OfferKey>,
    pub(crate) tick_at: Option<u64>,
}

impl Process {
    pub(crate) fn new(start: u64, ready_ms: u64, machines: usize) -> Self {
        Self {
            is_up: true,
            start,
            paused_until: 0,
            donor: Donor::new(ready_ms, start),
            receiver: Receiver::new(ready_ms),
            reports: MovedReports::new(start),
            outstanding: VecDeque::new(),
            serving: BTreeSet::new(),
            known: vec![0; machines],
            heard: vec![0; machines],
            moving: BTreeMap::new(),
            offered_at: BTreeMap::new(),
            created: BTreeMap::new(),
            ready: BTreeSet::new(),
            declined: BTreeSet::new(),
            let_go: BTreeSet::new(),
            tick_at: None,
        }
    }
}
