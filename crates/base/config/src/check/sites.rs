//! Contradictions in sites, their routes and their backends.

use skep_units::matches_wildcard;

use super::Step::{Key, Nth};
use super::{Conflict, KEY_HINT, Step, bytes};
use crate::error::ErrorKind;
use crate::replies::ReplyConfig;
use crate::schema::{BackendConfig, Config, FetchConfig, RouteConfig};
use crate::words::ContentPlacement;

pub(super) fn sites_exist(config: &Config, clashes: &mut Vec<Conflict>) {
    if config.sites.is_empty() {
        let clash = Conflict::new(&[Key("site")], "at least one [[site]]", "none");
        let how =
            "a site needs a `root`, the folder of its files, `origins`, a `pool` or a `reply`";
        clashes.push(clash.kind(ErrorKind::Missing).hint(how.to_owned()));
    }
}

/// Each backend with its path in the file: those of a site's routes, then the site's own.
pub(super) fn backends(config: &Config) -> impl Iterator<Item = (Vec<Step>, &BackendConfig)> {
    config.sites.iter().enumerate().flat_map(|(i, site)| {
        let at = vec![Key("site"), Nth(i)];
        let of_route = |j| [&*at, &[Key("route"), Nth(j)]].concat();
        let routes = site.routes.iter().enumerate();
        let routes = routes.map(|(j, route)| (of_route(j), &route.backend)).collect::<Vec<_>>();
        routes.into_iter().chain([(at, &site.backend)])
    })
}

pub(super) fn backends_have_one_source(config: &Config, clashes: &mut Vec<Conflict>) {
    for (at, backend) in backends(config) {
        let expected = "a `root`, `origins`, a `pool` or a `reply`";
        if backend.reply != ReplyConfig::default() {
            let is_alone =
                backend.root.is_none() && backend.pool.is_none() && backend.origins.is_empty();
            if !is_alone {
                let at = [&*at, &[Key("reply")]].concat();
                let how = "a [[site.route]] of its own can have the other";
                clashes.push(Conflict::new(&at, expected, "two of them").hint(how.to_owned()));
            }
            continue;
        }
        let is_empty = backend.root.is_none() && backend.pool.is_none();
        match (is_empty, backend.origins.is_empty()) {
            (true, true) => {
                let how = "root = \"/srv/www\" is a folder of files, origins = \
                           [\"http://10.0.0.9:8080\"] are servers to get them from, pool = \"app\" \
                           are those of an application, reply.status = 503 is a fixed reply";
                let clash = Conflict::new(&at, expected, "none of them").kind(ErrorKind::Missing);
                clashes.push(clash.hint(how.to_owned()));
            }
            (false, false) => {
                let at = [&*at, &[Key("origins")]].concat();
                let how = "a [[site.route]] of its own can have the other";
                clashes.push(Conflict::new(&at, expected, "two of them").hint(how.to_owned()));
            }
            _ => {}
        }
    }
}

/// Settings that only apply to origins.
pub(super) fn folders_are_not_fetched(config: &Config, clashes: &mut Vec<Conflict>) {
    let is_idle = |it: &BackendConfig| it.origins.is_empty() && it.fetch != FetchConfig::default();
    for (at, _) in backends(config).filter(|(_, backend)| is_idle(backend)) {
        let how = match at.len() {
            2 => "it is for this site's own `origins`; those of a route have [site.route.fetch]",
            _ => "it is for `origins` of this route",
        };
        let at = [&*at, &[Key("fetch")]].concat();
        let clash = Conflict::new(&at, "no `fetch`, because there are no `origins`", "one");
        clashes.push(clash.hint(how.to_owned()));
    }
}

/// Fixed replies are not compressed, and nothing is compressed without a coding.
pub(super) fn what_is_compressed_is_sent(config: &Config, clashes: &mut Vec<Conflict>) {
    for (at, backend) in backends(config).filter(|(_, it)| it.compress.enabled) {
        let at = |key| [&*at, &[Key("compress"), Key(key)]].concat();
        if backend.reply != ReplyConfig::default() {
            let expected = "no `compress`, because there is a `reply`";
            let clash = Conflict::new(&at("enabled"), expected, "one");
            clashes.push(clash.hint("it is for what is long: files and applications".to_owned()));
        }
        if backend.compress.codings.is_empty() {
            let clash = Conflict::new(&at("codings"), "at least one coding", "none");
            clashes.push(clash.hint("enabled = false switches it off".to_owned()));
        }
        let (min, max) = (backend.compress.size_bytes_min, backend.compress.size_bytes_max);
        if min > max {
            let expected = format!("at most `size_bytes_max`, {}", bytes(max));
            clashes.push(Conflict::new(&at("size_bytes_min"), expected, bytes(min)));
        }
    }
}

