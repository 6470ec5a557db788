//! Why a node caches the response to a request, or does not: a coordinator asks on behalf of an
//! operator.
//!
//! ```text
//!   skep cache explain --> coordinator -- Explain --> every linked node: looks, asks nobody
//!                              ^                          |
//!                              '------- Explained --------'
//! ```

use serde::{Deserialize, Serialize};

use crate::limits::{EXPLAIN_HEAD_BYTES_MAX, EXPLAIN_TEXT_BYTES_MAX, EXPLAIN_VARIANTS_MAX};

/// A request to explain; it is not executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainRequest {
    /// Its head, as a client would send it to a node; at most [`EXPLAIN_HEAD_BYTES_MAX`] bytes.
    pub head: Vec<u8>,
    /// Whether a dispatcher of the cluster forwarded it, so that its statements about the client
    /// are trusted.
    pub is_forwarded: bool,
}

impl ExplainRequest {
    pub(super) fn is_sound(&self) -> bool {
        self.head.len() <= EXPLAIN_HEAD_BYTES_MAX
    }
}

/// A node's answer. Texts have at most [`EXPLAIN_TEXT_BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// First host name of the site; `*` matches any.
    pub site: String,
    /// Path of the route; `*`: the default route.
    pub route: String,
    /// The source of its bytes.
    pub backend: String,
    /// Path and query under which it is stored and purged.
    pub target: String,
    /// The primary key, if a cache in front of a pool has one.
    pub key: Option<String>,
    /// How the request would be answered now.
    pub verdict: ExplainVerdict,
    pub reason: ExplainReason,
    /// If requests of the key bypass request collapsing: for how many milliseconds from now, and
    /// why.
    pub marked: Option<(u64, ExplainReason)>,
    /// The responses stored under the key, at most [`EXPLAIN_VARIANTS_MAX`].
    pub variants: Vec<ExplainVariant>,
    /// The last response evaluated for a request of the key.
    pub judged: Option<ExplainJudged>,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExplainVerdict {
    /// With a stored response, or a file.
    Hit,
    /// With a stale response, which is refreshed meanwhile.
    HitWhileRefreshed,
    /// With a stored response, once its source has validated it.
    Validated,
    /// From the source, for all waiting requests.
    Fetched,
    /// From the source, for this request alone.
    #[default]
    Passed,
    Refused,
}

/// The rule that decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainReason {
    /// As in the `detail` of Cache-Status.
    pub token: String,
    /// The source of the rule: a section of an RFC, or `policy`.
    pub section: String,
    /// The rule as a sentence.
    pub text: String,
}

/// A stored response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainVariant {
    /// The fields named by its Vary, as the request that it answered had them: lines `name=value`.
    pub secondary_key: String,
    /// Whether it matches the fields of this request.
    pub is_for_request: bool,
    pub status: u16,
    pub bytes: u64,
    /// Seconds since the origin generated it; for files, since the last check.
    pub age_s: u64,
    /// Remaining freshness in seconds; negative if stale.
    pub ttl_s: i64,
    /// The source of its lifetime; if a soft purge made it stale, the purge.
    pub lifetime: ExplainReason,
    /// The number of its segments, and how many of them are in this node's memory.
    pub segments: u32,
    pub segments_here: u32,
    /// Whether this node fetched it from another node.
    pub is_from_peer: bool,
}

/// A received response, and whether it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainJudged {
    /// Age of this decision, in milliseconds.
    pub ago_ms: u64,
    /// Its status; 0 if unknown.
    pub status: u16,
    pub is_stored: bool,
    /// Why it was not stored, or the source of its lifetime.
    pub reason: ExplainReason,
}

impl ExplainReason {
    fn is_sound(&self) -> bool {
        [&self.token, &self.section, &self.text].into_iter().all(|it| is_short(it))
    }
}

impl Explanation {
    pub(super) fn is_sound(&self) -> bool {
        let Self { site, route, backend, target, key, reason, marked, variants, judged, .. } = self;
        let reasons = [Some(reason), marked.as_ref().map(|(_, why)| why)];
        let reasons = reasons.into_iter().chain([judged.as_ref().map(|it| &it.reason)]);
        [site, route, backend, target].into_iter().chain(key).all(|it| is_short(it))
            && reasons.flatten().all(ExplainReason::is_sound)
            && variants.len() <= EXPLAIN_VARIANTS_MAX
            && variants.iter().all(|it| is_short(&it.secondary_key) && it.lifetime.is_sound())
    }
}

fn is_short(text: &str) -> bool {
    text.len() <= EXPLAIN_TEXT_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept() {
        let request = |bytes| ExplainRequest { head: vec![b'a'; bytes], is_forwarded: false };
        assert!(request(EXPLAIN_HEAD_BYTES_MAX).is_sound());
        assert!(!request(EXPLAIN_HEAD_BYTES_MAX + 1).is_sound());
        let long = |bytes| "a".repeat(bytes);
        let of = |key| Explanation { key: Some(key), ..Explanation::default() };
        assert!(of(long(EXPLAIN_TEXT_BYTES_MAX)).is_sound());
        assert!(!of(long(EXPLAIN_TEXT_BYTES_MAX + 1)).is_sound());
        let text = long(EXPLAIN_TEXT_BYTES_MAX + 1);
        let reason = ExplainReason { text, ..ExplainReason::default() };
        let judged = Some(ExplainJudged { reason, ..ExplainJudged::default() });
        assert!(!Explanation { judged, ..Explanation::default() }.is_sound());
        let variants = vec![ExplainVariant::default(); EXPLAIN_VARIANTS_MAX + 1];
        assert!(!Explanation { variants, ..Explanation::default() }.is_sound());
    }
}
