//! One case: the bytes that a client sends, in which pieces, and the origin's answers. Its file is text, with
//! one line for each part.

use std::fmt::Write as _;

use skep_units::{Rng, stable_hash};

use crate::limits::{BENT_OPEN_ONE_IN, REQUESTS_MAX};
use crate::message::{self, one_in};
use crate::mutate;

/// The path of the request that ends each case: a peer that forwards it has parsed everything before it as
/// intended.
pub(crate) const END_TARGET: &str = "/the-end";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Case {
    /// The requests, as intended.
    pub(crate) requests: Vec<Vec<u8>>,
    /// The origin's answers, in the order of the requests that it receives.
    pub(crate) replies: Vec<Answer>,
    /// The offsets at which the stream is split into writes.
    pub(crate) splits: Vec<usize>,
}

/// An answer of the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    /// Whether the origin then closes the connection.
    pub(crate) closes: bool,
}

impl Case {
    /// Generates the case of a seed, deterministically.
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(stable_hash(&seed.to_le_bytes(), 1));
        let count = 1 + rng.below(REQUESTS_MAX) as usize;
        // Most cases are valid; in the others one message is mutated.
        let bent = rng.below(count as u64) as usize;
        let what = rng.below(10);
        let mut case = Self::default();
        for number in 0..count {
            let is_bent = number == bent;
            let mut request = message::request(&mut rng);
            if is_bent && matches!(what, 6 | 7) {
                mutate::request(&mut rng, &mut request);
            }
            let mut bytes = request.bytes();
            if is_bent && what == 8 {
                mutate::noise(&mut rng, &mut bytes);
            }
            case.requests.push(bytes);
            let (mut reply, closes) = message::reply(&mut rng);
            let is_bent = is_bent && what == 9;
            let is_noise = one_in(&mut rng, 3);
            if is_bent && !is_noise {
                mutate::reply(&mut rng, &mut reply);
            }
            let mut bytes = reply.bytes();
            if is_bent && is_noise {
                mutate::noise(&mut rng, &mut bytes);
            }
            // After most mutated answers the connection is closed: how long a peer waits for the rest is not
            // what is tested. The others show whether a connection continues at the end of the answer.
            let closes = closes || (is_bent && !one_in(&mut rng, BENT_OPEN_ONE_IN));
            case.replies.push(Answer { bytes, closes });
        }
        let len = case.stream().len() as u64;
        let mut splits: Vec<_> = (0..rng.below(6)).map(|_| rng.below(len) as usize).collect();
        splits.sort_unstable();
        splits.dedup();
        case.splits = splits;
        case
    }

    /// All bytes that the client sends.
    pub(crate) fn stream(&self) -> Vec<u8> {
        let end = format!("GET {END_TARGET} HTTP/1.1\r\nHost: end\r\nConnection: close\r\n\r\n");
        [self.requests.concat(), end.into_bytes()].concat()
    }

    /// The same in the pieces in which it is written.
    pub(crate) fn pieces(&self) -> Vec<Vec<u8>> {
        let stream = self.stream();
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in self.splits.iter().copied().filter(|at| *at < stream.len()) {
            pieces.push(stream[from..to].to_vec());
            from = to;
        }
        pieces.push(stream[from..].to_vec());
        pieces
    }

    /// The answer to the request with this number.
    pub(crate) fn answer(&self, number: usize) -> Answer {
        let plain = || Answer {
            bytes: b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend".to_vec(),
            closes: false,
        };
        self.replies.get(number).cloned().unwrap_or_else(plain)
    }

    /// Formats the case as text.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for bytes in &self.requests {
            let _ = writeln!(text, "request {}", bytes.escape_ascii());
        }
        for answer in &self.replies {
            let word = if answer.closes { "reply-close" } else { "reply" };
            let _ = writeln!(text, "{word} {}", answer.bytes.escape_ascii());
        }
        for at in &self.splits {
            let _ = writeln!(text, "split {at}");
        }
        text
    }

    /// Parses the text of a case; `None` if it is invalid.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut case = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ')?;
            let answer = |closes| Some(Answer { bytes: unescape(rest)?, closes });
            match word {
                "request" => case.requests.push(unescape(rest)?),
                "reply" => case.replies.push(answer(false)?),
                "reply-close" => case.replies.push(answer(true)?),
                "split" => case.splits.push(rest.parse().ok()?),
                _ => return None,
            }
        }
        Some(case)
    }

    /// Variants that are slightly smaller, the largest reductions first.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for at in 0..self.requests.len() {
            let mut case = self.clone();
            case.requests.remove(at);
            if at < case.replies.len() {
                case.replies.remove(at);
            }
            all.push(case);
        }
        if !self.splits.is_empty() {
            all.push(Self { splits: Vec::new(), ..self.clone() });
        }
        for at in 0..self.replies.len() {
            let plain = Answer {
                bytes: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
                closes: false,
            };
            if self.replies[at] != plain {
                let mut case = self.clone();
                case.replies[at] = plain;
                all.push(case);
            }
        }
        for at in 0..self.requests.len() {
            for bytes in shorter(&self.requests[at]) {
                let mut case = self.clone();
                case.requests[at] = bytes;
                all.push(case);
            }
        }
        for at in 0..self.replies.len() {
            for bytes in shorter(&self.replies[at].bytes) {
                let mut case = self.clone();
                case.replies[at].bytes = bytes;
                all.push(case);
            }
        }
        all
    }
}

/// Variants without one of the lines.
fn shorter(bytes: &[u8]) -> Vec<Vec<u8>> {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let without = |out: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != out);
        kept.flat_map(|(_, line)| *line).copied().collect()
    };
    (1..lines.len()).map(without).collect()
}

/// Reverses `escape_ascii`.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                other => other,
            },
            other => other,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_the_same_as_text() {
        for seed in 0..500 {
            let case = Case::of_seed(seed);
            assert_eq!(Case::from_text(&case.to_text()).as_ref(), Some(&case), "{seed}");
            assert_eq!(case, Case::of_seed(seed));
            assert_eq!(case.pieces().concat(), case.stream());
        }
    }
}
