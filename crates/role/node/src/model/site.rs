//! Sites: which one a request is for, and what its operator has decided.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use skep_config::{ContentPlacement, RedirectConfig, SiteConfig, Symlinks};
use skep_directory::{PurgeTable, Queries};
use skep_http::Host;
use skep_http::path::{self, Path, Reading};
use skep_units::stable_hash;
use skep_wire::cache::{ObjectName, PurgeStamp, SegmentName};
use skep_wire::limits::HOST_BYTES_MAX;

use crate::disk::check_root;
use crate::model::origin_site::RemoteSite;
use crate::model::purges::Purges;

/// All nodes hash with it.
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
        /// What the kernel said.
        cause: io::Error,
    },
    /// The path of a page can't be asked for.
    #[error("no page can be at {page:?} ({reason}). Expected a path as it stands in a request")]
    Page {
        /// As configured.
        page: String,
        /// Why it would be refused.
        reason: &'static str,
    },
    /// An origin is none.
    #[error(transparent)]
    Origin(#[from] skep_origin::OriginUrlError),
}

/// One site, ready to serve.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) index: usize,
    /// Empty if the bytes come from origins.
    pub(crate) root: PathBuf,
    pub(crate) remote: Option<RemoteSite>,
    pub(crate) index_files: Vec<String>,
    pub(crate) spa_fallback: Option<Box<[u8]>>,
    pub(crate) listing: bool,
    pub(crate) dotfiles: bool,
    pub(crate) symlinks: Symlinks,
    pub(crate) precompressed: bool,
    /// Whether all nodes see the same folder.
    pub(crate) is_shared: bool,
    /// Whether each node has a part of the folder.
    pub(crate) is_part: bool,
    /// Stands for the site in names.
    key: Box<[u8]>,
    /// Stands for the key in messages.
    pub(crate) short_key: u64,
    /// Field lines of every reply of the site.
    pub(crate) lines: Box<[u8]>,
    /// Those, and `Cache-Control`, for replies that succeeded.
    pub(crate) lines_success: Box<[u8]>,
    /// Keys of paths.
    pub(crate) error_pages: BTreeMap<u16, Box<[u8]>>,
    /// What was purged, here and elsewhere.
    pub(crate) purges: Arc<Purges>,
    redirects: Vec<Moved>,
    /// Of all sites.
    hosts: Arc<Hosts>,
}

impl Site {
    fn new(
        index: usize,
        config: &SiteConfig,
        hosts: &Arc<Hosts>,
        purges: &Arc<Purges>,
    ) -> Result<Self, SiteError> {
        let remote = RemoteSite::new(config, hosts.sites_of_origins == 1)?;
        let reading = if remote.is_some() { Reading::Origins } else { Reading::Files };
        let page = |page: &String| key_of(page, reading);
        let error_pages = config.error_pages.iter();
        let error_pages = error_pages.map(|(status, path)| Ok((*status, page(path)?)));
        let root = config.root.clone().unwrap_or_default();
        let is_part = config.content == ContentPlacement::Partition;
        let key = match &remote {
            Some(remote) => remote.key().to_vec(),
            None if is_part => part_key(config),
            None => root.as_os_str().as_bytes().to_vec(),
        };
        if remote.is_none() {
            check_root(&root).map_err(|cause| SiteError::Root { root: root.clone(), cause })?;
        }
        let mut lines = Vec::new();
        for (name, value) in &config.headers {
            skep_http::encode::write_field(&mut lines, name, value.as_bytes());
        }
        let mut lines_success = lines.clone();
        if let Some(value) = &config.cache_control {
            skep_http::encode::write_field(&mut lines_success, "Cache-Control", value.as_bytes());
        }
        Ok(Self {
            index,
            root,
            remote,
            index_files: config.index.clone(),
            spa_fallback: config.spa_fallback.as_ref().map(page).transpose()?,
            listing: config.listing,
            dotfiles: config.dotfiles,
            symlinks: config.symlinks,
            precompressed: config.precompressed,
            is_shared: config.content == ContentPlacement::Shared,
            is_part,
            short_key: stable_hash(&key, SHORT_KEY_SEED),
            key: key.into(),
            lines: lines.into(),
            lines_success: lines_success.into(),
            error_pages: error_pages.collect::<Result<_, SiteError>>()?,
            purges: Arc::clone(purges),
            redirects: config.redirects.iter().map(Moved::new).collect(),
            hosts: Arc::clone(hosts),
        })
    }

