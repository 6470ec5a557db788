//! Whatever a file contains: it is read, or refused with a position; it never causes a panic.

use proptest::prelude::*;
use skep_config::{Config, settings, tables};

const EXAMPLE: &str = include_str!("../../../../../examples/skep.toml");

/// Reads any text and checks the invariants of the result.
fn read(text: &str) {
    match Config::parse("hostile.toml", text) {
        Ok(config) => {
            for written in [config.to_toml(), config.to_toml_full()] {
                assert_eq!(Config::parse("written", &written).as_ref(), Ok(&config), "{written}");
            }
        }
        Err(all) => {
            assert!(!all.errors.is_empty());
            for error in &all.errors {
                let line = text.split('\n').nth(error.line - 1).expect("a line of the text");
                assert!(error.column <= line.chars().count() + 1, "{error}");
                assert!(!error.expected.is_empty() && !error.found.is_empty());
            }
            let shown = all.to_string();
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        }
    }
}

/// Fragments from which files are composed.
fn piece() -> impl Strategy<Value = String> {
    let paths: Vec<&str> = settings().iter().map(|setting| setting.path).collect();
    let keys: Vec<&str> = paths.iter().map(|path| path.rsplit('.').next().unwrap()).collect();
    let heads: Vec<String> = tables()
        .iter()
        .flat_map(|table| [format!("\n[{}]\n", table.path), format!("\n[[{}]]\n", table.path)])
        .collect();
    let values = [
        "0",
        "-1",
        "1",
        "70000",
        "9223372036854775807",
        "1.5",
        "nan",
        "true",
        "'off'",
        "'-'",
        "''",
        "'16KiB'",
        "'99999999999TiB'",
        "'5m'",
        "'*'",
        "'/'",
        "'/a/*'",
        "'127.0.0.1:80'",
        "'[::]:0'",
        "'proxy'",
        "'direct'",
        "[]",
        "[[]]",
        "['a', 1]",
        "{}",
        "{ a = 1 }",
        "{ '404' = '/x' }",
        "1979-05-27",
        "\"\\u0000\\u001b\"",
        "'é日本'",
        "'''\n\n'''",
        "\"",
        "[",
        "{",
        "=",
        "#",
        ",",
        ".",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "\u{feff}",
        "\u{0}",
        "\u{7f}",
        "\u{2028}",
    ];
    prop_oneof![
        prop::sample::select(keys).prop_map(|key| format!("\n{key} = ")),
        prop::sample::select(paths).prop_map(|path| format!("\n{path} = ")),
        prop::sample::select(heads),
        prop::sample::select(values.to_vec()).prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ]
}

/// Replaces `cut` characters at `at` (a fraction of the length) by `piece`.
fn mutate(text: &str, at: f64, cut: usize, piece: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = (at * chars.len() as f64) as usize;
    let rest = chars.iter().skip(at + cut);
    chars.iter().take(at).copied().chain(piece.chars()).chain(rest.copied()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn mutated_configs_are_read_or_refused(
        edits in prop::collection::vec((0.0..1.0, 0usize..12, piece()), 1..6)
    ) {
        let text = edits.iter().fold(EXAMPLE.to_owned(), |text, (at, cut, piece)| {
            mutate(&text, *at, *cut, piece)
        });
        read(&text);
    }

    #[test]
    fn values_of_any_setting_are_read_or_refused(
        lines in prop::collection::vec((0..settings().len(), piece()), 1..4)
    ) {
        let line = |(setting, value): &(usize, String)| format!("{} = {value}\n", settings()[*setting].path);
        let lines: String = lines.iter().map(line).collect();
        read(&lines);
    }

    #[test]
    fn piles_of_pieces_are_read_or_refused(pieces in prop::collection::vec(piece(), 0..40)) {
        read(&pieces.concat());
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        read(&text);
    }
}

#[test]
fn every_beginning_of_the_example_is_read_or_refused() {
    for end in (0..EXAMPLE.len()).filter(|end| EXAMPLE.is_char_boundary(*end)) {
        read(&EXAMPLE[..end]);
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        read(&format!("a = {}{}", open.repeat(100_000), close.repeat(100_000)));
        read(&format!("a = {}", open.repeat(100_000)));
    }
    read(&format!("{}a = 1", "a.".repeat(100_000)));
    read(&format!("[{}a]", "a.".repeat(100_000)));
}