/// Settings that only apply to folders.
pub(super) fn origins_have_no_files(config: &Config, clashes: &mut Vec<Conflict>) {
    let folder = BackendConfig::default();
    for (at, backend) in backends(config).filter(|(_, it)| it.root.is_none()) {
        let has_reply = backend.reply != ReplyConfig::default();
        let source = match (backend.origins.is_empty(), &backend.pool) {
            (false, _) => "there are `origins`",
            (true, Some(_)) => "there is a `pool` and no `root`",
            (true, None) if has_reply => "there is a `reply`",
            (true, None) => continue,
        };
        // An application may name files of a folder for the node to send.
        let has_named = backend.pool.is_some() && backend.forward.sendfile_root.is_some();
        let is_for_named = has_named && backend.content == ContentPlacement::Shared;
        let of_folders = [
            ("content", backend.content != ContentPlacement::Local && !is_for_named),
            ("index", backend.index != folder.index),
            ("dotfiles", backend.dotfiles && !has_named),
            ("symlinks", backend.symlinks != folder.symlinks && !has_named),
            ("precompressed", backend.precompressed != folder.precompressed),
            ("listing", backend.listing),
            ("spa_fallback", backend.spa_fallback.is_some()),
        ];
        for (key, _) in of_folders.into_iter().filter(|(_, is_set)| *is_set) {
            let at = [&*at, &[Key(key)]].concat();
            let expected = format!("no `{key}`, because {source}");
            clashes.push(Conflict::new(&at, expected, "one").hint("it is for folders".to_owned()));
        }
    }
}

/// Routes are tried in order, so an earlier one may hide a later one.
pub(super) fn routes_can_be_reached(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, site) in config.sites.iter().enumerate() {
        for (j, route) in site.routes.iter().enumerate() {
            let at = [Key("site"), Nth(i), Key("route"), Nth(j), Key("path")];
            let hides = |earlier: &&RouteConfig| {
                let covers = hides(&earlier.path, &route.path);
                covers && (!is_conditional(earlier) || is_same(earlier, route))
            };
            if !is_conditional(route) && (route.path == "*" || route.path == "/*") {
                let clash = Conflict::new(&at, "a share of the paths", "all of them");
                let how = "`root`, `origins`, `pool` or `reply` of the [[site]] is for all that no \
                           route matches";
                clashes.push(clash.hint(how.to_owned()));
            } else if let Some(earlier) = site.routes[..j].iter().find(hides) {
                let found = format!("{:?} behind {:?}", route.path, earlier.path);
                let clash = Conflict::new(&at, "a path that no earlier route matches", found);
                let how = "the first route that matches answers: move this one up";
                let is_wider = earlier.path != route.path || is_conditional(route);
                let how = (is_wider && !is_same(earlier, route)).then(|| how.to_owned());
                clashes.push(clash.kind(ErrorKind::Duplicate).hint(how));
            }
        }
    }
}

/// Whether it ignores some requests for its paths: then it hides no later route.
fn is_conditional(route: &RouteConfig) -> bool {
    !route.methods.is_empty() || !route.match_headers.is_empty()
}

/// Whether both have the same paths and conditions.
fn is_same(one: &RouteConfig, other: &RouteConfig) -> bool {
    let [one, other] = [one, other].map(|it| (&it.path, &it.methods, &it.match_headers));
    one == other
}

