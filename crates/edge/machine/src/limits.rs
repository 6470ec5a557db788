//! Bounds of what is read of a machine, with units and reasons.

/// Bytes of one file that are read: of hundreds of processors and interrupts, `/proc/stat` has less.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Disks, and network devices, that are told apart; machines with thousands (containers) would fill
/// a history with them. The first in the kernel's order are the machine's own.
pub(crate) const DEVICES_MAX: usize = 32;

/// Characters of a device's name: more than the kernel's bounds of both (32 and 16, with the zero).
pub(crate) const DEVICE_CHARS_MAX: usize = 32;
