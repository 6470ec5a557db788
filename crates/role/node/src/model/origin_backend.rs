//! The origins of a route, as configured by the operator.

use std::sync::Arc;

use skep_config::BackendConfig;
use skep_httpcache::{CachePolicy, CookiePolicy, FailureStatuses, SetCookiePolicy, StoredStatuses};
use skep_origin::{OriginLimits, OriginUrl, OriginUrlError};
use skep_segments::Fills;

/// The origins of a route.
#[derive(Debug)]
pub(crate) struct OriginBackend {
    pub(crate) urls: Vec<OriginUrl>,
    /// Value of the field Host; `None`: the origin's own name.
    pub(crate) host: Option<String>,
    pub(crate) limits: OriginLimits,
    /// How responses are stored and reused.
    pub(crate) policy: Box<CachePolicy>,
    /// Fills from its origins.
    pub(crate) fills: Arc<Fills>,
    /// Identifies the route in names: equal on all nodes with the same config.
    key: Vec<u8>,
    /// Whether the route itself sets how clients may cache its responses.
    pub(crate) sets_cache_control: bool,
}

impl OriginBackend {
    /// The origins of a config, for a site with these host names. `is_alone`: no other route has
    /// origins.
    pub(crate) fn new(
        config: &BackendConfig,
        hosts: &[String],
        is_alone: bool,
    ) -> Result<Self, OriginUrlError> {
        let urls = config.origins.iter().map(|text| OriginUrl::parse(text));
        let whole_name = hosts.first().filter(|host| !host.starts_with('*'));
        let fetch = &config.fetch;
        let host = fetch.host.as_ref().or(whole_name).cloned();
        let key = format!("origins {} as {host:?}", config.origins.join(" "));
        Ok(Self {
            urls: urls.collect::<Result<_, _>>()?,
            host,
            limits: OriginLimits {
                connections_max: fetch.connections_max as usize,
                connect_timeout_ms: fetch.connect_timeout_ms,
                first_byte_timeout_ms: fetch.response_timeout_ms,
                progress_timeout_ms: fetch.stall_timeout_ms,
                ..OriginLimits::default()
            },
            policy: Box::new(policy(fetch.fresh_ms)),
            fills: Fills::new(is_alone),
            key: key.into_bytes(),
            sets_cache_control: config.cache_control.is_some(),
        })
    }

    /// Identifies the route in names.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Statuses of responses that are cached: objects, redirects, and errors that take the place of an
/// object.
const STORED_STATUSES: &[u16] = &[200, 206, 301, 302, 307, 308, 404, 410];

/// The policy for origins, whose responses are the same for all clients: requests carry no client
/// data. Stricter than RFC 9111, which is sufficient for static content.
fn policy(fresh_ms: u64) -> CachePolicy {
    CachePolicy {
        statuses: StoredStatuses::Only(STORED_STATUSES),
        set_cookie: SetCookiePolicy::Never,
        cookies: CookiePolicy::Ignore,
        vary_refused: Vec::new(),
        // Static content names no fields; a response that does is for one client.
        honours_field_names: false,
        default_ms: fresh_ms,
        failures: FailureStatuses::Overload,
        ..CachePolicy::safe()
    }
}
