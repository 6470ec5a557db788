//! Known bugs, put back into a copy of the codec: the fuzzer must find each of them.

use std::io;
use std::process::Command;
use std::time::Instant;

use skep_sim::{Mutant, Mutants};

use crate::drive;
use crate::run::Run;

const MUTANTS: Mutants<'_> =
    Mutants { package: "skep-differential", source: "crates/core/http/src", all: ALL };

const ALL: &[Mutant] = &[
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
    Mutant {
        what: "Content-Length beside Transfer-Encoding in a reply: the length counts",
        file: "response.rs",
        from: "let announced = framing::announced(fields, version)?;",
        to: "let announced = match fields.known(crate::Known::ContentLength) {\n        \
             Some(digits) if @ && fields.known(crate::Known::TransferEncoding).is_some() => {\n            \
             framing::parse_length(digits).map(Announced::Length).ok_or(Reject::LENGTH_INVALID)?\n        }\n        \
             _ => framing::announced(fields, version)?,\n    };",
    },
    Mutant {
        what: "two lengths in a reply: the first counts",
        file: "response.rs",
        from: "let framing = framing_of(&fields, version, status, request_method)?;",
        to: "let framing = match fields.known(crate::Known::ContentLength) {\n        \
             Some(digits) if @ && request_method != Method::Head && fields.is_repeated(crate::Known::ContentLength) => {\n            \
             framing::parse_length(digits).map(ResponseFraming::Length).ok_or(Reject::LENGTH_INVALID)?\n        }\n        \
             _ => framing_of(&fields, version, status, request_method)?,\n    };",
    },
    Mutant {
        what: "a chunked reply that the end of the connection cuts is whole",
        file: "body.rs",
        from: "DecoderState::Length(_) | DecoderState::Chunked(_) => {",
        to: "DecoderState::Chunked(_) if @ => {\n                self.state = DecoderState::Done;\n                Ok(())\n            }\n            \
             DecoderState::Length(_) | DecoderState::Chunked(_) => {",
    },
];

/// Inserts each bug and runs as long as `run` specifies; returns whether all were found.
pub(crate) fn find_all(run: &Run) -> io::Result<bool> {
    let copy = MUTANTS.copy()?;
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
    for number in 0..=ALL.len() {
        let began = Instant::now();
        let run = Run { skep: skep.clone(), mutant: number, findings_max: 1, ..run.clone() };
        let report = drive::look(&run)?;
        let Some(mutant) = number.checked_sub(1).map(|at| &ALL[at]) else {
            // Without a bug nothing must be found.
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
    println!("{} of {} known bugs found", ALL.len() - missed, ALL.len());
    Ok(missed == 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Only the long run would detect it otherwise, a day later.
    #[test]
    fn the_place_of_every_known_bug_is_there() {
        MUTANTS.changed_files().unwrap();
    }
}
