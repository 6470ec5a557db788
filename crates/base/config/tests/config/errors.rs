//! The exact error messages for invalid files, with each kind at least once.

use skep_config::{Config, ConfigErrors, ErrorKind, limits};

/// A valid file, to which cases add lines.
pub(crate) const BASE: &str = "\
[[node]]
name = 'one'
address = '127.0.0.1:8001'
[[site]]
root = '/srv'
";

/// A valid file with a dispatcher.
const CLUSTER: &str = "\
[[dispatcher]]
name = 'gate'
[[node]]
name = 'one'
address = '127.0.0.1:8001'
[[site]]
root = '/srv'
[[service]]
name = 'web'
listen = '127.0.0.1:8000'
";

fn refused(text: &str) -> ConfigErrors {
    match Config::parse("skep.toml", text) {
        Ok(config) => panic!("accepted: {}", config.to_toml()),
        Err(errors) => errors,
    }
}

/// The only error: `line:column kind setting / expected / found / hint`.
pub(crate) fn only(text: &str) -> String {
    let all = refused(text);
    let [e] = all.errors.as_slice() else { panic!("one error expected:\n{all}") };
    let hint = e.hint.as_deref().unwrap_or("-");
    let (kind, setting) = (e.kind, &e.setting);
    format!("{}:{} {kind:?} {setting} / {} / {} / {hint}", e.line, e.column, e.expected, e.found)
}

#[test]
fn a_message_says_where_what_and_how() {
    let text = format!("{BASE}[limits]\nhead_byte_max = \"16KiB\"\n");
    let shown = "\
skep.toml:7:1: limits.head_byte_max: expected a setting of [limits], found the unknown setting `head_byte_max`
   |
 7 | head_byte_max = \"16KiB\"
   | ^^^^^^^^^^^^^
   = hint: did you mean `head_bytes_max`?";
    assert_eq!(refused(&text).to_string(), shown);
}

#[test]
fn faults_of_values_are_told_apart() {
    let cases = [
        (
            "[limits]\nfields_max = 200",
            "7:14 OutOfRange limits.fields_max / a whole number from 1 to 128 / 200 / -",
        ),
        (
            "[limits]\nfields_max = '20'",
            "7:14 WrongType limits.fields_max / a whole number from 1 to 128 / \"20\" / a number stands without quotes: 20",
        ),
        (
            "[limits]\nhead_bytes_max = '16K'",
            "7:18 WrongType limits.head_bytes_max / a size from 1KiB to 256KiB, in bytes or such as \"16KiB\" / \"16K\" / write \"16KiB\"",
        ),
        (
            "[site.headers]\n'a b' = 'c'",
            "7:1 WrongType site.headers / the name of a header field / \"a b\" / names of header fields are letters, digits and `-`",
        ),
        (
            "symlinks = 'beneth'",
            "6:12 OutOfRange site.symlinks / \"beneath\", \"refuse\" or \"follow\" / \"beneth\" / did you mean `beneath`?",
        ),
        (
            "listing = 'yes'",
            "6:11 WrongType site.listing / true or false / \"yes\" / write true, without quotes",
        ),
        (
            "[metrics]\nlisten = 'localhost:9100'",
            "7:10 WrongType metrics.listen / an address \"IP:PORT\", or \"off\" / \"localhost:9100\" / write \"127.0.0.1:9100\" or \"[::1]:9100\"",
        ),
        (
            "hosts = ['a.org', 7]",
            "6:19 WrongType site.hosts / a host name such as \"example.org\" or \"*.example.org\" / 7 / strings stand in quotes: \"7\"",
        ),
        (
            "hosts = ['a.org', 'A.org']",
            "6:19 Duplicate site.hosts / each value once / \"A.org\" twice / -",
        ),
        (
            "error_pages = { '200' = '/a' }",
            "6:17 WrongType site.error_pages / a status from 400 to 599 / \"200\" / -",
        ),
        (
            "pool = 'a'\n[site.cache]\nstatus_lifetimes_ms = { 404 = '5s', 206 = '1s' }\n[[pool]]\nname = 'a'",
            "8:37 WrongType site.cache.status_lifetimes_ms / a status such as 404, or a class such as 5xx; not 206, 304 / \"206\" / -",
        ),
        (
            "pool = 'a'\n[site.cache]\nstatus_lifetimes_ms = { 404 = '25h' }\n[[pool]]\nname = 'a'",
            "8:31 OutOfRange site.cache.status_lifetimes_ms / a duration from 0 to 24h, in milliseconds or such as \"10s\" / \"25h\" / -",
        ),
    ];
    for (lines, told) in cases {
        assert_eq!(only(&format!("{BASE}{lines}\n")), told);
    }
}

