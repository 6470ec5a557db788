//! What a process records about itself and its machine: a part of the settings table.

use std::path::PathBuf;

use skep_units::MIB;

use crate::kind::{DAY_MS, Form, HOUR_MS, Kind, MINUTE_MS, TIB, bytes, ms};
use crate::table::table;

table! {
    /// A history of a process and its machine: processors, memory, swap, disks, networks, load averages,
    /// requests, bytes, hits. Reports and exports are made from it.
    RecorderConfig at "recorder" {
        /// SQLite file to which samples are added; if unset, nothing is recorded. Processes of one machine may
        /// share it, also with `skep probe run`. The serving user must have access to its folder. It must be on
        /// a local disk: network file systems do not lock it.
        file: Option<PathBuf> = None => Kind::Text(Form::Path), restart;
        /// Time that one sample covers.
        interval_ms: u64 = MINUTE_MS => ms(100..=HOUR_MS), restart;
        /// Recorded time of a process that is kept. It is applied as a number of samples, independently of the
        /// clock.
        keep_ms: u64 = 32 * DAY_MS => ms(MINUTE_MS..=400 * DAY_MS), restart;
        /// Size of the file; its log beside it takes up to about 5 MiB more. Over it, the oldest samples of
        /// recorders are deleted, never those of probes. A day of a process with two disks takes about 450 KiB
        /// at one sample a minute.
        size_bytes_max: u64 = 64 * MIB => bytes(MIB..=TIB), restart;
    }
}
