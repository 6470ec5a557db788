//! Explains whether and why this node caches the response to a request: the site and route that match, the
//! cache key, and the state of the head caches. It only looks up state in memory: it reads no disk and asks
//! no server or other node.

use std::sync::Arc;

use arc_swap::ArcSwap;
use skep_http::limits::NODE_RESPONSE_HEAD;
use skep_http::path::{self, Path, Reading};
use skep_http::{FieldSlots, Method, RequestHead, parse_request};
use skep_httpcache::{CachingRule, RequestMeta, Reuse, reuse};
use skep_segments::SegmentStore;
use skep_serve::monotonic_ms;
use skep_units::stable_hash;
use skep_wire::cache::{
    ExplainJudged, ExplainReason, ExplainRequest, ExplainVariant, ExplainVerdict, Explanation,
};
use skep_wire::limits::EXPLAIN_TEXT_BYTES_MAX;

use crate::backend::dynamic::LookupOutcome;
use crate::backend::files::catalog::Catalog;
use crate::http::cacheable::Cacheable;
use crate::limits::FORGOTTEN_SEGMENTS_MAX;
use crate::model::conditions::RouteInput;
use crate::model::pool_backend::PoolBackend;
use crate::model::pool_cache::with_query;
use crate::model::resource::Resource;
use crate::model::route::{Backend, Route};

/// See [`crate::Node::explain`].
pub(crate) fn explainer(
    catalog: &Arc<ArcSwap<Catalog>>,
    store: &Arc<SegmentStore>,
) -> impl Fn(&ExplainRequest) -> Option<Explanation> + Send + use<> {
    let (catalog, store) = (Arc::clone(catalog), Arc::clone(store));
    move |request| {
        let mut slots = FieldSlots::new();
        let head = parse_request(&mut slots, &request.head, &NODE_RESPONSE_HEAD).ok()?;
        let explainer = Explainer {
            catalog: &catalog.load(),
            store: &store,
            request: &head,
            is_forwarded: request.is_forwarded,
        };
        Some(explainer.explain())
    }
}

struct Explainer<'a> {
    catalog: &'a Catalog,
    store: &'a SegmentStore,
    request: &'a RequestHead<'a, 'a>,
    is_forwarded: bool,
}

