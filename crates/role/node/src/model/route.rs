//! Routes: where the bytes of paths come from, and the operator's settings for them.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use skep_config::{
    BackendConfig, ContentPlacement, ResponseCacheConfig, RouteConfig, SiteConfig, Symlinks,
};
use skep_directory::{PurgeTable, Queries};
use skep_http::Reject;
use skep_http::negotiate::Encoding;
use skep_http::path::{self, PathPattern, Reading};
use skep_units::stable_hash;
use skep_wire::cache::{ObjectName, PurgeStamp, SegmentName};

use crate::disk::{DiskError, Root, check_root};
use crate::model::compression::Compression;
use crate::model::conditions::{Conditions, RouteInput};
use crate::model::field_lines::is_type;
use crate::model::hosts::Hosts;
use crate::model::origin_backend::OriginBackend;
use crate::model::pool_backend::PoolBackend;
use crate::model::pool_cache::{PoolCache, PoolKey};
use crate::model::pools::PoolMap;
use crate::model::purges::Purges;
use crate::model::reply_backend::{FixedReplyError, ReplyBackend};

/// Seed of the hash, the same on all nodes.
const SHORT_KEY_SEED: u64 = 0x7369_7465;

/// The word in place of a version that makes a name stand for the head of a file of
/// which one node has the bytes.
const PART_HEAD: &[u8] = b"head of a part";

/// A site can't be served.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The root is missing or may not be read.
    #[error(
        "cannot serve {}: {cause}. Expected a directory that this user may read",
        root.display()
    )]
    Root {
        /// The root as configured.
        root: PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The path of a page can't be requested.
    #[error("no page can be at {page:?} ({reason}). Expected a path as it stands in a request")]
    Page {
        /// As configured.
        page: String,
        /// Why it would be refused.
        reason: &'static str,
    },
    /// The URL of an origin is invalid.
    #[error(transparent)]
    Origin(#[from] skep_origin::OriginUrlError),
    /// The body of a fixed reply can't be read.
    #[error(transparent)]
    Reply(#[from] FixedReplyError),
}

impl SiteError {
    pub(crate) fn page(page: &str, reject: Reject) -> Self {
        Self::Page { page: page.to_owned(), reason: reject.reason }
    }
}

/// Paths of a site with one backend and its own cache rules.
#[derive(Debug)]
pub(crate) struct Route {
    /// Index among the routes of all sites.
    pub(crate) index: usize,
    /// Index of its site.
    site_index: usize,
    pub(crate) backend: Backend,
    /// The folder of files that its applications may name, as a route of its own that no path leads to.
    pub(crate) named_files: Option<Arc<Route>>,
    /// Identifies the route in names of bytes.
    key: Box<[u8]>,
    /// Identifies the route in messages.
    pub(crate) short_key: u64,
    /// Identifies the route and its rules in names of heads of its origins: a hash of them, since each name
    /// hashes it in turn.
    pub(crate) head_kind: [u8; 16],
    /// Which responses are compressed, if any are.
    pub(crate) compression: Option<Compression>,
    /// Which route of its site it is.
    place: RoutePlace,
    /// Content-Type that the operator gives to what the route has; a text of ours keeps its own.
    pub(crate) content_type: Option<Box<str>>,
    /// How operators know it.
    pub(crate) label: RouteLabel,
    /// Field lines of every reply, without Content-Type.
    pub(crate) lines: Box<[u8]>,
    /// Those, and `Cache-Control`, for replies that succeeded.
    pub(crate) lines_success: Box<[u8]>,
    /// What was purged, here and elsewhere.
    pub(crate) purges: Arc<Purges>,
    /// Of all sites.
    hosts: Arc<Hosts>,
}

/// A route in the words of the config.
#[derive(Debug)]
pub(crate) struct RouteLabel {
    /// First host name of its site, or `*`.
    pub(crate) site: Box<str>,
    /// Its path and further conditions, or `*`.
    pub(crate) path: Box<str>,
    pub(crate) backend: Box<str>,
}

/// Where the bytes of a route come from.
#[derive(Debug)]
pub(crate) enum Backend {
    Folder(FolderBackend),
    Origin(OriginBackend),
    Pool(PoolBackend),
    Reply(ReplyBackend),
}

/// A folder of files, as its operator configured it.
#[derive(Debug)]
pub(crate) struct FolderBackend {
    pub(crate) root: PathBuf,
    /// Which nodes have it: each a whole copy, all the same folder, or each a part.
    pub(crate) placement: ContentPlacement,
    pub(crate) index_files: Vec<String>,
    /// Key of a path.
    pub(crate) spa_fallback: Option<Box<[u8]>>,
    pub(crate) listing: bool,
    dotfiles: bool,
    pub(crate) symlinks: Symlinks,
    pub(crate) precompressed: bool,
    /// What answers for all that is no file.
    pub(crate) pool: Option<PoolBackend>,
}

/// The paths of a site's routes and their further conditions, in the order in which they are matched.
#[derive(Debug, Default)]
pub(crate) struct RoutePaths(Vec<(PathPattern, Conditions)>);

/// The position of a route among its site's routes.
#[derive(Clone, Debug)]
struct RoutePlace {
    paths: Arc<RoutePaths>,
    /// Index in `paths`; past the last: the default route.
    index: usize,
}

/// A route as the config has it.
#[derive(Clone, Debug)]
pub(crate) struct RouteSpec<'a> {
    pub(crate) site: &'a SiteConfig,
    pub(crate) site_index: usize,
    /// As in the config; `None`: all paths without a route of their own.
    pub(crate) path: Option<&'a str>,
    pub(crate) paths: Arc<RoutePaths>,
    /// Index in `paths`.
    pub(crate) index: usize,
    pub(crate) conditions: Conditions,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) backend: &'a BackendConfig,
    /// Whether no other route has origins.
    pub(crate) is_alone: bool,
    pub(crate) pools: &'a PoolMap,
}

