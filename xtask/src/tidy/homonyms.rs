//! A public type name is defined by one crate only, a private type of a crate has no name that a crate it
//! uses has made public, and no two files of a crate define types with the same name; exceptions are listed
//! with a reason.
//!
//! `Plan` can be the plan of anything, `NetguardPlan` cannot. `ALLOWED` lists the names that two crates or
//! files define for the same thing, with the reason.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::manifest::{Dependency, Manifest};
use super::{Finding, escapes};
use crate::repo::Page;
use crate::source::Source;

const PATH: &str = "xtask/src/tidy/homonyms.rs";

/// Not checked: no crate imports the fuzz targets and the tests of the packet programs.
const BUT_BELOW: &[&str] = &["fuzz/", "bpf/tests/"];

/// Where two files of a crate must not define types with the same name: tools and tests are read in
/// isolation.
const OWN: &str = "crates/";

const ITEMS: &[&str] = &["struct", "enum", "trait", "type", "union"];

/// Names that two crates or files define, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("Count", "of packets, and its layout in a map of the packet programs"),
    ("Flow", "wire type, and its layout in a map of the packet programs"),
    ("NodeReport", "value of the dispatcher, and its API schema: roles do not import roles"),
    ("Row", "wire type, and its layout in a map of the packet programs"),
    ("ServiceStatus", "value of the dispatcher, and its API schema"),
    ("Steerer", "wire type of an order, and its mirror in the model of the packet programs"),
];

/// Types by name and crate: the file and line that define each.
#[derive(Default)]
struct Types {
    public: BTreeMap<String, BTreeMap<String, (String, usize)>>,
    /// Types with `pub(crate)` and the like.
    restricted: BTreeMap<(String, String), (String, usize)>,
}

/// By crate and name: the files that define such a type, with the line.
type OwnTypes = BTreeMap<(String, String), BTreeMap<String, usize>>;

/// The crates that each crate uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// A name that is defined twice.
struct Homonym<'t> {
    name: &'t str,
    finding: Finding,
}

/// Finds types of two crates or files with the same name without a reason, and reasons for names that need
/// none.
pub(crate) fn check(
    sources: &[Source],
    manifests: &[Page],
    test_only: &BTreeSet<String>,
) -> Result<Vec<Finding>> {
    Ok(check_but(ALLOWED, sources, &uses(manifests)?, test_only))
}

fn check_but(
    allowed: &[(&str, &str)],
    sources: &[Source],
    uses: &Uses,
    test_only: &BTreeSet<String>,
) -> Vec<Finding> {
    let types = types(sources, test_only);
    let mut homonyms = public_homonyms(&types);
    homonyms.extend(restricted_homonyms(&types, uses));
    let own = own_types(sources, test_only);
    homonyms.extend(own_homonyms(&own));
    let needs_reason = |name: &str| homonyms.iter().any(|it| it.name == name);
    let stale = allowed.iter().filter(|(name, _)| !needs_reason(name)).map(|(name, _)| {
        let what = format!("`{name}` needs no reason: remove it from the table");
        Finding::new(PATH, line_of_entry(sources, name), "homonym", what)
    });
    let mut findings: Vec<_> = stale.collect();
    let is_allowed = |name: &str| allowed.iter().any(|(it, _)| *it == name);
    let wrong = homonyms.into_iter().filter(|it| !is_allowed(it.name));
    findings.extend(wrong.map(|it| it.finding));
    findings
}

/// Public types that another crate also defines.
fn public_homonyms(types: &Types) -> Vec<Homonym<'_>> {
    let mut homonyms = Vec::new();
    for (name, crates) in types.public.iter().filter(|(_, crates)| crates.len() > 1) {
        for (here, place) in crates {
            let others: Vec<_> =
                crates.keys().filter(|it| *it != here).map(String::as_str).collect();
            let whose = format!("a public type of {}, too", others.join(" and "));
            homonyms.push(Homonym::new(name, place, &whose));
        }
    }
    homonyms
}