impl Explainer<'_> {
    fn explain(&self) -> Explanation {
        let request = self.request;
        let nowhere = |why: &str| Explanation {
            verdict: ExplainVerdict::Refused,
            reason: reason(why),
            target: text(request.target.as_bytes()),
            ..Explanation::default()
        };
        let Some(site) = self.catalog.sites().find(&request.authority) else {
            return nowhere("no-site");
        };
        let (route, path) = match site.route(request.path, RouteInput::of(request)) {
            Ok(found) => found,
            Err(reject) => return nowhere(reject.reason),
        };
        let explanation = match &route.backend {
            _ if site.moved(&path).is_some() => passed("redirect"),
            Backend::Reply(_) => passed("fixed-reply"),
            Backend::Origin(_) => self.of_origin(route, &path),
            Backend::Pool(pool) => self.of_pool(route, pool, &path),
            Backend::Folder(folder) => {
                let is_read = matches!(request.method, Method::Get | Method::Head);
                let file = self.catalog.known(route, path.key()).filter(|_| is_read);
                match (&folder.pool, path::read(request.path, Reading::Origins)) {
                    (Some(pool), Ok(path)) if file.is_none() => self.of_pool(route, pool, &path),
                    _ => self.of_file(file.as_deref()),
                }
            }
        };
        let target = match explanation.target.is_empty() {
            true => text(&with_query(&path.place(), request.query)),
            false => explanation.target,
        };
        let label = |label: &str| text(label.as_bytes());
        Explanation {
            site: label(&route.label.site),
            route: label(&route.label.path),
            backend: label(&route.label.backend),
            target,
            ..explanation
        }
    }

    fn of_file(&self, file: Option<&Resource>) -> Explanation {
        let Some(file) = file else {
            return Explanation {
                verdict: ExplainVerdict::Fetched,
                reason: reason("file"),
                ..Explanation::default()
            };
        };
        let now_ms = monotonic_ms();
        let interval_ms = self.catalog.interval_ms();
        let fresh_ms = file.fresh_ms(now_ms, interval_ms);
        let is_current = file.is_current(now_ms, interval_ms);
        let why = if is_current { "file-checked" } else { "file-unchecked" };
        let variant = ExplainVariant {
            age_s: interval_ms.saturating_sub(fresh_ms) / 1000,
            ttl_s: i64::try_from(fresh_ms / 1000).unwrap_or(i64::MAX),
            lifetime: reason("file-checked"),
            ..self.variant(file, true)
        };
        Explanation {
            verdict: if is_current { ExplainVerdict::Hit } else { ExplainVerdict::Validated },
            reason: reason(why),
            variants: vec![variant],
            ..Explanation::default()
        }
    }

    fn of_origin(&self, route: &Arc<Route>, path: &Path<'_>) -> Explanation {
        let target = with_query(path.key(), self.request.query);
        let Some(origin) = route.origin() else { return Explanation::default() };
        if !matches!(self.request.method, Method::Get | Method::Head) {
            return Explanation { verdict: ExplainVerdict::Refused, ..passed("method-refused") };
        }
        let known = self.catalog.origin_heads().explain(route, &target);
        let now_ms = monotonic_ms();
        let pause = known.pause.map(|(until_ms, why)| (until_ms.saturating_sub(now_ms), why));
        let marked = pause.filter(|(left_ms, _)| *left_ms > 0);
        let freshness = known.kept.as_ref().and_then(|kept| kept.freshness());
        let (verdict, why) = match (freshness, marked) {
            (Some(freshness), marked) => {
                let (rules, resident_ms) = freshness.rules(now_ms);
                match reuse(&rules, &RequestMeta::PLAIN_GET, resident_ms, &origin.policy) {
                    Reuse::Send(rule) => (ExplainVerdict::Hit, rule.token()),
                    Reuse::SendAndValidate(rule) => {
                        (ExplainVerdict::HitWhileRefreshed, rule.token())
                    }
                    _ if marked.is_some() => (ExplainVerdict::Passed, marked.unwrap_or_default().1),
                    Reuse::Validate(rule) | Reuse::Bypass(rule) | Reuse::GatewayTimeout(rule) => {
                        (ExplainVerdict::Validated, rule.token())
                    }
                }
            }
            (None, Some((_, why))) => (ExplainVerdict::Passed, why),
            (None, None) => (ExplainVerdict::Fetched, "uri-miss"),
        };
        // `marked` concerns the last response that was not stored; its age is not recorded.
        Explanation {
            target: text(&target),
            verdict,
            reason: reason(why),
            marked: marked.map(|(left_ms, why)| (left_ms, reason(why))),
            variants: known.kept.iter().map(|kept| self.variant(kept, true)).collect(),
            ..Explanation::default()
        }
    }

    fn of_pool(&self, route: &Arc<Route>, pool: &PoolBackend, path: &Path<'_>) -> Explanation {
        let target = text(&with_query(path.target(), self.request.query));
        if !pool.allows(self.request.method) {
            let refused = passed("method-refused");
            return Explanation { target, verdict: ExplainVerdict::Refused, ..refused };
        }
        let Some(cache) = &pool.cache else {
            return Explanation { target, ..passed("cache-off") };
        };
        let claims = pool.claims(self.is_forwarded);
        let of = match Cacheable::of(self.request, (pool, cache), path, claims) {
            Ok(Ok(of)) => of,
            Ok(Err(past)) => return Explanation { target, ..passed(past.why) },
            Err(reject) => {
                let refused = passed(reject.reason);
                return Explanation { target, verdict: ExplainVerdict::Refused, ..refused };
            }
        };
        let heads = self.catalog.pool_heads();
        let known = heads.explain((route, cache), &of.key, self.request, &of.meta);
        let verdict = match known.outcome {
            LookupOutcome::Hit => ExplainVerdict::Hit,
            LookupOutcome::HitWhileRefreshed => ExplainVerdict::HitWhileRefreshed,
            LookupOutcome::Ask | LookupOutcome::Alone if known.has_kept => {
                ExplainVerdict::Validated
            }
            LookupOutcome::Ask => ExplainVerdict::Fetched,
            LookupOutcome::Alone => ExplainVerdict::Passed,
            LookupOutcome::Refusal => ExplainVerdict::Refused,
        };
        let now_ms = monotonic_ms();
        Explanation {
            target: text(&of.key.target),
            key: Some(text(of.key.primary())),
            verdict,
            reason: reason(known.why),
            marked: known.marked.map(|(left_ms, why)| (left_ms, reason(why))),
            variants: known.variants.iter().map(|(it, is_for)| self.variant(it, *is_for)).collect(),
            judged: known.judged.map(|it| ExplainJudged {
                ago_ms: now_ms.saturating_sub(it.at_ms),
                status: it.status,
                is_stored: it.is_stored,
                reason: reason(it.why),
            }),
            ..Explanation::default()
        }
    }

    fn variant(&self, resource: &Resource, is_for_request: bool) -> ExplainVariant {
        let now_ms = monotonic_ms();
        let object = &resource.variants.plain;
        let names = object.segment_names().take(FORGOTTEN_SEGMENTS_MAX);
        let here = names.filter(|name| self.store.has(name)).count();
        let (age_s, ttl_s, lifetime) = match resource.freshness() {
            Some(freshness) => {
                let (rules, resident_ms) = freshness.rules(now_ms);
                let rule = match resource.is_softly_purged() {
                    true => CachingRule::Purged,
                    false => rules.source,
                };
                (freshness.age_s(now_ms), rules.ttl_s(resident_ms), reason(rule.token()))
            }
            None => (0, 0, ExplainReason::default()),
        };
        let remote = resource.remote();
        ExplainVariant {
            secondary_key: remote
                .map(|it| shown_key(it.vary_key.as_bytes(), is_for_request))
                .unwrap_or_default(),
            is_for_request,
            status: object.status(),
            bytes: object.bytes(),
            age_s,
            ttl_s,
            lifetime,
            segments: object.segments(),
            segments_here: u32::try_from(here).unwrap_or(u32::MAX),
            is_from_peer: remote.is_some_and(|it| it.is_from_peer),
        }
    }
}

