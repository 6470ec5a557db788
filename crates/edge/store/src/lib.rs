//! The store of control state: config, epoch, leadership and other small values, either in a file
//! of this machine or in an etcd that several machines share.
//!
//! Invariants: no call blocks the caller's thread; every call has a deadline and ends with a value or a typed
//! error; no packet or request waits for this crate. An unavailable store is reported as "unknown", never as
//! "nobody", and is reconnected automatically. Two leaders at once are possible for a moment (a lease is not
//! a lock): every message of a leader carries its epoch.
//!
//! Why the gRPC messages are written by hand: `docs/decisions/0009-store.md`.

#![forbid(unsafe_code)]

mod backend;
mod embedded;
mod error;
mod etcd;
mod file;
mod latest;
mod limits;
mod pending;
mod store;
mod types;

pub use error::{StoreError, StoreOpenError};
pub use limits::{
    CALL_TIMEOUT_MS, CONFIG_BYTES_MAX, ENDPOINTS_MAX, KEY_BYTES_MAX, LEASE_TTL_MAX_S,
    LEASE_TTL_MIN_S, VALUE_BYTES_MAX,
};
pub use pending::Pending;
pub use store::{Campaign, Store, StoreSettings, Watch};
pub use types::{Expected, Health, Leader, LeadershipView, Seen, StoredValue};
