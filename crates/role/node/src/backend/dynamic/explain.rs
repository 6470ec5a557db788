//! Explains how a request would be handled, and the state of its key, by the look-up that real
//! requests use; here it has no effect.

use std::sync::Arc;

use skep_http::RequestHead;
use skep_httpcache::{CachingRule, RequestMeta, Reuse, reuse};
use skep_serve::monotonic_ms;
use skep_wire::cache::SegmentName;

use super::heads::{LookupDecision, PoolHeads};
use super::judge::is_for;
use super::judgements::Judgement;
use crate::model::pool_cache::{PoolCache, PoolKey};
use crate::model::resource::Resource;
use crate::model::route::Route;

/// The result that the look-up of a request would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// A stored response.
    Hit,
    /// A stale response, which is refreshed in the background.
    HitWhileRefreshed,
    /// A request to the server, whose response is shared.
    Ask,
    /// A request to the server for this client only.
    Alone,
    Refusal,
}

/// The state of the key of a request.
pub(crate) struct KeyExplained {
    pub(crate) outcome: LookupOutcome,
    /// The reason, as a token.
    pub(crate) why: &'static str,
    /// Whether the response stored for the request is revalidated.
    pub(crate) has_kept: bool,
    /// Stored responses, and whether each matches the request's fields.
    pub(crate) variants: Vec<(Arc<Resource>, bool)>,
    /// Time for which requests do not wait for each other, in milliseconds from now, and the
    /// reason.
    pub(crate) marked: Option<(u64, &'static str)>,
    pub(crate) judged: Option<Judgement>,
}

impl PoolHeads {
    /// What the look-up of a request would find.
    pub(crate) fn explain(
        &self,
        (route, cache): (&Arc<Route>, &PoolCache),
        key: &PoolKey,
        request: &RequestHead<'_, '_>,
        meta: &RequestMeta<'_>,
    ) -> KeyExplained {
        let purged = route.purged(route.purges.load().hard(), &key.target);
        let primary = route.primary_name(key, purged);
        let mut slots = self.slots.lock();
        let decision = self.consider(&mut slots, (route, cache), (key, purged), (request, meta));
        let now_ms = monotonic_ms();
        let slot = slots.get(&primary);
        let marked = slot.and_then(|slot| slot.mark);
        let marked = marked.and_then(|(until_ms, why)| Some((until_ms.checked_sub(now_ms)?, why)));
        let variants = slot.map(|slot| slot.variants.clone()).unwrap_or_default();
        let names: Vec<SegmentName> =
            variants.iter().map(|it| route.head_name(&key.variant(it), purged)).collect();
        let stored = names.iter().filter_map(|name| self.usable(&mut slots, *name).0);
        let variants = stored.map(|it| (Arc::clone(&it), is_for(&it, request))).collect();
        drop(slots);
        let (outcome, why, kept) = outcome_of(decision, cache, meta, now_ms);
        let judged = self.judgements.of(&primary);
        KeyExplained { outcome, why, has_kept: kept, variants, marked, judged }
    }
}

/// The outcome, its reason, and whether there is a stored response that must be validated first.
fn outcome_of(
    decision: LookupDecision,
    cache: &PoolCache,
    meta: &RequestMeta<'_>,
    now_ms: u64,
) -> (LookupOutcome, &'static str, bool) {
    match decision {
        LookupDecision::Hit(kept, detail) => {
            let rule = rule_of(&kept, cache, meta, now_ms).token();
            (LookupOutcome::Hit, detail.unwrap_or(rule), false)
        }
        LookupDecision::HitWhileRefreshed(kept, _) => {
            (LookupOutcome::HitWhileRefreshed, rule_of(&kept, cache, meta, now_ms).token(), false)
        }
        LookupDecision::Ask(found, reason) => match &found.kept {
            Some(kept) => (LookupOutcome::Ask, rule_of(kept, cache, meta, now_ms).token(), true),
            None => (LookupOutcome::Ask, reason.token(), false),
        },
        LookupDecision::Alone(alone) => {
            (LookupOutcome::Alone, alone.why.unwrap_or("not-collapsed"), alone.kept.is_some())
        }
        LookupDecision::Failed(_) => (LookupOutcome::Refusal, "no-answer", false),
        LookupDecision::OnlyIfCached => {
            (LookupOutcome::Refusal, CachingRule::OnlyIfCached.token(), false)
        }
    }
}

/// The rule that allows or forbids the use of a stored response.
fn rule_of(kept: &Resource, cache: &PoolCache, meta: &RequestMeta<'_>, now_ms: u64) -> CachingRule {
    let Some(freshness) = kept.freshness() else { return CachingRule::Fresh };
    let (rules, resident_ms) = freshness.rules(now_ms);
    match reuse(&rules, meta, resident_ms, &cache.policy) {
        Reuse::Send(rule)
        | Reuse::SendAndValidate(rule)
        | Reuse::Validate(rule)
        | Reuse::Bypass(rule)
        | Reuse::GatewayTimeout(rule) => rule,
    }
}
