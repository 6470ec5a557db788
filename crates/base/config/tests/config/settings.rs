//! Tests of every entry of the settings table by the same rules.

use skep_config::{Config, ErrorKind, Form, Kind, Setting, settings, tables};
use toml_edit::{DocumentMut, Item, Table, Value};

/// A file with one row of every table.
const BASE: &str = "
[[dispatcher]]
name = 'gate'
[[node]]
name = 'one'
address = '127.0.0.1:8001'
[[node]]
name = 'two'
address = '127.0.0.1:8002'
[[service]]
name = 'web'
listen = '127.0.0.1:8000'
[service.health]
[[service.arm]]
name = 'a'
policy = 'random'
[[service.arm]]
name = 'b'
policy = 'random'
[[site]]
root = '/srv'
[[site.route]]
path = '/a/*'
root = '/srv/a'
[[site.redirect]]
from = '/a'
to = '/b'
[[pool]]
name = 'app'
[[pool.server]]
name = 'one'
address = '127.0.0.1:9000'
[[client_network]]
name = 'campus'
networks = ['10.0.0.0/8']
";

/// The base file with one setting set to a TOML value.
fn with(path: &str, value: &str) -> String {
    let root = match path.contains(".forward.") || path.contains(".cache.") {
        true if path.starts_with("site.route.") => "root = '/srv/a'\n",
        true => "root = '/srv'\n",
        false => "",
    };
    // Settings for a pool need a pool.
    let to_pool = format!("{root}pool = 'app'\n");
    let base = if root.is_empty() { BASE.to_owned() } else { BASE.replace(root, &to_pool) };
    // If one arm has a group of nodes, the other must have one, too.
    let base = match path == "service.arm.nodes" && value != "[]" {
        true => base.replace("name = 'b'\n", "name = 'b'\nnodes = 'two'\n"),
        false => base,
    };
    let mut document: DocumentMut = base.parse().unwrap();
    let mut table: &mut Table = document.as_table_mut();
    let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
    for step in tables.split('.').filter(|step| !step.is_empty()) {
        let item = table.entry(step).or_insert(Item::Table(Table::new()));
        table = match item {
            Item::Table(table) => table,
            Item::ArrayOfTables(rows) => rows.get_mut(0).unwrap(),
            _ => panic!("{path} is in no table"),
        };
    }
    table[key] = Item::Value(value.parse::<Value>().unwrap());
    if path.ends_with(".origins") {
        // Replaces the root; otherwise nodes would share what they fetch there.
        table.remove("root");
        document["cache"]["cooperate"] = toml_edit::value(false);
    }
    document.to_string()
}

/// Kinds of the faults caused by this setting.
fn faults(setting: &Setting, value: &str) -> Vec<ErrorKind> {
    let text = with(setting.path, value);
    match Config::parse("test", &text) {
        Ok(_) => Vec::new(),
        Err(all) => {
            let own = all.errors.iter().filter(|error| error.setting == setting.path);
            let kinds: Vec<_> = own.map(|error| error.kind).collect();
            assert!(all.errors.iter().all(|error| error.line > 0 && error.column > 0));
            kinds
        }
    }
}

/// Whether the value itself is valid, regardless of other settings.
fn accepts(setting: &Setting, value: &str) -> bool {
    let clash = |kind: &ErrorKind| matches!(kind, ErrorKind::Contradiction | ErrorKind::Duplicate);
    faults(setting, value).iter().all(clash)
}

#[test]
fn the_base_file_is_right() {
    Config::parse("base", BASE).unwrap();
}

#[test]
fn every_path_is_there_once_and_in_its_table() {
    let mut paths: Vec<_> = settings().iter().map(|setting| setting.path).collect();
    paths.sort_unstable();
    assert!(paths.len() > 70 && paths.is_sorted_by(|a, b| a < b));
    assert!(paths.contains(&"cluster") && paths.contains(&"service.health.path"));
    for table in tables() {
        for setting in &table.settings {
            let inside = setting.path.rsplit_once('.').map_or("", |(table, _)| table);
            assert_eq!(inside, table.path);
        }
    }
}

