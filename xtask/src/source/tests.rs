//! Tests of the lexer, and of what is derived from its result.

use super::*;

fn source(text: &str) -> Source {
    Source::new("crates/x/src/lib.rs", text)
}

#[test]
fn comments_and_literals_hide_their_brackets() {
    for (text, code) in [
        ("a // {\nb", "a     \nb"),
        ("/* { /* { */ } */x", "                 x"),
        (r#"f("{\"{", 1)"#, r#"f("    ", 1)"#),
        (r##"r#"{"}"# + r"{\""##, r##"r#"   "# + r"  ""##),
        (r#"br"{" b"{""#, r#"br" " b" ""#),
        ("'{' '\\'' '\\u{7d}' 'é' <'a>", "' ' '  ' '      ' '  ' <'a>"),
        ("for r in x {}", "for r in x {}"),
        ("\"{\n}\"", "\" \n \""),
    ] {
        assert_eq!(source(text).code, code, "{text}");
    }
}

#[test]
fn unfinished_literals_end_with_the_file() {
    for text in ["\"abc", "r#\"abc", "/* abc", "'\\", "'", "\"\\"] {
        assert_eq!(source(text).code.len(), text.len(), "{text}");
    }
}

#[test]
fn lengths_and_line_breaks_stay() {
    let text = include_str!("tests.rs");
    let source = source(text);
    assert_eq!(source.code.len(), text.len());
    assert_eq!(source.code.lines().count(), text.lines().count());
}

#[test]
fn find_takes_whole_words_only() {
    let source = source("unsafe_code unsafe my_unsafe std::thread std::threads \"unsafe\"");
    assert_eq!(source.find("unsafe"), [12]);
    assert_eq!(source.find("std::thread"), [29]);
    assert_eq!(source.find("std::"), [29, 41]);
}

#[test]
fn functions_are_counted_from_fn_to_brace() {
    let source = source(
        "trait T { fn declared(&self) -> [u8; 2]; }\n\
         /// Doc\n#[inline]\npub fn one<A, B>(f: fn(u8) -> A) -> B where A: X {\n\n}\n\
         proptest! { #[test] fn two(x in 0..3u8) { assert(x); } }",
    );
    let found: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(found, [("one".to_owned(), 4, 3), ("two".to_owned(), 7, 1)]);
}

#[test]
fn test_only_items_are_known() {
    for (text, test_only) in [
        ("#[cfg(test)] mod tests { X }", true),
        ("#[cfg(all(test, unix))] fn f<A, B>() { X }", true),
        ("#[test] fn f() { X }", true),
        ("#[tokio::test] async fn f() { X }", true),
        ("#![cfg(test)] fn f() { X }", true),
        ("mod m { #![cfg(test)] fn f() { X } }", true),
        ("#[cfg(not(test))] fn f() { X }", false),
        ("#[cfg(test)] mod tests; fn f() { X }", false),
        ("#[cfg(test)] mod tests {} fn f() { X }", false),
        ("#[cfg(feature = \"test\")] fn f() { X }", false),
        ("#[derive(Debug)] struct X;", false),
    ] {
        let source = source(text);
        let at = source.find("X")[0];
        let inside = source.test_ranges().iter().any(|range| range.contains(&at));
        assert_eq!(inside, test_only, "{text}");
    }
}

#[test]
fn attributes_govern_the_statement_behind_them() {
    for (text, inside) in [
        ("#[a] let x = match y { _ => 1 }.X;", true),
        ("#[a] let y = 1; X", false),
        ("#[a] #[b(c)] let y = [1, 2].X;", true),
        ("#[a] match y { _ => 1 }.X", true),
        ("#[a] match y { _ => X }", true),
        ("#[a] match y { _ => 1 } X", false),
        ("f(#[a] 1, X)", false),
        ("S { #[a] f: y.X, g: 1 }", true),
        ("#[a] impl<A, B> T for S { fn f() { X } }", true),
        ("#[a] const fn f() {} X", false),
        ("#[a] const C: [u8; 2] = { X };", true),
    ] {
        let source = source(text);
        let range = source.governed_by(&source.attributes()[0]);
        assert_eq!(range.contains(&source.find("X")[0]), inside, "{text}");
    }
}

#[test]
fn tables_mark_themselves_in_the_module_doc() {
    assert!(source("//! Cases.\n//!\n//! tidy: table\n\nfn x() {}").is_table());
    assert!(!source("//! Cases.\n\n// tidy: table\n").is_table());
}