#[test]
fn faults_of_keys_and_tables_are_told_apart() {
    let cases = [
        (
            "[timeout]\nhead_ms = 1000",
            "6:2 UnknownKey timeout / a supported table / the unknown table `timeout` / did you mean `timeouts`?",
        ),
        (
            "[limits]\nhead_ms = 1000",
            "7:1 UnknownKey limits.head_ms / a setting of [limits] / the unknown setting `head_ms` / `head_ms` belongs in [timeouts]",
        ),
        (
            "[cache]\ncolour = 1",
            "7:1 UnknownKey cache.colour / a setting of [cache] / the unknown setting `colour` / known here: size_bytes_max, entries_max, check_interval_ms, cooperate, coordinator_timeout_ms, outstanding_bytes_max",
        ),
        ("[[cache]]", "6:1 WrongType cache / the table [cache] / [[cache]] / write [cache]"),
        (
            "limits = 7",
            "6:1 UnknownKey site.limits / a setting of [site] / the unknown setting `limits` / `limits` belongs in the top of the file",
        ),
        (
            "[dispatcher]\nname = 'a'",
            "6:1 WrongType dispatcher / rows of [[dispatcher]] / [dispatcher] / write [[dispatcher]]",
        ),
        (
            "[[node]]\nname = 'two'",
            "6:1 Missing node.address / an address \"IP:PORT\" / nothing / add a line `address = …`",
        ),
    ];
    for (lines, told) in cases {
        assert_eq!(only(&format!("{BASE}{lines}\n")), told);
    }
}

#[test]
fn text_that_is_not_toml_is_placed_too() {
    for (text, line, kind) in [
        ("cluster = \n", 1, ErrorKind::Syntax),
        ("a = 1\n[b\n", 2, ErrorKind::Syntax),
        ("cluster = skep\n", 1, ErrorKind::Syntax),
        ("cluster = 'a'\ncluster = 'b'\n", 2, ErrorKind::Duplicate),
        ("[log]\n[cache]\n[log]\n", 3, ErrorKind::Duplicate),
        ("\u{0}", 1, ErrorKind::Syntax),
    ] {
        let all = refused(text);
        let first = &all.errors[0];
        assert_eq!((first.line, first.kind), (line, kind), "{all}");
    }
}

#[test]
fn contradictions_are_told_at_one_of_their_places() {
    let cases = [
        (
            "[[node]]\nname = 'one'\naddress = '127.0.0.1:8002'",
            "12:8 Duplicate node.name / each node with a name of its own / a second \"one\" / -",
        ),
        (
            "nodes = ['onne']",
            "11:10 Contradiction service.nodes / the name of a [[node]] / \"onne\" / did you mean `one`?",
        ),
        (
            "[[node]]\nname = 'two'\naddress = '0.0.0.0:8002'",
            "13:11 Contradiction node.address / an address that dispatchers can connect to / \"0.0.0.0:8002\" / name the machine's own IP address and a port",
        ),
        (
            "[[node]]\nname = 'two'\naddress = '127.0.0.1:8001'",
            "13:11 Duplicate node.address / an address of its own / that of node \"one\" / -",
        ),
        (
            "[[node]]\nname = 'two'\naddress = '127.0.0.1:8000'",
            "13:11 Duplicate node.address / an address of its own / that of service \"web\" (127.0.0.1:8000) / -",
        ),
        (
            "[metrics]\nlisten = '0.0.0.0:8000'",
            "12:10 Duplicate metrics.listen / an address of its own / that of service \"web\" (127.0.0.1:8000) / -",
        ),
        (
            "[admin]\nlisten = '10.0.0.1:7070'",
            "12:10 Contradiction admin.listen / an address of this machine alone, or a `token_file` / \"10.0.0.1:7070\" without a token / anyone who can reach this address could drain nodes",
        ),
        (
            "upstream_idle_ms = '1m'",
            "11:20 Contradiction service.upstream_idle_ms / less than timeouts.idle_ms (1m) / 1m / else a node closes a connection while a request is on its way",
        ),
        (
            "health.timeout_ms = 2000",
            "11:21 Contradiction service.health.timeout_ms / at most interval_ms (1s) / 2s / -",
        ),
        (
            "[[site]]\nroot = '/b'",
            "11:1 Duplicate site.hosts / each host in one site / a second site for every other host / -",
        ),
        (
            "[[site]]\nroot = '/b'\nhosts = 'b'\nlisting = true\nspa_fallback = '/i.html'",
            "15:16 Contradiction site.spa_fallback / `listing` or `spa_fallback` / both, for folders without an index file / -",
        ),
        (
            "[[site.redirect]]\nfrom = '/a'\nto = '/b/*'",
            "13:6 Contradiction site.redirect.to / no `*`, as `from` has none / one / -",
        ),
        (
            "[[site.redirect]]\nfrom = '/a'\nto = '/a'",
            "13:6 Contradiction site.redirect.to / another path than `from` / the same / -",
        ),
        (
            "[limits]\ntarget_bytes_max = 16384",
            "12:20 Contradiction limits.target_bytes_max / less than head_bytes_max (16KiB) / 16KiB / -",
        ),
        (
            "[limits]\nconnection_bytes_max = 8192",
            "11:1 Contradiction limits.head_bytes_max / at most connection_bytes_max (8KiB) / 16KiB / -",
        ),
    ];
    for (lines, told) in cases {
        assert_eq!(only(&format!("{CLUSTER}{lines}\n")), told);
    }
}

