//! How the responses of a pool are cached: the rules of a route, and the keys of its requests.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use skep_config::{
    ObeyedRequests, RequestCookies, ResponseCacheConfig, ResponseCookies, StatusPattern,
    StorableStatuses,
};
use skep_http::forward::Claims;
use skep_http::{RequestHead, path};
use skep_httpcache::{
    CachePolicy, CookiePolicy, HeuristicLifetime, KeyRules, ObeyedDirectives, RequestMeta,
    SecondaryKey, SetCookiePolicy, StatusLifetimes, StoredStatuses, VaryNames, is_untrusted,
    names_field,
};
use skep_segments::Fills;
use skep_wire::cache::{PurgeStamp, SegmentName};
use skep_wire::limits::PURGE_TARGET_BYTES_MAX;

use crate::limits::UNSTORABLE_IN_A_ROW_MAX;

/// The rules of a route.
#[derive(Debug)]
pub(crate) struct PoolCache {
    /// How responses are stored and reused.
    pub(crate) policy: CachePolicy,
    keys: KeyRules,
    /// Request fields that may be sent to servers: names in lower case, or prefixes followed by `*`.
    request_fields: Vec<String>,
    /// Whether the key is shown to clients.
    shows_key: bool,
    /// When responses are refreshed before they are stale, if they are.
    pub(crate) ahead: Option<RefreshAhead>,
    /// Fills from its servers.
    pub(crate) fills: Arc<Fills>,
    /// Refreshes in progress of responses that are not stale yet.
    pub(crate) refreshes_ahead: Arc<AtomicUsize>,
    /// Refreshes in progress of stale responses that are sent meanwhile.
    pub(crate) refreshes_stale: Arc<AtomicUsize>,
    /// Consecutive responses that could not be stored.
    unstorable: AtomicU32,
}

/// When a response is refreshed before it is stale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefreshAhead {
    /// The last part of the lifetime in which refreshes are made.
    percent: u64,
    /// Requests that the response must have answered.
    pub(crate) hits_min: u64,
}

impl RefreshAhead {
    fn new(config: &ResponseCacheConfig) -> Option<Self> {
        let percent = u64::from(config.refresh_ahead_percent);
        (percent > 0).then_some(Self { percent, hits_min: config.refresh_hits_min })
    }

    /// Whether a response with `left_ms` of its lifetime left is due: from a point in the second half of that
    /// part on. `spread` determines the point, so that responses stored together do not expire together.
    pub(crate) fn is_due(self, lifetime_ms: u64, left_ms: u64, spread: u64) -> bool {
        let part_ms = lifetime_ms.saturating_mul(self.percent) / 100;
        left_ms <= part_ms / 2 + spread % (part_ms / 2 + 1)
    }
}

/// The key of a request.
#[derive(Clone, Debug)]
pub(crate) struct PoolKey {
    /// Path and query in the site's form, without the parts that the key ignores: the name that purges use.
    pub(crate) target: Box<[u8]>,
    /// The part of the primary key behind that of the site.
    text: Box<[u8]>,
    /// Its last name in the cluster, and the purge since which that is valid.
    name: Cell<Option<(PurgeStamp, SegmentName)>>,
}

/// Request fields that name the client, or the path to it. Nodes write them, so they differ from those that
/// the client sent, and from client to client.
const CLIENT_FIELDS: &[&str] = &["forwarded", "x-forwarded-for", "x-real-ip", "via"];

impl PoolCache {
    /// The rules of a config; `None`: nothing is cached. `session_cookie`: the session cookie that nodes
    /// insert.
    pub(crate) fn new(config: &ResponseCacheConfig, session_cookie: Option<&str>) -> Option<Self> {
        let lower = |names: &[String]| -> Vec<_> {
            names.iter().map(|name| name.to_ascii_lowercase()).collect()
        };
        let keys = KeyRules {
            query_ignored: config.query_ignored.clone(),
            query_sorted: config.query_sorted,
            cookies: config.key_cookies.clone(),
            fields: lower(&config.key_fields),
        };
        config.enabled.then(|| Self {
            policy: policy(config, session_cookie),
            keys,
            request_fields: lower(&config.request_fields),
            shows_key: config.show_key,
            ahead: RefreshAhead::new(config),
            fills: Fills::new(false),
            refreshes_ahead: Arc::default(),
            refreshes_stale: Arc::default(),
            unstorable: AtomicU32::new(0),
        })
    }

