//! Unused memory that the allocator keeps.

/// Returns to the kernel the memory that the allocator keeps for this thread, as far as it is unused,
/// including what other threads have freed. Takes milliseconds: to be called when there is little to do. Has
/// no effect in programs with another allocator.
#[expect(unsafe_code, reason = "the allocator's own function, which has no safe wrapper")]
pub fn return_unused() {
    // SAFETY: it may be called at any time on any thread, and affects only free memory.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