#[test]
fn a_site_comes_from_a_folder_or_from_origins() {
    let cases = [
        (
            "[cache]\ncooperate = false\n[[site]]\nhosts = 'b'\norigins = 'https://a.org'",
            "15:11 WrongType site.origins / an origin such as \"http://10.0.0.9:8080/base\" / \"https://a.org\" / https is not supported: use http:// on a network that you trust, or put a proxy that speaks TLS to the origin on this machine",
        ),
        (
            "[cache]\ncooperate = false\n[[site]]\nhosts = 'b'\nroot = '/b'\norigins = ['http://a.org']",
            "16:11 Contradiction site.origins / a `root`, `origins`, a `pool` or a `reply` / two of them / a [[site.route]] of its own can have the other",
        ),
        (
            "[cache]\ncooperate = false\n[[site]]\nhosts = 'b'",
            "13:1 Missing site / a `root`, `origins`, a `pool` or a `reply` / none of them / root = \"/srv/www\" is a folder of files, origins = [\"http://10.0.0.9:8080\"] are servers to get them from, pool = \"app\" are those of an application, \
         reply.status = 503 is a fixed reply",
        ),
        (
            "[cache]\ncooperate = false\n[[site]]\nhosts = 'b'\norigins = 'http://a'\nlisting = true",
            "16:11 Contradiction site.listing / no `listing`, because there are `origins` / one / it is for folders",
        ),
    ];
    for (lines, told) in cases {
        assert_eq!(only(&format!("{CLUSTER}{lines}\n")), told);
    }
}

#[test]
fn a_folder_in_parts_needs_nodes_that_find_each_other() {
    let site = "[[site]]\nhosts = 'b'\nroot = '/b'\ncontent = 'partition'\n";
    let whole = format!("{site}listing = true");
    let errors = refused(&format!("{CLUSTER}{whole}")).errors;
    let told: Vec<_> = errors.iter().map(|error| error.setting.as_str()).collect();
    assert!(told.contains(&"site.listing"), "{told:?}");
    let alone = refused(&format!("{CLUSTER}[cache]\ncooperate = false\n{site}")).to_string();
    assert!(alone.contains("because each node has only a part"), "{alone}");
}

#[test]
fn a_redirecting_service_needs_nodes_that_clients_can_reach() {
    let text = "[[node]]\nname = 'one'\naddress = '0.0.0.0:80'\n[[site]]\nroot = '/srv'\n\
        [[service]]\nname = 'web'\nlisten = '127.0.0.1:8000'\ndispatch = 'redirect'\n";
    let told: Vec<_> = refused(text).errors.into_iter().map(|e| (e.line, e.setting)).collect();
    assert_eq!(told, [(1, "node".into()), (6, "service".into())]);
}

#[test]
fn an_empty_file_lacks_a_node_and_a_site() {
    let told: Vec<_> = refused("").errors.into_iter().map(|e| (e.setting, e.kind)).collect();
    assert_eq!(told, [("node".into(), ErrorKind::Missing), ("site".into(), ErrorKind::Missing)]);
}

