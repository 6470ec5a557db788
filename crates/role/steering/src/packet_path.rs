//! A dispatcher's packet path: executes the steps of the reconciler by orders to netguard.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use skep_cluster::failover::Failover;
use skep_cluster::reconciler::{Drift, Reconciler, Step, Wants};
use skep_guard::{Applier, Guard, GuardError};
use skep_units::Now;
use skep_wire::guard::{MachineState, Order, ProgramSettings, Side};
use skep_wire::steer::Network;
use skep_wire::table::{Table, TableService, TableVersion};

use crate::limits::CLAIM_PATIENCE_MS;
use crate::plan::is_weighted;

/// The desired state of the packet path: written by the event loop and by reloads, read by the
/// executor.
#[derive(Debug)]
pub(crate) struct Desired {
    wants: Mutex<Wants>,
    setup: Mutex<Setup>,
}

/// The settings of the packet program, set when it is attached and by a reload.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) settings: ProgramSettings,
    /// Networks that are admitted.
    pub(crate) allow: Vec<Network>,
    /// Networks that are not admitted.
    pub(crate) deny: Vec<Network>,
}

/// The state of the packet path that the event loop needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathState {
    /// The table by which packets are steered.
    pub(crate) applied: TableVersion,
    pub(crate) has_addresses: bool,
    /// The desired state cannot be reached.
    pub(crate) is_hindered: bool,
}

pub(crate) struct PacketPath {
    guard: Arc<Guard>,
    own_mac: [u8; 6],
    /// Addresses of the services in the config of this process; netguard accepts no others.
    addresses: Vec<SocketAddr>,
    applier: Applier,
    desired: Arc<Desired>,
    reconciler: Reconciler,
}

/// The event loop's side of [`Desired`].
#[derive(Debug)]
pub(crate) struct PathWishes {
    wants: Wants,
    desired: Arc<Desired>,
    keeps_addresses: bool,
}

impl PathWishes {
    pub(crate) fn new(desired: Arc<Desired>) -> Self {
        Self { wants: Wants::default(), desired, keeps_addresses: false }
    }

    /// Sets the desired addresses as failover decides. Returns whether the executor must be woken.
    pub(crate) fn follow(&mut self, now: Now, failover: &Failover) -> bool {
        self.wants.follow(now, failover);
        if self.keeps_addresses {
            self.wants.addresses = None;
        }
        self.tell()
    }

    /// Leaves the addresses as they are from now on, whatever failover decides.
    pub(crate) fn keep_addresses(&mut self) {
        self.keeps_addresses = true;
    }

    /// Sets `table` as the desired table. Returns whether the executor must be woken.
    pub(crate) fn steer_by(&mut self, table: Arc<Table>) -> bool {
        self.wants.table = Some(table);
        self.tell()
    }

    /// Requests an announcement of the addresses. Returns whether the executor must be woken.
    pub(crate) fn announce(&mut self) -> bool {
        self.wants.announcements += 1;
        self.tell()
    }

    /// Publishes the desired state; if the executor is reading it at this moment, the next tick
    /// tries again. Returns whether it differs from the last one in more than the time.
    fn tell(&self) -> bool {
        let mut last = match self.desired.wants.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(last)) => last.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let is_news = !last.is_same(&self.wants);
        *last = self.wants.clone();
        is_news
    }

    /// Publishes the last desired state, waiting for the executor if it is reading.
    pub(crate) fn finish(&self) {
        *lock(&self.desired.wants) = self.wants.clone();
    }
}

impl Desired {
    pub(crate) fn new(setup: Setup) -> Self {
        Self { wants: Mutex::default(), setup: Mutex::new(setup) }
    }

    /// Sends another setup to the packet program. A setup that netguard refuses is discarded.
    pub(crate) fn set_up(&self, guard: &Guard, setup: Setup) -> Result<(), GuardError> {
        // Held until netguard has the setup: another thread must not send an earlier one after it.
        let mut now = lock(&self.setup);
        setup.tell(guard)?;
        *now = setup;
        Ok(())
    }

    fn tell_setup(&self, guard: &Guard) -> Result<(), GuardError> {
        lock(&self.setup).tell(guard)
    }
}

impl Setup {
    pub(crate) fn tell(&self, guard: &Guard) -> Result<(), GuardError> {
        guard.ask(&Order::Settings(Side::Dispatch, self.settings))?;
        let (allow, deny) = (self.allow.clone(), self.deny.clone());
        guard.ask(&Order::Networks { allow, deny }).map(drop)
    }
}

impl PacketPath {
    /// The path of a packet program that was just attached and set up.
    pub(crate) fn new(
        guard: &Arc<Guard>,
        own_mac: [u8; 6],
        addresses: Vec<SocketAddr>,
        desired: &Arc<Desired>,
    ) -> Self {
        let applier = applier(guard, own_mac);
        let (guard, desired) = (Arc::clone(guard), Arc::clone(desired));
        let reconciler = Reconciler::new(CLAIM_PATIENCE_MS);
        Self { guard, own_mac, addresses, applier, desired, reconciler }
    }

    /// Executes the next step, if any is due.
    pub(crate) fn step(&mut self, now: Now) -> Option<Result<(), GuardError>> {
        self.reconciler.want(lock(&self.desired.wants).clone());
        let step = self.reconciler.next(now)?;
        let done = self.execute(&step);
        let result = done.as_ref().map(drop).map_err(ToString::to_string);
        self.reconciler.done(now, &step, result);
        Some(done)
    }

    /// Handles the state of this machine: changes by others are repaired by the next steps.
    pub(crate) fn found(&mut self, looked: &MachineState) -> Vec<Drift> {
        looked.changed_maps.iter().for_each(|changed| self.applier.forget(changed.map));
        self.reconciler.found(looked)
    }

    pub(crate) fn state(&self) -> PathState {
        PathState {
            applied: self.reconciler.applied().unwrap_or_default(),
            has_addresses: self.reconciler.has_addresses(),
            is_hindered: self.reconciler.is_hindered(),
        }
    }

    /// Why the desired state is not reached, as sentences.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.reconciler.failures().map(str::to_owned).collect()
    }

    fn execute(&mut self, step: &Step) -> Result<(), GuardError> {
        match step {
            Step::Attach => self.attach(),
            Step::Claim => self.ask(&Order::Claim),
            Step::Release => self.ask(&Order::Release),
            Step::Announce => self.ask(&Order::Announce),
            Step::SetUp => self.desired.tell_setup(&self.guard),
            Step::Apply(table) => self.applier.apply(&part_of(table, &self.addresses)),
        }
    }

    fn attach(&mut self) -> Result<(), GuardError> {
        skep_guard::open_again(&self.guard, Side::Dispatch, self.own_mac)?;
        self.applier = applier(&self.guard, self.own_mac);
        self.desired.tell_setup(&self.guard)
    }

    fn ask(&self, order: &Order) -> Result<(), GuardError> {
        self.guard.ask(order).map(drop)
    }
}

/// The part of the table with services at these addresses: in a rolling restart a table may have
/// others.
fn part_of<'a>(table: &'a Table, addresses: &[SocketAddr]) -> Cow<'a, Table> {
    let is_known = |service: &TableService| addresses.contains(&service.service.address);
    if table.services.iter().all(is_known) {
        return Cow::Borrowed(table);
    }
    let mut part = table.clone();
    part.services.retain(is_known);
    Cow::Owned(part)
}

fn applier(guard: &Arc<Guard>, own_mac: [u8; 6]) -> Applier {
    Applier::new(Arc::clone(guard), Side::Dispatch, own_mac, is_weighted)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
