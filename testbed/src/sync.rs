//! Locks that ignore poisoning.

use std::sync::{Mutex, MutexGuard};

/// A lock's content, also after a panic of another thread: each holder leaves
/// it whole at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
