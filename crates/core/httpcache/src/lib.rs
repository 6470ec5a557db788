//! The rules of a shared HTTP cache (RFC 9111) without I/O: heads in, verdicts out.
//!
//! ```text
//!   request  -> RequestMeta ---+--> KeyRules::key, VaryNames::secondary_key, select_variant
//!                              |
//!   stored   -> Freshness -----+--> reuse        send | send and validate | validate | 504
//!                              |
//!   response -> ResponseMeta --+--> store        Freshness, or the rule that forbids it
//!                              +--> validated    which of the stored ones a 304 renews
//!                              +--> invalidated  what an unsafe request makes stale
//!                              '--> on_failure   stale, or the error
//!
//!   CachePolicy: what the RFC leaves to the operator.     CachingRule: why, with its section.
//! ```
//!
//! Storage and eviction are elsewhere: this crate does not handle bodies.
//!
//! Invariants:
//! - In doubt, a response is stored for a shorter time, or not at all.
//! - `no-store` and `private` take precedence over everything except what the RFCs specify:
//!   `must-understand`, and targeted fields.
//! - No age is negative, no time overflows, no input from the network causes a panic.
//! - Times are durations since the receipt of a head; only Date, Expires and Last-Modified, which
//!   the origin states, are points in time.

#![forbid(unsafe_code)]

mod cache_status;
mod cookies;
mod directives;
mod freshness;
mod invalidate;
mod key;
pub mod limits;
mod list;
mod policy;
mod reply;
mod request;
mod response;
mod reuse;
mod rule;
mod store;
mod structured;
mod tags;
mod untrusted;
mod validate;
mod vary;

pub use cache_status::{CacheStatus, ForwardReason};
pub use directives::{DirectiveScope, RequestDirectives, ResponseDirectives, TARGETED_FIELDS};
pub use freshness::Freshness;
pub use invalidate::{TargetUri, invalidated, invalidated_groups, is_safe};
pub use key::{KeyRules, Unkeyed};
pub use policy::{
    CachePolicy, CookiePolicy, FailureStatuses, HeuristicLifetime, ObeyedDirectives,
    SetCookiePolicy, StatusLifetimes, StoredStatuses,
};
pub use reply::{StoredReply, stored_reply};
pub use request::RequestMeta;
pub use response::{ExchangeTimes, FieldLine, ResponseMeta};
pub use reuse::{OnFailure, OriginFailure, Reuse, may_forward, on_failure, reuse};
pub use rule::CachingRule;
pub use store::{is_stored_field, may_store, store};
pub use tags::tags;
pub use untrusted::{is_untrusted, names_field};
pub use validate::{
    HeadUpdate, Validated, head_update, may_combine, updated, updated_lines, validated,
    write_conditions, write_if_range,
};
pub use vary::{SecondaryKey, StoredVariant, VaryNames, select_variant};
