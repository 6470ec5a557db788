//! Configs built in code, and what a change of the config requires.

use std::path::Path;

use skep_config::{
    BackendConfig, Config, ContentPlacement, DispatcherConfig, NodeConfig, ServiceConfig,
    SiteConfig, changes_needing_restart,
};

fn built() -> Config {
    let node = |name: &str, port| NodeConfig {
        name: name.into(),
        address: ([127, 0, 0, 1], port).into(),
        ..NodeConfig::default()
    };
    Config {
        dispatchers: vec![DispatcherConfig { name: "gate".into(), ..DispatcherConfig::default() }],
        nodes: vec![node("one", 8001), node("two", 8002)],
        services: vec![ServiceConfig {
            name: "web".into(),
            listen: vec![([127, 0, 0, 1], 8000).into()],
            ..ServiceConfig::default()
        }],
        sites: vec![SiteConfig::of(BackendConfig {
            root: Some("/srv".into()),
            ..BackendConfig::default()
        })],
        ..Config::default()
    }
}

#[test]
fn a_config_built_in_code_is_checked_and_written() {
    let config = built();
    config.validate().unwrap();
    assert_eq!(Config::parse("written", &config.to_toml()).unwrap(), config);
    let mut wrong = built();
    wrong.limits.fields_max = 0;
    wrong.services[0].nodes = vec!["three".into()];
    assert_eq!(wrong.validate().unwrap_err().errors.len(), 2);
    wrong.limits.body_bytes_max = u64::MAX;
    wrong.sites[0].headers = vec![("a\nb".into(), "''' \"\"\" \u{0}".into())];
    wrong.validate().unwrap_err();
    Config::default().validate().unwrap_err();
}

#[test]
fn what_is_written_is_short_and_names_only_what_differs() {
    let text = built().to_toml();
    assert_eq!(
        text,
        "\
[[dispatcher]]
name = \"gate\"

[[node]]
name = \"one\"
address = \"127.0.0.1:8001\"

[[node]]
name = \"two\"
address = \"127.0.0.1:8002\"

[[service]]
name = \"web\"
listen = [\"127.0.0.1:8000\"]

[[site]]
root = \"/srv\"
"
    );
}

#[test]
fn reloadable_changes_need_no_restart() {
    let old = built();
    let mut new = built();
    new.nodes.remove(0);
    new.nodes[0].weight = 7;
    new.sites.clear();
    new.limits.fields_max = 50;
    new.services[0].health.rise = 9;
    assert!(changes_needing_restart(&old, &new).is_empty());
    assert!(changes_needing_restart(&old, &old).is_empty());
}

#[test]
fn other_changes_are_named_once() {
    let old = built();
    let mut new = built();
    new.machine.threads = 3;
    new.nodes.reverse();
    new.nodes[0].address = ([127, 0, 0, 1], 9002).into();
    new.nodes[1].address = ([127, 0, 0, 1], 9001).into();
    new.services[0].listen = vec![([127, 0, 0, 1], 80).into()];
    new.services.push(ServiceConfig { name: "more".into(), ..ServiceConfig::default() });
    let changes = ["machine.threads", "node.address", "service", "service.listen"];
    assert_eq!(changes_needing_restart(&old, &new), changes);
    assert_eq!(changes_needing_restart(&new, &old), changes);
}

#[test]
fn relative_paths_begin_at_the_folder_of_the_file() {
    let mut config = built();
    config.sites[0].backend.root = Some("www".into());
    config.admin.token_file = Some("token".into());
    config.resolve_paths(Path::new("/etc/skep"));
    assert_eq!(config.sites[0].backend.root.as_deref(), Some(Path::new("/etc/skep/www")));
    assert_eq!(config.admin.token_file.as_deref(), Some(Path::new("/etc/skep/token")));
    assert_eq!(config.state_dir, Path::new("/var/lib/skep"));
}

#[test]
fn nodes_begin_to_cooperate_when_they_start() {
    let (local, mut shared) = (built(), built());
    shared.sites[0].backend.content = ContentPlacement::Shared;
    let needs = changes_needing_restart(&local, &shared);
    assert_eq!(needs, ["site.content"]);
    assert!(changes_needing_restart(&shared, &local).is_empty());
}
