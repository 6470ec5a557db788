//! The few calls of `bpf(2)` that the library does not provide (links by device index, maps in batches), the
//! memory of maps, and options of sockets.
//!
//! **Invariant:** all unsafe code of these calls is here. Every attribute outlives its call, and so
//! does all memory that it points to.

use std::ffi::{CString, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use aya::Pod;
use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_map_type, bpf_prog_type};
use rustix::io::Errno;

use crate::limits::{BATCH_ELEMENTS, BATCH_GROWTHS_MAX, LOAD_ATTEMPTS_MAX};

/// Where a link attaches a program.
#[derive(Clone, Copy)]
pub(crate) enum Hook {
    XdpNative,
    XdpGeneric,
    /// tcx at ingress, before all other programs.
    TcFirst,
    /// tcx at ingress, after all other programs.
    TcLast,
}

/// Creates the smallest map and closes it, to check whether BPF is available at all.
pub(crate) fn try_map() -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries_max: u32,
    }
    let kind = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
    let mut attr = Attr { kind, key_bytes: 4, value_bytes: 4, entries_max: 1 };
    descriptor(bpf_cmd::BPF_MAP_CREATE, &mut attr).map(drop)
}

/// Loads the smallest packet program and closes it. The library would read all types of the kernel
/// first, which takes longer than the rest of netguard's start.
pub(crate) fn try_program() -> io::Result<()> {
    const XDP_PASS: u64 = 2;
    let mut attempts = 1;
    loop {
        let loaded = load_constant(bpf_prog_type::BPF_PROG_TYPE_XDP, XDP_PASS).map(drop);
        let errno = loaded.as_ref().err().and_then(Errno::from_io_error);
        // Verification was interrupted by a signal.
        if errno != Some(Errno::AGAIN) || attempts == LOAD_ATTEMPTS_MAX {
            return loaded;
        }
        attempts += 1;
    }
}

/// Attaches a program to a device, for as long as the link is open or pinned.
pub(crate) fn create_link(
    program: BorrowedFd<'_>,
    device_index: u32,
    hook: Hook,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        program: i32,
        device_index: u32,
        attach_type: u32,
        flags: u32,
        relative: u32,
        zero: u32,
        revision: u64,
    }
    const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    const BPF_F_BEFORE: u32 = 1 << 3;
    let (attach_type, flags) = match hook {
        Hook::XdpNative => (bpf_attach_type::BPF_XDP, XDP_FLAGS_DRV_MODE),
        Hook::XdpGeneric => (bpf_attach_type::BPF_XDP, XDP_FLAGS_SKB_MODE),
        Hook::TcFirst => (bpf_attach_type::BPF_TCX_INGRESS, BPF_F_BEFORE),
        Hook::TcLast => (bpf_attach_type::BPF_TCX_INGRESS, 0),
    };
    let mut attr = Attr {
        program: program.as_raw_fd(),
        device_index,
        attach_type: attach_type as u32,
        flags,
        relative: 0,
        zero: 0,
        revision: 0,
    };
    descriptor(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// Replaces the program of a link; packets meet the old or the new one.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = [link.as_raw_fd(), program.as_raw_fd(), 0, 0];
    done(bpf_cmd::BPF_LINK_UPDATE, &mut attr)
}

/// Detaches the program from the device now, even if others hold the link.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    done(bpf_cmd::BPF_LINK_DETACH, &mut [link.as_raw_fd()])
}

/// The device of a link; 0 if the device is gone.
pub(crate) fn link_device(link: BorrowedFd<'_>) -> io::Result<u32> {
    #[repr(C)]
    struct Attr {
        link: i32,
        info_bytes: u32,
        info: u64,
    }
    // Kind, number of the link, program, padding, then the device for XDP and
    // tcx alike. The kernel fills as much as there is room for.
    let mut info = [0_u32; 6];
    let mut attr = Attr {
        link: link.as_raw_fd(),
        info_bytes: size_of_val(&info) as u32,
        info: info.as_mut_ptr() as u64,
    };
    done(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info[4])
}

pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = PinAttr { path: path.as_ptr() as u64, object: object.as_raw_fd(), flags: 0 };
    done(bpf_cmd::BPF_OBJ_PIN, &mut attr)
}

pub(crate) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = PinAttr { path: path.as_ptr() as u64, object: 0, flags: 0 };
    descriptor(bpf_cmd::BPF_OBJ_GET, &mut attr)
}

#[repr(C)]
struct PinAttr {
    path: u64,
    object: i32,
    flags: u32,
}

