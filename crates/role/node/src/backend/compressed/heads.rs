//! The heads of compressed variants, shared by all workers, and the single flights of variants in
//! progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use skep_segments::{Charge, SegmentStore};
use skep_wire::cache::{PeerRefusal, PurgeStamp, SegmentName};

use crate::backend::head_slots::{HeadSlot, HeadSlots};
use crate::backend::single_flight::{FlightRole, FlightWaiter, Flights, SingleFlight};
use crate::model::object::Compressed;
use crate::model::peer::PeerHead;

/// The result of compressing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompressionOutcome {
    /// The bytes are in memory, here or on another node.
    Made(Compressed),
    /// Compression gains nothing, now or later.
    Useless,
    /// Not compressed this time: too many jobs wait, there is no memory, or the object's bytes were not
    /// available.
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

/// The outcome recorded under a name.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// The variant, and the name of its bytes.
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

/// The result of a look-up of a variant.
pub(crate) enum FoundVariant {
    Known(CompressionOutcome),
    Wait(FlightWaiter<CompressionOutcome>),
    Lead(CompressionFlight),
}

/// The only task on this node that makes a variant. A flight that is dropped ends without an outcome.
pub(crate) struct CompressionFlight {
    heads: Arc<CompressedHeads>,
    flight: SingleFlight<SegmentName, CompressionOutcome>,
}

impl CompressedHeads {
    /// An empty cache for at most `slots_max` names.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Arc<Self> {
        Arc::new(Self { slots: HeadSlots::new(store, slots_max), flights: Flights::new() })
    }

    /// Drops all entries.
    pub(crate) fn forget_all(&self) {
        self.slots.forget_all();
    }

    /// Charges `bytes` for a variant's head.
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
        // Joined while the slots are locked: an outcome must not exist without being in its slot.
        match self.flights.join(&name) {
            FlightRole::Wait(waiter) => FoundVariant::Wait(waiter),
            FlightRole::Lead(flight) => {
                FoundVariant::Lead(CompressionFlight { heads: Arc::clone(self), flight })
            }
        }
    }

    /// Drops the variant `name`: its bytes were evicted everywhere.
    pub(crate) fn forget(&self, name: SegmentName) {
        if self.slots.lock().remove(&name).is_some() {
            self.slots.store().withdraw([name].into_iter());
        }
    }

    /// The head of the variant `name`, for another node.
    pub(crate) async fn head_for_peer(&self, name: SegmentName) -> Result<PeerHead, PeerRefusal> {
        let known = self.slots.lock().get(&name).and_then(|slot| slot.outcome);
        match known {
            // The requester will fetch the bytes from this node.
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

    /// A waiter for its outcome.
    pub(crate) fn waiter(&self) -> FlightWaiter<CompressionOutcome> {
        self.flight.waiter()
    }

    /// Records that from now on it does not wait for another node's head.
    pub(crate) fn makes(&self) {
        self.flight.asks_origin();
    }

    /// Ends the flight. `bytes` is the name of the variant's bytes.
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

/// `bytes (u32) digest (8 bytes)`, in network byte order. The contents for a name never change.
fn head_of(made: Compressed) -> PeerHead {
    let head = [&made.bytes.to_be_bytes()[..], &made.digest].concat();
    // A soft purge concerns the response that this is a variant of.
    PeerHead { fresh_ms: 0, softly_purged: PurgeStamp::NONE, head }
}

/// Parses another node's head; `None`: it is invalid.
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