#[test]
fn arms_are_two_or_more_with_names_and_groups_of_their_own() {
    let arm = |name: &str, lines: &str| {
        format!("[[service.arm]]\nname = '{name}'\npolicy = 'random'\n{lines}")
    };
    let nodes = "nodes = ['one']\n";
    let two = arm("a", "weight = 3\n") + &arm("b", "");
    let config = Config::parse("skep.toml", &format!("{CLUSTER}{two}")).unwrap();
    assert_eq!(config.services[0].arms.iter().map(|arm| arm.weight).collect::<Vec<_>>(), [3, 1]);
    for (lines, told) in [
        (arm("a", ""), "Contradiction service.arm / 2 to 8 [[service.arm]], or none / 1 / -"),
        (
            arm("a", "") + &arm("a", ""),
            "Duplicate service.arm.name / each arm with a name of its own",
        ),
        (
            arm("a", nodes) + &arm("b", ""),
            "service.arm.nodes / all arms with nodes of their own, or none",
        ),
        (
            arm("a", nodes) + &arm("b", nodes),
            "groups that have no node in common / \"one\", which arm \"a\" has",
        ),
        (
            arm("a", "nodes = ['onne']\n") + &arm("b", nodes),
            "the name of a node of this service / \"onne\" / did you mean `one`?",
        ),
        (arm("a", "weight = 0\n") + &arm("b", ""), "service.arm.weight"),
        (two.replace("random", "randon"), "did you mean"),
    ] {
        let told_all = refused(&format!("{CLUSTER}{lines}"));
        let all: Vec<String> = told_all
            .errors
            .iter()
            .map(|e| {
                let hint = e.hint.as_deref().unwrap_or("-");
                format!("{:?} {} / {} / {} / {hint}", e.kind, e.setting, e.expected, e.found)
            })
            .collect();
        assert!(all.iter().any(|it| it.contains(told)), "{all:?} / {told}");
    }
    let steered = CLUSTER.replace("name = 'web'", "name = 'web'\ndispatch = 'direct'");
    let text = refused(&format!("{steered}{two}")).to_string();
    assert!(text.contains("no arms with dispatch"), "{text}");
}

#[test]
fn direct_dispatch_says_what_it_needs() {
    let cluster = |key: &str, dispatcher: &str, listen: &str, policy: &str| {
        format!(
            "{key}[[dispatcher]]\nname = 'gate'\n{dispatcher}[[node]]\nname = 'one'\n\
             address = '10.0.0.11:8080'\n[[site]]\nroot = '/srv'\n[[service]]\nname = 'web'\n\
             dispatch = 'direct'\nlisten = '{listen}'\npolicy = '{policy}'\n"
        )
    };
    let (key, address) = ("key_file = 'key'\n", "address = '10.0.0.1:7071'\n");
    let vip = "10.0.0.100:80";
    Config::parse("test", &cluster(key, address, vip, "round-robin")).unwrap();
    for (text, setting, expected) in [
        (cluster("", address, vip, "random"), "service.dispatch", "a `key_file`"),
        (cluster(key, "", vip, "random"), "dispatcher.address", "an `address` \"IP:PORT\""),
        (cluster(key, address, "0.0.0.0:80", "random"), "service.listen", "a virtual address"),
        (cluster(key, address, "127.0.0.1:80", "random"), "service.listen", "a virtual address"),
        (cluster(key, address, "10.0.0.11:80", "random"), "service.listen", "no machine's own"),
        (cluster(key, address, vip, "maglev-url"), "service.policy", "reads no request"),
    ] {
        let all = refused(&text).errors;
        assert_eq!(all.len(), 1, "{text}");
        assert_eq!(all[0].setting, setting);
        assert!(all[0].expected.contains(expected), "{}", all[0].expected);
    }
}

#[test]
fn agents_of_one_machine_have_ports_of_their_own() {
    let text = |key: &str, agent: &str| {
        format!(
            "{key}[[dispatcher]]\nname = 'gate'\naddress = '10.0.0.1:7071'\n[[node]]\nname = 'one'\n\
             address = '10.0.0.11:80'\n[[node]]\nname = 'two'\naddress = '10.0.0.11:81'\n{agent}\
             [[site]]\nroot = '/srv'\n[[service]]\nname = 'web'\nlisten = '10.0.0.1:80'\n"
        )
    };
    let key = "key_file = 'key'\n";
    Config::parse("test", &text("", "")).unwrap();
    Config::parse("test", &text(key, "agent = '10.0.0.11:7072'\n")).unwrap();
    for (agent, owner) in [("", "one"), ("agent = '10.0.0.1:7071'\n", "gate")] {
        let told = only(&text(key, agent));
        assert!(told.contains("Duplicate node.agent") && told.contains(owner), "{told}");
    }
}

