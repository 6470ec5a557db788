//! Files of a crate must not import each other in a circle, except parent and child; and folders that are
//! layers import downwards only.
//!
//! A file that needs what needs it is half of a larger one: it cannot be read, moved or tested alone. Imports
//! are followed to the file that defines a name, through re-exports. A parent and its descendants count as
//! one, so imports between them do not matter; nor do those of tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Finding, escapes};
use crate::source::Source;

/// A module by its path in the crate.
type Module = Vec<String>;

/// Crates whose folders are layers, the lowest first: a file may use its own folder and those before it.
const FOLDERS: &[(&str, &[&str])] = &[
    ("crates/role/node", &["disk", "model", "peers", "backend", "http", "peer_server", "explain"]),
    ("crates/role/dispatcher", &["service", "loads", "http"]),
];

/// Maximum length of a chain of re-exports.
const EXPORTS_MAX: usize = 8;

/// Finds circles of imports.
pub(crate) fn check(sources: &[Source], test_only: &BTreeSet<String>) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some((folder, _)) = source.path.split_once("/src/") {
            crates.entry(folder).or_default().push(source);
        }
    }
    let mut findings = Vec::new();
    for (folder, files) in crates {
        let read = Crate::read(&files, test_only);
        findings.extend(read.circles().into_iter().map(|files| {
            let what = format!("files import each other: {}; break the circle", files.join(" -> "));
            Finding::new(&files[0], 1, "circle", what)
        }));
        let order = FOLDERS.iter().find(|(of, _)| *of == folder);
        findings.extend(order.into_iter().flat_map(|(_, order)| read.upward(order)));
    }
    findings
}

/// The modules of a crate that are files.
struct Crate {
    files: BTreeMap<Module, File>,
}

struct File {
    path: String,
    /// Paths of the names that it uses, from the crate's root.
    uses: Vec<Vec<String>>,
    /// Names that it re-exports, and where they are from.
    exports: BTreeMap<String, Vec<String>>,
}

impl Crate {
    fn read(sources: &[&Source], test_only: &BTreeSet<String>) -> Self {
        let known: BTreeSet<Module> = sources.iter().filter_map(|it| module_of(&it.path)).collect();
        let mut files = BTreeMap::new();
        for source in sources {
            let Some(module) = module_of(&source.path) else { continue };
            let code = without_tests(source, test_only);
            let mut file =
                File { path: source.path.clone(), uses: vec![], exports: BTreeMap::new() };
            for (import, is_exported) in imports(&code) {
                let Some(path) = from_root(&import, &module, &known) else { continue };
                if let Some(name) = path.last().filter(|_| is_exported) {
                    file.exports.insert(name.clone(), path.clone());
                }
                file.uses.push(path);
            }
            files.insert(module, file);
        }
        Self { files }
    }

    /// The module that defines what a path from the root denotes.
    fn defines(&self, path: &[String]) -> Option<&Module> {
        let mut path = path.to_vec();
        for _ in 0..EXPORTS_MAX {
            let prefix =
                (0..=path.len()).rev().find(|&end| self.files.contains_key(&path[..end]))?;
            let (module, file) = self.files.get_key_value(&path[..prefix])?;
            match path.get(prefix).and_then(|name| file.exports.get(name)) {
                Some(from) => path = from.clone(),
                None => return Some(module),
            }
        }
        None
    }

    /// Files that a file uses, except its ancestors and descendants.
    fn used_by(&self, module: &Module) -> BTreeSet<&Module> {
        let defined = self.files[module].uses.iter().filter_map(|path| self.defines(path));
        defined.filter(|it| !it.starts_with(module) && !module.starts_with(it)).collect()
    }

