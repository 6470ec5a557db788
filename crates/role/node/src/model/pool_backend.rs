//! The pool of a route, and how requests are forwarded to it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use skep_config::{BackendConfig, ForwardConfig};
use skep_http::forward::Claims;
use skep_http::{BackRewrite, Fields, Known, Method, PathPrefix, RequestHead, cookie, encode};
use skep_proxy::{BUFFERING_FIELD, Group, OwnTimes, ReplyCoding, ReplyRules};
use skep_units::Now;

use crate::model::file_names::{FileNames, MAPPING_FIELDS, NAMING_FIELDS};
use crate::model::pool_cache::PoolCache;
use crate::model::pools::{Pool, PoolMap};
use crate::model::sessions::SessionCounts;
use crate::model::variant_tag::plain_tags;

/// Methods listed in `Allow` where all but TRACE pass: those of RFC 9110 and 5789. An application announces
/// any further ones itself.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

/// The pool of a route.
#[derive(Debug)]
pub(crate) struct PoolBackend {
    pub(crate) group: Arc<Group>,
    /// Whether statements of clients about a request's origin are trusted.
    pub(crate) trusts_claims: bool,
    /// Value of the field Host; `None`: the client's.
    pub(crate) host: Option<Box<[u8]>>,
    pub(crate) upgrade: bool,
    pub(crate) body_bytes_max: Option<u64>,
    pub(crate) upload_timeout_ms: Option<u64>,
    times: OwnTimes,
    /// Suffix of the names of files that its servers run as scripts.
    scripts: Option<Box<[u8]>>,
    /// Whether request bodies are sent on without being collected first.
    streams_request: bool,
    /// Whether responses are not read ahead of the client.
    streams_response: bool,
    request_without: Vec<String>,
    request_lines: Box<[u8]>,
    /// Name of the session cookie that nodes insert.
    session_cookie: Option<String>,
    sessions: Option<Arc<SessionCounts>>,
    pub(crate) response_without: Vec<String>,
    pub(crate) response_lines: Box<[u8]>,
    strip_prefix: Box<[u8]>,
    add_prefix: Box<[u8]>,
    /// The reverse of both, applied to responses.
    back: BackRewrite,
    /// The allowed methods; empty: all but TRACE.
    methods: Vec<String>,
    /// `Allow: …\r
    /// `, for refusals of other methods.
    pub(crate) allow_line: Box<[u8]>,
    /// How responses are cached, if they are.
    pub(crate) cache: Option<PoolCache>,
    /// Whether servers are asked for unencoded bytes if the response may be stored: it is then compressed
    /// here and stored once.
    pub(crate) asks_for_plain: bool,
    /// How responses name files in place of a body, if they may.
    pub(crate) file_names: Option<FileNames>,
}

impl PoolBackend {
    /// How the statements of a request about its client are treated.
    pub(crate) fn claims(&self, is_from_dispatcher: bool) -> Claims {
        if is_from_dispatcher {
            Claims::Keep
        } else if self.trusts_claims {
            Claims::Extend
        } else {
            Claims::Replace
        }
    }

    /// Counts the session of `request`, which came from `peer` and whose statements are treated according to
    /// `claims`.
    pub(crate) fn count_session(
        &self,
        request: &RequestHead<'_, '_>,
        (claims, peer): (Claims, IpAddr),
        now: Now,
    ) {
        if let Some(sessions) = &self.sessions {
            sessions.count(request, || claims.client(request).unwrap_or(peer), now);
        }
    }

