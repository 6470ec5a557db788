//! The two stores behind one set of operations. Keys are complete at this level, and values are opaque;
//! `store.rs` defines their meaning.

use tokio::time::{Instant, timeout_at};

use crate::embedded::Embedded;
use crate::error::StoreError;
use crate::etcd::Etcd;
use crate::file::Read;
use crate::types::{Expected, Health};

/// The backend of the store.
pub(crate) enum Backend {
    Embedded(Embedded),
    Etcd(Etcd),
}

impl Backend {
    /// Reads the value at `key`, from the last confirmed write.
    pub(crate) async fn get(&self, key: &str, deadline: Instant) -> Result<Read, StoreError> {
        match self {
            Self::Embedded(file) => in_time(deadline, file.get(key)).await,
            Self::Etcd(etcd) => in_time(deadline, etcd.get(key, deadline)).await,
        }
    }

    /// Writes `value` at `key` if the present value is as expected; returns the revision.
    pub(crate) async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
        deadline: Instant,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Embedded(file) => in_time(deadline, file.put(key, value, expected)).await,
            Self::Etcd(etcd) => in_time(deadline, etcd.put(key, value, expected, deadline)).await,
        }
    }

    /// Returns when `key` may have been written after revision `as_of`: a hint, which must be followed by a
    /// read. It may return too often or too late.
    pub(crate) async fn changed(&self, key: &str, as_of: u64) {
        match self {
            Self::Embedded(file) => file.changed(as_of).await,
            Self::Etcd(etcd) => etcd.changed(key, as_of).await,
        }
    }

    /// The health of all parts of the store.
    pub(crate) async fn health(&self, deadline: Instant) -> Health {
        match self {
            Self::Etcd(etcd) => etcd.health(deadline).await,
            Self::Embedded(file) => {
                timeout_at(deadline, file.health()).await.unwrap_or_else(|_| Health {
                    answering: 0,
                    of: 1,
                    what: "files",
                    problems: vec![format!("{}: the disk is slow", file.path().display())],
                })
            }
        }
    }
}

async fn in_time<T>(
    deadline: Instant,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout_at(deadline, operation).await.unwrap_or(Err(StoreError::Timeout))
}
