//! Known bugs, put back into a copy of the codec: the fuzzer must find each of them.
//!
//! The copy is the tree as it is committed and changed, in a folder of its own, built
//! once: each bug is behind a switch that the environment sets, so the tree itself
//! has no trace of them. A bug whose place has changed is an error here, and not one
//! that is silently left out.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::drive;
use crate::run::Run;

/// A bug: what it is, the file, what stands there, and what is put there.
struct Mutant {
    what: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// Of the copy: which bug is in.
const SWITCH_MODULE: &str = "//! Which bug is in.\n\n\
    pub(crate) fn is(number: u32) -> bool {\n    \
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();\n    \
    *ON.get_or_init(|| std::env::var(\"SKEP_MUTANT\").ok().and_then(|it| it.parse().ok()).unwrap_or(0)) == number\n}\n";

const CODEC: &str = "crates/core/http/src";

/// In `to`, `@` asks whether the bug is in.
const MUTANTS: &[Mutant] = &[
    Mutant {
        what: "Content-Length beside Transfer-Encoding: the length counts (CL.TE)",
        file: "framing.rs",
        from: "(Some(_), Some(_)) => Err(Reject::LENGTH_AND_CODING),",
        to: "(Some(digits), Some(_)) if @ => parse_length(digits).map(Announced::Length).ok_or(Reject::LENGTH_INVALID),\n        \
             (Some(_), Some(_)) => Err(Reject::LENGTH_AND_CODING),",
    },
    Mutant {
        what: "two lengths: the first counts",
        file: "framing.rs",
        from: "if fields.is_repeated(Known::ContentLength) =>",
        to: "if !@ && fields.is_repeated(Known::ContentLength) =>",
    },
    Mutant {
        what: "a length may have a sign",
        file: "framing.rs",
        from: "    digits.iter().try_fold(0u64, |number, digit| {",
        to: "    let digits = digits.strip_prefix(b\"+\").filter(|it| @ && !it.is_empty()).unwrap_or(digits);\n    \
             digits.iter().try_fold(0u64, |number, digit| {",
    },
    Mutant {
        what: "HTTP/1.0 may have chunks",
        file: "framing.rs",
        from: "if version == Version::Http10 {\n        return Err(Reject::CODING_IN_HTTP10);",
        to: "if !@ && version == Version::Http10 {\n        return Err(Reject::CODING_IN_HTTP10);",
    },
    Mutant {
        what: "HTTP/1.0 keeps its connection without having asked",
        file: "framing.rs",
        from: "!self.close && (version == Version::Http11 || self.keep_alive)",
        to: "!self.close && (@ || version == Version::Http11 || self.keep_alive)",
    },
    Mutant {
        what: "the size of a chunk overflows",
        file: "chunked.rs",
        from: "if self.size_digits == SIZE_DIGITS_MAX {",
        to: "if !@ && self.size_digits == SIZE_DIGITS_MAX {",
    },
    Mutant {
        what: "two bytes behind a chunk are skipped, whatever they are",
        file: "chunked.rs",
        from: "ChunkState::PayloadCr if byte == b'\\r' => ChunkState::PayloadLf,\n            \
               ChunkState::PayloadLf if byte == b'\\n' => self.next_line(),",
        to: "ChunkState::PayloadCr if byte == b'\\r' || @ => ChunkState::PayloadLf,\n            \
             ChunkState::PayloadLf if byte == b'\\n' || @ => self.next_line(),",
    },
    Mutant {
        what: "the last chunk ends the body, without the empty line",
        file: "chunked.rs",
        from: "(b'\\n', true) => Ok(ChunkState::TrailerStart),",
        to: "(b'\\n', true) => Ok(if @ { ChunkState::End } else { ChunkState::TrailerStart }),",
    },
    Mutant {
        what: "a body by length ends a byte early",
        file: "body.rs",
        from: "ResponseFraming::Length(bytes) => DecoderState::Length(bytes),",
        to: "ResponseFraming::Length(bytes) => DecoderState::Length(if @ && bytes > 1 { bytes - 1 } else { bytes }),",
    },
    Mutant {
        what: "GET has no body",
        file: "request.rs",
        from: "let framing = body_framing(&fields, version)?;",
        to: "let framing = match body_framing(&fields, version)? {\n        \
             _ if @ && method == Method::Get => BodyFraming::None,\n        framing => framing,\n    };",
    },
    Mutant {
        what: "of two fields Host the first counts",
        file: "request.rs",
        from: "if fields.is_repeated(Known::Host) {",
        to: "if !@ && fields.is_repeated(Known::Host) {",
    },
    Mutant {
        what: "an empty query is lost on the way",
        file: "forward.rs",
        from: "(None, Some(query)) => {",
        to: "(None, Some(query)) if @ && query.is_empty() => out.extend_from_slice(head.path),\n        \
             (None, Some(query)) => {",
    },
    Mutant {
        what: "a reply to HEAD has the body that its length announces",
        file: "response.rs",
        from: "_ if request_method == Method::Head =>",
        to: "_ if !@ && request_method == Method::Head =>",
    },
    Mutant {
        what: "a 304 has the body that its length announces",
        file: "response.rs",
        from: "(304, _) => Ok(ResponseFraming::None),",
        to: "(304, _) if !@ => Ok(ResponseFraming::None),",
    },
];

/// Puts each bug in and looks as long as `run` says; whether all were found.
pub(crate) fn find_all(run: &Run) -> io::Result<bool> {
    let copy = copy()?;
    let target = copy.join("target");
    let status = Command::new("cargo")
        .args(["build", "--package", "skep", "--bin", "skep"])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(&copy)
        .status()?;
    if !status.success() {
        return Err(io::Error::other("the copy with the bugs does not build"));
    }
    let skep = target.join("debug/skep");
    let mut missed = 0;
    for number in 0..=MUTANTS.len() {
        let began = Instant::now();
        let run = Run { skep: skep.clone(), mutant: number, findings_max: 1, ..run.clone() };
        let report = drive::look(&run)?;
        let Some(mutant) = number.checked_sub(1).map(|at| &MUTANTS[at]) else {
            // Without a bug there is none to be found.
            if report.has_findings() {
                report.print();
                return Ok(false);
            }
            continue;
        };
        let found = if report.has_findings() { "found" } else { "NOT FOUND" };
        missed += usize::from(!report.has_findings());
        let seconds = began.elapsed().as_secs_f32();
        println!(
            "{found} in {seconds:.1} s, {} cases: {} ({})",
            report.cases(),
            mutant.what,
            report.kinds()
        );
    }
    println!("{} of {} known bugs found", MUTANTS.len() - missed, MUTANTS.len());
    Ok(missed == 0)
}

/// The tree, with all bugs behind their switches.
fn copy() -> io::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let copy = std::env::temp_dir().join("skep-differential-mutants");
    let mut bent = bent(&root)?;
    let listed = Command::new("git")
        .arg("-C")
        .arg(&root)
        .args(["ls-files", "-z", "-co", "--exclude-standard"])
        .output()?;
    for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name).into_owned();
        let (from, to) = (root.join(&name), copy.join(&name));
        if !from.is_file() {
            continue;
        }
        let bytes = match bent.remove(&name) {
            Some(text) => text.into_bytes(),
            None => fs::read(&from)?,
        };
        put(&to, &bytes)?;
    }
    put(&copy.join(CODEC).join("mutant.rs"), SWITCH_MODULE.as_bytes())?;
    Ok(copy)
}

/// Writes a file. What did not change keeps its time, and is not built anew.
fn put(to: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(to).ok().as_deref() == Some(bytes) {
        return Ok(());
    }
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(to, bytes)
}

/// The files of the codec that have bugs in the copy, by name.
fn bent(root: &Path) -> io::Result<BTreeMap<String, String>> {
    let library = format!("{CODEC}/lib.rs");
    let text = fs::read_to_string(root.join(&library))? + "\nmod mutant;\n";
    let mut bent = BTreeMap::from([(library, text)]);
    for (at, mutant) in MUTANTS.iter().enumerate() {
        let name = format!("{CODEC}/{}", mutant.file);
        let text = match bent.remove(&name) {
            Some(text) => text,
            None => fs::read_to_string(root.join(&name))?,
        };
        if text.matches(mutant.from).count() != 1 {
            let what = format!("{name}: the place for {:?} has changed", mutant.what);
            return Err(io::Error::other(what));
        }
        let to = mutant.to.replace('@', &format!("crate::mutant::is({})", at + 1));
        bent.insert(name, text.replace(mutant.from, &to));
    }
    Ok(bent)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The long form alone would find out, a day later.
    #[test]
    fn the_place_of_every_known_bug_is_there() {
        bent(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    }
}
