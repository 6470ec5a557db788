//! Persists the epochs that failover reserves in the store of this machine, without waiting for its
//! disk.

use std::sync::Arc;

use skep_store::{Pending, Store};
use skep_units::Now;

use crate::limits::PERSIST_MS;

/// Writes one reservation at a time.
pub(crate) struct EpochWriter {
    store: Store,
    under_way: Option<Write>,
    /// The failure of the last write, as a sentence.
    trouble: Option<Arc<str>>,
}

struct Write {
    last: u64,
    begun: Now,
    outcome: Pending<()>,
}

/// The outcome of a write.
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

    /// Starts to persist that epochs up to `last` may be used.
    pub(crate) fn write(&mut self, now: Now, last: u64) {
        let outcome = self.store.record_epoch(last);
        self.under_way = Some(Write { last, begun: now, outcome });
    }

    /// The outcome of the write in progress, if it has ended. To be polled.
    pub(crate) fn poll(&mut self, now: Now) -> Option<Written> {
        let write = self.under_way.as_mut()?;
        let failure = match write.outcome.try_take() {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.to_string()),
            // The store's thread waits for a disk that does not respond.
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

    /// The fault of the store, as a sentence.
    pub(crate) fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.clone()
    }

    /// Logs when writes begin to fail, and when they succeed again.
    fn report(&mut self, failure: Option<&str>) {
        let trouble = failure.map(|why| {
            Arc::from(format!(
                "epochs cannot be persisted in `state_dir`: {why}; after a restart this dispatcher \
                 takes the latest epoch that other machines report"
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use skep_store::StoreSettings;

    use super::*;

    /// Repeats until there is a result: a thread of the store is working.
    fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "waited in vain");
            std::thread::yield_now();
        }
    }

    fn open(file: PathBuf) -> Option<Store> {
        Store::open(&StoreSettings::Embedded { file }).ok()
    }

    #[test]
    fn what_is_persisted_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state");
        let mut writer = EpochWriter::new(open(file.clone()).unwrap());
        writer.write(Now(0), 512);
        assert_eq!(until(|| writer.poll(Now(0))), Written::Persisted(512));
        assert_eq!(writer.poll(Now(0)), None, "said once");
        assert!(writer.trouble().is_none());
        drop(writer);
        // The file is unlocked once the store's thread has ended.
        let next = until(|| open(file.clone()));
        assert_eq!(next.last_epoch().wait().unwrap(), 512);
    }

    #[test]
    fn a_store_that_does_not_answer_has_failed_until_a_write_succeeds() {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let nobody = StoreSettings::Etcd { endpoints, cluster: "c".to_owned() };
        let mut writer = EpochWriter::new(Store::open(&nobody).unwrap());
        writer.write(Now(0), 512);
        assert_eq!(writer.poll(Now(PERSIST_MS)), Some(Written::Failed));
        assert!(writer.trouble().unwrap().contains("epochs cannot be persisted"));
        let folder = tempfile::tempdir().unwrap();
        writer.store = open(folder.path().join("state")).unwrap();
        writer.write(Now(0), 1_024);
        assert_eq!(until(|| writer.poll(Now(0))), Written::Persisted(1_024));
        assert!(writer.trouble().is_none(), "it is well again");
    }
}
