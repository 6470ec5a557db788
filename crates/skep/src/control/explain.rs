//! Explains why nodes store the response to a request or not: the management API asks the coordinator of this
//! process, which asks all nodes, or else the node of this process.

use skep_config::Config;
use skep_console::{
    CacheExplanation, CacheReason, CacheVerdict, ControlError, ExplainOutcome, Explained,
    ExplainedNode, JudgedResponse, KeptVariant, NewExplain,
};
use skep_coordinator::NodeAnswer;
use skep_dispatcher::forwarded_head;
use skep_http::limits::NODE_RESPONSE_HEAD;
use skep_http::{FieldSlots, Host, parse_request};
use skep_wire::cache::{
    ExplainJudged, ExplainReason, ExplainRequest, ExplainVariant, ExplainVerdict, Explanation,
};
use skep_wire::limits::EXPLAIN_HEAD_BYTES_MAX;

use crate::running::Running;

/// Timeout for the nodes' answers, in milliseconds: they only look into their memory.
const EXPLAIN_MS: u64 = 2_000;

/// Asks all linked nodes, or the node of this process.
pub(super) fn explain(running: &Running, asked: &NewExplain) -> Result<Explained, ControlError> {
    let config = running.config();
    let is_forwarded = !asked.direct.unwrap_or(false) && config.is_proxied();
    let request = request(asked, is_forwarded)?;
    let answers = match (running.parts.cluster_cache.coordination(), &running.parts.node) {
        (Some(coordination), _) => coordination
            .explain(request, EXPLAIN_MS)
            .map_err(|error| ControlError::Unavailable { what: error.to_string() })?
            .into_iter()
            .map(|(name, answer)| explained(name.as_str(), answer))
            .collect(),
        (None, Some(node)) => {
            let explanation = node.explain(&request).map(Box::new);
            return Ok(Explained {
                complete: explanation.is_some(),
                nodes: vec![explained(&running.roles.name, NodeAnswer::Answered(explanation))],
            });
        }
        (None, None) => return Err(ControlError::Unavailable { what: not_linked() }),
    };
    Ok(complete(&config, answers))
}

fn not_linked() -> String {
    "the nodes of this cluster are not linked with its dispatchers: ask the nodes themselves, with \
     --socket"
        .to_owned()
}

/// The head of the request in the form in which nodes receive it.
fn request(asked: &NewExplain, is_forwarded: bool) -> Result<ExplainRequest, ControlError> {
    let invalid = |what: String| ControlError::Invalid { what, did_you_mean: None };
    let rest = asked.url.strip_prefix("http://").or_else(|| asked.url.strip_prefix("https://"));
    let Some(rest) = rest else {
        let what = format!("expected http://HOST/PATH, found {:?}", asked.url);
        return Err(invalid(what));
    };
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    Host::parse(host.as_bytes())
        .map_err(|error| invalid(format!("{:?}: host {host:?}: {error}", asked.url)))?;
    let method = asked.method.as_deref().unwrap_or("GET");
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
    for header in &asked.headers {
        let Some((name, value)) = header.split_once(':') else {
            return Err(invalid(format!("expected NAME: VALUE, found {header:?}")));
        };
        head += &format!("{}: {}\r\n", name.trim(), value.trim());
    }
    head += "\r\n";
    if head.len() > EXPLAIN_HEAD_BYTES_MAX {
        let what = format!("expected a request of at most {EXPLAIN_HEAD_BYTES_MAX} bytes");
        return Err(invalid(what));
    }
    let mut slots = FieldSlots::new();
    let parsed = parse_request(&mut slots, head.as_bytes(), &NODE_RESPONSE_HEAD);
    let parsed = parsed.map_err(|reject| {
        invalid(format!("no such request could be: {reject}; check URL, method and fields"))
    })?;
    let head = if is_forwarded { forwarded_head(&parsed) } else { head.clone().into_bytes() };
    Ok(ExplainRequest { head, is_forwarded })
}

/// Adds the nodes of the config that are not linked.
fn complete(config: &Config, mut nodes: Vec<ExplainedNode>) -> Explained {
    for node in &config.nodes {
        if !nodes.iter().any(|it| it.name == node.name) {
            let outcome = ExplainOutcome::Unlinked;
            nodes.push(ExplainedNode { name: node.name.clone(), outcome, cache: None });
        }
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let complete = nodes.iter().all(|node| node.outcome == ExplainOutcome::Explained);
    Explained { complete, nodes }
}

fn explained(name: &str, answer: NodeAnswer<Option<Box<Explanation>>>) -> ExplainedNode {
    let (outcome, cache) = match answer {
        NodeAnswer::Answered(Some(it)) => (ExplainOutcome::Explained, Some(explanation(*it))),
        NodeAnswer::Answered(None) => (ExplainOutcome::Unclear, None),
        NodeAnswer::Earlier => (ExplainOutcome::Earlier, None),
        NodeAnswer::Silent => (ExplainOutcome::Silent, None),
    };
    ExplainedNode { name: name.to_owned(), outcome, cache }
}

fn explanation(it: Explanation) -> CacheExplanation {
    let (marked_ms, marked) = it.marked.map(|(ms, why)| (ms, reason(why))).unzip();
    CacheExplanation {
        site: it.site,
        route: it.route,
        backend: it.backend,
        target: it.target,
        key: it.key,
        verdict: match it.verdict {
            ExplainVerdict::Hit => CacheVerdict::Hit,
            ExplainVerdict::HitWhileRefreshed => CacheVerdict::HitWhileRefreshed,
            ExplainVerdict::Validated => CacheVerdict::Validated,
            ExplainVerdict::Fetched => CacheVerdict::Fetched,
            ExplainVerdict::Passed => CacheVerdict::Passed,
            ExplainVerdict::Refused => CacheVerdict::Refused,
        },
        reason: reason(it.reason),
        marked_ms,
        marked,
        variants: it.variants.into_iter().map(variant).collect(),
        judged: it.judged.map(judged),
    }
}

fn reason(ExplainReason { token, section, text }: ExplainReason) -> CacheReason {
    CacheReason { token, section, text }
}

fn variant(it: ExplainVariant) -> KeptVariant {
    KeptVariant {
        secondary_key: it.secondary_key.lines().map(str::to_owned).collect(),
        for_request: it.is_for_request,
        status: it.status,
        bytes: it.bytes,
        age_s: it.age_s,
        ttl_s: it.ttl_s,
        lifetime: reason(it.lifetime),
        segments: it.segments,
        segments_here: it.segments_here,
        from_peer: it.is_from_peer,
    }
}

fn judged(it: ExplainJudged) -> JudgedResponse {
    let ExplainJudged { ago_ms, status, is_stored, reason: why } = it;
    JudgedResponse { ago_ms, status, stored: is_stored, reason: reason(why) }
}
