//! Compares what two peers did with the same bytes.

use crate::client::Heard;
use crate::http::latin;
use crate::origin::Received;

/// What one peer did with a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Did {
    /// Complete requests that the origin received.
    pub(crate) passed: Vec<Received>,
    /// Number of requests of which the origin received only a part.
    pub(crate) begun: usize,
    /// What the client received.
    pub(crate) heard: Heard,
}

/// The first difference of a case between Skep and another peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The number of the other peer.
    pub(crate) with: usize,
    /// The number of the request, or of the response.
    pub(crate) at: usize,
    /// The kind of difference.
    pub(crate) what: What,
}

/// The kind of difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Skep forwarded the request, the other peer did not.
    OnlySkep {
        /// The other peer's response to the client instead, if any.
        status: Option<u16>,
    },
    /// The other peer forwarded the request, Skep did not.
    OnlyOther {
        /// Skep's response to the client instead, if any.
        status: Option<u16>,
    },
    /// The forwarded requests differ: in method, target, host, body, or a field.
    Passed {
        part: &'static str,
        /// What Skep forwarded.
        skep: String,
        /// What the other peer forwarded.
        other: String,
    },
    /// The forwarded requests are the same, but the clients' responses differ.
    Heard {
        part: &'static str,
        /// What Skep's client received.
        skep: String,
        /// What the other peer's client received.
        other: String,
    },
}

/// Fields that concern one hop, or that proxies add themselves.
const OWN_FIELDS: &[&str] = &[
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "expect",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-real-ip",
];

/// Response fields that each server sets itself.
const OWN_REPLY_FIELDS: &[&str] =
    &["date", "server", "connection", "keep-alive", "transfer-encoding", "content-length", "via"];

/// The first difference between Skep and the peer with this number.
pub(crate) fn difference(skep: &Did, other: &Did, with: usize) -> Option<Difference> {
    let most = skep.passed.len().max(other.passed.len());
    for at in 0..most {
        let status = |did: &Did| did.heard.responses.get(at).map(|response| response.status);
        let what = match (skep.passed.get(at), other.passed.get(at)) {
            (Some(_), None) => Some(What::OnlySkep { status: status(other) }),
            (None, Some(_)) => Some(What::OnlyOther { status: status(skep) }),
            (Some(skep), Some(other)) => of_requests(skep, other),
            (None, None) => None,
        };
        if let Some(what) = what {
            return Some(Difference { with, at, what });
        }
    }
    of_responses(skep, other).map(|(at, what)| Difference { with, at, what })
}

fn of_requests(skep: &Received, other: &Received) -> Option<What> {
    let part = |part, pair: [String; 2]| {
        let [skep, other] = pair;
        (skep != other).then_some(What::Passed { part, skep, other })
    };
    let both = [skep, other];
    let host = |it: &Received| it.head.all("host").map(latin).collect::<Vec<_>>().join(" and ");
    let fields = |it: &Received| fields(&it.head.fields, OWN_FIELDS);
    let body = |it: &Received| latin(it.body.as_deref().unwrap_or_default());
    part("method", both.map(|it| it.head.word(0).to_owned()))
        .or_else(|| part("target", both.map(|it| it.head.word(1).to_owned())))
        .or_else(|| part("host", both.map(host)))
        .or_else(|| part("body", both.map(body)))
        .or_else(|| part("fields", both.map(fields)))
}

fn of_responses(skep: &Did, other: &Did) -> Option<(usize, What)> {
    let part = |part, pair: [String; 2]| {
        let [skep, other] = pair;
        (skep != other).then_some(What::Heard { part, skep, other })
    };
    // Responses after the last forwarded request are each peer's own.
    for at in 0..skep.passed.len() {
        let both = [skep, other].map(|did| did.heard.responses.get(at));
        let status = |it: Option<&crate::client::Response>| {
            it.map_or_else(|| "none".to_owned(), |it| it.status.to_string())
        };
        let body = |it: Option<&crate::client::Response>| match it.map(|it| &it.body) {
            Some(Some(body)) => latin(body),
            _ => "cut".to_owned(),
        };
        let fields = |it: Option<&crate::client::Response>| {
            it.map(|it| fields(&it.head.fields, OWN_REPLY_FIELDS)).unwrap_or_default()
        };
        let what = part("status", both.map(status))
            .or_else(|| part("body", both.map(body)))
            .or_else(|| part("fields", both.map(fields)));
        if let Some(what) = what {
            return Some((at, what));
        }
    }
    // Nothing may follow the response to the last forwarded request.
    let is_rubbish =
        skep.heard.responses.len() <= skep.passed.len() && !skep.heard.rubbish.is_empty();
    let rubbish = is_rubbish.then(|| part("rubbish", [latin(&skep.heard.rubbish), String::new()]));
    rubbish.flatten().map(|what| (skep.passed.len(), what))
}

/// Fields that concern more than one hop, sorted, since their order is irrelevant.
fn fields(all: &[(String, Vec<u8>)], own: &[&str]) -> String {
    let kept = all.iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let mut lines: Vec<_> = kept.map(|(name, value)| format!("{name}: {}", latin(value))).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// What is wrong with a request that Skep forwarded, independent of other peers: Skep generates it, so it
/// must be well-formed (RFC 9112), without fields of one hop (RFC 9110 7.6.1).
pub(crate) fn malformed(passed: &Received) -> Option<String> {
    let head = &passed.head;
    let count = |name: &str| head.all(name).count();
    let framings = count("content-length") + count("transfer-encoding");
    let is_line = head.start.split(' ').count() == 3 && head.start.ends_with(" HTTP/1.1");
    let is_hop = |name: &str| matches!(name, "keep-alive" | "trailer" | "proxy-connection");
    // It accepts trailers on behalf of its client, and marks that as concerning one hop (RFC 9110 10.1.4).
    let lists_te = head.all("connection").any(|value| value.eq_ignore_ascii_case(b"te"));
    let is_te = |name: &str, value: &[u8]| name == "te" && (value != b"trailers" || !lists_te);
    let bad = |(name, value): &&(String, Vec<u8>)| {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_name = !name.is_empty() && name.bytes().all(is_token);
        !is_name
            || value.iter().any(|byte| *byte < 0x20 && *byte != b'\t')
            || is_hop(name)
            || is_te(name, value)
    };
    if !is_line {
        return Some(format!("request line {:?}", head.start));
    }
    if count("host") != 1 || framings > 1 {
        return Some(format!("{} fields Host, {framings} framings", count("host")));
    }
    head.fields.iter().find(bad).map(|(name, value)| format!("field {name:?}: {:?}", latin(value)))
}
