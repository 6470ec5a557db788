//! How responses of a pool are cached: a part of the settings table.

use std::collections::BTreeMap;

use crate::kind::{Form, HOUR_MS, Kind, count, ms, number, word};
use crate::number::Unit;
use crate::statuses::StatusPattern;
use crate::table::table;
use crate::words::{ObeyedRequests, RequestCookies, ResponseCookies, StorableStatuses};

table! {
    /// How responses of `pool` are cached, by RFC 9111. Off, nothing of it is cached; on, what the
    /// application allows a shared cache to store is, and nothing else.
    ResponseCacheConfig at "cache" {
        /// Whether responses of the pool are cached.
        enabled: bool = false => Kind::Switch, live;
        /// Lifetime of a successful response that sets none: for pages that are the
        /// same for all (micro-caching). 0 is not at all. Requests with cookies never see or make
        /// such responses, and `no-store`, `private` and Set-Cookie are heeded.
        fresh_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// Lifetime of a response with 404, 405, 410 or 451 that sets none. 0 is
        /// not at all.
        negative_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// Lifetime of a response with this status that sets none: of a status, or of a class of
        /// those that `statuses` has; in place of `fresh_ms`, `negative_ms` and `heuristic`. A status that is named
        /// by itself is stored also if `statuses` does not have it. 0 is not at all. Requests with cookies or
        /// credentials never see or make such responses.
        status_lifetimes_ms: BTreeMap<StatusPattern, u64> = BTreeMap::new()
            => Kind::StatusLifetimes, live;
        /// Whether a response with Last-Modified that gives no lifetime is used for a tenth of the time since
        /// then, an hour at most.
        heuristic: bool = false => Kind::Switch, live;
        /// How long a stale response is used while one request refreshes it, where the response does not say it
        /// (`stale-while-revalidate`) and does not forbid it (`must-revalidate`, `proxy-revalidate`, `no-cache`,
        /// `s-maxage`). For what has been fresh.
        stale_while_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// How long a stale response is used if the application fails, with 500, 502, 503, 504 or without an
        /// answer, where the response does not say it (`stale-if-error`) and does not forbid it.
        stale_error_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// How long a stale response is used if no server answers, beside what it allows itself.
        stale_on_disconnect_ms: u64 = 0 => ms(0..=24 * HOUR_MS), live;
        /// In the last part of its lifetime, by this share of it, a response that is asked for often is
        /// refreshed in the background, once in the cluster: no client waits when it expires. When in that part
        /// differs from response to response. 0 is never.
        refresh_ahead_percent: u32 = 0 => number(Unit::Percent, 0..=90), live;
        /// How many requests of a node such a response must have answered since it was stored there.
        refresh_hits_min: u64 = 2 => count(1..=1_000_000_000), live;
        /// Which statuses are stored: the `usual` ones (2xx, 3xx, 404, 405, 410, 451), or `any`.
        /// Errors of a server can be provoked by odd requests; all clients would get them.
        statuses: StorableStatuses = StorableStatuses::Usual
            => word(StorableStatuses::WORDS), live;
        /// When a response with Set-Cookie is stored: `never`; if it is for `shared` caches (`public`,
        /// `s-maxage`, CDN-Cache-Control); `always`. All clients get the same cookie then.
        set_cookie: ResponseCookies = ResponseCookies::Never
            => word(ResponseCookies::WORDS), live;
        /// What becomes of requests with cookies: `explicit` ones see and make only stored responses
        /// to which the application gave a lifetime; `ignore` is as if they had none.
        cookies: RequestCookies = RequestCookies::Explicit
            => word(RequestCookies::WORDS), live;
        /// Cookies that do not count, such as those of analytics: names, or beginnings with `*`.
        cookies_ignored: Vec<String> = Vec::new() => Kind::Texts(Form::NamePattern), live;
        /// Cookies with which a request goes past the cache, such as that of a session: names, or
        /// beginnings with `*`. Neither is a stored response used for it, nor its own stored. Those of
        /// `cookies_ignored` and `key_cookies` are not meant, whatever is named here.
        bypass_cookies: Vec<String> = Vec::new() => Kind::Texts(Form::NamePattern), live;
        /// Fields with which a request goes past the cache, and reaches the application with all of its fields:
        /// also with those that are dropped else, because clients could have them reflected to all others.
        bypass_fields: Vec<String> = Vec::new() => Kind::Texts(Form::FieldName), live;
        /// Which fields reach the application with a request whose response may be stored: names, or beginnings
        /// with `*`. Beside them those of `key_fields`, Authorization and Cookie; never those that only a trusted
        /// proxy may say, such as `X-Forwarded-Host` and `X-Original-URL`.
        request_fields: Vec<String> = vec!["*".into()] => Kind::Texts(Form::NamePattern), live;
        /// Names in Vary with which a response is not stored: they have about as many values as there are clients.
        vary_refused: Vec<String> = vec!["Cookie".into(), "User-Agent".into()]
            => Kind::Texts(Form::FieldName), live;
        /// Directives of clients (Cache-Control of requests) that are obeyed: the `safe` ones,
        /// `no-store` and `only-if-cached`; or `all`, so that each reload in a browser reaches the
        /// application.
        obey: ObeyedRequests = ObeyedRequests::Safe => word(ObeyedRequests::WORDS), live;
        /// Query parameters that neither count nor are forwarded: names, or beginnings with `*`, such as
        /// `["utm_*", "fbclid"]`.
        query_ignored: Vec<String> = Vec::new() => Kind::Texts(Form::NamePattern), live;
        /// Whether the order of query parameters means nothing: they are sorted by name, in what is
        /// forwarded, too.
        query_sorted: bool = false => Kind::Switch, live;
        /// Cookies for each value of which responses are stored apart.
        key_cookies: Vec<String> = Vec::new() => Kind::Texts(Form::Name), live;
        /// Request fields for each value of which responses are stored apart, also if Vary does not
        /// name them.
        key_fields: Vec<String> = Vec::new() => Kind::Texts(Form::FieldName), live;
        /// Whether `Cache-Status` shows clients the key, if it has at most 1,024 bytes: to look for faults.
        show_key: bool = false => Kind::Switch, live;
    }
}