    /// `key`, if it is shown to clients.
    pub(crate) fn shown_key<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.shows_key.then_some(key)
    }

    /// `path` and `query`, without the parts that the key ignores.
    pub(crate) fn target(&self, path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
        self.keys.target(&with_query(path, query)).into_owned()
    }

    /// The key of `request` for `target` ([`Self::target`]); `None`: the request has no key.
    pub(crate) fn key(
        &self,
        request: &RequestHead<'_, '_>,
        target: &[u8],
        claims: Claims,
    ) -> Option<PoolKey> {
        let text = self.primary_key(request, target, claims)?;
        Some(PoolKey { target: target.into(), text: text.into(), name: Cell::default() })
    }

    /// [`PoolKey::primary`] of [`Self::key`].
    pub(crate) fn primary_key(
        &self,
        request: &RequestHead<'_, '_>,
        target: &[u8],
        claims: Claims,
    ) -> Option<Vec<u8>> {
        let key = self.keys.key(scheme_of(request, claims), &request.authority, target, request);
        let mut text = key.ok()?;
        if claims != Claims::Replace {
            write_claims(&mut text, request);
        }
        Some(text)
    }

    /// Whether a request field is dropped if the response may be stored: a client could make the application
    /// reflect the field to all other clients, unless it is part of the key. Statements of trusted proxies
    /// about the client's path are part of the key, or have no effect on it. Many applications treat an
    /// underscore in a name as the hyphen of the name in the key.
    pub(crate) fn is_dropped(&self, name: &[u8], claims: Claims) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if self.keys.fields.iter().any(|known| is(known)) {
            return false;
        }
        let is_told = claims != Claims::Replace && is_claim(name);
        let is_wanted = self.request_fields.iter().any(|pattern| names_field(pattern, name))
            || ALWAYS_SENT.iter().any(|known| is(known));
        !is_told && (!is_wanted || name.contains(&b'_') || is_untrusted(name))
    }

    /// Whether a response with this Vary may serve other clients: not if it varies by the client's identity.
    pub(crate) fn may_vary(vary: &VaryNames) -> bool {
        !CLIENT_FIELDS.iter().any(|name| vary.has(name))
    }

    /// Whether `request` may wait for the response to another one, and others may wait for its response.
    pub(crate) fn may_collapse(&self, request: &RequestMeta<'_>) -> bool {
        let policy = &self.policy;
        let is_lengthened = policy.default_ms > 0
            || policy.negative_ms > 0
            || !policy.by_status.is_empty()
            || policy.heuristic.is_some();
        // Configured lifetimes do not apply to requests with cookies, which would therefore wait in vain.
        let is_of_one =
            request.has_cookie && policy.cookies == CookiePolicy::Bypass && is_lengthened;
        let is_stored = !(request.directives.no_store && policy.obeyed.no_store);
        request.method == skep_http::Method::Get
            && !request.has_authorization
            && !is_of_one
            && is_stored
            && self.unstorable.load(Ordering::Relaxed) < UNSTORABLE_IN_A_ROW_MAX
    }

    /// Records whether a response could be stored.
    pub(crate) fn was_stored(&self, is_stored: bool) {
        match is_stored {
            true => self.unstorable.store(0, Ordering::Relaxed),
            // The count does not wrap: above the bound it is not incremented.
            false if self.unstorable.load(Ordering::Relaxed) < UNSTORABLE_IN_A_ROW_MAX => {
                self.unstorable.fetch_add(1, Ordering::Relaxed);
            }
            false => {}
        }
    }
}