/// Fixed replies are complete and consistent.
pub(super) fn replies_are_whole(config: &Config, clashes: &mut Vec<Conflict>) {
    let set = |it: &BackendConfig| it.reply != ReplyConfig::default();
    for (at, backend) in backends(config).filter(|(_, backend)| set(backend)) {
        let reply = &backend.reply;
        let under = |key| [&*at, &[Key("reply"), Key(key)]].concat();
        let Some(status) = reply.status else {
            let at = [&*at, &[Key("reply")]].concat();
            let clash = Conflict::new(&at, "a `status`", "none").kind(ErrorKind::Missing);
            clashes.push(clash.hint("status = 200 is that of a text or file".to_owned()));
            continue;
        };
        let has_body = reply.body.is_some() || reply.file.is_some();
        let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
        let found = || status.to_string();
        if reply.body.is_some() && reply.file.is_some() {
            clashes.push(Conflict::new(&under("file"), "a `body` or a `file`", "both"));
        }
        if status == 304 || (has_body && matches!(status, 204 | 205)) {
            let expected = if has_body { "a status with a body" } else { "another status" };
            let clash = Conflict::new(&under("status"), expected, found());
            clashes.push(clash.hint("this one never has a body (RFC 9110 15)".to_owned()));
        }
        if is_redirect && reply.location.is_none() {
            let clash = Conflict::new(&under("status"), "a `location` beside a redirect", "none");
            clashes.push(clash.hint("location = \"https://example.org/*\"".to_owned()));
        }
        if reply.location.is_some() && !is_redirect {
            let clash = Conflict::new(&under("status"), "301, 302, 303, 307 or 308", found());
            clashes.push(clash.hint("only these lead to a `location`".to_owned()));
        }
    }
}

/// A `*` at the end of a location needs a `*` at the end of the route's path.
pub(super) fn replies_lead_somewhere(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, site) in config.sites.iter().enumerate() {
        for (j, route) in site.routes.iter().enumerate() {
            let location = route.backend.reply.location.as_deref().unwrap_or_default();
            let stars = route.path.matches('*').count();
            if location.ends_with('*') && !(route.path.ends_with('*') && stars == 1) {
                let at = [Key("site"), Nth(i), Key("route"), Nth(j), Key("reply"), Key("location")];
                let expected = "no `*`, as `path` has not one at its end only";
                clashes.push(Conflict::new(&at, expected, format!("{location:?}")));
            }
        }
    }
}

/// A fallback is a file of its own route: another route may generate its content.
pub(super) fn fallbacks_are_in_their_route(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, site) in config.sites.iter().enumerate() {
        // A route with conditions matches only a part of the requests for the page.
        let route_of = |page: &str, own: Option<usize>| {
            let takes = |(j, route): (usize, &RouteConfig)| {
                hides(&route.path, page) && (!is_conditional(route) || Some(j) == own)
            };
            site.routes.iter().enumerate().position(takes)
        };
        let at = [Key("site"), Nth(i)];
        let own = |j: usize| [&at[..], &[Key("route"), Nth(j)]].concat();
        let routes = site.routes.iter().enumerate();
        let routes = routes.map(|(j, route)| (own(j), Some(j), &route.backend));
        for (at, number, backend) in routes.chain([(at.to_vec(), None, &site.backend)]) {
            let Some(page) = &backend.spa_fallback else { continue };
            if route_of(page, number) != number {
                let at = [&*at, &[Key("spa_fallback")]].concat();
                let expected = "a path that comes from this `root`";
                let found = format!("{page:?}, which has another route");
                let clash = Conflict::new(&at, expected, found);
                clashes.push(clash.hint("requests for that path go elsewhere".to_owned()));
            }
        }
    }
}

/// Whether one pattern matches everything that the other matches.
fn hides(earlier: &str, later: &str) -> bool {
    matches_wildcard(earlier.as_bytes(), later.as_bytes())
}

/// The path of the first backend whose bytes nodes fetch from each other.
fn cooperating(config: &Config) -> Option<Vec<Step>> {
    let mut shared = backends(config).filter(|(_, backend)| backend.is_shared());
    shared.next().map(|(at, _)| at).filter(|_| config.cooperates())
}

pub(super) fn cooperation_needs_a_key(config: &Config, clashes: &mut Vec<Conflict>) {
    if let (Some(at), None) = (cooperating(config), &config.key_file) {
        let at = [&*at, &[Key("content")]].concat();
        let expected = "a `key_file` at the top of the file, because nodes share their memories";
        let how = format!("{KEY_HINT}; or `cooperate = false` in [cache]");
        clashes.push(Conflict::new(&at, expected, "none").hint(how));
    }
}

