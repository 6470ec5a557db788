//! Parses case tables: columns, escapes, repetition.

use std::collections::HashSet;

/// A line of a table.
pub(crate) struct Case {
    pub(crate) name: String,
    /// Columns after the name, with escapes resolved.
    pub(crate) columns: Vec<Vec<u8>>,
}

impl Case {
    pub(crate) fn text(&self, column: usize) -> String {
        String::from_utf8_lossy(&self.columns[column]).into_owned()
    }
}

/// Runs `verdict_of` on every case of a table and compares with its first column; returns the
/// number of cases.
pub(crate) fn check(
    table_name: &str,
    table: &str,
    columns: usize,
    verdict_of: impl Fn(&Case) -> Vec<u8>,
) {
    let cases = parse(table, columns);
    let mut wrong = Vec::new();
    for case in &cases {
        let verdict = verdict_of(case);
        if verdict != case.columns[0] {
            let (want, got) = (case.columns[0].escape_ascii(), verdict.escape_ascii());
            wrong.push(format!("{}:\n  want {want:.200}\n  got  {got:.200}", case.name));
        }
    }
    println!("{table_name}: {} cases", cases.len());
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// The cases of a table; names are unique.
pub(crate) fn parse(table: &str, columns: usize) -> Vec<Case> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let cases: Vec<Case> = lines.map(|line| parse_line(line, columns)).collect();
    let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "a name stands twice");
    cases
}

fn parse_line(line: &str, columns: usize) -> Case {
    // An editor may have removed the space after the last bar.
    let line = if line.ends_with(" |") { format!("{line} ") } else { line.to_owned() };
    let mut parts = line.splitn(columns + 1, " | ");
    let name = parts.next().unwrap().to_owned();
    let columns: Vec<Vec<u8>> = parts.map(|text| Unescape(text.as_bytes()).run()).collect();
    Case { name, columns }
}

/// Resolves escapes such as `\r` and `\xHH`, and `{N*text}`.
struct Unescape<'a>(&'a [u8]);

impl Unescape<'_> {
    fn run(mut self) -> Vec<u8> {
        self.until_close(false)
    }

    fn until_close(&mut self, nested: bool) -> Vec<u8> {
        let mut out = Vec::new();
        while let [byte, rest @ ..] = self.0 {
            match byte {
                b'\\' => out.push(self.escape()),
                b'}' if nested => {
                    self.0 = rest;
                    break;
                }
                b'{' => match self.repeat_count() {
                    Some(count) => {
                        let once = self.until_close(true);
                        out.extend(once.repeat(count));
                    }
                    None => {
                        out.push(b'{');
                        self.0 = rest;
                    }
                },
                byte => {
                    out.push(*byte);
                    self.0 = rest;
                }
            }
        }
        out
    }

    /// Parses and skips `{N*`.
    fn repeat_count(&mut self) -> Option<usize> {
        let star = self.0.iter().position(|b| *b == b'*')?;
        let count = std::str::from_utf8(&self.0[1..star]).ok()?.parse().ok()?;
        self.0 = &self.0[star + 1..];
        Some(count)
    }

    fn escape(&mut self) -> u8 {
        let (byte, len) = match self.0[1] {
            b'r' => (b'\r', 2),
            b'n' => (b'\n', 2),
            b't' => (b'\t', 2),
            b'0' => (0, 2),
            b'\\' => (b'\\', 2),
            b'x' => {
                let hex = std::str::from_utf8(&self.0[2..4]).unwrap();
                (u8::from_str_radix(hex, 16).unwrap(), 4)
            }
            other => panic!("unknown escape \\{}", char::from(other)),
        };
        self.0 = &self.0[len..];
        byte
    }
}

#[test]
fn escapes_are_resolved() {
    let text = |t: &str| Unescape(t.as_bytes()).run();
    assert_eq!(text(r"a\r\n\t\0\\\x7f"), b"a\r\n\t\0\\\x7f");
    assert_eq!(text("{3*ab}{x}{2*c{2*d}}"), b"ababab{x}cddcdd");
}