#[test]
fn every_setting_and_table_is_documented_in_sentences() {
    let texts = settings().iter().map(|s| (s.path, &s.doc));
    for (path, doc) in texts.chain(tables().iter().map(|t| (t.path, &t.doc))) {
        assert!(doc.len() > 4 && doc.ends_with('.'), "{path}: {doc}");
        assert!(doc.matches('`').count().is_multiple_of(2), "{path}: {doc}");
    }
}

#[test]
fn every_name_ends_in_its_unit() {
    for setting in settings() {
        let Kind::Number { unit, .. } = setting.kind else { continue };
        let suffix = match unit {
            skep_config::Unit::Bytes if setting.path.ends_with("_bytes_min") => continue,
            skep_config::Unit::Bytes => "_bytes_max",
            skep_config::Unit::BytesPerSecond => "_bytes_per_s",
            skep_config::Unit::Milliseconds => "_ms",
            skep_config::Unit::Seconds => "_s",
            skep_config::Unit::Percent => "_percent",
            skep_config::Unit::Status => "status",
            skep_config::Unit::Count => continue,
        };
        assert!(setting.path.ends_with(suffix), "{} in {unit:?}", setting.path);
    }
}

#[test]
fn every_default_is_accepted_by_its_own_rules() {
    for setting in settings() {
        assert!(!(setting.required && setting.default.is_some()), "{}", setting.path);
        if let Some(default) = &setting.default {
            assert_eq!(faults(setting, default), [], "{} = {default}", setting.path);
        }
    }
}

#[test]
fn changed_files_are_looked_for_each_second_by_default() {
    let config = Config::parse("test", BASE).unwrap();
    assert_eq!(config.cache.check_interval_ms, 1_000);
}

#[test]
fn every_required_setting_is_missed() {
    for setting in settings().iter().filter(|setting| setting.required) {
        let (_, key) = setting.path.rsplit_once('.').unwrap();
        let line = with(setting.path, "'missing-here'");
        let without: Vec<_> = line.lines().filter(|line| !line.starts_with(key)).collect();
        let errors = Config::parse("test", &without.join("\n")).unwrap_err().errors;
        let missed = |error: &skep_config::ConfigError| {
            error.kind == ErrorKind::Missing && error.setting == setting.path
        };
        assert!(errors.iter().any(missed), "{}", setting.path);
    }
}

#[test]
fn every_number_keeps_its_limits() {
    for setting in settings() {
        let Kind::Number { unit, min, max } = setting.kind else { continue };
        assert!(min < max, "{}", setting.path);
        for inside in [min, max] {
            assert!(accepts(setting, &inside.to_string()), "{} = {inside}", setting.path);
        }
        let below = i64::try_from(min).unwrap() - 1;
        let above = i64::try_from(max).unwrap() + 1;
        for outside in [below, above, i64::MIN, i64::MAX] {
            let found = faults(setting, &outside.to_string());
            assert_eq!(found, [ErrorKind::OutOfRange], "{} = {outside}", setting.path);
        }
        let suffixed = matches!(unit, skep_config::Unit::Bytes | skep_config::Unit::Milliseconds);
        let one_hour_or_kib = if setting.path.ends_with("_ms") { "'1s'" } else { "'1MiB'" };
        let kinds = faults(setting, one_hour_or_kib);
        let wrong = kinds.contains(&ErrorKind::WrongType);
        assert!(wrong != suffixed || setting.path.ends_with("per_s"), "{}", setting.path);
    }
}

