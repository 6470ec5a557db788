//! Where control state lives: config, epoch, leadership and other small values,
//! either in a file of this machine or in an etcd that several machines share.
//!
//! Invariants: no call waits in the caller's thread; every call has a deadline
//! and ends in a value or a typed error; nothing that packets or requests need
//! waits for this crate. A store that is gone is told as "unknown", never as
//! "nobody", and is found again without help. Two leaders at once are possible
//! for a moment (a lease is no lock): what a leader says carries its epoch.
//!
//! Why gRPC by hand: `docs/decisions/0009-store.md`.

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
