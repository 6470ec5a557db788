//! A value that one task publishes and others read, with a callback for changes.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// Called on the store's thread with every new value. Must not block.
pub(crate) type Notify<T> = Box<dyn Fn(&T) + Send>;

/// The publishing end.
pub(crate) struct Latest<T> {
    cell: Arc<ArcSwap<T>>,
    notify: Notify<T>,
}

impl<T> Latest<T> {
    /// Creates an end that writes into `cell` and calls `notify`.
    pub(crate) fn new(cell: Arc<ArcSwap<T>>, notify: Notify<T>) -> Self {
        Self { cell, notify }
    }

    /// The last published value.
    pub(crate) fn get(&self) -> Arc<T> {
        self.cell.load_full()
    }

    /// Replaces the value. Calls the callback if `is_news`.
    pub(crate) fn publish(&self, value: T, is_news: bool) {
        let value = Arc::new(value);
        self.cell.store(Arc::clone(&value));
        if is_news {
            (self.notify)(&value);
        }
    }
}
