//! API schemas of explanations why nodes store the response to a request or do not.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request that nodes examine but do not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExplain {
    /// `http://HOST[:PORT]/PATH?QUERY`, as a client would request it.
    #[schema(example = "http://www.example.org/news?page=2")]
    pub url: String,
    /// The method; GET by default.
    #[serde(default)]
    pub method: Option<String>,
    /// Further header fields of the request, each `Name: value`.
    #[serde(default)]
    #[schema(max_items = 64, example = json!(["Accept-Language: de"]))]
    pub headers: Vec<String>,
    /// Whether the client sends the request directly to a node rather than through a dispatcher in
    /// `proxy` mode: keys may differ; false by default.
    #[serde(default)]
    pub direct: Option<bool>,
}

/// The nodes' explanations of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explained {
    /// Whether all nodes of the cluster have explained the request.
    pub complete: bool,
    /// The result at each node.
    pub nodes: Vec<ExplainedNode>,
}

/// A node and its explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedNode {
    /// Name of the node.
    pub name: String,
    /// Whether it answered.
    pub outcome: ExplainOutcome,
    /// Its explanation.
    pub cache: Option<CacheExplanation>,
}

/// Whether a node answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExplainOutcome {
    /// It has explained the request.
    Explained,
    /// It could not interpret the request.
    Unclear,
    /// It runs an earlier build, which does not support this request.
    Earlier,
    /// It is linked, but did not answer in time.
    Silent,
    /// It is not linked with this dispatcher.
    Unlinked,
}

/// Why a node stores the response to a request, or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheExplanation {
    /// First host name of the site, or `*`.
    pub site: String,
    /// Path of the route, or `*`.
    pub route: String,
    /// The source of its bytes.
    pub backend: String,
    /// Path and query by which it is stored and purged.
    pub target: String,
    /// The primary key in the cache of a pool.
    pub key: Option<String>,
    /// What would happen to the request now.
    pub verdict: CacheVerdict,
    /// The rule that determines the verdict.
    pub reason: CacheReason,
    /// Time for which requests with this key are forwarded separately, in milliseconds from now.
    pub marked_ms: Option<u64>,
    /// The reason for that.
    pub marked: Option<CacheReason>,
    /// Stored responses, by the fields named in their Vary.
    pub variants: Vec<KeptVariant>,
    /// The last response to a request with this key, if it is remembered.
    pub judged: Option<JudgedResponse>,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheVerdict {
    /// It gets a stored response, or a file.
    Hit,
    /// It gets a stale response, which is being refreshed.
    HitWhileRefreshed,
    /// It gets a stored response that its source must validate first.
    Validated,
    /// It gets a response from the source (or another node that has it), together with all requests
    /// that wait for it.
    Fetched,
    /// It is passed to the source, separately from other requests.
    Passed,
    /// It is refused without contacting the source.
    Refused,
}

/// The rule for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheReason {
    /// As in the `detail` parameter of Cache-Status.
    pub token: String,
    /// A section of an RFC, or `policy`.
    pub section: String,
    /// The rule, as a sentence.
    pub text: String,
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptVariant {
    /// The fields named in its Vary with their values in the original request, each as `name=value`.
    pub secondary_key: Vec<String>,
    /// Whether it may be used for this request.
    pub for_request: bool,
    /// Its status.
    pub status: u16,
    /// Length of its body.
    pub bytes: u64,
    /// Seconds since its source generated it; for files, since their last check.
    pub age_s: u64,
    /// Seconds for which it stays fresh; negative once it is stale.
    pub ttl_s: i64,
    /// The source of its lifetime; `purged` if a soft purge made it stale.
    pub lifetime: CacheReason,
    /// Its segments.
    pub segments: u32,
    /// The number of these in the memory of this node.
    pub segments_here: u32,
    /// Whether this node received it from another node.
    pub from_peer: bool,
}

/// A response that was received, and was stored or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JudgedResponse {
    /// Time since then, in milliseconds.
    pub ago_ms: u64,
    /// Its status.
    pub status: u16,
    /// Whether it was stored.
    pub stored: bool,
    /// Why it was not stored, or the source of its lifetime.
    pub reason: CacheReason,
}