    /// Imports of a higher folder by a lower one.
    fn upward(&self, order: &[&str]) -> Vec<Finding> {
        let height = |module: &Module| {
            order.iter().position(|it| Some(*it) == module.first().map(String::as_str))
        };
        let mut found = Vec::new();
        for (module, file) in &self.files {
            let Some(own) = height(module) else { continue };
            let higher = |used: &&Module| height(used).is_some_and(|it| it > own);
            for used in self.used_by(module).into_iter().filter(higher) {
                let used = &self.files[used].path;
                let what = format!("uses {used}, which is above it: {}", order.join(" < "));
                found.push(Finding::new(&file.path, 1, "folder", what));
            }
        }
        found
    }

    /// The shortest circle through each file that is in one; each circle once.
    fn circles(&self) -> Vec<Vec<String>> {
        let arrows: BTreeMap<&Module, BTreeSet<&Module>> =
            self.files.keys().map(|module| (module, self.used_by(module))).collect();
        let (mut told, mut found) = (BTreeSet::new(), Vec::new());
        for start in self.files.keys() {
            let Some(circle) = circle(start, &arrows).filter(|_| !told.contains(start)) else {
                continue;
            };
            told.extend(circle.iter().copied());
            let files = circle.iter().chain([&start]);
            found.push(files.map(|module| self.files[*module].path.clone()).collect());
        }
        found
    }
}

/// The shortest way from `start` back to it, without its end.
fn circle<'a>(
    start: &'a Module,
    arrows: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> Option<Vec<&'a Module>> {
    let mut came_from: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(module) = next.pop_front() {
        for used in &arrows[module] {
            if *used == start {
                let before = |it: &&'a Module| came_from.get(*it).copied();
                let mut way: Vec<_> = std::iter::successors(Some(module), before).collect();
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(used) {
                came_from.insert(used, module);
                next.push_back(used);
            }
        }
    }
    None
}

/// The module of a file; `None` if the file is a separate program.
fn module_of(path: &str) -> Option<Module> {
    let (_, path) = path.split_once("/src/")?;
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" => Some(Module::new()),
        "main" => None,
        _ if path.starts_with("bin/") => None,
        _ => Some(path.split('/').map(str::to_owned).collect()),
    }
}

/// The code of a file, with what is compiled only for tests blanked.
fn without_tests(source: &Source, test_only: &BTreeSet<String>) -> String {
    let mut code = source.code.clone();
    // The library of the black-box tests is treated as any other.
    let ranges = match source.path.starts_with("tests/src/") {
        true => source.test_ranges(),
        false => escapes::test_ranges(source, test_only),
    };
    for range in ranges {
        code.replace_range(range.clone(), &" ".repeat(range.len()));
    }
    code
}

/// Paths of `use` items, one for each name, and whether they are re-exported; and paths that begin with
/// `crate` elsewhere in the code.
fn imports(code: &str) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    for item in code.split(';').filter_map(use_item) {
        let (item, is_exported) = item;
        expand(item, &mut Vec::new(), &mut |path| found.push((path, is_exported)));
    }
    for (at, _) in code.match_indices("crate::") {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let rest = &code[at..];
        let path = &rest[..rest.find(|c| !is_path(c)).unwrap_or(rest.len())];
        found.push((path.split("::").map(str::to_owned).collect(), false));
    }
    found
}

/// The tree of a `use` item at the end of `code`, and whether it has a visibility.
fn use_item(code: &str) -> Option<(&str, bool)> {
    let at = code.rfind("use ")?;
    let before = code[..at].trim_end();
    let is_item =
        before.is_empty() || before.ends_with(['}', ']', '{', ')']) || { before.ends_with("pub") };
    let is_exported = before.ends_with("pub") || before.ends_with(')');
    is_item.then_some((code[at + 4..].trim(), is_exported))
}

/// Calls `each` with every path of a tree such as `a::{b, c::{d, e as f}}`.
fn expand(tree: &str, before: &mut Vec<String>, each: &mut impl FnMut(Vec<String>)) {
    let tree = tree.trim();
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        let names = path.split("::").map(|name| name.trim().to_owned()).filter(|it| it != "self");
        return each(before.iter().cloned().chain(names).collect());
    };
    let depth = before.len();
    let names = head.split("::").map(str::trim).filter(|name| !name.is_empty());
    before.extend(names.map(str::to_owned));
    for part in parts(group.strip_suffix('}').unwrap_or(group)) {
        expand(part, before, each);
    }
    before.truncate(depth);
}

