//! Paths of sites of which each node has a part.

use skep_segments::FetchError;

use super::SlowRequest;
use crate::backend::files::catalog::Located;
use crate::backend::partition::Elsewhere;
use crate::disk::DiskError;
use crate::limits::PATH_BYTES_MAX;

impl SlowRequest<'_> {
    /// `own` is what this node has at a normalised path; if that is nothing and
    /// the others may have it, what they have.
    pub(super) async fn or_elsewhere(
        &self,
        path: &[u8],
        own: Result<Located, DiskError>,
    ) -> Result<Located, FetchError> {
        let is_sought = self.site.is_part && matches!(own, Err(DiskError::NotFound));
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        if !is_sought || !self.site.shows(path) || relative.len() > PATH_BYTES_MAX {
            return Ok(own?);
        }
        if !relative.is_empty() && !relative.ends_with(b"/") {
            return Ok(match self.sought(relative).await? {
                Elsewhere::File(resource) => Located::Resource(resource, None),
                Elsewhere::Folder => Located::NeedsSlash,
                Elsewhere::Nothing => return Ok(own?),
            });
        }
        for name in &self.site.index_files {
            let index = [relative, name.as_bytes()].concat();
            if let Elsewhere::File(resource) = self.sought(&index).await? {
                return Ok(Located::Resource(resource, None));
            }
        }
        Ok(own?)
    }

    async fn sought(&self, relative: &[u8]) -> Result<Elsewhere, FetchError> {
        match &self.handler.peer_client {
            Some(peer_client) => self.catalog.heads().find(peer_client, &self.site, relative).await,
            None => Ok(Elsewhere::Nothing),
        }
    }
}
