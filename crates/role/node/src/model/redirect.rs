//! Redirects of moved paths.

use skep_config::RedirectConfig;
use skep_http::path::{self, Path};

/// A redirect: the places it applies to, and its target.
#[derive(Debug)]
pub(crate) struct Redirect {
    from: Box<[u8]>,
    /// Whether it applies to all paths with this prefix.
    is_prefix: bool,
    to: Box<[u8]>,
    /// Whether the rest of the path is appended to the target.
    takes_rest: bool,
    pub(crate) status: u16,
}

impl Redirect {
    pub(crate) fn new(config: &RedirectConfig) -> Self {
        Self::from_to(&config.from, &config.to, config.status)
    }

    /// The redirect of a route with the path `pattern`.
    pub(crate) fn of_route(pattern: &str, to: &str, status: u16) -> Self {
        match to.ends_with('*') {
            true => Self::from_to(pattern, to, status),
            // All paths of the route have the same target.
            false => Self::from_to("*", to, status),
        }
    }

    fn from_to(from: &str, to: &str, status: u16) -> Self {
        let cut = |text: &str| text.strip_suffix('*').map(str::to_owned);
        let (prefix, target) = (cut(from), cut(to));
        Self {
            is_prefix: prefix.is_some(),
            takes_rest: target.is_some(),
            from: path::place(prefix.as_deref().unwrap_or(from).as_bytes()).into(),
            to: target.as_deref().unwrap_or(to).as_bytes().into(),
            status,
        }
    }

    /// The new location of `path`, if the redirect applies to it.
    pub(crate) fn location(&self, path: &Path<'_>) -> Option<Vec<u8>> {
        let rest = path.behind(&self.from)?;
        if !self.is_prefix && !rest.is_empty() {
            return None;
        }
        Some(self.to_rest(rest))
    }

    /// The location for a path to which the redirect applies; includes the query if the rest is
    /// appended.
    pub(crate) fn of(&self, path: &Path<'_>, query: Option<&[u8]>) -> Vec<u8> {
        let mut location = self.to_rest(path.behind(&self.from).unwrap_or_default());
        if let Some(query) = query.filter(|_| self.takes_rest) {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        location
    }

    fn to_rest(&self, rest: &[u8]) -> Vec<u8> {
        let mut location = self.to.to_vec();
        if self.takes_rest {
            // Two leading slashes would name another server (RFC 3986 4.2).
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            let surplus = if location.ends_with(b"/") { slashes } else { 0 };
            location.extend_from_slice(&rest[surplus..]);
        }
        location
    }
}
