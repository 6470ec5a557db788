//! Contradictions in pools, and in routes to them.

use skep_units::{SLOT_SERVERS_MAX, did_you_mean};

use super::Step::{Key, Nth};
use super::sites::backends;
use super::{Conflict, bytes, ms, unique_rows};
use crate::error::ErrorKind;
use crate::gateways::{AjpConfig, FcgiConfig};
use crate::pools::ForwardConfig;
use crate::response_cache::ResponseCacheConfig;
use crate::schema::{BackendConfig, Config};
use crate::words::{PoolProtocol, SameSite, ScriptWord, StatusAgent, StickyBy};

/// Fields that are rewritten for each request, or that are hop-by-hop.
const WRITTEN: &[&str] = &[
    "expect",
    "forwarded",
    "host",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

pub(super) fn pools_have_names_of_their_own(config: &Config, clashes: &mut Vec<Conflict>) {
    unique_rows(&config.pools, clashes);
}

pub(super) fn servers_are_told_apart(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, pool) in config.pools.iter().enumerate() {
        for (j, server) in pool.servers.iter().enumerate() {
            let at = |key| [Key("pool"), Nth(i), Key("server"), Nth(j), Key(key)];
            let earlier = &pool.servers[..j];
            if earlier.iter().any(|it| it.name == server.name) {
                let found = format!("a second {:?}", server.name);
                let clash = Conflict::new(&at("name"), "each server with a name of its own", found);
                clashes.push(clash.kind(ErrorKind::Duplicate));
            }
            if let Some(other) = earlier.iter().find(|it| it.address == server.address) {
                let found = format!("that of server {:?}", other.name);
                let clash = Conflict::new(&at("address"), "an address of its own", found);
                clashes.push(clash.kind(ErrorKind::Duplicate));
            }
            if !server.address.is_specified() {
                let expected = "an address that nodes can connect to";
                let found = format!("\"{}\"", server.address);
                clashes.push(Conflict::new(&at("address"), expected, found));
            }
        }
    }
}

/// Servers with cluster-wide counting must fit in one message.
pub(super) fn counted_servers_are_few(config: &Config, clashes: &mut Vec<Conflict>) {
    let servers = config.pools.iter().flat_map(|pool| &pool.servers);
    let count = servers.filter(|server| config.is_of_cluster(server)).count();
    if config.can_count_slots() && count > SLOT_SERVERS_MAX {
        let expected = format!(
            "at most {SLOT_SERVERS_MAX} servers in all pools whose requests all nodes count together"
        );
        let clash = Conflict::new(&[Key("pool")], expected, format!("{count} servers"));
        let hint = "set connections_scope = \"node\" for some: each node counts these for itself";
        clashes.push(clash.hint(hint.to_owned()));
    }
}

/// Tables of a protocol that the pool does not use.
pub(super) fn protocols_have_their_tables(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, pool) in config.pools.iter().enumerate() {
        let others = [
            ("fastcgi", PoolProtocol::Fcgi, pool.fastcgi != FcgiConfig::default()),
            ("ajp", PoolProtocol::Ajp, pool.ajp != AjpConfig::default()),
        ];
        for (key, _, _) in others.iter().filter(|(_, it, set)| *set && *it != pool.protocol) {
            let at = [Key("pool"), Nth(i), Key(key)];
            let expected = format!("no `{key}`, because protocol is \"{}\"", pool.protocol);
            let clash = Conflict::new(&at, expected, "one");
            clashes.push(clash.hint(format!("it is for `protocol = \"{key}\"`")));
        }
    }
}

/// The settings of the servers' status are complete and consistent.
pub(super) fn status_can_be_asked(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, pool) in config.pools.iter().enumerate() {
        let status = &pool.status;
        let at = |key| [Key("pool"), Nth(i), Key("status"), Key(key)];
        if status.agent == StatusAgent::Json && status.path.is_none() {
            let clash = Conflict::new(&at("agent"), "`path` in [pool.status]", "none");
            clashes.push(clash.hint("the path of the application's status page".to_owned()));
        }
        if status.agent == StatusAgent::PhpFpm && pool.protocol != PoolProtocol::Fcgi {
            let expected = "protocol = \"fastcgi\" in the pool";
            clashes.push(Conflict::new(&at("agent"), expected, format!("\"{}\"", pool.protocol)));
        }
        if status.jmx && status.agent != StatusAgent::Tomcat {
            let expected = "no `jmx`, because agent is not \"tomcat\"";
            clashes.push(Conflict::new(&at("jmx"), expected, "true"));
        }
        if !status.values.is_empty() && status.agent != StatusAgent::Json {
            let expected = "no `values`, because agent is not \"json\"";
            clashes.push(Conflict::new(&at("values"), expected, "some"));
        }
        for (name, pointer) in &status.values {
            if !pointer.starts_with('/') {
                let expected = "JSON pointers, which begin with / (RFC 6901)";
                let found = format!("{pointer:?} for {name}");
                clashes.push(Conflict::new(&at("values"), expected, found));
            }
        }
        if status.timeout_ms > status.interval_ms {
            let expected = format!("at most interval_ms ({})", ms(status.interval_ms));
            clashes.push(Conflict::new(&at("timeout_ms"), expected, ms(status.timeout_ms)));
        }
    }
}