impl Route {
    pub(crate) fn new(
        index: usize,
        of: &RouteSpec<'_>,
        named_files: Option<Arc<Route>>,
        (hosts, purges): (&Arc<Hosts>, &Arc<Purges>),
    ) -> Result<Self, SiteError> {
        let backend = Backend::new(of)?;
        let key = backend.key(of);
        let identity = of.identity();
        // Others of the same origins, or the same folder, have the same key.
        let short_key = match of.path {
            Some(_) => stable_hash(&[&*key, identity.as_bytes()].concat(), SHORT_KEY_SEED),
            None => stable_hash(&key, SHORT_KEY_SEED),
        };
        let mut lines = Vec::new();
        let mut content_type = None;
        for (name, value) in fields(&of.site.headers, of.headers) {
            match is_type(name.as_bytes()) {
                true => content_type = Some(value.as_str().into()),
                false => skep_http::encode::write_field(&mut lines, name, value.as_bytes()),
            }
        }
        lines.extend_from_slice(&of.vary_line());
        let mut lines_success = lines.clone();
        if let Some(value) = &of.backend.cache_control {
            skep_http::encode::write_field(&mut lines_success, "Cache-Control", value.as_bytes());
        }
        Ok(Self {
            index,
            site_index: of.site_index,
            backend,
            named_files,
            short_key,
            key: key.into(),
            head_kind: hashed(of.head_kind(&identity).as_bytes()),
            compression: Compression::new(of.backend),
            place: of.place(),
            content_type,
            label: of.label(),
            lines: lines.into(),
            lines_success: lines_success.into(),
            purges: Arc::clone(purges),
            hosts: Arc::clone(hosts),
        })
    }

    /// Opens the folder; an error if there is none.
    pub(crate) fn open_root(&self) -> Result<Root, DiskError> {
        let folder = self.folder().ok_or(DiskError::NotFound)?;
        Root::open(&folder.root, folder.symlinks)
    }

    /// The folder, if it has one.
    pub(crate) fn folder(&self) -> Option<&FolderBackend> {
        match &self.backend {
            Backend::Folder(folder) => Some(folder),
            Backend::Origin(_) | Backend::Pool(_) | Backend::Reply(_) => None,
        }
    }

    /// The origins, if it has some.
    pub(crate) fn origin(&self) -> Option<&OriginBackend> {
        match &self.backend {
            Backend::Origin(origin) => Some(origin),
            Backend::Folder(_) | Backend::Pool(_) | Backend::Reply(_) => None,
        }
    }

    /// The pool that answers, or that answers for all that is no file.
    pub(crate) fn pool(&self) -> Option<&PoolBackend> {
        match &self.backend {
            Backend::Pool(pool) => Some(pool),
            Backend::Folder(folder) => folder.pool.as_ref(),
            Backend::Origin(_) | Backend::Reply(_) => None,
        }
    }