impl PoolKey {
    /// Identifies all responses under the key; also a response without Vary.
    pub(crate) fn primary(&self) -> &[u8] {
        &self.text
    }

    /// The name since the purge `purged`; computed by `make` once for all callers.
    pub(super) fn name(
        &self,
        purged: PurgeStamp,
        make: impl FnOnce() -> SegmentName,
    ) -> SegmentName {
        match self.name.get() {
            Some((since, name)) if since == purged => name,
            _ => {
                let name = make();
                self.name.set(Some((purged, name)));
                name
            }
        }
    }

    /// Identifies the response to requests with this secondary key.
    pub(crate) fn variant(&self, secondary: &SecondaryKey) -> Cow<'_, [u8]> {
        match secondary.as_bytes() {
            b"" => Cow::Borrowed(&self.text),
            // A line of a key is never empty.
            secondary => Cow::Owned([&*self.text, b"\n\n", secondary].concat()),
        }
    }
}

/// Whether a purge can name `target`. A response that no purge can name is not stored: it could not be
/// removed from all nodes, and purging a prefix instead, which any client could trigger by an unsafe method,
/// would remove many others.
pub(crate) fn is_named_by_purges(target: &[u8]) -> bool {
    path::place(target).len() <= PURGE_TARGET_BYTES_MAX
}

/// A path with its query, as in a request.
pub(crate) fn with_query(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    match query {
        Some(query) => [path, b"?", query].concat(),
        None => path.to_vec(),
    }
}

/// Fields sent to servers regardless of `request_fields`: without them no client could log in, and separate
/// rules decide whether a response to a request with them may be stored.
const ALWAYS_SENT: &[&str] = &["authorization", "cookie"];

fn is_claim(name: &[u8]) -> bool {
    const BEGIN: &[u8] = b"x-forwarded-";
    let begins = name.get(..BEGIN.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(BEGIN));
    begins || CLIENT_FIELDS.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()))
}

/// The scheme that the client used, according to the sources that are trusted to state it.
pub(crate) fn scheme_of(request: &RequestHead<'_, '_>, claims: Claims) -> &'static str {
    if claims.is_secure(request) { "https" } else { "http" }
}

/// Appends the statements of trusted proxies about the requested location, from which applications build
/// links: all that are forwarded, regardless of the result of [`scheme_of`].
fn write_claims(text: &mut Vec<u8>, request: &RequestHead<'_, '_>) {
    let names_client =
        |name: &[u8]| CLIENT_FIELDS.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()));
    let mut write = |name: &str, value: &[u8]| {
        text.extend_from_slice(b"\nclaim ");
        text.extend_from_slice(name.to_ascii_lowercase().as_bytes());
        text.push(b'=');
        text.extend_from_slice(value);
    };
    for (name, value) in request.fields.iter() {
        if name.eq_ignore_ascii_case("forwarded") {
            parameters_of_request(value).for_each(|parameter| write(name, parameter));
        } else if is_claim(name.as_bytes()) && !names_client(name.as_bytes()) {
            write(name, value);
        }
    }
}

/// The parameters of Forwarded (RFC 7239 4) that are not about the client: all but its `for`, if that is a
/// node (6). A part of a quoted string counts as one more parameter, which makes the key narrower than
/// necessary.
fn parameters_of_request(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parameters = value.split(|byte| matches!(byte, b';' | b',')).map(<[u8]>::trim_ascii);
    let is_of_node = |byte: &u8| byte.is_ascii_alphanumeric() || b".:_-[]\"".contains(byte);
    let is_of_client = move |it: &[u8]| {
        let node = it.get(..4).filter(|begin| begin.eq_ignore_ascii_case(b"for="));
        node.is_some_and(|_| it[4..].iter().all(is_of_node))
    };
    parameters.filter(move |it| !it.is_empty() && !is_of_client(it))
}

