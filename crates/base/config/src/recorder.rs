//! What a process records about itself and its machine: a part of the settings table.

use std::path::PathBuf;

use skep_units::MIB;

use crate::kind::{DAY_MS, Form, HOUR_MS, Kind, MINUTE_MS, TIB, bytes, ms};
use crate::table::table;

table! {
    /// A history of what a process and its machine do: processors, memory, swap, disks, networks, load
    /// averages, requests, bytes, hits. Reports and exports are made of it.
    RecorderConfig at "recorder" {
        /// File of SQLite that samples are added to; unset, nothing is recorded. Processes of one machine
        /// may share it, and so may `skep probe run`. Its folder must be open to the serving user. On a local
        /// disk: file systems of a network do not lock it.
        file: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
        /// Time that one sample is about.
        interval_ms: u64 = MINUTE_MS => ms(100..=HOUR_MS), restart;
        /// Recorded time of a process that is kept. It counts as many samples, whatever the clock says.
        keep_ms: u64 = 32 * DAY_MS => ms(MINUTE_MS..=400 * DAY_MS), restart;
        /// Bytes of the file; its log beside it takes up to some 5 MiB more. Over it, the oldest samples of
        /// recorders go, never those of probes. A day of a process with two disks takes some 450 KiB at one a minute.
        size_bytes_max: u64 = 64 * MIB => bytes(MIB..=TIB), restart;
    }
}
