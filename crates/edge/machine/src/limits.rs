//! Bounds of what is read of a machine, with units and reasons.

/// Maximum number of bytes read of one file: `/proc/stat` is smaller even with hundreds of processors and
/// interrupts.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of disks, and of network devices: on machines with thousands (of containers) they would
/// fill a history. The first in the kernel's order are the machine's own.
pub(crate) const DEVICES_MAX: usize = 32;

/// Maximum length of a device's name in characters: the kernel's limits are at most that (32 and 16, with the
/// terminating zero).
pub(crate) const DEVICE_CHARS_MAX: usize = 32;
