//! The heads of compressed variants, shared by all workers, and the flights of those that are being made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use skep_segments::{Charge, SegmentStore};
use skep_wire::cache::{PeerRefusal, PurgeStamp, SegmentName};

use crate::backend::head_slots::{HeadSlot, HeadSlots};
use crate::backend::single_flight::{FlightRole, FlightWaiter, Flights, SingleFlight};
use crate::model::object::Compressed;
use crate::model::peer::PeerHead;

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompressionOutcome {
    /// The bytes are in memory, here or on another node.
    Made(Compressed),
    /// It gains nothing; nor will it ever.
    Useless,
    /// Not now: too much is to be done, or there is no memory, or the bytes were not to be had.
    Skipped,
}

#[derive(Debug)]
pub(crate) struct CompressedHeads {
    slots: HeadSlots<CompressedSlot>,
    flights: Arc<Flights<SegmentName, CompressionOutcome>>,
}

#[derive(Debug)]
struct CompressedSlot {
    _charge: Charge,
    outcome: Option<Known>,
    used: AtomicBool,
}

/// What is known under a name.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// And the name of the bytes.
    Made(Compressed, SegmentName),
    Useless,
}

impl HeadSlot for CompressedSlot {
    fn empty(charge: Charge) -> Self {
        Self { _charge: charge, outcome: None, used: AtomicBool::new(true) }
    }

    fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

/// What is found of a variant.
pub(crate) enum FoundVariant {
    Known(CompressionOutcome),
    Wait(FlightWaiter<CompressionOutcome>),
    Lead(CompressionFlight),
}

/// The only one that makes a variant on this node. Dropped, it ends without an outcome.
pub(crate) struct CompressionFlight {
    heads: Arc<CompressedHeads>,
    flight: SingleFlight<SegmentName, CompressionOutcome>,
}

impl CompressedHeads {
    /// An empty cache for at most `slots_max` names.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Arc<Self> {
        Arc::new(Self { slots: HeadSlots::new(store, slots_max), flights: Flights::new() })
    }

    /// Drops all of them.
    pub(crate) fn forget_all(&self) {
        self.slots.forget_all();
    }

    /// The charge for a variant's head of `bytes` bytes.
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        self.slots.charge(bytes)
    }

    /// Looks up the variant `name`.
    pub(crate) fn find(self: &Arc<Self>, name: SegmentName) -> FoundVariant {
        let slots = self.slots.lock();
        if let Some(CompressedSlot { outcome: Some(known), used, .. }) = slots.get(&name) {
            used.store(true, Ordering::Relaxed);
            return FoundVariant::Known(match known {
                Known::Made(made, _) => CompressionOutcome::Made(*made),
                Known::Useless => CompressionOutcome::Useless,
            });
        }
        // While the slots are locked: nobody may have an outcome that is not in its slot.
        match self.flights.join(&name) {
            FlightRole::Wait(waiter) => FoundVariant::Wait(waiter),
            FlightRole::Lead(flight) => {
                FoundVariant::Lead(CompressionFlight { heads: Arc::clone(self), flight })
            }
        }
    }

    /// Drops the variant `name`: its bytes are in no memory.
    pub(crate) fn forget(&self, name: SegmentName) {
        if self.slots.lock().remove(&name).is_some() {
            self.slots.store().withdraw([name].into_iter());
        }
    }

    /// The head of the variant `name`, for another node.
    pub(crate) async fn head_for_peer(&self, name: SegmentName) -> Result<PeerHead, PeerRefusal> {
        let known = self.slots.lock().get(&name).and_then(|slot| slot.outcome);
        match known {
            // Who asks is to get the bytes here.
            Some(Known::Made(made, bytes)) if self.slots.store().has(&bytes) => Ok(head_of(made)),
            Some(Known::Made(..)) => {
                self.forget(name);
                Err(PeerRefusal::NotThere)
            }
            Some(Known::Useless) => Err(PeerRefusal::NotStored),
            None => match self.flights.outcome_for_peer(&name).await? {
                CompressionOutcome::Made(made) => Ok(head_of(made)),
                CompressionOutcome::Useless => Err(PeerRefusal::NotStored),
                CompressionOutcome::Skipped => Err(PeerRefusal::OriginFailed),
            },
        }
    }

    pub(crate) fn store(&self) -> &Arc<SegmentStore> {
        self.slots.store()
    }
}

impl CompressionFlight {
    pub(crate) fn name(&self) -> SegmentName {
        *self.flight.key()
    }

    pub(crate) fn heads(&self) -> &Arc<CompressedHeads> {
        &self.heads
    }

    /// A waiter for it.
    pub(crate) fn waiter(&self) -> FlightWaiter<CompressionOutcome> {
        self.flight.waiter()
    }

    /// Records that from now on it waits for no other node's head.
    pub(crate) fn makes(&self) {
        self.flight.asks_origin();
    }

    /// Ends it. `bytes` is the name of the variant's bytes.
    pub(crate) fn land(self, outcome: CompressionOutcome, bytes: Option<SegmentName>) {
        let known = match (outcome, bytes) {
            (CompressionOutcome::Made(made), Some(bytes)) => Some(Known::Made(made, bytes)),
            (CompressionOutcome::Useless, _) => Some(Known::Useless),
            _ => None,
        };
        if known.is_some() {
            self.heads.slots.change(self.name(), |slot| slot.outcome = known);
            self.heads.store().fit();
        }
        self.flight.land(outcome);
    }
}

/// `bytes (u32) digest (8 bytes)`, in the order of the network. What it says of a name is so for ever.
fn head_of(made: Compressed) -> PeerHead {
    let head = [&made.bytes.to_be_bytes()[..], &made.digest].concat();
    // A soft purge is one of the response that it is a variant of.
    PeerHead { fresh_ms: 0, softly_purged: PurgeStamp::NONE, head }
}

/// What another node's head says; `None`: it is none.
pub(crate) fn read(peer_head: &PeerHead) -> Option<Compressed> {
    let (bytes, digest) = peer_head.head.split_first_chunk()?;
    let made = Compressed { bytes: u32::from_be_bytes(*bytes), digest: digest.try_into().ok()? };
    let is_one_segment = made.bytes > 0 && u64::from(made.bytes) <= skep_units::SEGMENT_BYTES;
    is_one_segment.then_some(made)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_head_of_another_node_is_what_it_was_or_nothing() {
        let made = Compressed { bytes: 4 << 20, digest: *b"12345678" };
        assert_eq!(read(&head_of(made)), Some(made));
        let whole = head_of(made).head;
        for len in 0..whole.len() {
            let cut = PeerHead { head: whole[..len].to_vec(), ..head_of(made) };
            assert_eq!(read(&cut), None, "{len}");
        }
        for bytes in [0, (4 << 20) + 1, u32::MAX] {
            assert_eq!(read(&head_of(Compressed { bytes, ..made })), None, "{bytes}");
        }
        let longer = PeerHead { head: [&whole[..], b"x"].concat(), ..head_of(made) };
        assert_eq!(read(&longer), None);
    }
}
