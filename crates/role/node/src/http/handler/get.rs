//! GET and HEAD requests that cannot be answered from memory alone.

use skep_engine::{Exchange, ExchangeError};
use skep_http::RequestHead;
use skep_http::path::Path;

use super::SlowRequest;
use super::pages::redirect;
use crate::HEALTH_PATH;
use crate::model::route::Backend;

impl SlowRequest<'_> {
    pub(super) async fn get(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        path: &Path<'_>,
    ) -> Result<(), ExchangeError> {
        if path.behind(HEALTH_PATH.as_bytes()) == Some(b"") {
            self.handler.health(&mut exchange.reply.write());
            return Ok(());
        }
        if let Some((status, location)) = self.site.moved(path) {
            redirect(&mut exchange.reply.write(), status, &location, &self.route.lines);
            return Ok(());
        }
        // Most of these requests are for pools: the futures of the others are boxed, so that they do not
        // enlarge this one, which is moved.
        match &self.route.backend {
            Backend::Folder(folder) => {
                Box::pin(self.get_file(request, exchange, folder, path)).await
            }
            Backend::Pool(pool) => self.pass_to_pool(request, exchange, pool, path).await,
            Backend::Origin(origin) => {
                Box::pin(self.get_of_origin(request, exchange, origin, path)).await
            }
            Backend::Reply(reply) => Box::pin(self.reply(request, exchange, reply, path)).await,
        }
    }
}