/// Writes elements in batches. After an error the map may contain a part of them.
pub(crate) fn update_batch<K: Pod, V: Pod>(
    map: BorrowedFd<'_>,
    keys: &[K],
    values: &[V],
) -> io::Result<()> {
    assert_eq!(keys.len(), values.len(), "a value for each key");
    for (keys, values) in keys.chunks(BATCH_ELEMENTS).zip(values.chunks(BATCH_ELEMENTS)) {
        let mut attr = BatchAttr {
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: keys.len() as u32,
            map: map.as_raw_fd(),
            ..BatchAttr::default()
        };
        done(bpf_cmd::BPF_MAP_UPDATE_BATCH, &mut attr)?;
    }
    Ok(())
}

/// Reads the elements of an array, beginning at `first`.
pub(crate) fn read_range<V: Pod>(
    map: BorrowedFd<'_>,
    first: u32,
    values: &mut [V],
) -> io::Result<()> {
    let mut keys = vec![0_u32; BATCH_ELEMENTS.min(values.len())];
    let mut place = first;
    for values in values.chunks_mut(BATCH_ELEMENTS) {
        // The kernel continues after the index that it is given.
        let before = place.wrapping_sub(1);
        let mut next = 0_u32;
        let mut attr = BatchAttr {
            at: if place == 0 { 0 } else { &raw const before as u64 },
            next: &raw mut next as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: values.len() as u32,
            map: map.as_raw_fd(),
            ..BatchAttr::default()
        };
        done(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr)?;
        assert_eq!(attr.count as usize, values.len(), "an array has all its places");
        place += values.len() as u32;
    }
    Ok(())
}

/// Returns the element of a key, if there is one.
pub(crate) fn lookup<K: Pod, V: Pod + Default>(
    map: BorrowedFd<'_>,
    key: &K,
) -> io::Result<Option<V>> {
    #[repr(C)]
    struct Attr {
        map: i32,
        zero: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let mut value = V::default();
    let (key, to) = (std::ptr::from_ref(key) as u64, &raw mut value as u64);
    let mut attr = Attr { map: map.as_raw_fd(), zero: 0, key, value: to, flags: 0 };
    match done(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attr) {
        Ok(()) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes an element; succeeds if there is none.
pub(crate) fn delete<K: Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        map: i32,
        zero: u32,
        key: u64,
    }
    let key = std::ptr::from_ref(key) as u64;
    let mut attr = Attr { map: map.as_raw_fd(), zero: 0, key };
    match done(bpf_cmd::BPF_MAP_DELETE_ELEM, &mut attr) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The position at which a batch begins, in the form in which the kernel writes that of the next.
type BatchPlace = [u64; 8];

/// A position between two elements of a map; `None`: before the first.
#[derive(Debug, Default)]
pub(crate) struct MapPlace(Option<BatchPlace>);

/// Calls `show` for every element of any map. Elements that are added or removed meanwhile may or may not be
/// included.
pub(crate) fn each<K: Pod + Default, V: Pod + Default>(
    map: BorrowedFd<'_>,
    mut show: impl FnMut(K, V),
) -> io::Result<()> {
    let mut place = MapPlace::default();
    loop {
        each_behind(map, &mut place, BATCH_ELEMENTS, &mut show)?;
        if place.0.is_none() {
            return Ok(());
        }
    }
}

/// Calls `show` for about `count` elements after `place`, and advances `place` past them; after the last
/// element it is before the first again.
pub(crate) fn each_behind<K: Pod + Default, V: Pod + Default>(
    map: BorrowedFd<'_>,
    place: &mut MapPlace,
    count: usize,
    mut show: impl FnMut(K, V),
) -> io::Result<()> {
    let (mut keys, mut values) = (vec![K::default(); count], vec![V::default(); count]);
    // The position in a hash table is a number of four bytes; in all other maps it is a whole key
    // (`generic_map_lookup_batch`, `__htab_map_lookup_and_delete_batch` in kernel/bpf).
    const { assert!(size_of::<K>() <= size_of::<BatchPlace>()) }
    let (mut next, mut growths) = (BatchPlace::default(), 0);
    loop {
        let mut attr = BatchAttr {
            at: place.0.as_mut().map_or(0, |at| at.as_mut_ptr() as u64),
            next: next.as_mut_ptr() as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: keys.len() as u32,
            map: map.as_raw_fd(),
            ..BatchAttr::default()
        };
        let outcome = done(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr);
        let errno = outcome.as_ref().err().and_then(Errno::from_io_error);
        if errno == Some(Errno::NOSPC) && growths < BATCH_GROWTHS_MAX {
            growths += 1;
            keys.resize(keys.len() * 2, K::default());
            values.resize(values.len() * 2, V::default());
            continue;
        }
        if errno != Some(Errno::NOENT) {
            outcome?;
        }
        for (key, value) in keys.iter().zip(&values).take(attr.count as usize) {
            show(*key, *value);
        }
        place.0 = errno.is_none().then_some(next);
        return Ok(());
    }
}

/// Loads a socket filter that accepts no byte of any packet.
pub(crate) fn load_drop_all() -> io::Result<OwnedFd> {
    load_constant(bpf_prog_type::BPF_PROG_TYPE_SOCKET_FILTER, 0)
}

/// Loads a program that does nothing but return a number below 2^31.
fn load_constant(kind: bpf_prog_type, value: u64) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        kind: u32,
        instruction_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
    }
    // r0 = value; exit.
    let instructions: [u64; 2] = [0x0000_0000_0000_00b7 | value << 32, 0x0000_0000_0000_0095];
    let mut attr = Attr {
        kind: kind as u32,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    descriptor(bpf_cmd::BPF_PROG_LOAD, &mut attr)
}

/// Replaces the filter of a socket.
pub(crate) fn attach_filter(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())
}

