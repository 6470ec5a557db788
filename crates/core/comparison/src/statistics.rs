//! The counts of an arm: sums in cells, so that each worker counts in its own cells without a lock,
//! and a reader adds them up.

use crate::client::ClientId;
use crate::limits::{BINS_PER_OCTAVE, BUCKETS, TIME_US_MAX};

/// What happened to a request of an arm's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmEvent {
    /// A complete response with a status below 500 was received.
    Answered(ArmSample),
    /// No response, or one with a status of 500 or above.
    Failed,
    /// The client was redirected to a node; the outcome is unknown.
    Redirected,
    /// No node of the arm was available, and another one answered: not counted as a result of the
    /// arm.
    Strayed,
}

/// A response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmSample {
    /// Time from the request to the response head, in microseconds, including queueing and retries.
    pub first_byte_us: u64,
    /// Time from the request to the end of the response, in microseconds.
    pub total_us: u64,
    /// Bytes of the response's body.
    pub bytes: u64,
    /// Whether the node had it in memory, if it stated that.
    pub is_hit: Option<bool>,
}

/// Records `event` in cells: calls `add` with the index of a cell, below
/// [`ArmTally::CELLS`](crate::ArmTally::CELLS), and the value to add to it.
pub fn record(client: ClientId, event: &ArmEvent, mut add: impl FnMut(usize, u64)) {
    let sample = match event {
        ArmEvent::Failed => return add(Cell::Failures as usize, 1),
        ArmEvent::Redirected => return add(Cell::Redirected as usize, 1),
        ArmEvent::Strayed => return add(Cell::Strayed as usize, 1),
        ArmEvent::Answered(sample) => sample,
    };
    add(Cell::Answered as usize, 1);
    add(Cell::Bytes as usize, sample.bytes);
    if let Some(is_hit) = sample.is_hit {
        add(Cell::Lookups as usize, 1);
        add(Cell::Hits as usize, is_hit.into());
    }
    let bucket = client.one_of(BUCKETS as u64, BUCKET) as usize;
    add(bucket_cell(bucket, 0), 1);
    for (at, us) in [sample.first_byte_us, sample.total_us].into_iter().enumerate() {
        let us = us.min(TIME_US_MAX);
        add(bucket_cell(bucket, 1 + at), us);
        add(bin_cell(at, bin_of(us)), 1);
    }
}

/// The single cells, which come first.
#[derive(Clone, Copy)]
pub(crate) enum Cell {
    Answered,
    Failures,
    Redirected,
    Strayed,
    Bytes,
    Lookups,
    Hits,
}

const SINGLE_CELLS: usize = 7;
/// The number of requests, and the sums of the two times.
const CELLS_OF_BUCKET: usize = 3;
const BUCKET_CELLS: usize = BUCKETS * CELLS_OF_BUCKET;

/// Bins of one of the two times: the first ones are a microsecond wide.
pub(crate) const BINS: usize = bin_of(TIME_US_MAX) + 1;

/// All cells of an arm.
pub(crate) const CELLS: usize = SINGLE_CELLS + BUCKET_CELLS + 2 * BINS;

/// Distinguishes this use of a client's hash from others.
const BUCKET: u64 = 2;

pub(crate) fn bucket_cell(bucket: usize, at: usize) -> usize {
    SINGLE_CELLS + bucket * CELLS_OF_BUCKET + at
}

pub(crate) fn bin_cell(time: usize, bin: usize) -> usize {
    SINGLE_CELLS + BUCKET_CELLS + time * BINS + bin
}

/// The bin of a time: log-linear, as in HDR histograms.
const fn bin_of(us: u64) -> usize {
    const LINEAR: u64 = BINS_PER_OCTAVE as u64;
    if us < LINEAR {
        return us as usize;
    }
    let octave = us.ilog2() - LINEAR.ilog2();
    (octave as usize + 1) * BINS_PER_OCTAVE + ((us >> octave) - LINEAR) as usize
}

/// The middle of a bin, in microseconds.
pub(crate) fn middle_of(bin: usize) -> f64 {
    if bin < BINS_PER_OCTAVE {
        return bin as f64;
    }
    let octave = (bin / BINS_PER_OCTAVE - 1) as i32;
    let lowest = (BINS_PER_OCTAVE + bin % BINS_PER_OCTAVE) as f64;
    let width = 2_f64.powi(octave);
    lowest * width + (width - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_bin_whose_middle_is_near() {
        let mut before = 0;
        for us in (0..5_000).chain((5_000..2_000_000).step_by(997)).chain([TIME_US_MAX]) {
            let bin = bin_of(us);
            assert!(bin < BINS && bin >= before, "{us}");
            before = bin;
            let off = (middle_of(bin) - us as f64).abs();
            assert!(off <= us as f64 / BINS_PER_OCTAVE as f64 / 2.0 + 1e-9, "{us}: {off}");
        }
    }

    #[test]
    fn cells_do_not_overlap() {
        let last = bin_cell(1, BINS - 1);
        assert_eq!(last + 1, CELLS);
        assert_eq!(bucket_cell(BUCKETS - 1, 2) + 1, bin_cell(0, 0));
        assert_eq!(bin_cell(0, BINS - 1) + 1, bin_cell(1, 0));
        assert_eq!(Cell::Hits as usize + 1, bucket_cell(0, 0));
    }
}
