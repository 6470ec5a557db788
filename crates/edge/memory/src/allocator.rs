//! Memory that the allocator has, and nobody uses.

/// Returns what the allocator keeps for this thread to the kernel, as far as nothing is in it, with what other threads
/// have freed of it. Takes milliseconds: for when little is to be done. Does nothing in programs with another allocator.
#[expect(unsafe_code, reason = "the allocator's own function, which has no safe wrapper")]
pub fn return_unused() {
    // SAFETY: it may be called at any time on any thread, and touches only what is free.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
