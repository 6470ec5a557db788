//! Why a node keeps what a request asks for, or does not: asked by a coordinator for an operator.
//!
//! ```text
//!   skep cache explain --> coordinator -- Explain --> every linked node: looks, asks nobody
//!                              ^                          |
//!                              '------- Explained --------'
//! ```

use serde::{Deserialize, Serialize};

use crate::limits::{EXPLAIN_HEAD_BYTES_MAX, EXPLAIN_TEXT_BYTES_MAX, EXPLAIN_VARIANTS_MAX};

/// A request that is only looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainRequest {
    /// Its head, as a node gets it; at most [`EXPLAIN_HEAD_BYTES_MAX`] bytes.
    pub head: Vec<u8>,
    /// Whether a dispatcher of the cluster passed it on, so that what it says of its client is
    /// believed.
    pub is_forwarded: bool,
}

impl ExplainRequest {
    pub(super) fn is_sound(&self) -> bool {
        self.head.len() <= EXPLAIN_HEAD_BYTES_MAX
    }
}

/// What a node says to it. Texts have at most [`EXPLAIN_TEXT_BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// First host name of the site; `*`: any.
    pub site: String,
    /// Path of the route; `*`: the default route.
    pub route: String,
    /// Where its bytes come from.
    pub backend: String,
    /// Path and query by which it is stored, and purged.
    pub target: String,
    /// The primary key, where a cache in front of a pool has one.
    pub key: Option<String>,
    /// What the request would meet now.
    pub verdict: ExplainVerdict,
    pub reason: ExplainReason,
    /// Until when requests of the key go on their own, in milliseconds from now, and why.
    pub marked: Option<(u64, ExplainReason)>,
    /// What is stored under the key, at most [`EXPLAIN_VARIANTS_MAX`].
    pub variants: Vec<ExplainVariant>,
    /// The last response to a request of the key that was judged.
    pub judged: Option<ExplainJudged>,
}

/// What a request meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExplainVerdict {
    /// A stored response, or a file.
    Hit,
    /// A stale response, while that is refreshed.
    HitWhileRefreshed,
    /// A stored response that its source has to confirm first.
    Validated,
    /// The source, for all who wait.
    Fetched,
    /// The source, for itself alone.
    #[default]
    Passed,
    Refused,
}

/// A rule that decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainReason {
    /// As in the `detail` of Cache-Status.
    pub token: String,
    /// Where the rule stands: a section of an RFC, or `policy`.
    pub section: String,
    /// The rule in a sentence.
    pub text: String,
}

/// A stored response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainVariant {
    /// The fields that its Vary names, as they were in the request that it answered: lines `name=value`.
    pub secondary_key: String,
    /// Whether it answers requests with the fields of this one.
    pub is_for_request: bool,
    pub status: u16,
    pub bytes: u64,
    /// Seconds since its source made it; of files, since they were last checked.
    pub age_s: u64,
    /// Seconds for which it is fresh; negative since it is stale.
    pub ttl_s: i64,
    /// Where its lifetime comes from; of what a soft purge made stale, that.
    pub lifetime: ExplainReason,
    /// Its segments, and those of them in this node's memory.
    pub segments: u32,
    pub segments_here: u32,
    /// Whether this node got it from another one.
    pub is_from_peer: bool,
}

/// A response that came, and was stored or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainJudged {
    /// How long ago, in milliseconds.
    pub ago_ms: u64,
    /// Its status; 0: not known.
    pub status: u16,
    pub is_stored: bool,
    /// Why not; or where its lifetime comes from.
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