    /// Name of a version of the object at `relative` that was got after a purge,
    /// unique among all sites: sites that share a root share its bytes in memory.
    /// So do sites of the same origins.
    pub(crate) fn object_name(
        &self,
        relative: &[u8],
        version: &[u8],
        bytes: u64,
        purged: PurgeStamp,
    ) -> ObjectName {
        ObjectName::new(&self.key, relative, version, bytes, purged)
    }

    /// Stands for the site in names, the same on all nodes of a config.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// How paths of the site are read.
    #[inline]
    pub(crate) fn reading(&self) -> Reading {
        if self.remote.is_some() { Reading::Origins } else { Reading::Files }
    }

    /// The latest purge of what is at `target`: an encoded path, and a query if
    /// the site has origins.
    pub(crate) fn purged(&self, known: &PurgeTable, target: &[u8]) -> PurgeStamp {
        if known.newest() == PurgeStamp::NONE {
            return PurgeStamp::NONE;
        }
        let queries = if self.remote.is_some() { Queries::Matter } else { Queries::DoNot };
        let place = path::place(target);
        known.of_target(&String::from_utf8_lossy(&place), queries, |host| {
            self.hosts.find(host.as_bytes()) == Some(self.index)
        })
    }

    /// The latest purge of files that are served as one: of the place of any of them,
    /// or of a folder whose index it is.
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
            self.index_files.iter().any(|index| index.as_bytes() == name).then_some(folder)
        };
        let all = relatives.flat_map(|relative| [Some(relative), folder(relative)]).flatten();
        all.map(at).max().unwrap_or_default()
    }

    /// What the head of the file or folder at `relative` is called in the cluster, where
    /// each node has a part of the site.
    pub(crate) fn part_head_name(&self, relative: &[u8]) -> SegmentName {
        // Who has a file is not cached, so it is not purged.
        ObjectName::head(self.key(), relative, PART_HEAD, PurgeStamp::NONE)
    }

    /// Whether the operator lets `path` be served at all: a segment that
    /// begins with a dot is hidden, but for `/.well-known/` (RFC 8615).
    pub(crate) fn shows(&self, path: &[u8]) -> bool {
        let visible = path.strip_prefix(b"/.well-known/").unwrap_or(path);
        self.dotfiles || !visible.split(|&b| b == b'/').any(|segment| segment.starts_with(b"."))
    }

    /// Status and Location for a path that moved.
    pub(crate) fn moved(&self, path: &Path<'_>) -> Option<(u16, Vec<u8>)> {
        self.redirects.iter().find_map(|it| Some((it.status, it.location(path)?)))
    }
}

/// A redirect: which places it is for, and where it leads.
#[derive(Debug)]
struct Moved {
    from: Box<[u8]>,
    /// Whether it is for all that begins so.
    is_prefix: bool,
    to: Box<[u8]>,
    /// Whether what is behind the prefix goes there, too.
    takes_rest: bool,
    status: u16,
}

impl Moved {
    fn new(config: &RedirectConfig) -> Self {
        let cut = |text: &str| text.strip_suffix('*').map(str::to_owned);
        let (prefix, to) = (cut(&config.from), cut(&config.to));
        Self {
            is_prefix: prefix.is_some(),
            takes_rest: to.is_some(),
            from: path::place(prefix.as_ref().unwrap_or(&config.from).as_bytes()).into(),
            to: to.as_ref().unwrap_or(&config.to).as_bytes().into(),
            status: config.status,
        }
    }

