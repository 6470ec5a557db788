//! `skep cache explain`.

use std::fmt::Write;

use anyhow::bail;
use skep_console::{
    CacheExplanation, CacheReason, CacheVerdict, ExplainOutcome, Explained, ExplainedNode,
    KeptVariant, NewExplain,
};

use super::{print, print_json};
use crate::arguments::{CacheCommand, ExplainArgs};

pub(crate) fn cache(command: CacheCommand) -> anyhow::Result<()> {
    match command {
        CacheCommand::Explain(args) => explain(args),
    }
}

fn explain(args: ExplainArgs) -> anyhow::Result<()> {
    let client = args.target.find()?.client;
    let asked = NewExplain {
        url: args.url,
        method: Some(args.method),
        headers: args.header,
        direct: args.direct.then_some(true),
    };
    let answer = client.post_json("/api/v1/cache/explain", &asked)?;
    let explained: Explained = client.decode(&answer)?;
    match args.json {
        true => print_json(&answer)?,
        false => print(&tell(&explained))?,
    }
    match missing(&explained).as_slice() {
        [] => Ok(()),
        missing => bail!("not explained by all nodes: {}", missing.join("; ")),
    }
}

/// What all nodes have in common, and then a paragraph for each node.
fn tell(explained: &Explained) -> String {
    let mut text = String::new();
    let caches = || explained.nodes.iter().filter_map(|node| node.cache.as_ref());
    let place = |cache: &CacheExplanation| place(cache);
    let common = caches().next().map(place).filter(|first| caches().all(|it| place(it) == *first));
    if let Some(common) = &common {
        text += common;
    }
    for node in explained.nodes.iter() {
        let Some(cache) = &node.cache else { continue };
        let _ = writeln!(text, "{}: {}", node.name, meets(cache));
        if common.is_none() {
            text += &place(cache);
        }
        text += &known(cache);
    }
    text
}

/// Site, route, backend and key, as text.
fn place(cache: &CacheExplanation) -> String {
    let CacheExplanation { site, route, backend, target, key, .. } = cache;
    let mut lines =
        format!("site {site}, route {route}: {backend}\nstored and purged as {target}\n");
    for (at, line) in key.iter().flat_map(|key| key.lines()).enumerate() {
        let _ = writeln!(lines, "{} {line}", if at == 0 { "key" } else { "   " });
    }
    lines
}

fn meets(cache: &CacheExplanation) -> String {
    let verdict = match cache.verdict {
        CacheVerdict::Hit => "from memory",
        CacheVerdict::HitWhileRefreshed => "from memory, stale, while it is refreshed",
        CacheVerdict::Validated => "validated first",
        CacheVerdict::Fetched => "fetched, once for all who wait",
        CacheVerdict::Passed => "passed on, for each client by itself",
        CacheVerdict::Refused => "refused",
    };
    format!("{verdict}; {}", why(&cache.reason))
}

/// A reason as text, such as `RFC 9111 5.2.2.7: the response is private (private)`.
fn why(CacheReason { token, section, text }: &CacheReason) -> String {
    format!("{section}: {text} ({token})")
}

fn known(cache: &CacheExplanation) -> String {
    let mut lines = String::new();
    if let (Some(ms), Some(reason)) = (cache.marked_ms, &cache.marked) {
        let _ = writeln!(lines, "  nobody waits for {} s more; {}", ms.div_ceil(1000), why(reason));
    }
    for variant in &cache.variants {
        lines += &stored(variant);
    }
    if let Some(judged) = &cache.judged {
        let done = if judged.stored { "stored" } else { "not stored" };
        let (ago_s, status) = (judged.ago_ms / 1000, judged.status);
        let reason = why(&judged.reason);
        let _ = writeln!(lines, "  last response: {status}, {ago_s} s ago, {done}; {reason}");
    }
    lines
}

fn stored(it: &KeptVariant) -> String {
    let fields = match it.secondary_key.as_slice() {
        [] => String::new(),
        fields => format!(" for {}", fields.join(", ")),
    };
    let other = if it.for_request { "" } else { " (not this request)" };
    let fresh = match it.ttl_s {
        0.. => format!("fresh for {} s", it.ttl_s),
        ttl_s => format!("stale for {} s", ttl_s.unsigned_abs()),
    };
    let from = if it.from_peer { ", from another node" } else { "" };
    format!(
        "  stored{fields}{other}: {}, {} bytes, age {} s, {fresh}, {} of {} segments here{from}; {}\n",
        it.status,
        it.bytes,
        it.age_s,
        it.segments_here,
        it.segments,
        why(&it.lifetime),
    )
}

/// Nodes without an explanation, each with the reason.
fn missing(explained: &Explained) -> Vec<String> {
    let why = |node: &ExplainedNode| {
        let why = match node.outcome {
            ExplainOutcome::Explained => return None,
            ExplainOutcome::Unclear => "cannot interpret the request",
            ExplainOutcome::Earlier => "runs an earlier build without this command",
            ExplainOutcome::Silent => "has not answered in time",
            ExplainOutcome::Unlinked => "is not linked with this dispatcher",
        };
        Some(format!("{} {why}", node.name))
    };
    explained.nodes.iter().filter_map(why).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(token: &str) -> CacheReason {
        let (section, text) = ("RFC 9111 1".to_owned(), "it is so".to_owned());
        CacheReason { token: token.to_owned(), section, text }
    }

    fn cache(verdict: CacheVerdict) -> CacheExplanation {
        CacheExplanation {
            site: "a".into(),
            route: "/x/*".into(),
            backend: "pool p".into(),
            target: "/x/1".into(),
            key: Some("http://a/x/1\ncookie c=1".into()),
            verdict,
            reason: reason("fresh"),
            marked_ms: None,
            marked: None,
            variants: Vec::new(),
            judged: None,
        }
    }

    #[test]
    fn what_is_common_is_told_once_and_who_is_silent_is_named() {
        let node = |name: &str, outcome, cache| ExplainedNode { name: name.into(), outcome, cache };
        let explained = ExplainOutcome::Explained;
        let variant = KeptVariant {
            secondary_key: vec!["accept-language=de".into()],
            for_request: false,
            status: 200,
            bytes: 5,
            age_s: 3,
            ttl_s: -2,
            lifetime: reason("max-age"),
            segments: 1,
            segments_here: 1,
            from_peer: true,
        };
        let second = CacheExplanation {
            variants: vec![variant],
            marked_ms: Some(1_500),
            marked: Some(reason("private")),
            ..cache(CacheVerdict::Fetched)
        };
        let nodes = vec![
            node("n1", explained, Some(cache(CacheVerdict::Hit))),
            node("n2", explained, Some(second)),
            node("n3", ExplainOutcome::Silent, None),
        ];
        let explained = Explained { complete: false, nodes };
        let expected = "site a, route /x/*: pool p\nstored and purged as /x/1\nkey http://a/x/1\n    \
                        cookie c=1\nn1: from memory; RFC 9111 1: it is so (fresh)\n\
                        n2: fetched, once for all who wait; RFC 9111 1: it is so (fresh)\n  \
                        nobody waits for 2 s more; RFC 9111 1: it is so (private)\n  \
                        stored for accept-language=de (not this request): 200, 5 bytes, age 3 s, \
                        stale for 2 s, 1 of 1 segments here, from another node; RFC 9111 1: it is \
                        so (max-age)\n";
        assert_eq!(tell(&explained), expected);
        assert_eq!(missing(&explained), ["n3 has not answered in time"]);
    }
}