/// Private types of a crate with the name of a public type of a crate that it uses.
fn restricted_homonyms<'t>(types: &'t Types, uses: &Uses) -> Vec<Homonym<'t>> {
    let mut homonyms = Vec::new();
    for ((here, name), place) in &types.restricted {
        let used = uses.get(here).into_iter().flatten();
        let defines = |it: &&String| types.public.get(name).is_some_and(|at| at.contains_key(*it));
        if let Some(other) = used.into_iter().find(defines) {
            let whose = format!("a public type of {other}, which is used here");
            homonyms.push(Homonym::new(name, place, &whose));
        }
    }
    homonyms
}

/// Types of two files of a crate with the same name.
fn own_homonyms(own: &OwnTypes) -> Vec<Homonym<'_>> {
    let mut homonyms = Vec::new();
    for ((_, name), places) in own.iter().filter(|(_, places)| places.len() > 1) {
        for (path, line) in places {
            let others: Vec<_> =
                places.keys().filter(|it| *it != path).map(String::as_str).collect();
            let whose = format!("a type of {}, too", others.join(" and "));
            homonyms.push(Homonym::new(name, &(path.clone(), *line), &whose));
        }
    }
    homonyms
}

impl<'t> Homonym<'t> {
    fn new(name: &'t str, (path, line): &(String, usize), whose: &str) -> Self {
        let what = format!(
            "`{name}` is {whose}: name one of them by what it is, or give a reason in {PATH}"
        );
        Self { name, finding: Finding::new(path, *line, "homonym", what) }
    }
}

/// The workspace crates that each crate uses, except in tests.
fn uses(manifests: &[Page]) -> Result<Uses> {
    let parsed = manifests.iter().filter_map(|page| Manifest::parse(page).transpose());
    let parsed = parsed.collect::<Result<Vec<_>>>()?;
    let folder_of = |it: &Dependency| {
        let theirs = parsed.iter().find(|manifest| manifest.name == it.name);
        theirs.map(|manifest| manifest.folder.clone())
    };
    let used = |it: &Manifest| {
        it.dependencies.iter().filter(|it| !it.is_for_tests).filter_map(folder_of).collect()
    };
    Ok(parsed.iter().map(|it| (it.folder.clone(), used(it))).collect())
}

/// Types of all crates: those defined with `pub` or `pub(…)`, and those that a macro defines and the crate
/// exports with `pub use`.
fn types(sources: &[Source], test_only: &BTreeSet<String>) -> Types {
    let mut types = Types::default();
    let mut made = Vec::new();
    let mut passed_on = BTreeSet::new();
    for source in sources {
        let Some(crate_name) = crate_of(&source.path) else { continue };
        // The library of the black-box tests is used together with `lab`, so it is included.
        let in_tests = match crate_name {
            "tests" => source.test_ranges(),
            _ => escapes::test_ranges(source, test_only),
        };
        for at in source.find("pub") {
            if in_tests.iter().any(|range| range.contains(&at)) {
                continue;
            }
            let behind = &source.code[at + "pub".len()..];
            let place = (source.path.clone(), source.line_of(at));
            if let Some(name) = defined(behind) {
                let crates = types.public.entry(name.to_owned()).or_default();
                crates.entry(crate_name.to_owned()).or_insert(place);
            } else if let Some(name) = defined_inside(behind) {
                let key = (crate_name.to_owned(), name.to_owned());
                types.restricted.entry(key).or_insert(place);
            } else if let Some((first, exported)) = exported(behind) {
                let is_own =
                    ["crate", "self", "super"].contains(&first) || has_module(source, first);
                for name in exported {
                    if is_own {
                        made.push((name, crate_name, place.clone()));
                    } else {
                        passed_on.insert((name, crate_name));
                    }
                }
            }
        }
    }
    for (name, crate_name, place) in made {
        if !passed_on.contains(&(name, crate_name)) {
            let crates = types.public.entry(name.to_owned()).or_default();
            crates.entry(crate_name.to_owned()).or_insert(place);
        }
    }
    types
}

