//! Requests answered by a compressed variant, which may have to be made first.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_engine::Exchange;
use skep_http::negotiate::Encoding;
use skep_http::{Method, RequestHead};
use skep_serve::unix_ms;
use skep_telemetry::Counter;

use super::SlowRequest;
use super::send::SendPurpose;
use crate::backend::compressed::{CompressionOutcome, FoundVariant};
use crate::http::compress::{CompressionTask, Selected, slot_of};
use crate::http::compress_passed::PassedCompression;
use crate::http::respond::{ResponsePlan, is_simple, plan};
use crate::limits::COMPRESSION_WAIT_MS;
use crate::model::compressed::{CompressedVariant, CompressedVariants};
use crate::model::object::Object;
use crate::model::resource::Resource;

impl SlowRequest<'_> {
    /// The variant that answers a request; `None`: the plain object, since no better variant is
    /// available in time.
    pub(super) async fn selected<'r>(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &Exchange<'_>,
        resource: &'r Arc<Resource>,
        purpose: &SendPurpose<'_>,
    ) -> Option<Selected<'r>> {
        if let SendPurpose::Named(_) = purpose
            && resource.compressed.is_some()
        {
            // Only the application knows for which client the file is.
            return None;
        }
        let coding = match Selected::of(resource, request) {
            Selected::Missing(coding) => coding,
            selected => return Some(selected),
        };
        let is_current_there = || {
            let plain = &resource.variants.plain;
            let plan = plan(request, plain, unix_ms() / 1000);
            !is_simple(request) && matches!(plan, ResponsePlan::NotModified)
        };
        // None of its bytes would be sent.
        if request.method == Method::Head || is_current_there() {
            return None;
        }
        let variant = self.variant(request, exchange, resource, coding).await?;
        Some(Selected::Compressed(slot_of(coding), variant))
    }

    /// How responses of the route's pool that are not stored are compressed, if they are.
    pub(super) fn passed_compression(
        &self,
        request: &RequestHead<'_, '_>,
    ) -> Option<PassedCompression<'_>> {
        let rules = self.route.compression.as_ref().filter(|rules| rules.is_for_private)?;
        let (places, counters) = (&self.handler.passed_encoders, self.handler.context.counters());
        Some(PassedCompression::new(rules, request, places, counters))
    }

    /// The variant in `coding`, which is made if necessary.
    async fn variant(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &Exchange<'_>,
        resource: &Arc<Resource>,
        coding: Encoding,
    ) -> Option<Arc<CompressedVariant>> {
        let plain = &resource.variants.plain;
        let name = resource.route.compressed_name(plain.segment_name(0), coding);
        let mut waiter = match self.handler.node.compressed_heads.find(name) {
            FoundVariant::Known(outcome) => return self.adopted(resource, coding, outcome),
            FoundVariant::Wait(waiter) => waiter,
            FoundVariant::Lead(flight) => {
                let waiter = flight.waiter();
                let task = self.compression(request, exchange, resource, coding);
                tokio::task::spawn_local(task.run(flight));
                waiter
            }
        };
        let limit = Duration::from_millis(COMPRESSION_WAIT_MS);
        match tokio::time::timeout(limit, waiter.outcome()).await {
            Ok(outcome) => self.adopted(resource, coding, outcome?),
            Err(_) => {
                self.handler.context.counters().inc(Counter::CompressionsLate);
                None
            }
        }
    }

    fn compression(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &Exchange<'_>,
        resource: &Arc<Resource>,
        coding: Encoding,
    ) -> CompressionTask {
        let node = &self.handler.node;
        CompressionTask {
            resource: Arc::clone(resource),
            coding,
            store: Arc::clone(&node.store),
            compressor: Arc::clone(&node.compressor),
            counters: Arc::clone(self.handler.context.counters()),
            pins: Arc::clone(&node.pins),
            peer_client: self.handler.peer_client.as_ref().map(Rc::clone),
            remotes: Rc::clone(&self.remotes),
            address: self.client(request, exchange),
        }
    }

    /// Records the outcome where hits find it.
    fn adopted(
        &self,
        resource: &Resource,
        coding: Encoding,
        outcome: CompressionOutcome,
    ) -> Option<Arc<CompressedVariant>> {
        let variants = resource.compressed.as_ref()?;
        match outcome {
            CompressionOutcome::Made(made) => {
                let object =
                    Object::compressed(&resource.route, &resource.variants.plain, coding, &made);
                let charge = self.handler.node.compressed_heads.charge(object.memory_bytes());
                let variant = CompressedVariant::new(object, charge);
                variants.put(coding, Arc::clone(&variant));
                Some(variant)
            }
            CompressionOutcome::Useless => {
                variants.set_useless();
                None
            }
            CompressionOutcome::Skipped => None,
        }
    }

    /// Drops a variant whose bytes were evicted everywhere.
    pub(super) fn drop_lost(&self, resource: &Resource, slot: usize) {
        let coding = Encoding::ALL.into_iter().find(|coding| slot_of(*coding) == slot);
        let Some((variants, coding)) = resource.compressed.as_ref().zip(coding) else { return };
        CompressedVariants::drop_lost(variants, coding);
        let plain = resource.variants.plain.segment_name(0);
        let name = resource.route.compressed_name(plain, coding);
        self.handler.node.compressed_heads.forget(name);
    }
}