    /// The cache in front of the pool.
    pub(crate) fn pool_cache(&self) -> Option<&PoolCache> {
        self.pool()?.cache.as_ref()
    }

    /// Whether its responses are kept in memory.
    pub(crate) fn keeps_responses(&self) -> bool {
        match &self.backend {
            Backend::Folder(_) | Backend::Origin(_) => true,
            Backend::Pool(pool) => pool.cache.is_some(),
            Backend::Reply(_) => false,
        }
    }

    /// Whether each node has a part of the folder.
    pub(crate) fn is_partition(&self) -> bool {
        self.is_placed(ContentPlacement::Partition)
    }

    /// Whether all nodes see the same folder.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_placed(ContentPlacement::Shared)
    }

    /// Whether each node has a copy of its own of the folder.
    pub(crate) fn is_local(&self) -> bool {
        self.is_placed(ContentPlacement::Local)
    }

    fn is_placed(&self, placement: ContentPlacement) -> bool {
        self.folder().is_some_and(|folder| folder.placement == placement)
    }

    /// Name of a version of the object at `relative` that was fetched after a purge, unique
    /// among all routes: routes with the same root share its bytes in memory, and so do routes
    /// with the same origins.
    pub(crate) fn object_name(
        &self,
        relative: &[u8],
        version: &[u8],
        bytes: u64,
        purged: PurgeStamp,
    ) -> ObjectName {
        ObjectName::new(&self.key, relative, version, bytes, purged)
    }

    /// The name of the head of what a remote server has at `target`: that of a segment that no object
    /// has. A purge of the target changes the name.
    pub(crate) fn head_name(&self, target: &[u8], purged: PurgeStamp) -> SegmentName {
        ObjectName::head(&self.key, target, &self.head_kind, purged)
    }

    /// [`Self::head_name`] of what is stored under the primary key of requests for its pool.
    pub(crate) fn primary_name(&self, key: &PoolKey, purged: PurgeStamp) -> SegmentName {
        key.name(purged, || self.head_name(key.primary(), purged))
    }

    /// The name in the cluster of what the object whose segments begin with `plain` becomes by `coding`,
    /// as this route compresses it.
    pub(crate) fn compressed_name(&self, plain: SegmentName, coding: Encoding) -> SegmentName {
        let level = self.compression.as_ref().map_or(0, |it| it.level(coding));
        let kind = format!("compressed by {}, level {level}", coding.as_str());
        ObjectName::head(&self.key, &plain.0, kind.as_bytes(), PurgeStamp::NONE)
    }

    /// Whether servers of its pool are asked for plain bytes, which are compressed here.
    pub(crate) fn asks_for_plain(&self) -> bool {
        self.pool().is_some_and(|pool| pool.asks_for_plain)
    }

    /// Identifies the route in names, the same on all nodes of a config.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the request that has this route for the file or folder at `asked` has it for the file
    /// at `relative`, too: whatever request it is.
    pub(crate) fn answers_for(&self, relative: &[u8], asked: &[u8]) -> bool {
        let RoutePlace { paths, index } = &self.place;
        if paths.is_empty() {
            return true;
        }
        let place = |relative| {
            let mut place = vec![b'/'];
            path::write_encoded(&mut place, relative);
            place
        };
        paths.leads_on(*index, &place(asked), &place(relative))
    }

    /// How its paths are parsed.
    #[inline]
    pub(crate) fn reading(&self) -> Reading {
        match &self.backend {
            Backend::Folder(_) => Reading::Files,
            Backend::Origin(_) | Backend::Pool(_) | Backend::Reply(_) => Reading::Origins,
        }
    }

    /// The latest purge of `target`: an encoded path, and a query if the route has origins.
    pub(crate) fn purged(&self, known: &PurgeTable, target: &[u8]) -> PurgeStamp {
        if known.newest() == PurgeStamp::NONE {
            return PurgeStamp::NONE;
        }
        let queries = match &self.backend {
            Backend::Folder(_) | Backend::Reply(_) => Queries::DoNot,
            Backend::Origin(_) | Backend::Pool(_) => Queries::Matter,
        };
        let place = path::place(target);
        known.of_target(&String::from_utf8_lossy(&place), queries, |host| {
            self.hosts.find(host.as_bytes()) == Some(self.site_index)
        })
    }

    /// The latest purge of files that are served as one: of the place of any of them, or of the
    /// folder whose index it is.
    pub(crate) fn purged_files<'a>(
        &self,
        known: &PurgeTable,
        relatives: impl Iterator<Item = &'a [u8]>,
    ) -> PurgeStamp {
        if known.newest() == PurgeStamp::NONE {
            return PurgeStamp::NONE;
        }
        let at = |relative: &[u8]| {
            let mut target = vec![b'/'];
            path::write_encoded(&mut target, relative);
            self.purged(known, &target)
        };
        let folder = |relative: &'a [u8]| {
            let name_at = relative.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
            let (folder, name) = relative.split_at(name_at);
            self.folder().is_some_and(|it| it.is_index(name)).then_some(folder)
        };
        let all = relatives.flat_map(|relative| [Some(relative), folder(relative)]).flatten();
        all.map(at).max().unwrap_or_default()
    }

    /// The head name of the file or folder at `relative` in a partitioned folder.
    pub(crate) fn part_head_name(&self, relative: &[u8]) -> SegmentName {
        // File locations are not cached, so there is nothing to purge.
        ObjectName::head(self.key(), relative, PART_HEAD, PurgeStamp::NONE)
    }
}