fn policy(config: &ResponseCacheConfig, session_cookie: Option<&str>) -> CachePolicy {
    let key_cookies = config.key_cookies.iter().map(String::as_str);
    let ignored = config.cookies_ignored.iter().map(String::as_str);
    let is_key = |name: &str| config.key_fields.iter().any(|key| key.eq_ignore_ascii_case(name));
    let refused = config.vary_refused.iter().filter(|name| !is_key(name));
    CachePolicy {
        statuses: match config.statuses {
            StorableStatuses::Usual => StoredStatuses::Usual,
            StorableStatuses::Any => StoredStatuses::Any,
        },
        set_cookie: match config.set_cookie {
            ResponseCookies::Never => SetCookiePolicy::Never,
            ResponseCookies::Shared => SetCookiePolicy::Shared,
            ResponseCookies::Always => SetCookiePolicy::Always,
        },
        cookies: match config.cookies {
            RequestCookies::Explicit => CookiePolicy::Bypass,
            RequestCookies::Ignore => CookiePolicy::Ignore,
        },
        // Requests with the same key have equal key cookies, and cookies that nodes insert are not sent to
        // servers.
        cookies_ignored: ignored
            .chain(key_cookies)
            .chain(session_cookie)
            .map(str::to_owned)
            .collect(),
        bypass_cookies: config.bypass_cookies.clone(),
        bypass_fields: config.bypass_fields.clone(),
        vary_refused: refused.map(|name| name.to_ascii_lowercase()).collect(),
        heuristic: config.heuristic.then(HeuristicLifetime::default),
        default_ms: config.fresh_ms,
        default_without_validator: true,
        negative_ms: config.negative_ms,
        by_status: status_lifetimes(config),
        stale_while_ms: config.stale_while_ms,
        stale_error_ms: config.stale_error_ms,
        stale_on_disconnect_ms: config.stale_on_disconnect_ms,
        obeyed: match config.obey {
            ObeyedRequests::Safe => ObeyedDirectives::SAFE,
            ObeyedRequests::All => ObeyedDirectives::ALL,
        },
        ..CachePolicy::safe()
    }
}