#[test]
fn networks_are_addresses_with_or_without_bits() {
    let text = |networks: &str| format!("{BASE}[direct]\ndeny = {networks}\n");
    let right = "['10.0.0.0/8', '192.0.2.1', '2001:db8::/32', '::/0']";
    Config::parse("test", &text(right)).unwrap();
    for wrong in ["10.0.0.0/33", "10.0.0/8", "::1/129", "10.0.0.0/", "example.org", "1.2.3.4/-1"] {
        assert!(only(&text(&format!("'{wrong}'"))).contains("a network such as"), "{wrong}");
    }
}

#[test]
fn all_errors_are_told_at_once_and_no_nonsense_follows_from_them() {
    // A node without a valid name must not make `two` unknown, nor must misspelled tables count as
    // missing.
    let text =
        format!("{CLUSTER}nodes = ['one', 'two']\n[[node]]\nname = 2\n[cash]\n[limits]\nx = 1\n");
    let all = refused(&text);
    let told: Vec<_> = all.errors.iter().map(|e| (e.line, e.setting.as_str())).collect();
    assert_eq!(
        told,
        [(12, "node.address"), (13, "node.name"), (14, "cash"), (16, "limits.x")],
        "{all}"
    );
    let told = refused("[[nodes]]\nname = 'a'\n[[sites]]\n");
    assert_eq!(told.errors.len(), 2, "{told}");
}

#[test]
fn errors_texts_and_rows_are_bounded() {
    let keys: String = (0..50).map(|i| format!("zzz{i} = 1\n")).collect();
    let all = refused(&format!("{keys}{BASE}"));
    assert_eq!((all.errors.len(), all.omitted), (limits::ERRORS_MAX, 50 - limits::ERRORS_MAX));
    let long = format!("{BASE}#{}", " ".repeat(limits::TEXT_BYTES_MAX));
    assert_eq!(refused(&long).errors[0].kind, ErrorKind::OutOfRange);
    let site = |i| format!("[[site]]\nroot = '/{i}'\nhosts = 'h{i}'\n");
    let sites: String = (0..limits::ROWS_MAX).map(site).collect();
    assert!(only(&format!("{BASE}{sites}")).contains("at most 1024 rows / 1025"));
}

#[test]
fn two_dispatchers_of_one_number_are_refused() {
    let gate = |name| format!("[[dispatcher]]\nname = '{name}'\n");
    let told = only(&format!(
        "[[service]]\nname = 's'\nlisten = '10.0.2.1:80'\n[[node]]\nname = 'n'\n\
         address = '10.1.0.1:80'\n[[site]]\nroot = '/srv'\n{}{}{}",
        gate("gate-49"),
        gate("gate-1"),
        gate("gate-52")
    ));
    let expected = "dispatcher.name / a name whose hash no other dispatcher has / \"gate-52\", with \
                    the hash of \"gate-49\" / by 16 bits";
    assert!(told.contains(expected) && told.contains("rename one"), "{told}");
}