pub(super) fn cooperation_needs_addresses(config: &Config, clashes: &mut Vec<Conflict>) {
    if cooperating(config).is_none() || config.steered_services().next().is_some() {
        return;
    }
    for (i, _) in config.dispatchers.iter().enumerate().filter(|(_, it)| it.address.is_none()) {
        let at = [Key("dispatcher"), Nth(i), Key("address")];
        let expected = "an `address` \"IP:PORT\" for nodes, because they share their memories";
        let how = "the machine's own IP address and a port such as 7071; \
                   or `cooperate = false` in [cache]";
        clashes.push(Conflict::new(&at, expected, "none").hint(how.to_owned()));
    }
}

fn partitions(config: &Config) -> impl Iterator<Item = (Vec<Step>, &BackendConfig)> {
    backends(config).filter(|(_, backend)| backend.content == ContentPlacement::Partition)
}

pub(super) fn partitions_need_each_other(config: &Config, clashes: &mut Vec<Conflict>) {
    for (at, _) in partitions(config).filter(|_| !config.cooperates()) {
        let at = [&*at, &[Key("content")]].concat();
        let expected = "a [[dispatcher]], and not `cooperate = false` in [cache], because each \
                        node has only a part";
        let how = "nodes find each other's files by way of a dispatcher";
        clashes.push(Conflict::new(&at, expected, "no cooperation").hint(how.to_owned()));
    }
}

pub(super) fn partitions_are_not_listed(config: &Config, clashes: &mut Vec<Conflict>) {
    for (at, _) in partitions(config).filter(|(_, backend)| backend.listing) {
        let at = [&*at, &[Key("listing")]].concat();
        let expected = "no `listing`, because each node has only a part of the folder";
        clashes.push(Conflict::new(&at, expected, "one"));
    }
}

pub(super) fn hosts_are_unique(config: &Config, clashes: &mut Vec<Conflict>) {
    let mut taken: Vec<&str> = Vec::new();
    for (i, site) in config.sites.iter().enumerate() {
        let default = [String::from("*")];
        let hosts = if site.hosts.is_empty() { &default } else { site.hosts.as_slice() };
        for (j, host) in hosts.iter().enumerate() {
            if taken.contains(&host.as_str()) {
                let at = [Key("site"), Nth(i), Key("hosts"), Nth(j)];
                let found = match host.as_str() {
                    "*" => "a second site for every other host".to_owned(),
                    host => format!("{host:?} in a second site"),
                };
                let clash = Conflict::new(&at, "each host in one site", found);
                clashes.push(clash.kind(ErrorKind::Duplicate));
            }
        }
        let own = site.hosts.iter().map(String::as_str);
        taken.extend(own.chain(site.hosts.is_empty().then_some("*")));
    }
}

pub(super) fn one_answer_for_folders(config: &Config, clashes: &mut Vec<Conflict>) {
    for (at, backend) in backends(config) {
        if backend.listing && backend.spa_fallback.is_some() {
            let at = [&*at, &[Key("spa_fallback")]].concat();
            let expected = "`listing` or `spa_fallback`";
            let found = "both, for folders without an index file";
            clashes.push(Conflict::new(&at, expected, found));
        }
    }
}

pub(super) fn redirects_lead_elsewhere(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, site) in config.sites.iter().enumerate() {
        for (j, redirect) in site.redirects.iter().enumerate() {
            let at = [Key("site"), Nth(i), Key("redirect"), Nth(j)];
            let to = [at[0], at[1], at[2], at[3], Key("to")];
            let from = [at[0], at[1], at[2], at[3], Key("from")];
            if redirect.to == redirect.from {
                clashes.push(Conflict::new(&to, "another path than `from`", "the same"));
            }
            if redirect.to.ends_with('*') && !redirect.from.ends_with('*') {
                clashes.push(Conflict::new(&to, "no `*`, as `from` has none", "one"));
            }
            if site.redirects[..j].iter().any(|earlier| earlier.from == redirect.from) {
                let clash =
                    Conflict::new(&from, "each path once", format!("{:?} twice", redirect.from));
                clashes.push(clash.kind(ErrorKind::Duplicate));
            }
        }
    }
}
