//! Sites: the routes of host names, and the choice of a route by path.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_config::SiteConfig;
use skep_http::path::{self, Path, Reading};
use skep_http::{Host, Reject};

use crate::model::conditions::{Conditions, RouteInput};
use crate::model::file_names::named_files_folder;
use crate::model::hosts::Hosts;
use crate::model::pool_cache::with_query;
use crate::model::pools::PoolMap;
use crate::model::purges::Purges;
use crate::model::redirect::Redirect;
use crate::model::route::{Route, RoutePaths, RouteSpec, SiteError};

/// One site, ready to serve.
#[derive(Debug)]
pub(crate) struct Site {
    paths: Arc<RoutePaths>,
    /// One for each of `paths`, in matching order.
    routes: Vec<Arc<Route>>,
    /// For paths that match no other route.
    default_route: Arc<Route>,
    /// Whether routes differ in how they parse paths.
    is_mixed: bool,
    error_pages: BTreeMap<u16, Page>,
    redirects: Vec<Redirect>,
    pub(crate) purges: Arc<Purges>,
    /// Its first host name, unless that is a pattern.
    pub(crate) name: Option<Box<[u8]>>,
}

/// The body of replies with a certain status.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// The route of its path.
    pub(crate) route: Arc<Route>,
    /// Key of its path.
    pub(crate) key: Box<[u8]>,
}

impl Site {
    fn new(
        config: &SiteConfig,
        paths: Arc<RoutePaths>,
        (routes, default_route): (Vec<Arc<Route>>, Arc<Route>),
        purges: &Arc<Purges>,
    ) -> Result<Self, SiteError> {
        let is_mixed = routes.iter().any(|route| route.reading() != default_route.reading());
        let mut site = Self {
            paths,
            routes,
            default_route,
            is_mixed,
            error_pages: BTreeMap::new(),
            redirects: config.redirects.iter().map(Redirect::new).collect(),
            purges: Arc::clone(purges),
            name: name(config),
        };
        for (status, path) in &config.error_pages {
            let page = site.page_at(path)?;
            site.error_pages.insert(*status, page);
        }
        Ok(site)
    }