/// Types that files of our crates define outside of all braces, except in tests.
fn own_types(sources: &[Source], test_only: &BTreeSet<String>) -> OwnTypes {
    let mut own = OwnTypes::new();
    for source in sources.iter().filter(|source| source.path.starts_with(OWN)) {
        let Some(crate_name) = crate_of(&source.path) else { continue };
        let in_tests = escapes::test_ranges(source, test_only);
        let lines = std::iter::once(0).chain(source.code.match_indices('\n').map(|(at, _)| at + 1));
        for at in lines.filter(|at| !in_tests.iter().any(|range| range.contains(at))) {
            if let Some(name) = defined_at_margin(&source.code[at..]) {
                let files = own.entry((crate_name.to_owned(), name.to_owned())).or_default();
                files.entry(source.path.clone()).or_insert_with(|| source.line_of(at));
            }
        }
    }
    own
}

/// The folder of the crate to which a file in `src/` belongs.
fn crate_of(path: &str) -> Option<&str> {
    let is_looked_at = !BUT_BELOW.iter().any(|folder| path.starts_with(folder));
    path.split_once("/src/").map(|(folder, _)| folder).filter(|_| is_looked_at)
}

/// The type defined by the code after a `pub`.
fn defined(behind: &str) -> Option<&str> {
    let mut words = words(behind.strip_prefix(char::is_whitespace)?);
    let item = words.find(|word| !["unsafe", "auto"].contains(word))?;
    words.next().filter(|_| ITEMS.contains(&item))
}

/// The type defined by a line without indentation, with any visibility.
fn defined_at_margin(line: &str) -> Option<&str> {
    let (first, behind) = line.split_at(line.find(|c: char| !c.is_alphanumeric() && c != '_')?);
    match first {
        "pub" => defined(behind).or_else(|| defined_inside(behind)),
        "unsafe" => defined(behind),
        first => words(behind).next().filter(|_| ITEMS.contains(&first)),
    }
}

/// The type defined by the code after the `pub` of a `pub(…)`.
fn defined_inside(behind: &str) -> Option<&str> {
    defined(behind.strip_prefix('(')?.split_once(')')?.1)
}

/// The first path segment of a `use` after a `pub`, and the types that it names.
fn exported(behind: &str) -> Option<(&str, Vec<&str>)> {
    let path = behind.trim_start().strip_prefix("use ")?;
    let path = path.split(';').next()?.trim_start().trim_start_matches("::");
    let is_type =
        |name: &&str| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
    // The last name of `a::B as C` counts, as in `a::B::C`; groups end at `,` and braces.
    let last = |part| words(part).last().filter(is_type);
    Some((words(path).next()?, path.split([',', '{', '}']).filter_map(last).collect()))
}