    /// The pool in `pools` that `backend` names; `response_headers` and `vary_line` are the fields added to
    /// responses of the route. `None`: it names no pool.
    pub(crate) fn new(
        backend: &BackendConfig,
        pools: &PoolMap,
        response_headers: &[&(String, String)],
        vary_line: &[u8],
    ) -> Option<Self> {
        let Pool { group, trusts_claims, session_cookie, sessions, file_counts, scripts, .. } =
            pools.get(backend.pool.as_ref()?)?.clone();
        let addresses = pools.get(backend.pool.as_ref()?)?.addresses();
        let forward = &backend.forward;
        let file_names = FileNames::new(backend, &file_counts);
        let naming = |fields: &[&str]| -> Vec<String> {
            let fields = fields.iter().filter(|_| file_names.is_some());
            fields.map(|&name| name.to_owned()).collect()
        };
        let prefix = |prefix: &Option<String>| {
            let path = prefix.as_deref().unwrap_or_default().trim_end_matches('/');
            path.as_bytes().into()
        };
        let set = forward.request_headers.iter();
        let names = |removed: &[String], set: Vec<&String>, naming: Vec<String>| {
            removed.iter().chain(set).cloned().chain(naming).collect()
        };
        let allow = match &*forward.methods {
            [] => METHODS.join(", "),
            methods => methods.join(", "),
        };
        let allow = format!("Allow: {allow}\r\n");
        // Addressed to this node, as in nginx.
        let buffering_field = BUFFERING_FIELD.to_owned();
        Some(Self {
            group,
            scripts,
            trusts_claims,
            host: forward.host.as_ref().map(|host| host.as_bytes().into()),
            upgrade: forward.upgrade,
            body_bytes_max: forward.body_bytes_max,
            upload_timeout_ms: forward.upload_timeout_ms,
            times: OwnTimes {
                response_timeout_ms: forward.response_timeout_ms,
                stall_timeout_ms: forward.stall_timeout_ms,
            },
            streams_request: !forward.request_buffering,
            streams_response: !forward.response_buffering,
            request_without: names(
                &forward.request_headers_removed,
                set.clone().map(|(name, _)| name).collect(),
                naming(&MAPPING_FIELDS),
            ),
            request_lines: lines(set),
            response_without: names(
                &forward.response_headers_removed,
                response_headers.iter().map(|(name, _)| name).chain([&buffering_field]).collect(),
                naming(&NAMING_FIELDS),
            ),
            response_lines: [&*lines(response_headers.iter().copied()), vary_line].concat().into(),
            strip_prefix: prefix(&forward.strip_prefix),
            add_prefix: prefix(&forward.add_prefix),
            back: back_rewrite(forward, addresses),
            methods: forward.methods.clone(),
            allow_line: allow.into_bytes().into(),
            cache: PoolCache::new(&backend.cache, session_cookie.as_deref()),
            asks_for_plain: backend.compress.enabled && backend.cache.enabled,
            file_names,
            session_cookie,
            sessions,
        })
    }

    /// The rules of its exchanges; `extra` are additional response fields, and `coding` may encode response
    /// bodies.
    pub(crate) fn reply_rules<'a>(
        &'a self,
        own_lines: &'a [u8],
        coding: Option<&'a dyn ReplyCoding>,
    ) -> ReplyRules<'a> {
        ReplyRules {
            streams_request: self.streams_request,
            streams_response: self.streams_response,
            times: self.times,
            without: &self.response_without,
            extra: [&self.response_lines, own_lines],
            coding,
            back: Some(&self.back).filter(|back| !back.is_empty()),
        }
    }

    /// Names of the fields that are removed from a request with `fields`, and the lines that are added.
    pub(crate) fn request_rules(
        &self,
        fields: &Fields<'_, '_>,
    ) -> (Cow<'_, [String]>, Cow<'_, [u8]>) {
        let cookies = self.session_cookie.as_deref().and_then(|name| cookie::without(fields, name));
        let Some(cookies) = cookies else {
            return ((&self.request_without).into(), (&*self.request_lines).into());
        };
        let without = [&*self.request_without, &["cookie".to_owned()]].concat();
        let mut lines = self.request_lines.to_vec();
        if !cookies.is_empty() && !self.request_without.iter().any(|name| is_cookie(name)) {
            encode::write_field(&mut lines, "Cookie", &cookies);
        }
        (without.into(), lines.into())
    }

    /// Replaces entity tags of compressed variants in a client's conditions by the tags that the application
    /// assigned.
    pub(crate) fn name_plain_tags(
        &self,
        fields: &Fields<'_, '_>,
        (without, lines): (&mut Cow<'_, [String]>, &mut Cow<'_, [u8]>),
    ) {
        let conditions = [(Known::IfMatch, "If-Match"), (Known::IfNoneMatch, "If-None-Match")];
        let is_asked = |field| self.asks_for_plain && fields.known(field).is_some();
        for (field, name) in conditions.into_iter().filter(|(field, _)| is_asked(*field)) {
            let tags: Vec<_> = fields.known_all(field).collect();
            let plain = plain_tags(&tags.join(&b", "[..]));
            let is_kept = !without.iter().any(|it| it.eq_ignore_ascii_case(name));
            if let Some(plain) = plain.filter(|_| is_kept) {
                without.to_mut().push(name.to_ascii_lowercase());
                encode::write_field(lines.to_mut(), name, &plain);
            }
        }
    }

    /// Whether a file of this name is a script, which is run and never sent. Case is ignored, as a server
    /// that ignores case could be asked for it in another one.
    pub(crate) fn is_script(&self, name: &[u8]) -> bool {
        // Compressed copies contain its source, too.
        let copies = [".gz", ".br", ".zst"];
        let of_copy = |it: &&str| name.strip_suffix(it.as_bytes());
        let name = copies.iter().find_map(of_copy).unwrap_or(name);
        self.scripts.as_ref().is_some_and(|extension| {
            let end = name.len().checked_sub(extension.len()).map(|at| &name[at..]);
            end.is_some_and(|end| end.eq_ignore_ascii_case(extension))
        })
    }

    /// Whether requests of this method may pass. TRACE would reveal the fields that this node adds (RFC 9110
    /// 9.3.8).
    pub(crate) fn allows(&self, method: Method<'_>) -> bool {
        match self.methods.is_empty() {
            true => method != Method::Trace,
            false => self.methods.iter().any(|it| it == method.as_str()),
        }
    }

    /// The target requested from a server: `path` is a normalised target. `None`: it does not have the
    /// prefix of the route's paths, because it has a different number of slashes.
    pub(crate) fn target(&self, path: &[u8], query: Option<&[u8]>) -> Option<Vec<u8>> {
        let rest = path.strip_prefix(&*self.strip_prefix)?;
        if !rest.is_empty() && !rest.starts_with(b"/") {
            return None;
        }
        let query_bytes = query.map_or(0, |query| query.len() + 1);
        let mut target =
            Vec::with_capacity(self.add_prefix.len() + rest.len().max(1) + query_bytes);
        target.extend_from_slice(&self.add_prefix);
        target.extend_from_slice(rest);
        if target.is_empty() {
            target.push(b'/');
        }
        if let Some(query) = query {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        Some(target)
    }
}