pub(super) fn scripts_have_a_place(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, pool) in config.pools.iter().enumerate() {
        let (fastcgi, script) = (&pool.fastcgi, pool.fastcgi.script);
        let at = |key| [Key("pool"), Nth(i), Key("fastcgi"), Key(key)];
        if pool.protocol == PoolProtocol::Fcgi
            && fastcgi.root.is_none()
            && script != ScriptWord::Below
        {
            let at = [Key("pool"), Nth(i), Key("protocol")];
            let clash = Conflict::new(&at, "`root` in [pool.fastcgi]", "none");
            let how =
                "the folder of the scripts, as the application sees it; or script = \"below\"";
            clashes.push(clash.hint(how.to_owned()));
        }
        if fastcgi.root.as_ref().is_some_and(|root| root.is_relative()) {
            let expected = "an absolute path, as the application sees it";
            clashes.push(Conflict::new(&at("root"), expected, "a relative one"));
        }
        if !fastcgi.extension.starts_with('.') || fastcgi.extension.len() < 2 {
            let found = format!("{:?}", fastcgi.extension);
            clashes.push(Conflict::new(&at("extension"), "a dot and letters", found));
        }
        if fastcgi.mount.is_some() && script != ScriptWord::Below {
            let expected = "no `mount`, because it is for script = \"below\"";
            clashes.push(Conflict::new(&at("mount"), expected, "one"));
        }
    }
}

/// Anyone who can connect to an AJP port can forge the client's identity (CVE-2020-1938).
pub(super) fn ajp_beyond_this_machine_has_a_secret(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, pool) in config.pools.iter().enumerate() {
        for (j, server) in pool.servers.iter().enumerate() {
            if !pool.may_reach(server.address) {
                let at = [Key("pool"), Nth(i), Key("server"), Nth(j), Key("address")];
                let expected = "an address of this machine, because there is no secret";
                let clash = Conflict::new(&at, expected, format!("\"{}\"", server.address));
                clashes.push(clash.hint("set `secret_file` in [pool.ajp]".to_owned()));
            }
        }
    }
}

pub(super) fn checks_of_servers_do_not_overlap(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, pool) in config.pools.iter().enumerate() {
        let health = &pool.health;
        if health.timeout_ms > health.interval_ms {
            let at = [Key("pool"), Nth(i), Key("health"), Key("timeout_ms")];
            let expected = format!("at most interval_ms ({})", ms(health.interval_ms));
            clashes.push(Conflict::new(&at, expected, ms(health.timeout_ms)));
        }
    }
}

pub(super) fn sessions_can_be_told(config: &Config, clashes: &mut Vec<Conflict>) {
    for (i, pool) in config.pools.iter().enumerate() {
        let sticky = &pool.sticky;
        let mut demand = |key, expected: &str, found: &str| {
            let at = [Key("pool"), Nth(i), Key("sticky"), Key(key)];
            clashes.push(Conflict::new(&at, expected, found));
        };
        match sticky.by {
            StickyBy::CookieHash if sticky.cookie.is_none() => {
                demand("by", "`cookie` beside \"cookie-hash\"", "none");
            }
            StickyBy::FieldHash if sticky.field.is_none() => {
                demand("by", "`field` beside \"field-hash\"", "none");
            }
            StickyBy::Cookie
                if sticky.same_site == SameSite::None && sticky.secure != Some(true) =>
            {
                // Browsers reject such a cookie.
                demand("same_site", "`secure = true` beside \"none\"", "secure = false");
            }
            _ => {}
        }
    }
}

pub(super) fn routes_know_their_pools(config: &Config, clashes: &mut Vec<Conflict>) {
    let names = || config.pools.iter().map(|pool| pool.name.as_str());
    for (at, backend) in backends(config) {
        let Some(name) = &backend.pool else { continue };
        if !names().any(|known| known == name) {
            let at = [&*at, &[Key("pool")]].concat();
            let clash = Conflict::new(&at, "the name of a [[pool]]", format!("{name:?}"));
            let how = did_you_mean(name, names())
                .or_else(|| config.pools.is_empty().then(|| "there is no [[pool]]".to_owned()));
            clashes.push(clash.hint(how));
        }
    }
}

