//! Documentation from the settings table: the reference page and the help text.

use std::fmt::Write as _;

use crate::kind::Kind;
use crate::schema::{settings, tables};
use crate::section::{Setting, TableDoc};

/// The complete content of `docs/config.md`.
pub fn reference_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for table in tables() {
        page.push_str(&section(table));
    }
    page
}

/// Help on every setting, for a terminal of 80 columns.
pub fn settings_help() -> String {
    settings().iter().map(|setting| setting.help() + "\n").collect()
}

impl Setting {
    /// Help on this setting, for a terminal of 80 columns: several lines, each terminated by a
    /// newline.
    pub fn help(&self) -> String {
        let facts =
            format!("{}; {}; {}.", self.kind.expected(), self.default_text(), self.reload());
        let lines = wrap(&facts, 76).into_iter().chain(wrap(&self.doc.replace('`', ""), 76));
        let body: String = lines.map(|line| format!("    {line}\n")).collect();
        format!("{}\n{body}", self.path)
    }

    fn default_text(&self) -> String {
        match &self.default {
            Some(default) => format!("default {default}"),
            None if self.required => "required".into(),
            None => "default: not set".into(),
        }
    }

    fn reload(&self) -> &'static str {
        if self.reloadable { "changed by reload" } else { "changed by restart" }
    }
}

const INTRODUCTION: &str = "\
# Settings

<!-- Generated from the settings table by `cargo xtask gen`; edit
crates/base/config/src/schema.rs instead. -->

The config file is [TOML](https://toml.io). A complete example is
[`examples/skep.toml`](../examples/skep.toml). `skep config check FILE` reports
everything that is wrong with a file; unknown settings are errors. Folders, keys,
users and addresses named in a file are checked when a process starts or reloads.
`skep config show FILE` prints every setting, with the defaults.

- **Sizes** are bytes, or strings such as `\"16KiB\"`, `\"256MiB\"`, `\"1GiB\"`.
- **Durations** of `_ms` settings are milliseconds, or strings such as
  `\"250ms\"`, `\"10s\"`, `\"5m\"`, `\"1h\"`.
- **Addresses** are `\"IP:PORT\"`, IPv6 as `\"[::1]:80\"`. Port 0 is any free one.
- Where a **list** is accepted, a single value stands for a list of one.
- **Reload**: whether a reload (SIGHUP) applies a change; if not, restart the
  process. A file with an error is rejected as a whole, and the old config stays
  in force.
";

fn section(table: &TableDoc) -> String {
    let title = match (table.path, table.rows) {
        ("", _) => "Top of the file".to_owned(),
        (path, true) => format!("`[[{path}]]`"),
        (path, false) => format!("`[{path}]`"),
    };
    let mut text = format!("\n## {title}\n\n{}\n", wrap(&table.doc, 80).join("\n"));
    text.push_str("\n| setting | default | value | reload | meaning |\n|---|---|---|---|---|\n");
    for setting in &table.settings {
        let name = setting.path.rsplit('.').next().unwrap_or(setting.path);
        let default = match &setting.default {
            Some(default) => format!("`{default}`"),
            None if setting.required => "required".into(),
            None => "not set".into(),
        };
        let reload = if setting.reloadable { "yes" } else { "no" };
        let takes = cell(&takes(setting.kind));
        let doc = cell(&setting.doc);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {default} | {takes} | {reload} | {doc} |");
    }
    text
}

/// The values that a kind accepts, without the rules in the introduction.
fn takes(kind: Kind) -> String {
    let expected = kind.expected();
    match kind {
        Kind::Number { .. } => expected.split(',').next().unwrap_or_default().to_owned(),
        _ => expected,
    }
}

/// Escapes text for a table cell; words in quotes are shown as code.
fn cell(text: &str) -> String {
    let mut code = false;
    let quotes_to_code = text.chars().map(|c| if c == '"' { '`' } else { c });
    let shown: String = if text.contains('`') { text.into() } else { quotes_to_code.collect() };
    let mut out = String::new();
    for c in shown.chars() {
        code ^= c == '`';
        match c {
            '|' => out.push_str("\\|"),
            '*' | '_' | '<' if !code => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

/// Lines of at most `width` characters, unless a word is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