    /// The route of a request with the path `sent`, and the path as parsed by that route.
    ///
    /// # Errors
    /// One of the `PATH_…` reasons. A path is refused if the route of a folder and that of an origin
    /// would parse it as two paths with two routes, or if an origin that decodes `%2F`, or strips
    /// parameters after `;`, would parse it as a path of another route, which it would bypass.
    #[inline]
    pub(crate) fn route<'b>(
        &self,
        sent: &'b [u8],
        input: RouteInput<'_, '_, '_>,
    ) -> Result<(&Arc<Route>, Path<'b>), Reject> {
        let route = &self.default_route;
        if self.routes.is_empty() {
            return Ok((route, path::read(sent, route.reading())?));
        }
        let found = match self.is_mixed {
            true => self.route_of_mixed(sent, input)?,
            false => {
                let path = path::read(sent, route.reading())?;
                (self.route_of(&path.place(), input), path)
            }
        };
        let (route, path) = found;
        // A folder takes names literally.
        let is_loose = route.origin().is_some() || route.pool().is_some();
        match path.loosest_place().filter(|_| is_loose) {
            Some(loosest) if !Arc::ptr_eq(route, self.route_of(&loosest, input)) => {
                Err(Reject::PATH_TWO_ROUTES)
            }
            _ => Ok((route, path)),
        }
    }

    fn route_of_mixed<'b>(
        &self,
        sent: &'b [u8],
        input: RouteInput<'_, '_, '_>,
    ) -> Result<(&Arc<Route>, Path<'b>), Reject> {
        let (origins, files) =
            (path::read(sent, Reading::Origins), path::read(sent, Reading::Files));
        let (one, other) = (origins.as_ref().ok(), files.as_ref().ok());
        let route = self.route_of(&one.or(other).map(Path::place).unwrap_or_default(), input);
        if let (Some(one), Some(other)) = (one, other)
            && one.target() != other.target()
            && !Arc::ptr_eq(route, self.route_of(&other.place(), input))
        {
            return Err(Reject::PATH_TWO_ROUTES);
        }
        match route.reading() {
            Reading::Origins => Ok((route, origins?)),
            Reading::Files => Ok((route, files?)),
        }
    }

    fn route_of(&self, place: &[u8], input: RouteInput<'_, '_, '_>) -> &Arc<Route> {
        self.routes.get(self.paths.find(place, input)).unwrap_or(&self.default_route)
    }

    /// The route of all paths without a route of their own.
    pub(crate) fn default_route(&self) -> &Arc<Route> {
        &self.default_route
    }

    /// All routes, including those that no path leads to; the default route is last.
    fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        let routes = self.routes.iter().chain([&self.default_route]);
        routes.flat_map(|route| route.named_files.iter().chain([route]))
    }

    /// Whether any route stores responses of origins or of an application.
    pub(crate) fn stores_responses(&self) -> bool {
        self.routes().any(|route| route.origin().is_some() || route.pool_cache().is_some())
    }

    /// The forms of a path and query under which routes store responses to it, without duplicates:
    /// each may contain what a request to another one changes.
    pub(crate) fn stored_targets(&self, path: &[u8], query: Option<&[u8]>) -> Vec<Vec<u8>> {
        let mut targets = vec![with_query(path, query)];
        let caches = self.routes().filter_map(|route| route.pool_cache());
        targets.extend(caches.map(|cache| cache.target(path, query)));
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// The page for replies with this status, if configured.
    pub(crate) fn error_page(&self, status: u16) -> Option<&Page> {
        self.error_pages.get(&status)
    }

    fn page_at(&self, page: &str) -> Result<Page, SiteError> {
        let found = self.route(page.as_bytes(), RouteInput::GET);
        let (route, path) = found.map_err(|reject| SiteError::page(page, reject))?;
        Ok(Page { route: Arc::clone(route), key: path.key().into() })
    }

    /// Status and Location for a moved path.
    pub(crate) fn moved(&self, path: &Path<'_>) -> Option<(u16, Vec<u8>)> {
        self.redirects.iter().find_map(|it| Some((it.status, it.location(path)?)))
    }
}

fn name(config: &SiteConfig) -> Option<Box<[u8]>> {
    let first = config.hosts.first().filter(|host| !host.contains('*'))?;
    Some(first.as_bytes().into())
}

/// All sites of a node, by host.
#[derive(Debug)]
pub(crate) struct SiteSet {
    sites: Vec<Arc<Site>>,
    hosts: Arc<Hosts>,
    routes_len: usize,
    keeps_responses: bool,
}

impl SiteSet {
    /// Sites without pools: see [`SiteSet::with_pools`].
    #[cfg(test)]
    pub(crate) fn new(configs: &[SiteConfig], purges: &Arc<Purges>) -> Result<Self, SiteError> {
        Self::with_pools(configs, &PoolMap::new(), purges)
    }

