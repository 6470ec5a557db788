//! Files of the repo that must agree with the settings table.

use skep_config::{
    AccessLogTarget, Config, DispatchMode, StatusPattern, reference_markdown, settings_help,
};

const EXAMPLE: &str = include_str!("../../../../../examples/skep.toml");
const REFERENCE: &str = include_str!("../../../../../docs/config.md");

#[test]
fn the_reference_page_is_what_the_table_says() {
    let stale = "docs/config.md is stale: run `cargo xtask gen` and commit the result";
    assert!(reference_markdown() == REFERENCE, "{stale}");
}

#[test]
fn help_fits_a_terminal_and_names_every_setting() {
    let help = settings_help();
    assert!(help.lines().all(|line| line.chars().count() <= 80));
    for setting in skep_config::settings() {
        assert!(help.lines().any(|line| line == setting.path), "{}", setting.path);
    }
}

#[test]
fn the_example_means_what_it_says() {
    let config = Config::parse("examples/skep.toml", EXAMPLE).unwrap();
    let [web, downloads] = config.services.as_slice() else { panic!("two services") };
    assert_eq!((web.dispatch, web.listen.len()), (DispatchMode::Proxy, 2));
    assert_eq!((web.health.timeout_ms, web.health.slow_start_ms), (250, 10_000));
    assert_eq!((downloads.dispatch, downloads.redirect_status), (DispatchMode::Redirect, 302));
    let behind = |service| config.nodes_of(service).map(|(i, _)| i).collect::<Vec<_>>();
    assert_eq!((behind(web), behind(downloads)), (vec![0, 1, 2], vec![0, 2]));
    assert_eq!(config.nodes[0].client_authority(), "10.0.0.11:8080");
    assert_eq!(config.nodes[2].client_authority(), "comb-3.example.org:8080");
    assert_eq!(config.sites[0].redirects.len(), 2);
    assert_eq!(config.sites[0].error_pages[&404], "/404.html");
    assert_eq!(config.cache.size_bytes_max, 2 << 30);
    assert_eq!(config.log.access, AccessLogTarget::File("/var/log/skep/access.log".into()));
    assert_eq!(config.socket_of("gate"), std::path::Path::new("/var/lib/skep/gate.sock"));
}

#[test]
fn lifetimes_by_status_are_written_as_they_are_read() {
    let text = "[[node]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n[[site]]\npool = \"p\"\n\
        [site.cache]\nstatus_lifetimes_ms = { 5xx = 0, 404 = \"5s\", \"301\" = 250 }\n\
        [[pool]]\nname = \"p\"\n";
    let config = Config::parse("lifetimes", text).unwrap();
    let lifetimes = &config.sites[0].backend.cache.status_lifetimes_ms;
    let expected = [
        (StatusPattern::Exact(301), 250),
        (StatusPattern::Exact(404), 5_000),
        (StatusPattern::Class(5), 0),
    ];
    assert!(lifetimes.iter().map(|(status, ms)| (*status, *ms)).eq(expected));
    let written = config.to_toml();
    assert!(written.contains("{ 301 = \"250ms\", 404 = \"5s\", 5xx = 0 }"), "{written}");
    assert_eq!(Config::parse("written", &written).unwrap(), config);
}

#[test]
fn both_ways_of_writing_the_example_read_back_equal() {
    let config = Config::parse("example", EXAMPLE).unwrap();
    for text in [config.to_toml(), config.to_toml_full()] {
        assert_eq!(Config::parse("written", &text).unwrap(), config, "{text}");
    }
    assert!(config.to_toml().len() < EXAMPLE.len());
    let full = config.to_toml_full();
    assert!(full.contains("head_bytes_max = \"16KiB\" # default"));
    assert!(full.contains("head_ms = \"5s\"\n"));
    assert!(full.contains("# socket is not set"));
    assert!(full.contains("cluster = \"honey\"\n"));
}
