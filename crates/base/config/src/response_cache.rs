//! How responses of a pool are cached: a part of the settings table.

use std::collections::BTreeMap;

use crate::kind::{Form, HOUR_MS, Kind, count, ms, number, word};
use crate::number::Unit;
use crate::statuses::StatusPattern;
use crate::table::table;
use crate::words::{ObeyedRequests, RequestCookies, ResponseCookies, StorableStatuses};

table! {
    /// How responses of `pool` are cached, by RFC 9111. If off, no responses are; if on, those that the
    /// application allows a shared cache to store, and no others.
    ResponseCacheConfig at "cache" {
        /// Whether responses of the pool are cached.
        enabled: bool = false => Kind::Switch, live;
        /// Lifetime of a successful response that sets none: for pages that are the same for all clients
        /// (micro-caching). 0 disables this. Requests with cookies or credentials neither get nor create such
        /// responses, and `no-store`, `private` and Set-Cookie are respected.
        fresh_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// Lifetime of a response with 404, 405, 410 or 451 that sets none. 0 disables this.
        negative_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// Lifetimes of responses that set none, by status or class of statuses; they replace `fresh_ms`,
        /// `negative_ms` and `heuristic`. A class covers only the statuses that `statuses` allows; a status
        /// that is listed by itself is stored even if `statuses` does not allow it. 0: no lifetime. Requests
        /// with cookies or credentials neither get nor create such responses.
        status_lifetimes_ms: BTreeMap<StatusPattern, u64> = BTreeMap::new()
            => Kind::StatusLifetimes, live;
        /// Whether a response that has Last-Modified and sets no lifetime gets one: a tenth of the time since
        /// Last-Modified, at most an hour.
        heuristic: bool = false => Kind::Switch, live;
        /// How long a stale response that has been fresh is used while one request refreshes it. It applies
        /// where the response does not set this time (`stale-while-revalidate`) and does not forbid it
        /// (`must-revalidate`, `proxy-revalidate`, `no-cache`, `s-maxage`).
        stale_while_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// How long a stale response is used if the application fails: with 500, 502, 503 or 504, or without an
        /// answer. It applies where the response does not set this time (`stale-if-error`) and does not forbid
        /// it.
        stale_error_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// How long a stale response is used if no server answers, where the response does not forbid it. The
        /// time for failures, `stale-if-error` or `stale_error_ms`, applies if it is longer.
        stale_on_disconnect_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// Share of a response's lifetime, at its end, in which the response is refreshed in the background if
        /// it is requested often: once in the cluster, so that no client waits when it expires. The time within
        /// this part differs from response to response. 0 disables this.
        refresh_ahead_percent: u32 = 0 => number(Unit::Percent, 0..=90), live;
        /// Minimum number of requests that a node must have answered with such a response since it stored it.
        refresh_hits_min: u64 = 2 => count(1..=1_000_000_000), live;
        /// Statuses of responses that are stored: the `usual` ones (2xx, 3xx, 404, 405, 410, 451), or `any`.
        /// Odd requests can provoke errors of a server, which all clients would then get.
        statuses: StorableStatuses = StorableStatuses::Usual
            => word(StorableStatuses::WORDS), live;
        /// When a response with Set-Cookie is stored: `never`; `shared`: if it is meant for shared caches
        /// (`public`, `s-maxage`, CDN-Cache-Control); `always`. All clients then get the same cookie.
        set_cookie: ResponseCookies = ResponseCookies::Never
            => word(ResponseCookies::WORDS), live;
        /// How requests with cookies are handled: with `explicit`, they get and create only stored responses
        /// whose lifetime the application has set; with `ignore`, they are handled as if they had no cookies.
        cookies: RequestCookies = RequestCookies::Explicit
            => word(RequestCookies::WORDS), live;
        /// Cookies that are ignored, such as those of analytics: names, or prefixes with `*`.
        cookies_ignored: Vec<String> = Vec::new() => Kind::Texts(Form::NamePattern), live;
        /// Cookies with which a request bypasses the cache, such as that of a session: names, or prefixes with
        /// `*`. The request is not answered by a stored response, and its own response is not stored. Cookies
        /// of `cookies_ignored` and `key_cookies` never have this effect.
        bypass_cookies: Vec<String> = Vec::new() => Kind::Texts(Form::NamePattern), live;
        /// Fields with which a request bypasses the cache. It reaches the application with all of its fields,
        /// including those that are otherwise dropped because they could be reflected in responses to all other
        /// clients.
        bypass_fields: Vec<String> = Vec::new() => Kind::Texts(Form::FieldName), live;
        /// Fields that reach the application with a request whose response may be stored: names, or prefixes
        /// with `*`. Those of `key_fields`, Authorization and Cookie always do. All others that only a trusted
        /// proxy may set, such as `X-Forwarded-Host` and `X-Original-URL`, are never passed on from clients.
        request_fields: Vec<String> = vec!["*".into()] => Kind::Texts(Form::NamePattern), live;
        /// Field names in Vary with which a response is not stored: these fields have about as many values as
        /// there are clients.
        vary_refused: Vec<String> = vec!["Cookie".into(), "User-Agent".into()]
            => Kind::Texts(Form::FieldName), live;
        /// Directives of clients (Cache-Control of requests) that are obeyed: the `safe` ones, `no-store` and
        /// `only-if-cached`; or `all`, so that each reload in a browser reaches the application.
        obey: ObeyedRequests = ObeyedRequests::Safe => word(ObeyedRequests::WORDS), live;
        /// Query parameters that are neither part of the key nor forwarded: names, or prefixes with `*`, such
        /// as `["utm_*", "fbclid"]`.
        query_ignored: Vec<String> = Vec::new() => Kind::Texts(Form::NamePattern), live;
        /// Whether the order of query parameters has no meaning: they are sorted by name, also in forwarded
        /// requests.
        query_sorted: bool = false => Kind::Switch, live;
        /// Cookies that are part of the key: responses are stored separately for each of their values.
        key_cookies: Vec<String> = Vec::new() => Kind::Texts(Form::Name), live;
        /// Request fields that are part of the key: responses are stored separately for each of their values,
        /// even if Vary does not name them.
        key_fields: Vec<String> = Vec::new() => Kind::Texts(Form::FieldName), live;
        /// Whether `Cache-Status` shows the key to clients, if it has at most 1,024 bytes: for troubleshooting.
        show_key: bool = false => Kind::Switch, live;
    }
}