/// Header fields of a route: its own replace those of the site with the same name.
fn fields<'a>(
    site: &'a [(String, String)],
    own: &'a [(String, String)],
) -> impl Iterator<Item = &'a (String, String)> {
    let is_replaced = |name: &str| own.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
    site.iter().filter(move |(name, _)| !is_replaced(name)).chain(own)
}

impl RoutePaths {
    pub(crate) fn new(site: &SiteConfig) -> Arc<Self> {
        let route = |route: &RouteConfig| (PathPattern::new(&route.path), Conditions::new(route));
        Arc::new(Self(site.routes.iter().map(route).collect()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Index of the first route for a request with this [`path::place`]; the number of routes if
    /// there is none.
    pub(crate) fn find(&self, place: &[u8], input: RouteInput<'_, '_, '_>) -> usize {
        let mut routes = self.0.iter();
        let takes = |(path, conditions): &(PathPattern, Conditions)| {
            path.matches(place) && conditions.are_met(&input)
        };
        routes.position(takes).unwrap_or(self.0.len())
    }

    /// Whether all requests for a file that have route `index` at the place `asked` have it at
    /// `other` as well. An earlier route that has both places has conditions that they do not meet.
    fn leads_on(&self, index: usize, asked: &[u8], other: &[u8]) -> bool {
        let takes_it = |(path, conditions): &(PathPattern, Conditions)| {
            path.matches(other) && conditions.concern_files() && !path.matches(asked)
        };
        let is_own = self.0.get(index).is_none_or(|(path, _)| path.matches(other));
        is_own && !self.0[..index].iter().any(takes_it)
    }

    /// Names of the fields that decide whether a request has route `index`.
    fn deciding_fields(&self, index: usize) -> impl Iterator<Item = &str> {
        let own = self.0.get(index).map(|(path, _)| path);
        let concerns = move |path: &PathPattern| own.is_none_or(|own| own.may_overlap(path));
        let routes = self.0.iter().take(index + 1).filter(move |(path, _)| concerns(path));
        routes.flat_map(|(_, conditions)| conditions.field_names())
    }
}

impl RouteSpec<'_> {
    /// The same on all nodes of a config, whatever other routes there are.
    fn identity(&self) -> String {
        let hosts = match self.site.hosts.is_empty() {
            true => "*".to_owned(),
            false => self.site.hosts.join(" "),
        };
        format!("{hosts}{}", self.at())
    }

    fn label(&self) -> RouteLabel {
        let BackendConfig { pool, origins, root, .. } = self.backend;
        let backend = match (pool, root) {
            (Some(pool), None) => format!("pool {pool}"),
            (Some(pool), Some(root)) => format!("folder {}, else pool {pool}", root.display()),
            (None, Some(root)) => format!("folder {}", root.display()),
            (None, None) if !origins.is_empty() => format!("origins {}", origins.join(" ")),
            (None, None) => "fixed reply".to_owned(),
        };
        RouteLabel {
            site: self.site.hosts.first().map_or("*", String::as_str).into(),
            path: self.path.map_or("*".into(), |path| format!("{path}{}", self.conditions)).into(),
            backend: backend.into(),
        }
    }

    /// The same on all nodes that ask remote servers in the same way.
    fn head_kind(&self, identity: &str) -> String {
        let BackendConfig { pool, fetch, forward, cache, compress, .. } = self.backend;
        let plain = if compress.enabled { " without codings" } else { "" };
        match pool {
            Some(_) => {
                // What clients are told of a response does not make it another one.
                let cache = ResponseCacheConfig { show_key: false, ..cache.clone() };
                format!("response of a pool to {identity}{plain}, as {forward:?}, {cache:?}")
            }
            None => format!("head of {identity}, fresh for {} ms", fetch.fresh_ms),
        }
    }

    fn at(&self) -> String {
        let conditions = &self.conditions;
        self.path.map(|path| format!(" at {path}{conditions}")).unwrap_or_default()
    }

    /// The line for caches that says which fields have chosen the route; nothing, if none did.
    fn vary_line(&self) -> Vec<u8> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.paths.deciding_fields(self.index) {
            if !names.iter().any(|it| it.eq_ignore_ascii_case(name)) {
                names.push(name);
            }
        }
        match names.is_empty() {
            true => Vec::new(),
            false => format!("Vary: {}\r\n", names.join(", ")).into_bytes(),
        }
    }

    fn place(&self) -> RoutePlace {
        RoutePlace { paths: Arc::clone(&self.paths), index: self.index }
    }
}

/// A hash that is the same on all nodes.
fn hashed(text: &[u8]) -> [u8; 16] {
    ObjectName::head(b"", b"", text, PurgeStamp::NONE).0
}

impl Backend {
    fn new(of: &RouteSpec<'_>) -> Result<Self, SiteError> {
        if !of.backend.origins.is_empty() {
            let origin = OriginBackend::new(of.backend, &of.site.hosts, of.is_alone)?;
            return Ok(Self::Origin(origin));
        }
        if let Some(reply) = ReplyBackend::new(&of.backend.reply, of.path)? {
            return Ok(Self::Reply(reply));
        }
        let headers: Vec<_> = fields(&of.site.headers, of.headers).collect();
        let pool = PoolBackend::new(of.backend, of.pools, &headers, &of.vary_line());
        Ok(match (pool, &of.backend.root) {
            (Some(pool), None) => Self::Pool(pool),
            (pool, _) => Self::Folder(FolderBackend::new(of.backend, pool)?),
        })
    }