    /// Where `path` has moved, if it has.
    fn location(&self, path: &Path<'_>) -> Option<Vec<u8>> {
        let rest = path.behind(&self.from)?;
        if !self.is_prefix && !rest.is_empty() {
            return None;
        }
        let mut location = self.to.to_vec();
        if self.takes_rest {
            // Two slashes in front would name another server (RFC 3986 4.2).
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            let surplus = if location.ends_with(b"/") { slashes } else { 0 };
            location.extend_from_slice(&rest[surplus..]);
        }
        Some(location)
    }
}

/// The key of a path that the config names.
/// What stands for a site in names of which each node has a part: its folder may be
/// elsewhere on each node, its hosts are the same.
fn part_key(config: &SiteConfig) -> Vec<u8> {
    format!("part of {}", config.hosts.join(" ")).into_bytes()
}

fn key_of(page: &str, reading: Reading) -> Result<Box<[u8]>, SiteError> {
    let read = path::read(page.as_bytes(), reading);
    read.map(|path| path.key().into())
        .map_err(|reject| SiteError::Page { page: page.to_owned(), reason: reject.reason })
}

/// All sites of a node, by host.
#[derive(Debug)]
pub(crate) struct SiteSet {
    sites: Vec<Arc<Site>>,
    hosts: Arc<Hosts>,
}

/// Which site a host name stands for, by number.
#[derive(Debug, Default)]
struct Hosts {
    exact: HashMap<Box<[u8]>, usize>,
    /// Suffixes with their dot: `.example.org`; the longest first.
    wildcards: Vec<(Box<[u8]>, usize)>,
    default: Option<usize>,
    sites_of_origins: usize,
}

impl SiteSet {
    /// Compiles the sites of a config, and looks whether their roots are there.
    pub(crate) fn new(configs: &[SiteConfig], purges: &Arc<Purges>) -> Result<Self, SiteError> {
        let hosts = Arc::new(Hosts::new(configs));
        let site = |(index, config)| Ok(Arc::new(Site::new(index, config, &hosts, purges)?));
        let sites = configs.iter().enumerate().map(site).collect::<Result<_, SiteError>>()?;
        Ok(Self { sites, hosts })
    }

    /// Number of sites.
    pub(crate) fn len(&self) -> usize {
        self.sites.len()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.sites.iter()
    }

    /// The site that other nodes mean by a key of messages.
    pub(crate) fn by_key(&self, short_key: u64) -> Option<&Arc<Site>> {
        self.sites.iter().find(|site| site.short_key == short_key)
    }

    /// The site for a host; exact names before wildcards before the default.
    pub(crate) fn find(&self, host: &Host<'_>) -> Option<&Arc<Site>> {
        self.hosts.find(host.name).map(|index| &self.sites[index])
    }
}

impl Hosts {
    fn new(configs: &[SiteConfig]) -> Self {
        let sites_of_origins = configs.iter().filter(|config| !config.origins.is_empty()).count();
        let mut hosts = Self { sites_of_origins, ..Self::default() };
        for (index, config) in configs.iter().enumerate() {
            if config.hosts.is_empty() {
                hosts.default.get_or_insert(index);
            }
            for host in &config.hosts {
                hosts.add(&host.to_ascii_lowercase(), index);
            }
        }
        hosts.wildcards.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        hosts
    }

    fn find(&self, host: &[u8]) -> Option<usize> {
        if self.exact.is_empty() && self.wildcards.is_empty() {
            return self.default;
        }
        let mut buffer = [0u8; HOST_BYTES_MAX];
        let name = buffer.get_mut(..host.len())?;
        name.copy_from_slice(host);
        name.make_ascii_lowercase();
        self.exact.get(&*name).copied().or_else(|| {
            let wild = self.wildcards.iter().find(|(suffix, _)| name.ends_with(suffix));
            wild.map(|&(_, index)| index).or(self.default)
        })
    }

