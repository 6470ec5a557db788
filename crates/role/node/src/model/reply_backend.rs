//! Fixed replies: the same reply to every request of a route.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use skep_config::ReplyConfig;
use skep_http::RequestHead;
use skep_http::path::Path as UrlPath;

use crate::limits::FIXED_BODY_BYTES_MAX;
use crate::model::redirect::Redirect;

/// The file of a fixed reply cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FixedReplyError {
    #[error(
        "cannot read {} for a fixed reply: {cause}. Expected a file that this user may read",
        path.display()
    )]
    Unreadable { path: PathBuf, cause: std::io::Error },
    #[error(
        "{} is too large for a fixed reply. Expected at most {FIXED_BODY_BYTES_MAX} bytes: a \
         `root` with a `spa_fallback` has larger ones",
        path.display()
    )]
    TooLarge { path: PathBuf },
}

/// A fixed reply.
#[derive(Debug)]
pub(crate) struct ReplyBackend {
    pub(crate) status: u16,
    pub(crate) body: Option<Box<[u8]>>,
    pub(crate) content_type: String,
    /// The redirect, if the reply is one.
    redirect: Option<Redirect>,
}

impl ReplyBackend {
    /// The fixed reply of `config` for the paths of `pattern`; `None`: the route has none.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub(crate) fn new(
        config: &ReplyConfig,
        pattern: Option<&str>,
    ) -> Result<Option<Self>, FixedReplyError> {
        let Some(status) = config.status else { return Ok(None) };
        let body = match (&config.body, &config.file) {
            (Some(text), _) => Some(text.as_bytes().into()),
            (None, Some(path)) => Some(read(path)?),
            (None, None) => None,
        };
        let redirect = config
            .location
            .as_deref()
            .map(|location| Redirect::of_route(pattern.unwrap_or("/*"), location, status));
        Ok(Some(Self { status, body, content_type: config.content_type.clone(), redirect }))
    }

    /// The location to which the request for `path` is redirected, if the reply is a redirect.
    pub(crate) fn location(
        &self,
        path: &UrlPath<'_>,
        request: &RequestHead<'_, '_>,
    ) -> Option<Vec<u8>> {
        self.redirect.as_ref().map(|redirect| redirect.of(path, request.query))
    }
}

fn read(path: &Path) -> Result<Box<[u8]>, FixedReplyError> {
    let unreadable = |cause| FixedReplyError::Unreadable { path: path.to_owned(), cause };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut body = Vec::new();
    let read = file.take(FIXED_BODY_BYTES_MAX + 1).read_to_end(&mut body).map_err(unreadable)?;
    match read as u64 > FIXED_BODY_BYTES_MAX {
        true => Err(FixedReplyError::TooLarge { path: path.to_owned() }),
        false => Ok(body.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_file_that_is_too_large_or_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let reply = || {
            let config = ReplyConfig {
                status: Some(503),
                file: Some(path.clone()),
                ..ReplyConfig::default()
            };
            ReplyBackend::new(&config, None).map(|it| it.unwrap().body.unwrap().len())
        };
        let missing = reply().unwrap_err().to_string();
        assert!(missing.contains("page") && missing.contains("No such file"), "{missing}");
        std::fs::write(&path, vec![0; FIXED_BODY_BYTES_MAX as usize]).unwrap();
        assert_eq!(reply().unwrap() as u64, FIXED_BODY_BYTES_MAX);
        std::fs::write(&path, vec![0; FIXED_BODY_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(reply(), Err(FixedReplyError::TooLarge { .. })));
    }
}