    /// Its identifier in names: the same on all nodes of a config. A partitioned folder may be
    /// at another path on each node.
    fn key(&self, of: &RouteSpec<'_>) -> Vec<u8> {
        match self {
            Self::Origin(origin) => origin.key().to_vec(),
            Self::Pool(pool) => format!("pool {}", pool.group.name()).into_bytes(),
            Self::Reply(reply) => format!("reply {}", reply.status).into_bytes(),
            Self::Folder(folder) if folder.placement == ContentPlacement::Partition => {
                format!("part of {}{}", of.site.hosts.join(" "), of.at()).into_bytes()
            }
            Self::Folder(folder) => folder.root.as_os_str().as_bytes().to_vec(),
        }
    }
}

impl FolderBackend {
    fn new(config: &BackendConfig, pool: Option<PoolBackend>) -> Result<Self, SiteError> {
        let root = config.root.clone().unwrap_or_default();
        check_root(&root).map_err(|cause| SiteError::Root { root: root.clone(), cause })?;
        let page = |page: &String| {
            let read = path::read(page.as_bytes(), Reading::Files);
            read.map(|path| path.key().into()).map_err(|reject| SiteError::page(page, reject))
        };
        Ok(Self {
            root,
            placement: config.content,
            index_files: config.index.clone(),
            spa_fallback: config.spa_fallback.as_ref().map(page).transpose()?,
            listing: config.listing,
            dotfiles: config.dotfiles,
            symlinks: config.symlinks,
            precompressed: config.precompressed,
            pool,
        })
    }

    /// Whether `path` may be served at all: a segment that begins with a dot is hidden, except
    /// for `/.well-known/` (RFC 8615).
    pub(crate) fn shows(&self, path: &[u8]) -> bool {
        let visible = path.strip_prefix(b"/.well-known/").unwrap_or(path);
        self.dotfiles || !visible.split(|&b| b == b'/').any(|segment| segment.starts_with(b"."))
    }

    fn is_index(&self, name: &[u8]) -> bool {
        self.index_files.iter().any(|index| index.as_bytes() == name)
    }
}
