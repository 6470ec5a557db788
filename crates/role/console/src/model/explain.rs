//! API schemas of explanations why nodes store the response to a request or do not.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request that nodes look at, and nobody answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExplain {
    /// `http://HOST[:PORT]/PATH?QUERY`, as a client would ask for it.
    #[schema(example = "http://www.example.org/news?page=2")]
    pub url: String,
    /// GET unless given.
    #[serde(default)]
    pub method: Option<String>,
    /// Further fields of the request, each `Name: value`.
    #[serde(default)]
    #[schema(max_items = 64, example = json!(["Accept-Language: de"]))]
    pub headers: Vec<String>,
    /// Whether the client asks nodes themselves, not a dispatcher that proxies: keys may differ; false
    /// unless given.
    #[serde(default)]
    pub direct: Option<bool>,
}

/// What nodes say to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explained {
    /// Whether all nodes of the cluster have explained it.
    pub complete: bool,
    /// The nodes.
    pub nodes: Vec<ExplainedNode>,
}

/// A node and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedNode {
    /// Name of the node.
    pub name: String,
    /// Whether it answered.
    pub outcome: ExplainOutcome,
    /// Its answer.
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

/// Why a node keeps what a request asks for, or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheExplanation {
    /// First host name of the site, or `*`.
    pub site: String,
    /// Path of the route, or `*`.
    pub route: String,
    /// Where its bytes come from.
    pub backend: String,
    /// Path and query by which it is stored and purged.
    pub target: String,
    /// The primary key in front of a pool.
    pub key: Option<String>,
    /// What the request would meet now.
    pub verdict: CacheVerdict,
    /// The rule that decides the verdict.
    pub reason: CacheReason,
    /// Until when requests of the key go on their own, in milliseconds from now.
    pub marked_ms: Option<u64>,
    /// Why they do.
    pub marked: Option<CacheReason>,
    /// Stored responses, by what their Vary names.
    pub variants: Vec<KeptVariant>,
    /// The last response to a request of the key, if it is remembered.
    pub judged: Option<JudgedResponse>,
}

/// What a request meets.
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

/// A rule that decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheReason {
    /// As in the `detail` of Cache-Status.
    pub token: String,
    /// A section of an RFC, or `policy`.
    pub section: String,
    /// The rule in a sentence.
    pub text: String,
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptVariant {
    /// The fields that its Vary names, as they were in the request that it answered, each `name=value`.
    pub secondary_key: Vec<String>,
    /// Whether it answers requests with the fields of this one.
    pub for_request: bool,
    /// Its status.
    pub status: u16,
    /// Length of its body.
    pub bytes: u64,
    /// Seconds since its source made it; of files, since they were last checked.
    pub age_s: u64,
    /// Seconds for which it is fresh; negative since it is stale.
    pub ttl_s: i64,
    /// Where its lifetime comes from; `purged` if a soft purge made it stale.
    pub lifetime: CacheReason,
    /// Its segments.
    pub segments: u32,
    /// Those of them in the memory of this node.
    pub segments_here: u32,
    /// Whether this node got it from another one.
    pub from_peer: bool,
}

/// A response that came, and was stored or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JudgedResponse {
    /// How long ago, in milliseconds.
    pub ago_ms: u64,
    /// Its status.
    pub status: u16,
    /// Whether it was stored.
    pub stored: bool,
    /// Why not; or where its lifetime comes from.
    pub reason: CacheReason,
}
