//! Bounds of the agent, with units and reasons.

/// Tables that wait to be applied, at most: one is being applied, and of the others only the latest
/// is used.
pub(crate) const TABLES_WAITING_MAX: usize = 16;

/// Interval of checks of the node's machine, in milliseconds: faults there last for minutes.
pub(crate) const CHECK_MS: u64 = 30_000;

/// Interval at which the packet program's counters are read, in milliseconds.
pub(crate) const COUNTERS_MS: u64 = 500;

/// Time between two answers to a dispatcher that joins, in milliseconds: all nodes send it complete
/// tables, which its receive buffer must hold.
pub(crate) const JOINING_ANSWER_MS: u64 = 50;

/// Time from one report of measured rates to the next, in milliseconds: they are averages over seconds.
pub(crate) const RATES_MS: u64 = 1_000;

/// Time that one turn of the reporting thread may take before the process exits, in seconds, in
/// addition to the report interval.
pub(crate) const REPORT_STALL_S_MAX: u32 = 10;

/// Time that one turn of the applying thread may take before the process exits, in seconds: a table
/// requires several orders to netguard, each of which may take ten seconds on an overloaded machine.
pub(crate) const TABLE_STALL_S_MAX: u32 = 120;

/// Readings of gauges (such as requests in flight) per recorder interval: their mean is accurate
/// within a few percent.
pub(crate) const RECORDER_LOOKS: u64 = 60;

/// Time between two readings, at least, in milliseconds.
pub(crate) const RECORDER_LOOK_MS_MIN: u64 = 20;

/// Samples that wait while the recorder's file cannot be written: those of a day at one per minute,
/// some megabytes.
pub(crate) const RECORDER_WAITING_MAX: usize = 1_440;

/// Time that the recorder waits for another process that has locked its file, in milliseconds:
/// transactions take milliseconds, and the thread has nothing else to do.
pub(crate) const RECORDER_LOCK_WAIT_MS: u64 = 1_000;

/// Time that the exit of a process waits for the recorder's last sample, in milliseconds: a disk
/// that hangs must not keep the process.
pub(crate) const RECORDER_END_WAIT_MS: u64 = 1_000;
