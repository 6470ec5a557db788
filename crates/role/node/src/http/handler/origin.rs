//! Requests for routes whose bytes come from origins.

use std::sync::Arc;

use skep_engine::{Exchange, ExchangeError};
use skep_http::RequestHead;
use skep_http::path::Path;
use skep_segments::FetchError;

use super::SlowRequest;
use super::send::{ResponseSource, SendOutcome, SendPurpose};
use crate::backend::origin::HeadOutcome;
use crate::http::pass::pass;
use crate::limits::ATTEMPTS_MAX;
use crate::model::origin_backend::OriginBackend;
use crate::model::pool_cache::with_query;
use crate::model::resource::Resource;
use crate::model::route::Route;

impl SlowRequest<'_> {
    pub(super) async fn get_of_origin(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        origin: &OriginBackend,
        path: &Path<'_>,
    ) -> Result<(), ExchangeError> {
        let target = with_query(path.key(), request.query);
        let mut failed = FetchError::Abandoned;
        for _ in 0..ATTEMPTS_MAX {
            match self.remotes.find(&self.route, origin, &target).await {
                HeadOutcome::Resource(resource, cache_result) => {
                    let status = resource.variants.plain.status();
                    if self.site.error_page(status).is_some() {
                        return self.error(request, exchange, status, b"").await;
                    }
                    let ready = ResponseSource { resource, file: None, cache_result };
                    match self.send(request, exchange, ready, SendPurpose::Asked(&target)).await? {
                        SendOutcome::Done => return Ok(()),
                        SendOutcome::Changed(error) => failed = error,
                        SendOutcome::Failed(error) => {
                            return self.failed(request, exchange, error).await;
                        }
                    }
                }
                HeadOutcome::Passed(passed) => {
                    let status = passed.reply.head.meta.status;
                    if self.site.error_page(status).is_some() {
                        return self.error(request, exchange, status, b"").await;
                    }
                    let client = self.client(request, exchange);
                    return pass(&mut exchange.reply, &self.route, *passed, client).await;
                }
                HeadOutcome::Failed(error) => return self.failed(request, exchange, error).await,
            }
        }
        self.failed(request, exchange, failed).await
    }

    /// The object at a target, if it may be cached.
    pub(super) async fn kept(
        &self,
        route: &Arc<Route>,
        origin: &OriginBackend,
        target: &[u8],
    ) -> Option<Arc<Resource>> {
        match self.remotes.find(route, origin, target).await {
            HeadOutcome::Resource(resource, _) => {
                Some(resource).filter(|resource| resource.variants.plain.status() == 200)
            }
            HeadOutcome::Passed(_) | HeadOutcome::Failed(_) => None,
        }
    }
}