/// Removes the filter of a socket; `NotFound` if it has none.
pub(crate) fn detach_filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
}

pub(crate) fn repair(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut mode = [0; size_of::<i32>()];
    option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, &mut mode)?;
    Ok(i32::from_ne_bytes(mode))
}

pub(crate) fn set_repair(socket: BorrowedFd<'_>, mode: i32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, mode)
}

/// Returns the state of a TCP socket, by the kernel's numbers.
pub(crate) fn tcp_state(socket: BorrowedFd<'_>) -> io::Result<u8> {
    // The first byte of `struct tcp_info`.
    let mut state = [0];
    option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
    Ok(state[0])
}

/// Sets the receive buffer, even beyond the limit for unprivileged users; the kernel continues to adapt it.
pub(crate) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    /// Locks buffers against adaptation (Linux 5.14).
    const SO_BUF_LOCK: i32 = 72;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)?;
    set_option(socket, libc::SOL_SOCKET, SO_BUF_LOCK, 0)
}

/// Reads an option into `value`, truncated to its length.
#[expect(unsafe_code, reason = "rustix does not know these options")]
fn option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<()> {
    let (fd, mut bytes) = (socket.as_raw_fd(), value.len() as libc::socklen_t);
    let value = value.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `bytes` bytes, which are those of `value`.
    match unsafe { libc::getsockopt(fd, level, name, value, &raw mut bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[expect(unsafe_code, reason = "rustix does not know these options")]
fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let (value, bytes) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the kernel reads `bytes` bytes of a number that outlives the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The elements of an array that was made with `BPF_F_MMAPABLE`, to read and write.
pub(crate) struct View {
    first: NonNull<AtomicU64>,
    words: usize,
}

#[expect(unsafe_code, reason = "memory that is shared with the kernel")]
// SAFETY: it owns its mapping, which is accessed only as atomic words.
unsafe impl Send for View {}

impl View {
    /// Maps an array whose elements are whole words, `words` in total.
    #[expect(unsafe_code, reason = "rustix's mmap is as unsafe")]
    pub(crate) fn new(map: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let (bytes, from) = (words * size_of::<AtomicU64>(), std::ptr::null_mut());
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let first = unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(from, bytes, access, kind, map.as_raw_fd(), 0)
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { first, words })
    }

    #[expect(unsafe_code, reason = "memory that is shared with the kernel")]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as `self`, for reading and writing, and aligned to a page. Others
        // write to it, too, as to atomic words.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

impl Drop for View {
    #[expect(unsafe_code, reason = "rustix's munmap is as unsafe")]
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and nobody borrows it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

#[derive(Default)]
#[repr(C)]
struct BatchAttr {
    at: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: i32,
    element_flags: u64,
    flags: u64,
}

fn done<A>(command: bpf_cmd, attr: &mut A) -> io::Result<()> {
    bpf(command, attr).map(drop)
}

#[expect(unsafe_code, reason = "the kernel gives descriptors as numbers")]
fn descriptor<A>(command: bpf_cmd, attr: &mut A) -> io::Result<OwnedFd> {
    let number = bpf(command, attr)?;
    // SAFETY: these commands return a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

/// The system call. The caller guarantees that `attr` is what the kernel reads and writes for
/// `command`, and that its pointers are valid during the call.
#[expect(unsafe_code, reason = "rustix has no bpf(2)")]
fn bpf<A>(command: bpf_cmd, attr: &mut A) -> io::Result<c_long> {
    // SAFETY: the kernel stays within the bytes of `attr` and within the arrays that it points to, as all
    // callers in this file set them up.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as u32, std::ptr::from_mut(attr), size_of::<A>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