/// The capacity of messages and packet programs.
#[test]
fn a_cluster_is_no_larger_than_its_tables() {
    let gate = |i: u32| format!("[[dispatcher]]\nname = 'd{i}'\naddress = '10.0.1.{i}:7071'\n");
    let cluster = |nodes: usize, gates: u32, addresses: usize| {
        let address = |i: usize| format!("'10.0.2.{}:{}'", 1 + i / 8, 80 + i % 8);
        let listen: Vec<_> = (0..addresses).map(address).collect();
        let node = |i: usize| {
            format!("[[node]]\nname = 'n{i}'\naddress = '10.1.{}.{}:80'\n", i / 250, i % 250)
        };
        format!(
            "key_file = '/k'\n[[service]]\nname = 's'\ndispatch = 'direct'\nlisten = [{}]\n\
             [[site]]\nroot = '/srv'\n{}{}",
            listen.join(", "),
            (0..gates).map(gate).collect::<String>(),
            (0..nodes).map(node).collect::<String>(),
        )
    };
    assert!(Config::parse("f", &cluster(1024, 8, 64)).is_ok());
    assert!(only(&cluster(1025, 1, 1)).contains("node / at most 1024 rows / 1025"));
    let told = only(&cluster(1, 9, 1));
    assert!(told.contains("dispatcher / at most 8 [[dispatcher]] / 9 / one is active"), "{told}");
    let told = only(&cluster(1, 1, 65));
    let expected =
        "service.listen / at most 64 addresses of services in direct dispatch / 65 / let";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn routes_that_could_not_answer_are_refused() {
    let route = |path: &str| format!("[[site.route]]\npath = '{path}'\nroot = '/srv'\n");
    let told = |paths: &[&str]| {
        let routes: String = paths.iter().map(|path| route(path)).collect();
        only(&format!("{BASE}{routes}"))
    };
    assert_eq!(
        told(&["/a/*", "/a/b"]),
        "10:8 Duplicate site.route.path / a path that no earlier route matches / \"/a/b\" behind \
         \"/a/*\" / the first route that matches answers: move this one up"
    );
    assert_eq!(
        told(&["/a", "/a"]),
        "10:8 Duplicate site.route.path / a path that no earlier route matches / \"/a\" behind \
         \"/a\" / -"
    );
    assert_eq!(
        told(&["/*"]),
        "7:8 Contradiction site.route.path / a share of the paths / all of them / `root`, \
         `origins`, `pool` or `reply` of the [[site]] is for all that no route matches"
    );
    let spelling =
        "only what can't stand in a path is written as `%` and two digits, such as `%20`";
    let pattern = "a URL path such as \"/a.html\", \"/a/*\" or \"*.php\"";
    for (path, why) in [
        ("api/", "it must begin with `/` or `*`"),
        ("/a/**", "one `*` stands for any number of characters"),
        ("/*a*b*c*d*e", "at most 4 `*`"),
        ("/a?b", "without `?` and `#`"),
        ("/a/../b", "without `.` and `..`"),
        ("/a//b", "with single slashes: requests are compared so"),
        ("/%61", spelling),
        ("/%2A", spelling),
        ("/a%2fb", spelling),
        ("/a%zz", spelling),
        ("/a|b", spelling),
    ] {
        let expected = format!("7:8 WrongType site.route.path / {pattern} / \"{path}\" / {why}");
        assert_eq!(told(&[path]), expected);
    }
}

#[test]
fn routes_need_a_source_and_fallbacks_a_route() {
    let route = |path: &str| format!("[[site.route]]\npath = '{path}'\nroot = '/srv'\n");
    assert_eq!(
        only(&format!("{BASE}[[site.route]]\npath = '/a/*'\n")),
        "6:1 Missing site.route / a `root`, `origins`, a `pool` or a `reply` / none of them / root = \"/srv/www\" is a \
         folder of files, origins = [\"http://10.0.0.9:8080\"] are servers to get them from, pool = \"app\" are those of an application, \
         reply.status = 503 is a fixed reply"
    );
    let both = format!("{BASE}{}origins = ['http://127.0.0.1:1']\n", route("/a/*"));
    assert_eq!(
        only(&both),
        "9:11 Contradiction site.route.origins / a `root`, `origins`, a `pool` or a `reply` / two of them / a [[site.route]] \
         of its own can have the other"
    );
    let typo = format!("{BASE}{}[site.route.fetch]\nfresh = 1\n", route("/a/*"));
    assert_eq!(
        only(&typo),
        "10:1 UnknownKey site.route.fetch.fresh / a setting of [site.route.fetch] / the unknown \
         setting `fresh` / did you mean `fresh_ms`?"
    );
    let idle = format!("{BASE}[site.fetch]\nfresh_ms = 0\n{}", route("/a/*"));
    assert_eq!(
        only(&idle),
        "6:1 Contradiction site.fetch / no `fetch`, because there are no `origins` / one / it is for \
         this site's own `origins`; those of a route have [site.route.fetch]"
    );
    let fallback = format!("{BASE}spa_fallback = '/index.php'\n{}", route("*.php"));
    assert_eq!(
        only(&fallback),
        "6:16 Contradiction site.spa_fallback / a path that comes from this `root` / \
         \"/index.php\", which has another route / requests for that path go elsewhere"
    );
    // More specific routes first.
    let routes = ["/a/b", "/a%20b/%2F*", "/a/*.php", "/a/*", "*.php"].map(route).concat();
    let config = Config::parse("skep.toml", &format!("{BASE}{routes}")).unwrap();
    assert_eq!(config.sites[0].routes.len(), 5);
    assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
}