#[test]
fn every_word_and_status_is_accepted_and_no_other() {
    for setting in settings() {
        match setting.kind {
            Kind::Word(known) => {
                assert!(known.iter().all(|word| accepts(setting, &format!("'{word}'"))));
                for word in ["", "nonsense"] {
                    let found = faults(setting, &format!("'{word}'"));
                    assert_eq!(found, [ErrorKind::OutOfRange], "{} = {word}", setting.path);
                }
            }
            Kind::Status(known) => {
                assert!(known.iter().all(|status| accepts(setting, &status.to_string())));
                for status in [0, 299, 303, 999] {
                    let found = faults(setting, &status.to_string());
                    assert_eq!(found, [ErrorKind::OutOfRange], "{} = {status}", setting.path);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn every_setting_refuses_other_types() {
    for setting in settings() {
        // No setting accepts a date, a fraction or a list of lists.
        for wrong in ["1979-05-27", "1.5", "[[]]"] {
            let found = faults(setting, wrong);
            assert_eq!(found, [ErrorKind::WrongType], "{} = {wrong}", setting.path);
        }
        let takes_number = matches!(setting.kind, Kind::Number { .. } | Kind::Status(_));
        let takes_table = matches!(
            setting.kind,
            Kind::Headers | Kind::Params | Kind::PathMap | Kind::ErrorPages | Kind::StatusLifetimes
        );
        let takes_switch = setting.kind == Kind::Switch;
        for (value, taken) in
            [("77", takes_number), ("{ a = 1 }", takes_table), ("true", takes_switch)]
        {
            let wrong = faults(setting, value).contains(&ErrorKind::WrongType);
            assert!(wrong != taken || takes_table, "{} = {value}", setting.path);
        }
    }
}

#[test]
fn every_text_refuses_the_empty_string_and_control_characters() {
    for setting in settings() {
        if !matches!(setting.kind, Kind::Text(_) | Kind::Texts(_)) {
            continue;
        }
        for wrong in ["''", "\"a\\u0000b\"", "\"a\\r\\nb\""] {
            let found = faults(setting, wrong);
            assert_eq!(found, [ErrorKind::WrongType], "{} = {wrong}", setting.path);
        }
    }
}

#[test]
fn addresses_are_off_only_where_that_is_a_value() {
    for setting in settings() {
        let found = faults(setting, "'off'");
        match setting.kind {
            Kind::AddressOrOff => assert_eq!(found, [], "{}", setting.path),
            Kind::Address | Kind::ServerAddress => {
                assert_eq!(found, [ErrorKind::WrongType], "{}", setting.path)
            }
            _ => {}
        }
    }
    // Unset does not mean off: the default is a port of the node's own address.
    let agent = settings().iter().find(|setting| setting.path == "node.agent").unwrap();
    assert!(!agent.required && agent.default.is_none());
    assert!(accepts(agent, "'127.0.0.1:7072'"));
    assert!(Config::parse("test", BASE).unwrap().to_toml_full().contains("# agent is not set\n"));
}

#[test]
fn lists_take_one_value_for_a_list_of_one() {
    for setting in settings() {
        let one = match setting.kind {
            Kind::Addresses => "'127.0.0.1:1'",
            Kind::Texts(Form::Name) => "'one'",
            Kind::Texts(Form::Network) => "'10.0.0.0/8'",
            Kind::Texts(Form::OriginUrl) => "'http://example.org/a'",
            Kind::Texts(Form::Method) => "'GET'",
            Kind::Texts(Form::NamePattern) => "'utm_*'",
            Kind::Texts(Form::ContentCoding) => "'br'",
            Kind::Texts(Form::MediaType) => "'text/*'",
            Kind::Texts(_) => "'example.org'",
            _ => continue,
        };
        let read = |value: &str| Config::parse("test", &with(setting.path, value)).unwrap();
        assert_eq!(read(one), read(&format!("[{one}]")), "{}", setting.path);
        let twice = faults(setting, &format!("[{one}, {one}]"));
        assert_eq!(twice, [ErrorKind::Duplicate], "{}", setting.path);
    }
}

#[test]
fn one_client_cannot_take_all_connections_of_a_dispatcher_to_a_node() {
    let config = Config::parse("test", BASE).expect("a config");
    let per_address = config.limits.connections_per_address_max;
    assert!(config.services.iter().all(|it| per_address < it.upstream_connections_max));
}
