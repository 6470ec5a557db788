//! Bounds of the agent, with units and reasons.

/// Tables that wait to be applied: the latest counts, one is being applied.
pub(crate) const TABLES_WAITING_MAX: usize = 16;

/// How often the node's machine is checked, in milliseconds: faults there last for minutes.
pub(crate) const CHECK_MS: u64 = 30_000;

/// How often the packet program's counters are read, in milliseconds.
pub(crate) const COUNTERS_MS: u64 = 500;

/// Time between two answers to a dispatcher that joins, in milliseconds: all nodes send them whole
/// tables, which a dispatcher's receive buffer must hold.
pub(crate) const JOINING_ANSWER_MS: u64 = 50;

/// Time from one report of measured rates to the next, in milliseconds: they are averages over seconds.
pub(crate) const RATES_MS: u64 = 1_000;

/// How long the reporting thread may take for one turn before the process ends, in seconds, beside
/// the interval of reports.
pub(crate) const REPORT_STALL_S_MAX: u32 = 10;

/// How long the applying thread may take for one turn before the process ends, in seconds: a table
/// is several orders to netguard, each of which may take ten seconds on an overloaded machine.
pub(crate) const TABLE_STALL_S_MAX: u32 = 120;

/// Looks of the recorder at what rises and falls (requests in flight), in each interval: means of so
/// many are within a few percent.
pub(crate) const RECORDER_LOOKS: u64 = 60;

/// Time between two of them at least, in milliseconds.
pub(crate) const RECORDER_LOOK_MS_MIN: u64 = 20;

/// Samples that wait while the recorder's file cannot be written to: those of a day at one a minute,
/// some megabytes.
pub(crate) const RECORDER_WAITING_MAX: usize = 1_440;

/// How long the recorder waits for another process that has its file locked, in milliseconds: the
/// transactions of others take milliseconds, and its thread has nothing else to do.
pub(crate) const RECORDER_LOCK_WAIT_MS: u64 = 1_000;

/// How long the end of a process waits for the recorder's last sample, in milliseconds: a disk that
/// hangs keeps no process.
pub(crate) const RECORDER_END_WAIT_MS: u64 = 1_000;
