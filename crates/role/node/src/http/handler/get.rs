//! GET and HEAD of what needs more than a look into memory.

use skep_engine::{Exchange, ExchangeError};
use skep_http::RequestHead;
use skep_http::path;
use skep_segments::FetchError;
use skep_telemetry::CacheResult;

use super::SlowRequest;
use super::pages::redirect;
use super::send::{As, Ready, Sent};
use crate::HEALTH_PATH;
use crate::backend::files::catalog::Located;
use crate::disk::DiskError;
use crate::limits::ATTEMPTS_MAX;

impl SlowRequest<'_> {
    pub(super) async fn get(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        let read = path::read(request.path, self.site.reading())?;
        let path = read.key();
        if read.behind(HEALTH_PATH.as_bytes()) == Some(b"") {
            self.handler.health(&mut exchange.reply.write());
            return Ok(());
        }
        if let Some((status, location)) = self.site.moved(&read) {
            redirect(&mut exchange.reply.write(), status, &location, &self.site.lines);
            return Ok(());
        }
        if let Some(remote) = &self.site.remote {
            return self.get_remote(request, exchange, remote, path).await;
        }
        for _ in 0..ATTEMPTS_MAX {
            let located = self.locate(path).await;
            let failed = match located {
                Ok(Located::Resource(resource, file)) => {
                    let ready = Ready { resource, file, cache_result: CacheResult::Hit };
                    match self.send(request, exchange, ready, As::Asked(path)).await? {
                        Sent::Done => return Ok(()),
                        Sent::Changed => continue,
                        Sent::Failed(error) => error,
                    }
                }
                Ok(Located::NeedsSlash) => return self.add_slash(request, exchange, &read),
                Ok(Located::Directory) => return self.list(request, exchange, path).await,
                Err(error) => error,
            };
            if failed != DiskError::Changed.into() {
                return self.failed(request, exchange, failed).await;
            }
        }
        // It changes faster than it can be read.
        self.failed(request, exchange, DiskError::Changed.into()).await
    }

    pub(super) async fn locate(&self, path: &[u8]) -> Result<Located, FetchError> {
        if let Some(remote) = &self.site.remote {
            let kept = self.kept(remote, path).await.ok_or(DiskError::NotFound)?;
            return Ok(Located::Resource(kept, None));
        }
        let own = self.catalog.locate_or_wait(&self.site, path).await;
        self.or_elsewhere(path, own).await
    }
}