    fn add(&mut self, host: &str, index: usize) {
        if host == "*" {
            self.default.get_or_insert(index);
        } else if let Some(suffix) = host.strip_prefix('*') {
            self.wildcards.push((suffix.as_bytes().into(), index));
        } else {
            self.exact.entry(host.as_bytes().into()).or_insert(index);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_wire::cache::{PurgeNews, PurgePlace, PurgeWhat};

    use super::*;

    fn site(hosts: &[&str]) -> SiteConfig {
        let hosts = hosts.iter().map(|h| (*h).to_string()).collect();
        SiteConfig { hosts, root: Some("/".into()), ..SiteConfig::default() }
    }

    fn set_of(configs: &[SiteConfig]) -> SiteSet {
        SiteSet::new(configs, &Arc::default()).unwrap()
    }

    fn found(set: &SiteSet, host: &str) -> Option<usize> {
        set.find(&Host { name: host.as_bytes(), port: None }).map(|site| site.index)
    }

    #[test]
    fn exact_before_wildcard_before_default() {
        let configs = [site(&["a.org", "*.a.org"]), site(&["b.a.org"]), site(&[])];
        let set = set_of(&configs);
        assert_eq!(found(&set, "A.org"), Some(0));
        assert_eq!(found(&set, "x.y.a.org"), Some(0));
        assert_eq!(found(&set, "B.A.ORG"), Some(1));
        assert_eq!(found(&set, "nobody"), Some(2));
        assert_eq!(found(&set, ""), Some(2));
        let strict = set_of(&configs[..2]);
        assert_eq!(found(&strict, "nobody"), None);
    }

    #[test]
    fn a_purge_of_a_host_hits_the_site_that_answers_for_it() {
        let set = set_of(&[site(&["a.org", "*.a.org"]), site(&["b.a.org"]), site(&[])]);
        let hit = |host: Option<&str>| {
            let place = PurgePlace { target: "/x".into(), host: host.map(str::to_owned) };
            let purges = vec![(PurgeWhat::Url(place), PurgeStamp(1))];
            let mut known = PurgeTable::default();
            known.learn(&PurgeNews { purges, ..PurgeNews::default() });
            let hit = set.iter().filter(|site| site.purged(&known, b"/x") == PurgeStamp(1));
            hit.map(|site| site.index).collect::<Vec<_>>()
        };
        assert_eq!(hit(None), [0, 1, 2]);
        assert_eq!((hit(Some("a.org")), hit(Some("x.a.org"))), (vec![0], vec![0]));
        assert_eq!((hit(Some("b.a.org")), hit(Some("else"))), (vec![1], vec![2]));
    }

    #[test]
    fn hidden_files_are_hidden_except_well_known() {
        let set = set_of(&[site(&[])]);
        let site = &set.sites[0];
        assert!(site.shows(b"/a/b.html"));
        assert!(!site.shows(b"/.git/config"));
        assert!(!site.shows(b"/a/.env"));
        assert!(site.shows(b"/.well-known/security.txt"));
        assert!(!site.shows(b"/.well-known/.secret"));
    }

    #[test]
    fn a_missing_root_is_named() {
        let config = SiteConfig { root: Some("/no/such/root".into()), ..SiteConfig::default() };
        let message = SiteSet::new(&[config], &Arc::default()).unwrap_err().to_string();
        assert!(message.contains("/no/such/root"), "{message}");
    }

    #[test]
    fn moved_paths_keep_their_rest_and_cannot_inject() {
        let mut config = site(&[]);
        config.redirects.push(RedirectConfig {
            from: "/old/*".into(),
            to: "/new/*".into(),
            status: 301,
        });
        config.redirects.push(RedirectConfig { from: "/x".into(), to: "/y".into(), status: 302 });
        let set = set_of(&[config]);
        let site = &set.sites[0];
        let moved =
            |path: &str| site.moved(&path::read(path.as_bytes(), Reading::Origins).unwrap());
        assert_eq!(moved("/old/a%20b"), Some((301, b"/new/a%20b".to_vec())));
        let injected = moved("/old/%0D%0aSet-Cookie: x").unwrap().1;
        assert_eq!(injected, b"/new/%0D%0ASet-Cookie: x");
        assert_eq!(moved("/x"), Some((302, b"/y".to_vec())));
        assert_eq!(moved("/x/"), None);
    }
}