    /// Compiles the sites of a config, and checks that their roots exist.
    pub(crate) fn with_pools(
        configs: &[SiteConfig],
        pools: &PoolMap,
        purges: &Arc<Purges>,
    ) -> Result<Self, SiteError> {
        let hosts = Arc::new(Hosts::new(configs));
        let backends = configs.iter().flat_map(SiteConfig::backends);
        let is_alone = backends.filter(|backend| !backend.origins.is_empty()).count() == 1;
        let mut count = 0;
        let mut next = |of: &RouteSpec<'_>, named_files| {
            count += 1;
            Ok(Arc::new(Route::new(count - 1, of, named_files, (&hosts, purges))?))
        };
        let mut route = |of: RouteSpec<'_>| {
            let named_files = with_named_files(&of, |of| next(of, None)).transpose()?;
            next(&of, named_files)
        };
        let mut sites = Vec::with_capacity(configs.len());
        for (site_index, site) in configs.iter().enumerate() {
            let paths = RoutePaths::new(site);
            let (routes, default) = routes_of((site_index, site), &paths, is_alone, pools);
            let routes = routes.map(&mut route).collect::<Result<_, SiteError>>()?;
            let routes = (routes, route(default)?);
            sites.push(Arc::new(Site::new(site, paths, routes, purges)?));
        }
        let keeps_responses =
            sites.iter().flat_map(|site| site.routes()).any(|it| it.keeps_responses());
        Ok(Self { sites, hosts, routes_len: count, keeps_responses })
    }

    /// Number of routes of all sites.
    pub(crate) fn routes_len(&self) -> usize {
        self.routes_len
    }

    /// Whether any route keeps responses in memory.
    pub(crate) fn keeps_responses(&self) -> bool {
        self.keeps_responses
    }

    /// The routes of all sites.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.sites.iter().flat_map(|site| site.routes())
    }

    /// The route that a key in messages of other nodes identifies.
    pub(crate) fn by_key(&self, short_key: u64) -> Option<&Arc<Route>> {
        self.routes().find(|route| route.short_key == short_key)
    }

    /// The site for a host; exact names take precedence over wildcards, these over the default.
    pub(crate) fn find(&self, host: &Host<'_>) -> Option<&Arc<Site>> {
        self.hosts.find(host.name).map(|index| &self.sites[index])
    }
}

/// The configured routes of a site, and the default route.
fn routes_of<'a>(
    (site_index, site): (usize, &'a SiteConfig),
    paths: &Arc<RoutePaths>,
    is_alone: bool,
    pools: &'a PoolMap,
) -> (impl Iterator<Item = RouteSpec<'a>>, RouteSpec<'a>) {
    let (paths, index, backend) = (Arc::clone(paths), site.routes.len(), &site.backend);
    let default = RouteSpec {
        site,
        site_index,
        path: None,
        paths,
        index,
        conditions: Conditions::default(),
        headers: &[],
        backend,
        is_alone,
        pools,
    };
    let template = default.clone();
    let routes = site.routes.iter().enumerate().map(move |(index, route)| RouteSpec {
        path: Some(&route.path),
        index,
        conditions: Conditions::new(route),
        headers: &route.headers,
        backend: &route.backend,
        ..template.clone()
    });
    (routes, default)
}

