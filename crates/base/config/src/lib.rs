//! The settings table and what is derived from it: parser, messages, reference.
//!
//! `schema.rs` and `pools.rs` define every setting once: name, type, unit, limits, default, doc,
//! and whether it is reloadable. From these entries, the typed [`Config`], the parser with its
//! messages, [`Config::to_toml`], [`settings_help`] and [`reference_markdown`] are derived.
//!
//! ```text
//! text --raw.rs--> Raw (spans kept) --read.rs--> typed --check.rs--> Config
//!                     every fault on the way --error.rs--> ConfigErrors
//! ```
//!
//! Invariants: a `Config` returned by [`Config::parse`] has no fault that can be detected from the
//! file alone (the role checks whether a root exists). No input causes a panic. This crate opens no
//! file and no socket.

#![forbid(unsafe_code)]

mod arms;
mod check;
mod clients;
mod compress;
mod config;
mod elastic;
mod error;
mod form;
mod gateways;
mod kind;
pub mod limits;
mod number;
mod pools;
mod power;
mod raw;
mod read;
mod recorder;
mod reference;
mod replies;
mod response_cache;
mod schema;
mod section;
mod settings;
mod statuses;
mod table;
mod value;
mod words;
mod write;

pub use arms::ArmConfig;
pub use clients::{ClientNetworkConfig, LimitsConfig, TimeoutsConfig};
pub use compress::CompressConfig;
pub use config::changes_needing_restart;
pub use elastic::ElasticConfig;
pub use error::{ConfigError, ConfigErrors, ErrorKind};
pub use gateways::{AjpConfig, FcgiConfig};
pub use kind::{Form, Kind};
pub use number::{Unit, parse_duration_ms, parse_size};
pub use pools::{ForwardConfig, PoolConfig, PoolHealthConfig, ServerConfig};
pub use power::PowerConfig;
pub use recorder::RecorderConfig;
pub use reference::{reference_markdown, settings_help};
pub use replies::ReplyConfig;
pub use response_cache::ResponseCacheConfig;
pub use schema::{
    AGENT_PORT, AdminConfig, AgentConfig, BackendConfig, CacheConfig, Config, DirectConfig,
    DispatcherConfig, EtcdConfig, FetchConfig, HandoffConfig, HealthConfig, LogConfig,
    MachineConfig, MetricsConfig, NodeConfig, RedirectConfig, RouteConfig, ServiceConfig,
    SiteConfig, SpoolConfig, setting, settings, tables,
};
pub use section::{Setting, TableDoc};
pub use statuses::StatusPattern;
pub use words::{
    AccessLogTarget, Attach, ConnectionsScope, ContentPlacement, DIRECT_POLICY_NAMES, DispatchMode,
    HandoffDecision, HandoffTransport, Level, LogFormat, ObeyedRequests, POLICY_NAMES,
    PoolProtocol, RequestCookies, ResponseCookies, SameSite, ScriptWord, StatusAgent, StickyBy,
    StorableStatuses, StoreKind, Symlinks, UnderscoreFields,
};