/// Whether a file has a module with this name.
fn has_module(source: &Source, name: &str) -> bool {
    source.find("mod").into_iter().any(|at| words(&source.code[at..]).nth(1) == Some(name))
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The line of the entry for a name in `ALLOWED`.
fn line_of_entry(sources: &[Source], name: &str) -> usize {
    let entry = format!("(\"{name}\",");
    let table = sources.iter().find(|source| source.path == PATH);
    table.and_then(|it| it.text.find(&entry).map(|at| it.line_of(at))).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "crates/core/one/src/lib.rs";
    const TWO: &str = "crates/role/two/src/lib.rs";

    fn found(allowed: &[(&str, &str)], files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(path, text)| Source::new(*path, *text)).collect();
        let test_only = escapes::test_only_files(&sources);
        let used = BTreeMap::from([("crates/role/two".into(), ["crates/core/one".into()].into())]);
        let findings = check_but(allowed, &sources, &used, &test_only);
        findings.into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_public_name_of_two_crates_is_found_in_both() {
        for (one, two) in [
            ("pub struct Plan;", "\npub enum Plan {}"),
            ("pub trait Plan {}", "\npub type Plan = u8;"),
            ("pub unsafe trait Plan {}", "\npub union Plan { a: u8 }"),
            ("mod plan;\npub use plan::{Other, Plan};", "\npub struct Plan;"),
            ("mod plan;\npub use plan::Old as Plan;", "\npub struct Plan;"),
        ] {
            let findings = found(&[], &[(ONE, one), (TWO, two)]);
            assert_eq!(findings.len(), 2, "{one} {findings:?}");
            assert!(findings[0].starts_with(ONE) && findings[0].contains("crates/role/two, too"));
            assert!(findings[1].starts_with(&format!("{TWO}:2: homonym: `Plan`")));
        }
    }

    #[test]
    fn private_types_tests_and_words_of_others_do_not_count() {
        let public = "pub struct Plan;";
        for (path, text) in [
            (TWO, "struct Plan;"),
            (TWO, "pub(crate) struct Planner;"),
            (TWO, "pub(crate) fn plan() -> Plan {}"),
            ("crates/role/three/src/lib.rs", "pub(crate) struct Plan;"),
            (TWO, "pub fn plan() -> Plan {}"),
            (TWO, "pub struct Planner; // pub struct Plan;"),
            (TWO, "const X: &str = \"pub struct Plan;\";"),
            (TWO, "use skep_one::Plan;"),
            (TWO, "pub use skep_one::Plan;"),
            (TWO, "mod a { pub use skep_one::Plan; }\npub use a::Plan;"),
            (TWO, "mod plan;\npub use plan::{PLAN, plan};"),
            (TWO, "#[cfg(test)] mod tests { pub struct Plan; }"),
            ("crates/role/two/tests/two/main.rs", public),
            ("fuzz/src/lib.rs", public),
        ] {
            assert!(found(&[], &[(ONE, public), (path, text)]).is_empty(), "{path} {text}");
        }
    }

    #[test]
    fn a_crate_does_not_name_a_type_of_its_own_like_one_that_it_uses() {
        for two in [
            "pub(crate) struct Plan;",
            "pub(super) enum Plan {}",
            "pub(in crate::a) type Plan = u8;",
        ] {
            let findings = found(&[], &[(ONE, "pub struct Plan;"), (TWO, two)]);
            assert_eq!(findings.len(), 1, "{two} {findings:?}");
            assert!(findings[0].starts_with(&format!("{TWO}:1: homonym: `Plan`")), "{findings:?}");
            assert!(found(&[], &[(ONE, two), (TWO, "pub struct Plan;")]).is_empty(), "{two}");
        }
    }

    #[test]
    fn two_files_of_a_crate_do_not_name_types_alike() {
        let (other, tool) = ("crates/core/one/src/plan.rs", "bench/src/a.rs");
        for two in
            ["struct Plan {}", "pub enum Plan {}", "pub(super) struct Plan;", "type Plan = u8;"]
        {
            let findings = found(&[], &[(ONE, "pub struct Plan;"), (other, two)]);
            assert_eq!(findings.len(), 2, "{two} {findings:?}");
            assert!(findings[0].starts_with(ONE) && findings[0].contains(other), "{findings:?}");
            let reason = [("Plan", "a mirror")];
            assert!(found(&reason, &[(ONE, "pub struct Plan;"), (other, two)]).is_empty(), "{two}");
            let alone: [&[_]; 3] = [
                &[(ONE, "#[cfg(test)]\nmod tests {\nstruct Plan;\n}"), (other, two)],
                &[(ONE, "impl A for B {\n    type Plan = u8;\n}"), (other, two)],
                &[("bench/src/b.rs", "struct Plan;"), (tool, two)],
            ];
            for files in alone {
                assert!(found(&[], files).is_empty(), "{files:?}");
            }
        }
    }

    #[test]
    fn the_library_of_the_black_box_tests_counts_and_its_tests_do_not() {
        let public = "pub struct Plan;";
        assert_eq!(
            found(&[], &[("lab/src/lib.rs", public), ("tests/src/lib.rs", public)]).len(),
            2
        );
        assert!(found(&[], &[(ONE, public), ("tests/tests/http/main.rs", public)]).is_empty());
    }

    #[test]
    fn a_reason_excuses_a_name_as_long_as_two_crates_have_it() {
        let (public, allowed) = ("pub struct Plan;", [("Plan", "a mirror")]);
        assert!(found(&allowed, &[(ONE, public), (TWO, public)]).is_empty());
        let table = "\n    (\"Plan\", \"a mirror\"),\n";
        let stale = found(&allowed, &[(ONE, public), (PATH, table)]);
        assert_eq!(stale.len(), 1, "{stale:?}");
        assert!(stale[0].starts_with(&format!("{PATH}:2: homonym: `Plan` needs no reason")));
    }
}
