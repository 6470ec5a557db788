//! Requests for routes whose bytes are files: on this node's disk or, in a partitioned
//! folder, on another node's.

use std::sync::Arc;

use skep_engine::{Exchange, ExchangeError};
use skep_http::RequestHead;
use skep_http::path::{self, Path, Reading};
use skep_segments::FetchError;
use skep_telemetry::CacheResult;

use super::SlowRequest;
use super::send::{ResponseSource, SendOutcome, SendPurpose};
use crate::backend::files::catalog::Located;
use crate::backend::partition::Elsewhere;
use crate::disk::DiskError;
use crate::limits::{ATTEMPTS_MAX, PATH_BYTES_MAX};
use crate::model::pool_backend::PoolBackend;
use crate::model::resource::Resource;
use crate::model::route::{FolderBackend, Route};

impl SlowRequest<'_> {
    pub(super) async fn get_file(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        folder: &FolderBackend,
        path: &Path<'_>,
    ) -> Result<(), ExchangeError> {
        let key = path.key();
        // The file may change faster than it can be read.
        let mut failed = DiskError::Changed.into();
        for _ in 0..ATTEMPTS_MAX {
            let error = match self.located(&self.route, folder, key).await {
                Ok(Located::Resource(ref resource, _))
                    if let Some((pool, script)) = script_of(folder, resource) =>
                {
                    return self.run_script(request, exchange, pool, script).await;
                }
                Ok(Located::Resource(resource, file)) => {
                    let ready = ResponseSource { resource, file, cache_result: CacheResult::Hit };
                    match self.send(request, exchange, ready, SendPurpose::Asked(key)).await? {
                        SendOutcome::Done => return Ok(()),
                        SendOutcome::Changed(_) => continue,
                        SendOutcome::Failed(error) => error,
                    }
                }
                Ok(Located::NeedsSlash | Located::Directory) if let Some(pool) = &folder.pool => {
                    return self.pass_what_is_no_file(request, exchange, pool).await;
                }
                Ok(Located::NeedsSlash) => return self.add_slash(request, exchange, path),
                Ok(Located::Directory) => return self.list(request, exchange, key).await,
                Err(error) => error,
            };
            if error != failed {
                failed = error;
                break;
            }
        }
        if failed == DiskError::NotFound.into()
            && let Some(pool) = &folder.pool
        {
            return self.pass_what_is_no_file(request, exchange, pool).await;
        }
        if failed == DiskError::NotFound.into()
            && let Some(page) = folder.spa_fallback.as_deref()
            && self.route.answers_for(relative_of(page), relative_of(key))
            && self.page(request, exchange, 200, (&self.route, page)).await?
        {
            return Ok(());
        }
        self.failed(request, exchange, failed).await
    }

    /// Passes on a request whose path leads to the script at `relative`.
    async fn run_script(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        pool: &PoolBackend,
        relative: &[u8],
    ) -> Result<(), ExchangeError> {
        if !request.path.ends_with(b"/") {
            return self.pass_what_is_no_file(request, exchange, pool).await;
        }
        // The path may be that of a folder whose index is the script.
        let mut target = vec![b'/'];
        path::write_encoded(&mut target, relative);
        let path = path::read(&target, Reading::Origins)?;
        self.pass_to_pool(request, exchange, pool, &path).await
    }

    /// The resource at a normalised path: on this node's disk or, if it is not there and other
    /// nodes may have it, on theirs.
    pub(super) async fn located(
        &self,
        route: &Arc<Route>,
        folder: &FolderBackend,
        path: &[u8],
    ) -> Result<Located, FetchError> {
        let own = self.catalog.locate_or_wait(route, path).await;
        let relative = relative_of(path);
        let is_sought = route.is_partition() && matches!(own, Err(DiskError::NotFound));
        if !is_sought || !folder.shows(path) || relative.len() > PATH_BYTES_MAX {
            return Ok(own?);
        }
        if !relative.is_empty() && !relative.ends_with(b"/") {
            return Ok(match self.sought(route, relative).await? {
                Elsewhere::File(resource) => Located::Resource(resource, None),
                Elsewhere::Folder => Located::NeedsSlash,
                Elsewhere::Nothing => return Ok(own?),
            });
        }
        for name in &folder.index_files {
            let index = [relative, name.as_bytes()].concat();
            if !route.answers_for(&index, relative) {
                continue;
            }
            if let Elsewhere::File(resource) = self.sought(route, &index).await? {
                return Ok(Located::Resource(resource, None));
            }
        }
        Ok(own?)
    }

    async fn sought(&self, route: &Arc<Route>, relative: &[u8]) -> Result<Elsewhere, FetchError> {
        match &self.handler.peer_client {
            Some(peer_client) => self.catalog.heads().find(peer_client, route, relative).await,
            None => Ok(Elsewhere::Nothing),
        }
    }
}

/// The pool that runs the file found, and the file's path below the root, if it is a script.
pub(super) fn script_of<'a>(
    folder: &'a FolderBackend,
    found: &'a Resource,
) -> Option<(&'a PoolBackend, &'a [u8])> {
    let pool = folder.pool.as_ref()?;
    let relative = found.variants.plain.relative()?;
    pool.is_script(relative).then_some((pool, relative))
}

fn relative_of(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}