fn status_lifetimes(config: &ResponseCacheConfig) -> StatusLifetimes {
    let (mut exact, mut classes) = (Vec::new(), Vec::new());
    for (status, lifetime_ms) in &config.status_lifetimes_ms {
        match status {
            StatusPattern::Exact(status) => exact.push((*status, *lifetime_ms)),
            StatusPattern::Class(digit) => classes.push((*digit, *lifetime_ms)),
        }
    }
    StatusLifetimes::new(exact, classes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_http::{FieldSlots, limits, parse_request};

    use super::*;

    fn cache() -> PoolCache {
        let config = ResponseCacheConfig { enabled: true, ..ResponseCacheConfig::default() };
        PoolCache::new(&config, Some("skep-p")).unwrap()
    }

    fn key(claims: Claims, fields: &str) -> PoolKey {
        let text = format!("GET /a HTTP/1.1\r\nHost: A\r\n{fields}\r\n");
        let mut slots = FieldSlots::new();
        let head = parse_request(&mut slots, text.as_bytes(), &limits::RESPONSE_HEAD).unwrap();
        cache().key(&head, b"/a", claims).unwrap()
    }

    #[test]
    fn a_response_is_due_in_the_last_part_of_its_lifetime_each_at_its_own_time() {
        let config =
            ResponseCacheConfig { refresh_ahead_percent: 20, ..ResponseCacheConfig::default() };
        let ahead = RefreshAhead::new(&config).unwrap();
        let dues: Vec<u64> = (0..1_000)
            .map(|spread: u64| {
                let spread = skep_units::stable_hash(&spread.to_le_bytes(), 1);
                (0..=10_000).rev().find(|left_ms| ahead.is_due(10_000, *left_ms, spread)).unwrap()
            })
            .collect();
        assert!(dues.iter().all(|left_ms| (1_000..=2_000).contains(left_ms)));
        let early = dues.iter().filter(|left_ms| **left_ms > 1_500).count();
        assert!((400..600).contains(&early), "{early}");
        assert!(RefreshAhead::new(&ResponseCacheConfig::default()).is_none());
        assert!(!ahead.is_due(0, 1, 0), "nor what has no lifetime");
    }

    #[test]
    fn what_trusted_proxies_say_is_part_of_the_key_and_what_clients_say_is_not() {
        let plain = key(Claims::Replace, "");
        assert_eq!(*plain.text, *b"http://a/a");
        let lies =
            "X-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 6.6.6.6\r\n";
        assert_eq!(key(Claims::Replace, lies).text, plain.text);
        let told = "https://a/a\nclaim x-forwarded-host=evil\nclaim x-forwarded-proto=https";
        for claims in [Claims::Extend, Claims::Keep] {
            assert_eq!(*key(claims, lies).text, *told.as_bytes());
        }
        let key = |fields: &str| key(Claims::Extend, fields).text;
        // An application that reads the second field builds other links.
        let twice = "X-Forwarded-Proto: http\r\nX-Forwarded-Proto: https\r\n";
        assert_ne!(key(twice), key("X-Forwarded-Proto: http\r\n"));
        let forwarded = |of: &str| key(&format!("Forwarded: for=6.6.6.6, FOR=\"[::1]\"{of}\r\n"));
        assert_eq!(*forwarded(""), *b"http://a/a");
        assert_eq!(
            *forwarded("; Host=evil;proto=https"),
            *b"http://a/a\nclaim forwarded=Host=evil\nclaim forwarded=proto=https"
        );
    }

    #[test]
    fn fields_that_are_in_no_key_are_dropped() {
        let cache = cache();
        for name in ["X-Original-URL", "x-http-method-override", "X-Host", "Accept_Language"] {
            for claims in [Claims::Replace, Claims::Extend, Claims::Keep] {
                assert!(cache.is_dropped(name.as_bytes(), claims), "{name}");
            }
        }
        for name in ["X-Forwarded-For", "x-forwarded-prefix", "Forwarded", "X-Real-IP"] {
            assert!(cache.is_dropped(name.as_bytes(), Claims::Replace), "{name}");
            assert!(!cache.is_dropped(name.as_bytes(), Claims::Extend), "{name}");
        }
        assert!(!cache.is_dropped(b"Accept", Claims::Replace));
    }

    #[test]
    fn servers_get_the_fields_that_a_route_lists_and_those_of_its_keys() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let config = ResponseCacheConfig {
            enabled: true,
            key_fields: list(&["X-Host", "X_Own"]),
            request_fields: list(&["Accept*", "x-a", "x-original-url"]),
            ..ResponseCacheConfig::default()
        };
        let cache = PoolCache::new(&config, None).unwrap();
        for name in
            ["accept", "ACCEPT-LANGUAGE", "X-A", "x-host", "x_own", "Cookie", "Authorization"]
        {
            assert!(!cache.is_dropped(name.as_bytes(), Claims::Replace), "{name}");
        }
        // A list cannot allow fields that only proxies may send.
        for name in ["User-Agent", "X-B", "X-Original-URL", "X-Forwarded-Host", "accept_x"] {
            assert!(cache.is_dropped(name.as_bytes(), Claims::Replace), "{name}");
        }
        assert!(!cache.is_dropped(b"X-Forwarded-Host", Claims::Extend), "it is part of the key");
    }

    #[test]
    fn a_response_that_depends_on_who_asks_serves_nobody_else() {
        let vary = |name: &'static str| VaryNames::parse([name.as_bytes()].into_iter());
        assert!(!PoolCache::may_vary(&vary("X-Forwarded-For, Accept")));
        assert!(PoolCache::may_vary(&vary("Accept-Encoding, X-Forwarded-Proto")));
    }
}