/// Prefixes of the names of fields whose values are not secret.
const OPEN_FIELDS: &[&str] = &["accept", "origin", "save-data", "sec-", "x-requested-with"];

/// A secondary key as shown to an operator. Values of fields of other clients may be credentials: they are
/// replaced by a hash, which shows only whether they are equal.
fn shown_key(key: &[u8], is_for_request: bool) -> String {
    let is_open = |name: &[u8]| OPEN_FIELDS.iter().any(|open| name.starts_with(open.as_bytes()));
    let lines = key.split(|byte| *byte == b'\n').map(|line| {
        let name_end = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
        let (name, value) = line.split_at(name_end);
        if is_for_request || value.is_empty() || is_open(name) {
            return text(line);
        }
        let hash = stable_hash(value, 0);
        format!("{}=#{:08x}", text(name), hash as u32)
    });
    text(lines.collect::<Vec<_>>().join("\n").as_bytes())
}

fn passed(why: &str) -> Explanation {
    Explanation { verdict: ExplainVerdict::Passed, reason: reason(why), ..Explanation::default() }
}

/// Returns the rule with this token: a [`CachingRule`] or an entry of [`OTHERS`].
fn reason(token: &str) -> ExplainReason {
    let rule = CachingRule::ALL.iter().find(|rule| rule.token() == token);
    let (section, sentence) = match rule {
        Some(rule) => (rule.section(), rule.text()),
        None => OTHERS
            .iter()
            .find(|(known, ..)| *known == token)
            .map_or(("policy", "the request is refused"), |&(_, section, text)| (section, text)),
    };
    let own = |part: &str| text(part.as_bytes());
    ExplainReason { token: own(token), section: own(section), text: own(sentence) }
}

