//! What is counted of an arm: sums in cells, so that each worker counts in cells of its own without a lock, and a reader
//! adds them up.

use crate::client::ClientId;
use crate::limits::{BINS_PER_OCTAVE, BUCKETS, TIME_US_MAX};

/// What happened to a request of a client of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmEvent {
    /// A whole response came, with a status below 500.
    Answered(ArmSample),
    /// None came, or one of 500 and more.
    Failed,
    /// The client was redirected to a node; what happened there is not known.
    Redirected,
    /// No node of the arm could take it, and one outside did: it says nothing of the arm.
    Strayed,
}

/// A response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmSample {
    /// From the request to the head of its response, in microseconds: with waiting and retries.
    pub first_byte_us: u64,
    /// The same to the end of the response.
    pub total_us: u64,
    /// Bytes of the response's body.
    pub bytes: u64,
    /// Whether the node had it in memory, if it has said so.
    pub is_hit: Option<bool>,
}

/// Adds `event` to cells: calls `add` with the number of a cell, below [`ArmTally::CELLS`](crate::ArmTally::CELLS), and what
/// is to be added to it.
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

/// The first cells.
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
/// Requests, and the sums of two times.
const CELLS_OF_BUCKET: usize = 3;
const BUCKET_CELLS: usize = BUCKETS * CELLS_OF_BUCKET;

/// Bins of one of the two times: the first have the width of a microsecond.
pub(crate) const BINS: usize = bin_of(TIME_US_MAX) + 1;

/// All cells of an arm.
pub(crate) const CELLS: usize = SINGLE_CELLS + BUCKET_CELLS + 2 * BINS;

/// Tells this use of a client's hash from others.
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
