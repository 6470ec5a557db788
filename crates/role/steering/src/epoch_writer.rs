//! Persists the epochs that failover reserves, in the store of this machine, without waiting for
//! its disk.

use std::sync::Arc;

use skep_store::{Pending, Store};
use skep_units::Now;

use crate::limits::PERSIST_MS;

/// Writes one reservation at a time.
pub(crate) struct EpochWriter {
    store: Store,
    under_way: Option<Write>,
    /// Why the last write failed, as a sentence.
    trouble: Option<Arc<str>>,
}

struct Write {
    last: u64,
    begun: Now,
    outcome: Pending<()>,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Epochs up to this one are persisted.
    Persisted(u64),
    Failed,
}

impl EpochWriter {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, under_way: None, trouble: None }
    }

    /// Persists that epochs up to `last` may be used.
    pub(crate) fn write(&mut self, now: Now, last: u64) {
        let outcome = self.store.record_epoch(last);
        self.under_way = Some(Write { last, begun: now, outcome });
    }

    /// What has become of the write under way, if it has ended. To be polled.
    pub(crate) fn poll(&mut self, now: Now) -> Option<Written> {
        let write = self.under_way.as_mut()?;
        let failure = match write.outcome.try_take() {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.to_string()),
            // The thread of the store waits for a disk that does not answer.
            None if now.since_ms(write.begun) >= PERSIST_MS => {
                Some(format!("the disk has not answered for {PERSIST_MS} ms"))
            }
            None => return None,
        };
        let last = write.last;
        self.under_way = None;
        self.report(failure.as_deref());
        Some(if failure.is_none() { Written::Persisted(last) } else { Written::Failed })
    }

    /// What is wrong with the store, as a sentence.
    pub(crate) fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.clone()
    }

    /// Logs when writes begin to fail and when they succeed again.
    fn report(&mut self, failure: Option<&str>) {
        let trouble = failure.map(|why| {
            Arc::from(format!(
                "epochs cannot be persisted in `state_dir`: {why}; after a restart this dispatcher \
                 takes the latest epoch that it hears of"
            ))
        });
        match (&self.trouble, &trouble) {
            (None, Some(trouble)) => tracing::error!("{trouble}"),
            (Some(_), None) => tracing::info!("epochs can be persisted again"),
            _ => {}
        }
        self.trouble = trouble;
    }
}