/// How responses' references to the application's own locations are rewritten; its servers are at
/// `addresses`.
fn back_rewrite(forward: &ForwardConfig, addresses: Vec<String>) -> BackRewrite {
    let bytes = |text: &str| Box::from(text.as_bytes());
    let prefix = |path: &str| bytes(path.trim_end_matches('/'));
    let further = forward.response_prefixes.iter();
    let pair = |own, known| PathPrefix { own: prefix(own), known: prefix(known) };
    let mut prefixes: Vec<_> = further.map(|(own, known)| pair(own, known)).collect();
    let mut hosts: Vec<Box<[u8]>> = forward.application_hosts.iter().map(|it| bytes(it)).collect();
    if forward.rewrite_responses {
        let of = |path: &Option<String>| prefix(path.as_deref().unwrap_or_default());
        let (own, known) = (of(&forward.add_prefix), of(&forward.strip_prefix));
        if own != known {
            prefixes.push(PathPrefix { own, known });
        }
        hosts.extend(forward.host.iter().chain(&addresses).map(|it| bytes(it)));
    }
    BackRewrite { prefixes, hosts, cookie_domain: forward.cookie_domain.as_deref().map(bytes) }
}

fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("cookie")
}

fn lines<'a>(fields: impl Iterator<Item = &'a (String, String)>) -> Box<[u8]> {
    let mut lines = Vec::new();
    fields.for_each(|(name, value)| encode::write_field(&mut lines, name, value.as_bytes()));
    lines.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::model::pools::Pools;
    use skep_config::Config;

    impl PoolBackend {
        /// The one of a route with these settings of `forward`.
        pub(crate) fn of_forward(forward: &str) -> Self {
            pool(forward)
        }
    }

    fn pool(forward: &str) -> PoolBackend {
        let text = format!(
            "[[node]]\nname = 'n'\naddress = '127.0.0.1:1'\n[[site]]\nroot = '/'\n\
             [[site.route]]\npath = '/app/*'\npool = 'p'\n[site.route.forward]\n{forward}\n\
             [[pool]]\nname = 'p'\n"
        );
        let config = Config::parse("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let buffers = crate::body_buffers(&config.spool).unwrap();
        let pools = Pools::new(1, None, buffers).prepare(&config).unwrap();
        let backend = &config.sites[0].routes[0].backend;
        PoolBackend::new(backend, &pools, &[], b"").unwrap()
    }

    #[test]
    fn prefixes_come_and_go() {
        let asked = |forward: &str, path: &str| {
            let target = pool(forward).target(path.as_bytes(), Some(b"q"));
            target.map(|target| String::from_utf8(target).unwrap())
        };
        let strip = "strip_prefix = '/app'";
        assert_eq!(asked("", "/app//x").as_deref(), Some("/app//x?q"));
        assert_eq!(asked(strip, "/app/x").as_deref(), Some("/x?q"));
        assert_eq!(asked(strip, "/app/").as_deref(), Some("/?q"));
        assert_eq!(asked(strip, "/app").as_deref(), Some("/?q"));
        assert_eq!(asked(strip, "/apple"), None);
        assert_eq!(asked(strip, "//app/x"), None);
        let both = "strip_prefix = '/app/'\nadd_prefix = '/v1/'";
        assert_eq!(asked(both, "/app/x").as_deref(), Some("/v1/x?q"));
    }

    #[test]
    fn methods_are_those_that_are_named() {
        let (all, one) = (pool(""), pool("methods = 'GET'"));
        assert!(all.allows(Method::Other("M-SEARCH")) && !all.allows(Method::Trace));
        assert!(one.allows(Method::Get) && !one.allows(Method::Head));
        assert_eq!(&*one.allow_line, b"Allow: GET\r\n");
        // A refusal lists the allowed methods (RFC 9110 15.5.6).
        assert_eq!(&*all.allow_line, b"Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH\r\n");
    }
}
