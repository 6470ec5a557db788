//! Pools: which settings of pools and of routes to them are refused.

use skep_config::Config;

use crate::errors::{BASE, only};

#[test]
fn pools_have_what_their_protocol_needs() {
    let pool = |protocol: &str, lines: &str, address: &str| {
        format!(
            "{BASE}[[site.route]]\npath = '/app/*'\npool = 'app'\n[[pool]]\nname = 'app'\n\
             protocol = '{protocol}'\n{lines}\n[[pool.server]]\nname = 's1'\naddress = '{address}'\n"
        )
    };
    let php = "unix:/run/php/php8.2-fpm.sock";
    let fastcgi = "[pool.fastcgi]\nroot = '/srv/app'\nparams = { APP_ENV = 'prod' }";
    let ajp = "[pool.ajp]\nsecret_file = 'secret'\npacket_bytes_max = '16KiB'";
    for text in [
        pool("fastcgi", fastcgi, php),
        pool("fastcgi", "[pool.fastcgi]\nscript = 'below'\nmount = '/app'", "10.0.0.1:9000"),
        pool("ajp", ajp, "10.0.0.1:8009"),
        pool("ajp", "", "[::1]:8009"),
        pool("http", "", "unix:/run/app.sock"),
    ] {
        let config = Config::parse("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
    }
    let cases = [
        (
            pool("fastcgi", "", php),
            "11:12 Contradiction pool.protocol / `root` in [pool.fastcgi] / none / the folder of the \
             scripts, as the application sees it; or script = \"below\"",
        ),
        (
            pool("fastcgi", "[pool.fastcgi]\nroot = 'app'", php),
            "13:8 Contradiction pool.fastcgi.root / an absolute path, as the application sees it / a \
             relative one / -",
        ),
        (
            pool("fastcgi", "[pool.fastcgi]\nroot = '/a'\nextension = 'php'", php),
            "14:13 Contradiction pool.fastcgi.extension / a dot and letters / \"php\" / -",
        ),
        (
            pool("fastcgi", "[pool.fastcgi]\nroot = '/a'\nparams = { 'X-A' = 'b' }", php),
            "14:12 WrongType pool.fastcgi.params / the name of a parameter / \"X-A\" / names of \
             parameters are letters, digits and `_`",
        ),
        (
            pool("http", fastcgi, php),
            "12:1 Contradiction pool.fastcgi / no `fastcgi`, because protocol is \"http\" / one / it is \
             for `protocol = \"fastcgi\"`",
        ),
        (
            pool("ajp", "", "10.0.0.1:8009"),
            "15:11 Contradiction pool.server.address / an address of this machine, because there is \
             no secret / \"10.0.0.1:8009\" / set `secret_file` in [pool.ajp]",
        ),
        (
            pool("http", "", "unix:run/app.sock"),
            "15:11 WrongType pool.server.address / an address \"IP:PORT\" or \"unix:/PATH\" / \
             \"unix:run/app.sock\" / the path begins with /",
        ),
        (
            pool("http", "", "/run/app.sock"),
            "15:11 WrongType pool.server.address / an address \"IP:PORT\" or \"unix:/PATH\" / \
             \"/run/app.sock\" / write \"unix:/run/app.sock\" for a socket",
        ),
    ];
    for (text, told) in cases {
        assert_eq!(only(&text), told, "{text}");
    }
}

const POOL: &str =
    "[[pool]]\nname = 'app'\n[[pool.server]]\nname = 's1'\naddress = '10.0.0.1:80'\n";

/// A route to [`POOL`].
fn to(lines: &str) -> String {
    format!("{BASE}[[site.route]]\npath = '/app/*'\npool = 'app'\n{lines}\n{POOL}")
}

fn forward(lines: &str) -> String {
    to(&format!("[site.route.forward]\n{lines}"))
}

#[test]
fn files_that_an_application_names_are_in_a_folder() {
    let cases = [
        (
            forward("sendfile_root = 'srv'"),
            "10:17 Contradiction site.route.forward.sendfile_root / an absolute path / a relative one \
             / -",
        ),
        (
            forward("sendfile_path = '/own'"),
            "10:17 Contradiction site.route.forward.sendfile_path / no `sendfile_path`, because there \
             is no `sendfile_root` / one / the folder that the files are in",
        ),
    ];
    for (text, told) in cases {
        assert_eq!(only(&text), told, "{text}");
    }
    let named = "sendfile_root = '/srv'\nsendfile_path = '/own'";
    Config::parse("test", &forward(named)).unwrap();
    for of_folders in ["dotfiles = true", "symlinks = 'follow'", "content = 'shared'"] {
        assert!(only(&to(of_folders)).contains("/ it is for folders"), "{of_folders}");
        Config::parse("test", &to(&format!("{of_folders}\n[site.route.forward]\n{named}")))
            .unwrap();
    }
}

#[test]
fn pools_and_what_leads_to_them_fit_together() {
    Config::parse("test", &forward("strip_prefix = '/app'\nmethods = ['GET']")).unwrap();
    let config = Config::parse("test", &to("root = '/srv'")).unwrap();
    assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
    let cases = [
        (
            to("").replacen("pool = 'app'", "pool = 'ap'", 1),
            "8:8 Contradiction site.route.pool / the name of a [[pool]] / \"ap\" / did you mean `app`?",
        ),
        (
            to("index = 'a.html'"),
            "9:9 Contradiction site.route.index / no `index`, because there is a `pool` and no `root` \
             / one / it is for folders",
        ),
        (
            to("root = '/srv'\nlisting = true"),
            "10:11 Contradiction site.route.listing / no `listing`, because what is no file goes to \
             `pool` / one / -",
        ),
        (
            forward("strip_prefix = '/ap'"),
            "10:16 Contradiction site.route.forward.strip_prefix / a beginning, up to a `/`, of all \
             paths of the route / \"/ap\" of \"/app/*\" / path = \"/app/*\" goes with strip_prefix = \
             \"/app\"",
        ),
        (
            forward("request_headers = { 'Host' = 'a' }"),
            "10:19 Contradiction site.route.forward.request_headers / fields that nodes do not write \
             themselves / \"Host\" / `host` sets it",
        ),
        (
            forward("methods = 'get'"),
            "10:11 WrongType site.route.forward.methods / a method such as \"POST\" / \"get\" / in capital letters",
        ),
        (
            to("") + "[[pool.server]]\nname = 's1'\naddress = '10.0.0.2:80'\n",
            "16:8 Duplicate pool.server.name / each server with a name of its own / a second \"s1\" / -",
        ),
        (
            to("") + "[[pool.server]]\nname = 's2'\naddress = '10.0.0.1:80'\n",
            "17:11 Duplicate pool.server.address / an address of its own / that of server \"s1\" / -",
        ),
        (
            to("") + POOL,
            "16:8 Duplicate pool.name / each pool with a name of its own / a second \"app\" / -",
        ),
        (
            to("").replacen("name = 'app'\n", "name = 'app'\nprotocol = 'scgi'\n", 1),
            "12:12 OutOfRange pool.protocol / \"http\", \"fastcgi\" or \"ajp\" / \"scgi\" / did you mean `fastcgi`?",
        ),
        (
            to("").replacen("name = 'app'\n", "name = 'app'\nhealth.timeout_ms = 3000\n", 1),
            "12:21 Contradiction pool.health.timeout_ms / at most interval_ms (2s) / 3s / -",
        ),
    ];
    for (text, told) in cases {
        assert_eq!(only(&text), told, "{text}");
    }
    let idle = format!("{BASE}[site.forward]\nupgrade = false\n");
    assert!(only(&idle).contains("no `forward`, because there is no `pool`"));
}

#[test]
fn sessions_of_pools_can_be_told() {
    let with = |lines: &str| format!("{BASE}[[pool]]\nname = 'app'\n[pool.sticky]\n{lines}");
    for fine in ["by = 'route'", "by = 'field-hash'\nfield = 'X-User'", "same_site = 'none'"] {
        Config::parse("test", &with(fine)).unwrap();
    }
    let cases = [
        (
            with("by = 'cookie-hash'"),
            "9:6 Contradiction pool.sticky.by / `cookie` beside \"cookie-hash\" / none / -",
        ),
        (
            with("by = 'field-hash'"),
            "9:6 Contradiction pool.sticky.by / `field` beside \"field-hash\" / none / -",
        ),
        (
            with("by = 'cookie'\nsame_site = 'none'"),
            "10:13 Contradiction pool.sticky.same_site / `secure = true` beside \"none\" / secure = \
             false / -",
        ),
    ];
    for (text, told) in cases {
        assert_eq!(only(&text), told, "{text}");
    }
}

#[test]
fn routes_have_no_larger_bodies_than_all_may_have() {
    let text = |limit: &str, own: &str| {
        format!(
            "{BASE}[[site.route]]\npath = '/app/*'\npool = 'app'\n[site.route.forward]\n\
             body_bytes_max = '{own}'\nupload_timeout_ms = '1m'\nresponse_timeout_ms = '2s'\n\
             stall_timeout_ms = '3s'\n[[pool]]\nname = 'app'\n[limits]\nbody_bytes_max = '{limit}'\n"
        )
    };
    let config = Config::parse("test", &text("1MiB", "1MiB")).unwrap();
    assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
    assert_eq!(
        only(&text("1MiB", "2MiB")),
        "10:18 Contradiction site.route.forward.body_bytes_max / at most body_bytes_max of [limits] \
         (1MiB) / 2MiB / raise that of [limits], and set a lower one here for other routes"
    );
}

#[test]
fn servers_of_all_nodes_are_told_from_those_of_each() {
    let counted = |nodes: [&str; 2], address: &str, scope: &str| {
        let text = format!(
            "key_file = \"/k\"\n[[node]]\nname = \"a\"\naddress = \"{}:80\"\n[[node]]\nname = \"b\"\n\
             address = \"{}:81\"\nagent = \"{}:7072\"\n[[dispatcher]]\nname = \"d\"\naddress = \"10.0.0.9:7071\"\n\
             [[service]]\nname = \"s\"\nlisten = [\"10.0.0.9:80\"]\nnodes = [\"a\", \"b\"]\n[[site]]\npool = \"p\"\n\
             [[pool]]\nname = \"p\"\n[[pool.server]]\nname = \"one\"\naddress = \"{address}\"\n\
             connections_max = 5\nconnections_scope = \"{scope}\"\n",
            nodes[0], nodes[1], nodes[1]
        );
        let config = Config::parse("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let server = &config.pools[0].servers[0];
        (config.is_of_cluster(server), config.share_of(server))
    };
    let apart = ["10.0.0.1", "10.0.0.2"];
    let together = ["10.0.0.1", "10.0.0.1"];
    assert_eq!(counted(apart, "10.0.0.7:9000", "auto"), (true, 2));
    assert_eq!(counted(apart, "127.0.0.1:9000", "auto"), (false, 5));
    assert_eq!(counted(apart, "unix:/run/php.sock", "auto"), (false, 5));
    assert_eq!(counted(together, "unix:/run/php.sock", "auto"), (true, 2));
    assert_eq!(counted(apart, "unix:/run/php.sock", "cluster"), (true, 2));
    assert_eq!(counted(together, "10.0.0.7:9000", "node"), (false, 5));
}

#[test]
fn servers_that_all_nodes_count_are_few() {
    let text = |count: usize, scope: &str| {
        let servers = |pool: usize| {
            let server = |it: usize| {
                format!(
                    "[[pool.server]]\nname = \"s{it}\"\naddress = \"10.1.{pool}.{}:{}\"\n\
                     connections_scope = \"{scope}\"\n",
                    it % 250,
                    9000 + it / 250
                )
            };
            (0..count / 2 + count % 2 * pool).map(server).collect::<String>()
        };
        format!(
            "key_file = \"/k\"\n[[node]]\nname = \"a\"\naddress = \"10.0.0.1:80\"\n[[node]]\nname = \"b\"\n\
             address = \"10.0.0.2:80\"\n[[dispatcher]]\nname = \"d\"\naddress = \"10.0.0.9:7071\"\n\
             [[service]]\nname = \"s\"\nlisten = [\"10.0.0.9:80\"]\nnodes = [\"a\", \"b\"]\n[[site]]\n\
             pool = \"p0\"\n[[pool]]\nname = \"p0\"\n{}[[pool]]\nname = \"p1\"\n{}",
            servers(0),
            servers(1)
        )
    };
    for (count, scope) in [(1_024, "cluster"), (1_025, "node")] {
        Config::parse("test", &text(count, scope)).unwrap_or_else(|errors| panic!("{errors}"));
    }
    let refused = only(&text(1_025, "cluster"));
    assert!(refused.contains("at most 1024 servers in all pools"), "{refused}");
    assert!(refused.contains("/ 1025 servers / set connections_scope"), "{refused}");
}

#[test]
fn a_client_is_in_one_network() {
    let network = |name: &str, networks: &str| {
        format!("[[client_network]]\nname = '{name}'\nnetworks = {networks}\n")
    };
    let campus = network("campus", "['192.0.2.0/24', '2001:db8::/32']");
    // A smaller network within a larger one.
    let text = format!("{BASE}{campus}{}", network("library", "['192.0.2.64/26']"));
    let config = Config::parse("test", &text).unwrap();
    assert_eq!(config.client_networks[1].networks, ["192.0.2.64/26"]);
    assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
    let cases = [
        (
            network("campus", "['192.0.3.0/24']"),
            "10:8 Duplicate client_network.name / each client_network with a name of its own / a \
             second \"campus\" / -",
        ),
        (
            network("other", "['192.0.3.0/24']"),
            "10:8 Contradiction client_network.name / another name than \"other\" / \"other\" / it is \
             for clients that are in no network",
        ),
        (
            network("library", "['192.0.3.0/24', '192.0.2.9/24']"),
            "11:12 Duplicate client_network.networks / each network once / \"192.0.2.9/24\", which \
             \"campus\" has / -",
        ),
        (
            network("library", "[]"),
            "11:12 Missing client_network.networks / at least one network / none / -",
        ),
        (
            (1..33).map(|at| network(&format!("n{at}"), &format!("['10.0.{at}.0/24']"))).collect(),
            "102:1 OutOfRange client_network / at most 32 [[client_network]] / 33 / each pool counts by \
             each name, and compares clients with each network",
        ),
    ];
    for (second, told) in cases {
        assert_eq!(only(&format!("{BASE}{campus}{second}")), told, "{second}");
    }
    let many: Vec<_> = (0..=256).map(|at| format!("'10.{}.{}.0/24'", at / 256, at % 256)).collect();
    let many = only(&format!("{BASE}{}", network("campus", &format!("[{}]", many.join(", ")))));
    assert!(
        many.contains("at most 256 networks of all [[client_network]] together / 257"),
        "{many}"
    );
}