/// Splits at commas outside of braces.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// A path from the crate's root; `None` if it leads into another crate.
fn from_root(path: &[String], module: &Module, known: &BTreeSet<Module>) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut base = module.clone();
    match first.as_str() {
        "crate" => return Some(rest.to_vec()),
        "self" => {}
        "super" => {
            base.pop();
            if rest.first().is_some_and(|next| next == "super") {
                return from_root(rest, &base, known);
            }
        }
        _ => {
            base.push(first.clone());
            if !known.contains(&base) {
                return None;
            }
        }
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files.iter().map(|(path, text)| Source::new(format!("c/src/{path}"), *text));
        let sources: Vec<Source> = sources.collect();
        let test_only = escapes::test_only_files(&sources);
        check(&sources, &test_only).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn folders_that_are_layers_import_downwards() {
        let order = ["low", "high"];
        let upward = |text: &str, path: &str| {
            let files = [("lib.rs", ""), ("low/a.rs", ""), ("high/b.rs", ""), (path, text)];
            let sources = files.map(|(path, text)| Source::new(format!("c/src/{path}"), text));
            let sources: Vec<&Source> = sources.iter().collect();
            Crate::read(&sources, &BTreeSet::new()).upward(&order)
        };
        assert!(upward("use crate::low::a::A;", "high/c.rs").is_empty());
        assert!(upward("use crate::high::b::B;", "high/c.rs").is_empty());
        assert!(upward("use crate::high::b::B;", "beside.rs").is_empty());
        let found = upward("use crate::high::b::B;", "low/c.rs");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "uses c/src/high/b.rs, which is above it: low < high");
    }

    #[test]
    fn two_files_that_need_each_other_are_a_circle() {
        let what = found(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "fn f() { crate::a::g(); }\n"),
        ]);
        let circle = "c/src/a.rs -> c/src/b.rs -> c/src/a.rs";
        assert_eq!(what, [format!("files import each other: {circle}; break the circle")]);
    }

    #[test]
    fn names_are_followed_to_where_they_are_defined() {
        let what = found(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a/mod.rs", "mod x;\nmod y;\npub(crate) use x::{X, Z};\n"),
            ("a/x.rs", "use crate::b::{self, B};\n"),
            ("a/y.rs", ""),
            ("b.rs", "use crate::a::X;\n"),
        ]);
        assert!(what.len() == 1 && what[0].contains("c/src/a/x.rs -> c/src/b.rs"), "{what:?}");
        let what = found(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a/mod.rs", "mod x;\nmod y;\npub use y::Y;\n"),
            ("a/x.rs", "use crate::b::B;\n"),
            ("a/y.rs", ""),
            ("b.rs", "use crate::a::Y;\n"),
        ]);
        assert_eq!(what, Vec::<String>::new());
    }

    #[test]
    fn parents_children_and_tests_do_not_count() {
        let what = found(&[
            ("lib.rs", "mod a;\nmod b;\nuse a::A;\n"),
            (
                "a.rs",
                "mod x;\nuse x::X;\npub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n",
            ),
            ("a/x.rs", "use super::A;\nuse std::fmt;\n"),
            ("b.rs", "use crate::a::A;\n"),
        ]);
        assert_eq!(what, Vec::<String>::new());
    }

    #[test]
    fn siblings_count() {
        let what = found(&[
            ("lib.rs", "mod a;\n"),
            ("a/mod.rs", "mod x;\nmod y;\n"),
            ("a/x.rs", "use super::y::{Y, other::Z};\n"),
            ("a/y.rs", "use super::super::a::x::X;\n"),
        ]);
        assert_eq!(what.len(), 1, "{what:?}");
    }
}