/// Settings that only apply to pools.
pub(super) fn others_are_not_forwarded(config: &Config, clashes: &mut Vec<Conflict>) {
    let is_idle = |it: &BackendConfig| it.pool.is_none() && it.forward != ForwardConfig::default();
    let is_uncached =
        |it: &BackendConfig| it.pool.is_none() && it.cache != ResponseCacheConfig::default();
    for (at, backend) in backends(config) {
        let idle = [("forward", is_idle(backend)), ("cache", is_uncached(backend))];
        for (key, _) in idle.into_iter().filter(|(_, is_idle)| *is_idle) {
            let at = [&*at, &[Key(key)]].concat();
            let expected = format!("no `{key}`, because there is no `pool`");
            let clash = Conflict::new(&at, expected, "one");
            clashes.push(clash.hint("it is for `pool` of the same route or site".to_owned()));
        }
    }
}

/// Settings that cannot be combined with files and a pool.
pub(super) fn what_is_no_file_goes_to_the_pool(config: &Config, clashes: &mut Vec<Conflict>) {
    let both = |it: &BackendConfig| it.pool.is_some() && it.root.is_some();
    for (at, backend) in backends(config).filter(|(_, backend)| both(backend)) {
        let set = [("listing", backend.listing), ("spa_fallback", backend.spa_fallback.is_some())];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            let at = [&*at, &[Key(key)]].concat();
            let expected = format!("no `{key}`, because what is no file goes to `pool`");
            clashes.push(Conflict::new(&at, expected, "one"));
        }
    }
}

/// A prefix can be stripped only if all paths of the route have it.
pub(super) fn prefixes_are_there(config: &Config, clashes: &mut Vec<Conflict>) {
    for (at, backend) in backends(config) {
        let Some(prefix) = &backend.forward.strip_prefix else { continue };
        let path = match at[..] {
            [_, Nth(site), _, Nth(route)] => &*config.sites[site].routes[route].path,
            _ => "*",
        };
        let literal = path.split('*').next().unwrap_or(path);
        let rest = literal.strip_prefix(prefix.trim_end_matches('/'));
        if !rest.is_some_and(|rest| rest.starts_with('/') || path == literal && rest.is_empty()) {
            let at = [&*at, &[Key("forward"), Key("strip_prefix")]].concat();
            let expected = "a beginning, up to a `/`, of all paths of the route";
            let found = format!("{prefix:?} of {path:?}");
            let clash = Conflict::new(&at, expected, found);
            clashes
                .push(clash.hint("path = \"/app/*\" goes with strip_prefix = \"/app\"".to_owned()));
        }
    }
}

/// Files named by an application are in a folder set in the config.
pub(super) fn named_files_have_a_folder(config: &Config, clashes: &mut Vec<Conflict>) {
    let default = ForwardConfig::default().sendfile_path;
    for (at, backend) in backends(config) {
        let forward = &backend.forward;
        let of = |key| [&*at, &[Key("forward"), Key(key)]].concat();
        if forward.sendfile_root.as_ref().is_some_and(|root| root.is_relative()) {
            let expected = "an absolute path";
            clashes.push(Conflict::new(&of("sendfile_root"), expected, "a relative one"));
        }
        if forward.sendfile_root.is_none() && forward.sendfile_path != default {
            let expected = "no `sendfile_path`, because there is no `sendfile_root`";
            let clash = Conflict::new(&of("sendfile_path"), expected, "one");
            clashes.push(clash.hint("the folder that the files are in".to_owned()));
        }
    }
}

/// Bodies above the global limit are refused before a route is selected.
pub(super) fn routes_keep_to_the_limit_of_bodies(config: &Config, clashes: &mut Vec<Conflict>) {
    let limit = config.limits.body_bytes_max;
    for (at, backend) in backends(config) {
        if let Some(found) = backend.forward.body_bytes_max.filter(|found| *found > limit) {
            let at = [&*at, &[Key("forward"), Key("body_bytes_max")]].concat();
            let expected = format!("at most body_bytes_max of [limits] ({})", bytes(limit));
            let clash = Conflict::new(&at, expected, bytes(found));
            let how = "raise that of [limits], and set a lower one here for other routes";
            clashes.push(clash.hint(how.to_owned()));
        }
    }
}

pub(super) fn written_fields_are_not_set(config: &Config, clashes: &mut Vec<Conflict>) {
    for (at, backend) in backends(config) {
        let forward = &backend.forward;
        let set = forward.request_headers.iter().map(|(name, _)| ("request_headers", name));
        let removed = forward.request_headers_removed.iter();
        let removed = removed.map(|name| ("request_headers_removed", name));
        for (key, name) in set.chain(removed) {
            if WRITTEN.iter().any(|it| it.eq_ignore_ascii_case(name)) {
                let at = [&*at, &[Key("forward"), Key(key)]].concat();
                let clash = Conflict::new(
                    &at,
                    "fields that nodes do not write themselves",
                    format!("{name:?}"),
                );
                let how = match name.eq_ignore_ascii_case("host") {
                    true => "`host` sets it",
                    false => "they say who the client is, and which way it came",
                };
                clashes.push(clash.hint(how.to_owned()));
            }
        }
    }
}