/// Runs `job` on the route of the files that the applications of `of` may name, if they may name any.
fn with_named_files<R>(of: &RouteSpec<'_>, job: impl FnOnce(&RouteSpec<'_>) -> R) -> Option<R> {
    // Its response fields are those of `of`.
    let site = SiteConfig {
        hosts: of.site.hosts.clone(),
        ..SiteConfig::of(named_files_folder(of.backend)?)
    };
    // Differs from other routes to the same folder.
    let at = format!("{}{}, handed over", of.path.unwrap_or("*"), of.conditions);
    Some(job(&RouteSpec {
        site: &site,
        site_index: of.site_index,
        path: Some(&at),
        paths: Arc::default(),
        index: 0,
        conditions: Conditions::default(),
        headers: &[],
        backend: &site.backend,
        is_alone: of.is_alone,
        pools: of.pools,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_config::{BackendConfig, ContentPlacement, RedirectConfig, RouteConfig};
    use skep_directory::PurgeTable;
    use skep_wire::cache::{PurgeNews, PurgePlace, PurgeStamp, PurgeWhat};

    use super::*;

    fn site(hosts: &[&str]) -> SiteConfig {
        SiteConfig { hosts: hosts.iter().map(|h| (*h).to_string()).collect(), ..of("/") }
    }

    fn of(root: &str) -> SiteConfig {
        SiteConfig::of(folder(root))
    }

    fn folder(root: &str) -> BackendConfig {
        BackendConfig { root: Some(root.into()), ..BackendConfig::default() }
    }

    fn origin() -> BackendConfig {
        let origins = vec!["http://127.0.0.1:1".to_owned()];
        BackendConfig { origins, ..BackendConfig::default() }
    }

    fn route(path: &str, backend: BackendConfig) -> RouteConfig {
        RouteConfig { path: path.to_owned(), backend, ..RouteConfig::default() }
    }

    fn set_of(configs: &[SiteConfig]) -> SiteSet {
        SiteSet::new(configs, &Arc::default()).unwrap()
    }

    fn found(set: &SiteSet, host: &str) -> Option<usize> {
        set.find(&Host { name: host.as_bytes(), port: None }).map(|it| it.default_route().index)
    }

    /// Index of the route and key of a path of the first site, or the reason for its refusal.
    fn routed(set: &SiteSet, path: &str) -> Result<(usize, String), Reject> {
        let (route, path) = set.sites[0].route(path.as_bytes(), RouteInput::GET)?;
        Ok((route.index, String::from_utf8(path.key().to_vec()).unwrap()))
    }

    #[test]
    fn the_first_route_that_matches_answers_in_whatever_spelling() {
        let routes = vec![
            route("/api/v1/*", origin()),
            route("/api/*", folder("/usr")),
            route("*.php", origin()),
            route("/one", folder("/usr")),
        ];
        let set = set_of(&[SiteConfig { routes, ..of("/") }]);
        for (sent, index, key) in [
            ("/api/v1/x", 0, "/api/v1/x"),
            ("/%61pi//v1/x%2By", 0, "/api//v1/x%2By"),
            ("/x/../api/v1/./y", 0, "/api/v1/y"),
            ("/api/v2/x%20y", 1, "/api/v2/x y"),
            ("//api//", 1, "/api/"),
            ("/api/x.php", 1, "/api/x.php"),
            ("/x/y.php", 2, "/x/y.php"),
            ("/one", 3, "/one"),
            ("/one/", 4, "/one/"),
            ("/api", 4, "/api"),
            ("/", 4, "/"),
        ] {
            assert_eq!(routed(&set, sent).unwrap(), (index, key.to_owned()), "{sent}");
        }
    }

    #[test]
    fn a_path_that_two_routes_would_read_in_two_ways_is_refused() {
        let routes = vec![route("/api/*", origin())];
        let set = set_of(&[SiteConfig { routes, ..of("/") }]);
        // As a file the path is /secret, at an origin /api/secret.
        assert_eq!(routed(&set, "/api//../secret").unwrap_err(), Reject::PATH_TWO_ROUTES);
        assert_eq!(routed(&set, "/x//../y").unwrap().1, "/y");
        // Each route refuses exactly the paths that it cannot parse.
        assert_eq!(routed(&set, "/api/a%2Fb").unwrap().1, "/api/a%2Fb");
        assert_eq!(routed(&set, "/x/a%2Fb").unwrap_err(), Reject::PATH_ENCODED_SLASH);
        assert_eq!(routed(&set, "/x/..;y").unwrap().1, "/x/..;y");
        assert_eq!(routed(&set, "/api/..;y").unwrap_err(), Reject::PATH_DOT_PARAMETERS);
        assert_eq!(routed(&set, "x").unwrap_err(), Reject::PATH_FORM);
    }

    #[test]
    fn what_an_origin_may_decode_leads_around_no_route() {
        let routes = vec![route("/internal/*", folder("/usr")), route("/o2/*", origin())];
        let set = set_of(&[SiteConfig { routes, ..SiteConfig::of(origin()) }]);
        for around in [
            "/internal%2Fx",
            "/internal;a/x",
            "/a/..%2finternal/x",
            "/..%2F..%2Finternal%2Fx",
            "/o2%2Fx",
            "/o2;/x",
            "/o2/..%2fx",
            "/o2%3Ba/x",
        ] {
            assert_eq!(routed(&set, around), Err(Reject::PATH_TWO_ROUTES), "{around}");
        }
        for (sent, index) in [("/a%2Fb", 2), ("/a;b/c", 2), ("/o2/a%2Fb;c", 1), ("/internal/;x", 0)]
        {
            assert_eq!(routed(&set, sent).unwrap().0, index, "{sent}");
        }
    }

    #[test]
    fn names_in_the_cluster_do_not_depend_on_other_routes() {
        let fresh = |fresh_ms| {
            let mut backend = origin();
            backend.fetch.fresh_ms = fresh_ms;
            backend
        };
        let names = |routes: Vec<RouteConfig>| {
            let set = set_of(&[SiteConfig { routes, ..SiteConfig::of(fresh(1000)) }]);
            let names = set.routes().map(|route| (route.short_key, route.head_kind));
            names.collect::<Vec<_>>()
        };
        let alone = names(vec![]);
        let beside = names(vec![route("/b/*", fresh(0)), route("/a/*", fresh(1000))]);
        assert_eq!(alone[0], beside[2]);
        assert_eq!(names(vec![route("/a/*", fresh(1000))])[0], beside[1]);
        // Each route has its own name, and other rules another name.
        assert!(beside[0].0 != beside[1].0 && beside[1].0 != beside[2].0);
        assert!(beside[0].1 != beside[1].1 && beside[1].1 != beside[2].1);
        assert_ne!(names(vec![route("/a/*", fresh(0))])[0].1, beside[1].1);
    }

    #[test]
    fn an_error_page_comes_from_the_route_that_its_path_has() {
        let routes = vec![route("/pages/*", folder("/usr"))];
        let error_pages = [(404, "/pages/404.html".to_owned()), (500, "/500.html".to_owned())];
        let site = SiteConfig { routes, error_pages: error_pages.into(), ..of("/") };
        let set = set_of(&[site]);
        let page = |status| set.sites[0].error_page(status).map(|page| page.route.index);
        assert_eq!((page(404), page(500), page(403)), (Some(0), Some(1), None));
    }

    #[test]
    fn headers_of_a_route_stand_in_place_of_its_sites() {
        let fields = |fields: &[(&str, &str)]| {
            fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let mut own = route("/a/*", folder("/usr"));
        own.headers = fields(&[("x-one", "route")]);
        own.backend.cache_control = Some("no-store".into());
        let headers = fields(&[("X-One", "site"), ("X-Two", "site")]);
        let set = set_of(&[SiteConfig { routes: vec![own], headers, ..of("/") }]);
        let lines = |index: usize| {
            let route = set.routes().nth(index).unwrap();
            String::from_utf8(route.lines_success.to_vec()).unwrap()
        };
        assert_eq!(lines(0), "X-Two: site\r\nx-one: route\r\nCache-Control: no-store\r\n");
        assert_eq!(lines(1), "X-One: site\r\nX-Two: site\r\n");
    }

    #[test]
    fn partitions_of_one_site_have_names_of_their_own() {
        let partition = || BackendConfig { content: ContentPlacement::Partition, ..folder("/") };
        let routes = vec![route("/a/*", partition()), route("/b/*", partition())];
        let set = set_of(&[SiteConfig { routes, ..SiteConfig::of(partition()) }]);
        let mut keys: Vec<_> = set.routes().map(|route| route.short_key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 3);
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
            let hit = set.routes().filter(|route| route.purged(&known, b"/x") == PurgeStamp(1));
            hit.map(|route| route.index).collect::<Vec<_>>()
        };
        assert_eq!(hit(None), [0, 1, 2]);
        assert_eq!((hit(Some("a.org")), hit(Some("x.a.org"))), (vec![0], vec![0]));
        assert_eq!((hit(Some("b.a.org")), hit(Some("else"))), (vec![1], vec![2]));
    }

    #[test]
    fn hidden_files_are_hidden_except_well_known() {
        let set = set_of(&[site(&[])]);
        let route = set.sites[0].default_route().folder().unwrap();
        assert!(route.shows(b"/a/b.html"));
        assert!(!route.shows(b"/.git/config"));
        assert!(!route.shows(b"/a/.env"));
        assert!(route.shows(b"/.well-known/security.txt"));
        assert!(!route.shows(b"/.well-known/.secret"));
    }

    #[test]
    fn a_missing_root_is_named() {
        let message =
            SiteSet::new(&[of("/no/such/root")], &Arc::default()).unwrap_err().to_string();
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