/// Reasons that no [`CachingRule`] covers: token, section, sentence.
const OTHERS: &[(&str, &str, &str)] = &[
    (
        "cache-off",
        "policy",
        "the route has no cache: enabled = true in [site.cache] or [site.route.cache]",
    ),
    ("connection", "RFC 9110 7.6.1", "Connection names fields, which servers do not see"),
    ("file", "policy", "the file is looked for on the disk: nothing is known of it here"),
    ("file-checked", "policy", "the file was checked within cache.check_interval_ms"),
    ("file-unchecked", "policy", "the file is checked before the next reply"),
    ("fixed-reply", "policy", "the route is a fixed reply, made of the config"),
    ("key-cookie", "policy", "a cookie of key_cookies is too long, or stands twice"),
    ("method-refused", "policy", "the route does not allow the method"),
    ("no-answer", "policy", "no server answered just now; for a moment nobody is asked"),
    ("no-memory", "policy", "there was no memory for the response"),
    (
        "no-parts",
        "policy",
        "parts of the response cannot be requested again: no validator, or no ranges",
    ),
    ("no-site", "RFC 9110 15.5.20", "no site answers for the host"),
    (
        "not-collapsed",
        "RFC 9111 4",
        "the request does not wait for others: its credentials, cookies, or method, or 20 responses of the route in a row that could not be stored",
    ),
    ("not-stored", "RFC 9111 3", "the response could not be stored"),
    ("part", "RFC 9110 15.3.7", "the response is not the whole"),
    ("redirect", "policy", "the site redirects the path"),
    (
        "slow-client",
        "policy",
        "the client that asked took the response too slowly for others to wait for it",
    ),
    ("too-long", "policy", "the response is longer than what is stored"),
    ("unknown-length", "policy", "the length of the response is not known in advance"),
    ("uri-miss", "RFC 9211 2.2", "nothing is stored under the key"),
    ("url-too-long", "policy", "the URL is longer than what purges can name"),
    ("vary-miss", "RFC 9211 2.2", "what is stored under the key is for requests with other fields"),
    ("vary-too-long", "policy", "the fields that Vary names are too long in this request"),
];

/// Text of bytes that a client sent, truncated to the bound of the message.
fn text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    let end = text.floor_char_boundary(EXPLAIN_TEXT_BYTES_MAX);
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_sentence() {
        let is_rule = |token: &str| CachingRule::ALL.iter().any(|rule| rule.token() == token);
        for (at, (token, section, sentence)) in OTHERS.iter().enumerate() {
            assert!(!is_rule(token), "{token} is a rule");
            assert!(OTHERS[..at].iter().all(|(earlier, ..)| earlier < token), "{token}: sorted");
            assert!(*section == "policy" || section.starts_with("RFC "));
            assert_eq!(reason(token).text, *sentence);
        }
        assert_eq!(reason("private").section, "RFC 9111 5.2.2.7");
    }

    #[test]
    fn what_other_clients_sent_is_told_apart_and_not_shown() {
        let key = b"accept-language=de\nx-api-key=SECRET\nx-other\n";
        assert_eq!(shown_key(key, true).as_bytes(), key);
        let shown = shown_key(key, false);
        assert!(shown.starts_with("accept-language=de\nx-api-key=#"), "{shown}");
        assert!(shown.ends_with("\nx-other\n") && !shown.contains("SECRET"), "{shown}");
        assert_ne!(shown, shown_key(b"accept-language=de\nx-api-key=OTHER\nx-other\n", false));
    }

    #[test]
    fn texts_keep_to_their_bounds() {
        let long = "\u{e9}".repeat(EXPLAIN_TEXT_BYTES_MAX);
        assert_eq!(text(long.as_bytes()).len(), EXPLAIN_TEXT_BYTES_MAX);
        assert_eq!(text(&[0xff; EXPLAIN_TEXT_BYTES_MAX]).len(), EXPLAIN_TEXT_BYTES_MAX / 3 * 3);
    }
}
