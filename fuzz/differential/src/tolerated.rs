//! tidy: table
//!
//! Differences that are not findings, each with the section of the RFC that permits servers to differ. Rows
//! inspect the bytes of the case, so that a difference for another reason remains a finding.
//!
//! Most are refusals by Skep where others repair the message: a refusal lets nothing through. The few rows
//! for messages that Skep accepts and another server refuses specify exactly which ones.

use crate::case::{Answer, Case};
use crate::compare::{Did, Difference, What};
use crate::http::Framing;
use crate::peers::NAMES;
use crate::said;

/// The input of a row.
struct Look<'c> {
    difference: &'c Difference,
    did: &'c [Did],
    case: &'c Case,
    /// The message at which peers differ, as the client intended it, and everything after it.
    request: Vec<u8>,
    /// The same, preceded by the previous message: bytes after a body belong to the next message.
    around: Vec<u8>,
    /// The origin's answer with this number, and all before it.
    reply: Vec<u8>,
    earlier: Vec<Vec<u8>>,
    /// Whether the origin closed the connection after the previous answer.
    is_behind_origins_close: bool,
}

/// Section and reason, and the condition of a row.
type Row = (&'static str, fn(&Look<'_>) -> bool);

/// The row that tolerates a difference, if any.
pub(crate) fn row(difference: &Difference, case: &Case, did: &[Did]) -> Option<&'static str> {
    let from = difference.at.min(case.requests.len());
    let request = case.requests[from..].concat();
    let around = case.requests[from.saturating_sub(1)..].concat();
    let reply = case.answer(difference.at).bytes;
    let earlier = (0..difference.at).map(|at| case.answer(at).bytes).collect();
    let before = difference.at.checked_sub(1);
    let is_behind_origins_close = before.is_some_and(|at| case.answer(at).closes);
    let look =
        Look { difference, did, case, request, around, reply, earlier, is_behind_origins_close };
    ROWS.iter().find(|(_, applies)| applies(&look)).map(|(name, _)| *name)
}

/// The names of all rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(name, _)| *name)
}

const ROWS: &[Row] = &[
    // Skep refuses, the other repairs
    ("RFC 9112 2.2: a lone LF MAY be taken for a line end; Skep refuses it", |it| {
        it.skep_refuses() && lone(&it.around, b'\n')
    }),
    ("RFC 9112 2.2: a lone CR is invalid, or to be replaced; Skep refuses it", |it| {
        it.skep_refuses() && lone(&it.around, b'\r')
    }),
    ("RFC 9112 2.2: an empty line before a request SHOULD be ignored; Skep ignores one", |it| {
        it.skep_refuses() && (contains(&it.around, b"\r\n\r\n\r\n") || it.is_behind_empty_lines())
    }),
    (
        "RFC 9112 3: a request line that is none SHOULD be answered by 400, and MAY be repaired",
        |it| it.skep_refuses() && !is_plain_line(&first_line(&it.request)),
    ),
    ("RFC 9112 2.3, RFC 9110 2.5: which versions are served is the server's choice", |it| {
        let line = first_line(&it.request);
        it.skep_refuses() && !line.ends_with(b" HTTP/1.1") && !line.ends_with(b" HTTP/1.0")
    }),
    (
        "RFC 3986 3.3, 3.4: a target has few characters; others SHOULD be refused (RFC 9112 3.2)",
        |it| {
            let target = word(&it.request, 1);
            it.skep_refuses() && target.iter().any(|byte| !is_of_target(*byte))
        },
    ),
    ("RFC 9112 3.2: which forms of targets there are, and for which methods", |it| {
        it.skep_refuses() && !word(&it.request, 1).starts_with(b"/")
    }),
    ("RFC 9110 9.1: which methods are served is the server's choice", |it| {
        let is_other = |method: &[u8]| {
            method == b"CONNECT" || method.len() > 32 || !method.iter().all(is_token)
        };
        // Bytes after a body become part of the next request's method.
        let taken = it.did[it.difference.with].passed.get(it.difference.at);
        it.skep_refuses()
            && (is_other(&word(&it.request, 0))
                || taken.is_some_and(|taken| is_other(taken.head.word(0).as_bytes())))
    }),
    ("RFC 9112 5.1: no space before a colon: a request with it MUST be refused", |it| {
        it.skep_refuses() && it.names().any(|name| name.ends_with(b" ") || name.ends_with(b"\t"))
    }),
    ("RFC 9112 5.2: a folded line is to be refused, or to be joined", |it| {
        it.skep_refuses()
            && it.lines().any(|line| line.starts_with(b" ") || line.starts_with(b"\t"))
    }),
    ("RFC 9110 5.1: names are tokens; a line without one is no field", |it| {
        it.skep_refuses() && it.names().any(|name| name.is_empty() || !name.iter().all(is_token))
    }),
    ("RFC 9110 5.1: a line without a colon is no field", |it| {
        it.skep_refuses() && it.lines().any(|line| !line.is_empty() && !line.contains(&b':'))
    }),
    ("RFC 9110 5.5: NUL is to be refused or replaced; other controls MAY be refused", |it| {
        it.skep_refuses() && it.head().iter().any(|byte| is_control(*byte))
    }),
    ("RFC 3875 4.1.18: for applications _ and - in a name are the same", |it| {
        it.skep_refuses() && it.names().any(|name| name.contains(&b'_'))
    }),
    ("RFC 9110 8.6: a length is digits; a list of the same MAY be refused", |it| {
        it.skep_refuses() && it.values("content-length").any(|value| !is_plain_length(&value))
    }),
    ("RFC 9110 8.6: a length told twice MAY be refused", |it| {
        it.skep_refuses() && it.values("content-length").count() > 1
    }),
    ("RFC 9112 6.1: a length beside a coding MAY be refused", |it| {
        it.skep_refuses()
            && it.values("content-length").count() > 0
            && it.values("transfer-encoding").count() > 0
    }),
    ("RFC 9112 6.1: a coding that is not chunked alone: 501 or 400", |it| {
        it.skep_refuses()
            && (it.values("transfer-encoding").count() > 1
                || it
                    .values("transfer-encoding")
                    .any(|value| !value.eq_ignore_ascii_case(b"chunked")))
    }),
    ("RFC 9112 6.1: a coding in HTTP/1.0: the framing is faulty", |it| {
        it.skep_refuses()
            && it.values("transfer-encoding").count() > 0
            && first_line(&it.request).ends_with(b"HTTP/1.0")
    }),
    ("RFC 9112 3.2: without a valid Host, or with two: 400", |it| {
        let hosts: Vec<_> = it.values("host").collect();
        it.skep_refuses() && (hosts.len() != 1 || !hosts.iter().all(|host| is_plain_host(host)))
    }),
    ("RFC 9110 10.1.1: another expectation MAY be answered by 417", |it| {
        it.skep_refuses()
            && it.values("expect").any(|value| !value.eq_ignore_ascii_case(b"100-continue"))
    }),
    ("RFC 9110 5.6.2, 7.6.1: Connection lists tokens; what is none MAY be refused", |it| {
        it.skep_refuses() && it.values("connection").any(|value| !is_list(&value))
    }),
    ("RFC 6585 5, RFC 9110 15.5.15: how large a head may be is the server's choice", |it| {
        it.skep_refuses() && (it.head().len() > 8_000 || it.lines().count() > 90)
    }),
    ("RFC 9112 7.1: a chunk that breaks the grammar", |it| {
        it.skep_refuses()
            && it.values("transfer-encoding").count() > 0
            && !is_plain_chunks(it.body())
    }),
    ("RFC 9112 9.6: behind the last request nothing is read, and the rest is closed upon", |it| {
        it.skep_refuses() && it.is_behind_close()
    }),
    ("RFC 9112 2.2: a body that ends within a CR LF leaves a lone LF; Skep refuses it", |it| {
        let before = it.difference.at.checked_sub(1).and_then(|at| it.did[0].passed.get(at));
        let body = before.and_then(|before| before.body.as_deref());
        it.skep_refuses() && body.is_some_and(|body| body.ends_with(b"\r"))
    }),
    // Skep accepts what the other refuses
    ("RFC 9110 9.3.7: nginx knows no target *", |it| {
        it.only_skep(NAMES[1]) && word(&it.request, 1) == b"*"
    }),
    ("RFC 9110 5.6.3: nginx reads no length behind a tab, and closes behind the reply", |it| {
        let is_it = |reply: &Vec<u8>| contains(reply, b"Content-Length: \t");
        it.only_skep(NAMES[1]) && it.earlier.last().is_some_and(is_it)
    }),
    ("RFC 6585 5: a line of 8 KB is too large for nginx", |it| {
        it.only_skep(NAMES[1]) && it.lines().any(|line| line.len() > 8_000)
    }),
    ("RFC 6585 5: a head of 15 KB is too large for HAProxy", |it| {
        it.only_skep(NAMES[2]) && it.head().len() > 15_000
    }),
    (
        "RFC 3986 3.3, RFC 9112 3.2.2: HAProxy wants a path before the query of an absolute target",
        |it| it.only_skep(NAMES[2]) && is_absolute_without_path(&word(&it.request, 1)),
    ),
    ("RFC 9112 3.2.2: HAProxy wants Host to be as in an absolute target, byte for byte", |it| {
        let target = word(&it.request, 1);
        let is_other = |host: Vec<u8>| {
            let wanted = authority(&target).unwrap_or_default();
            wanted != host && is_same_host(wanted, &host)
        };
        it.only_skep(NAMES[2]) && it.values("host").any(is_other)
    }),
    ("RFC 9110 9.1: nginx serves neither TRACE nor methods in other letters", |it| {
        let method = it.did[0].passed.get(it.difference.at).map(|it| it.head.word(0).to_owned());
        let is_other = |it: &String| {
            it == "TRACE"
                || it.bytes().any(|byte| !byte.is_ascii_uppercase() && !b"_-".contains(&byte))
        };
        it.only_skep(NAMES[1]) && method.as_ref().is_some_and(is_other)
    }),
    (
        "RFC 3986 2.1, 6.2.2.3: nginx refuses steps above the root, NUL and what is no escape",
        |it| it.only_skep(NAMES[1]) && is_no_path(&word(&it.request, 1)),
    ),
    ("RFC 9110 5.5: nginx takes a tab for a part of a value", |it| {
        it.only_skep(NAMES[1]) && it.head().contains(&b'\t')
    }),
    ("RFC 9113 3.4: PRI begins HTTP/2; HAProxy refuses it as a method", |it| {
        it.only_skep(NAMES[2]) && word(&it.request, 0) == b"PRI"
    }),
    (
        "RFC 9110 9.3.1, 9.3.5: content of GET, HEAD and DELETE means nothing; HAProxy refuses it in HTTP/1.0",
        |it| {
            it.only_skep(NAMES[2])
                && first_line(&it.request).ends_with(b"HTTP/1.0")
                && it.values("content-length").count() > 0
        },
    ),
    // Both accept it
    ("RFC 9110 5.1: nginx drops fields whose names have more than letters, digits and -", |it| {
        let is_other = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'-';
        it.differs("fields", NAMES[1]) && it.other_fields().all(|name| name.bytes().any(is_other))
    }),
    ("RFC 9110 7.6.1: what Connection lists stays on its hop; others pass it on", |it| {
        let lists = |name: &str| it.values("connection").any(|value| is_listed(&value, name));
        it.passes("fields") && it.other_fields().all(lists)
    }),
    ("RFC 9110 7.6.1, 11.7: Proxy-... concern one hop; others pass them on", |it| {
        it.passes("fields")
            && it.other_fields().all(|name| name.starts_with("proxy") || name == "http2-settings")
    }),
    (
        "RFC 9112 3.2: without a Host in HTTP/1.0 the next hop gets one by each server's choice",
        |it| it.passes("host") && it.values("host").all(|value| value.is_empty()),
    ),
    ("RFC 9112 3.2.2: of an absolute target and Host each server passes on one form", |it| {
        (it.passes("target") || it.passes("host")) && word(&it.request, 1).contains(&b':')
    }),
    (
        "RFC 9110 5.1, RFC 3875 4.1.18: Skep drops fields with _ in a name; HAProxy passes them on",
        |it| {
            let is_it = |name: &str| name.contains('_');
            it.passes("fields") && it.differs("fields", NAMES[2]) && it.other_fields().all(is_it)
        },
    ),
    // Replies
    (
        "RFC 9112 6.3, 9.6: behind a reply that the end of a connection ends a proxy may close, too",
        |it| {
            matches!(it.difference.what, What::OnlySkep { status: None })
                && it.earlier.iter().any(|reply| is_open_ended(reply))
        },
    ),
    (
        "RFC 9112 9.6: who closes with requests unread may lose the last answer; nginx does so behind one without a length",
        |it| {
            it.differs("body", NAMES[1])
                && it.hears()
                && it.is_said_by_skep()
                && is_open_ended(&it.reply)
                && it.did[1]
                    .heard
                    .responses
                    .get(it.difference.at)
                    .is_some_and(|it| it.body.is_none())
        },
    ),
    (
        "RFC 9112 9.3.1, 9.5: HAProxy does not ask again on a new connection; it closes without an answer",
        |it| {
            matches!(it.difference.what, What::OnlySkep { status: None })
                && NAMES[it.difference.with] == NAMES[2]
                && it.is_behind_origins_close
        },
    ),
    (
        "RFC 9110 9.2.2: a request that is not idempotent, or has content, is not sent again when a kept connection closes",
        |it| {
            let said = it.did[0].heard.responses.get(it.difference.at);
            let taken = it.did[it.difference.with].passed.get(it.difference.at);
            let is_once = |taken: &crate::origin::Received| {
                !matches!(
                    taken.head.word(0),
                    "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
                ) || taken.head.framing(Framing::Length(0)) != Framing::Length(0)
            };
            it.is_behind_origins_close
                // nginx converts empty chunked bodies to a length.
                && (taken.is_some_and(is_once) || it.values("transfer-encoding").count() > 0)
                && said.is_some_and(|said| said.status == 502)
        },
    ),
    ("RFC 9112 9.6: behind a reply that is not well-formed a proxy may close", |it| {
        let is_absent = match it.difference.what {
            What::OnlySkep { status } | What::OnlyOther { status } => {
                matches!(status, None | Some(502..=504))
            }
            What::Heard { .. } => it.is_absent_or_said(),
            What::Passed { .. } => false,
        };
        is_absent && (0..it.difference.at).any(|at| !is_sound(&it.case.answer(at)))
    }),
    ("RFC 9110 15.2: interim responses may come any time; nginx before 1.29 knows none", |it| {
        NAMES[it.difference.with] == NAMES[1]
            && (is_interim(&it.reply) || it.earlier.iter().any(|reply| is_interim(reply)))
            && !it.skep_refuses()
    }),
    ("RFC 9112 4, 6.3: a reply that is not well-formed is refused (502), or repaired", |it| {
        it.hears() && !is_sound(&it.case.answer(it.difference.at)) && it.is_absent_or_said()
    }),
    (
        "RFC 9110 5.4: how large a head may be is each server's choice; nginx refuses a reply's of 4 KB",
        |it| {
            let said = it.did[1].heard.responses.get(it.difference.at);
            it.differs("status", NAMES[1])
                && it.hears()
                && head_len(&it.reply) > 4_000
                && said.is_some_and(|said| said.status == 502)
        },
    ),
    ("RFC 9110 8.3: nginx leaves an empty Content-Type out", |it| {
        it.hears()
            && it.differs("fields", NAMES[1])
            && it.is_said_by_skep()
            && is_without_type(&it.reply)
            && it.other_fields().all(|name| name == "content-type")
    }),
    ("RFC 9110 7.6.1: Trailer and Upgrade concern one hop; others pass them on", |it| {
        let reply = crate::http::Head::read(&it.reply);
        let lists = |name: &str| {
            let mut lines = reply.iter().flat_map(|(head, _)| head.all("connection"));
            lines.any(|value| is_listed(value, name))
        };
        let is_of_hop =
            |name: &str| matches!(name, "trailer" | "upgrade" | "te") || name.starts_with("proxy-");
        it.hears()
            && it.differs("fields", "")
            && it.other_fields().all(|name| is_of_hop(name) || lists(name))
    }),
    ("RFC 9110 16.3.2.1: fields X-Accel-... are orders for nginx", |it| {
        let is_order = |reply: &Vec<u8>| contains(reply, b"X-Accel-");
        NAMES[it.difference.with] == NAMES[1]
            && (is_order(&it.reply) || it.earlier.iter().any(is_order))
    }),
];

impl Look<'_> {
    fn skep_refuses(&self) -> bool {
        matches!(self.difference.what, What::OnlyOther { .. })
    }

    fn only_skep(&self, other: &str) -> bool {
        matches!(self.difference.what, What::OnlySkep { .. })
            && NAMES[self.difference.with] == other
    }

    /// Whether this part differs from what the given peer (empty: any) forwarded or sent.
    fn differs(&self, wanted: &str, other: &str) -> bool {
        let part = match &self.difference.what {
            What::Passed { part, .. } | What::Heard { part, .. } => *part,
            _ => return false,
        };
        part == wanted && (other.is_empty() || NAMES[self.difference.with] == other)
    }

    fn passes(&self, wanted: &str) -> bool {
        matches!(&self.difference.what, What::Passed { part, .. } if *part == wanted)
    }

    fn hears(&self) -> bool {
        matches!(self.difference.what, What::Heard { .. })
    }

    /// Whether Skep's client received no complete reply, or the other's client received none while Skep's
    /// received what the origin sent.
    fn is_absent_or_said(&self) -> bool {
        let (at, with) = (self.difference.at, self.difference.with);
        let is_absent = |peer: usize| {
            let heard = self.did[peer].heard.responses.get(at);
            heard.is_none_or(|it| it.body.is_none() || matches!(it.status, 502..=504))
        };
        is_absent(0) || (is_absent(with) && self.is_said_by_skep())
    }

    fn is_said_by_skep(&self) -> bool {
        said::is_said(self.case, &self.did[0], self.difference.at)
    }

    fn head(&self) -> &[u8] {
        let from = self.request.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(0);
        let rest = &self.request[from..];
        let end = rest.windows(4).position(|end| end == b"\r\n\r\n").unwrap_or(rest.len());
        &rest[..end]
    }

    fn body(&self) -> &[u8] {
        let at = self.request.windows(4).position(|end| end == b"\r\n\r\n");
        at.map_or(&[], |at| &self.request[at + 4..])
    }

    /// The lines after the first.
    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let lines = self.head().split(|byte| *byte == b'\n').skip(1);
        lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.lines().filter_map(|line| line.split(|byte| *byte == b':').next())
    }

    fn values(&self, name: &str) -> impl Iterator<Item = Vec<u8>> {
        self.lines().filter_map(move |line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let is_it = line[..colon].trim_ascii().eq_ignore_ascii_case(name.as_bytes());
            is_it.then(|| line[colon + 1..].trim_ascii().to_vec())
        })
    }

    /// The names of fields that only one of the two peers forwarded or sent.
    fn other_fields(&self) -> impl Iterator<Item = &str> {
        let (skep, other) = match &self.difference.what {
            What::Passed { skep, other, .. } | What::Heard { skep, other, .. } => {
                (&**skep, &**other)
            }
            _ => ("", ""),
        };
        let not_in = |those: &str, line: &str| !those.lines().any(|known| known == line);
        let skeps = skep.lines().filter(move |line| not_in(other, line));
        let others = other.lines().filter(move |line| not_in(skep, line));
        skeps.chain(others).map(|line| line.split(':').next().unwrap_or_default())
    }

    /// Whether the request is preceded by two or more empty lines.
    fn is_behind_empty_lines(&self) -> bool {
        let before = &self.around[..self.around.len() - self.request.len()];
        let head = before.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
        // The end of a head, or of the last chunk, is not an empty line.
        let body = &before[head..];
        self.request.starts_with(b"\r\n\r\n")
            || (body.ends_with(b"\r\n\r\n")
                && body != b"0\r\n\r\n"
                && !body.ends_with(b"\r\n0\r\n\r\n"))
    }

    /// Whether a message before this one announces that it is the last.
    fn is_behind_close(&self) -> bool {
        let did = &self.did[0].heard.responses;
        let at = self.difference.at;
        at > 0
            && did.len() <= at
            && did.last().is_some_and(|it| it.head.all("connection").any(|value| value == b"close"))
    }
}

/// Whether a reply ends only with the connection.
fn is_open_ended(reply: &[u8]) -> bool {
    let Some((head, len)) = crate::http::Head::read(reply) else { return false };
    match head.word(1) {
        "204" | "304" => false,
        status if status.starts_with('1') => is_open_ended(&reply[len..]),
        _ => head.all("content-length").chain(head.all("transfer-encoding")).count() == 0,
    }
}

fn head_len(reply: &[u8]) -> usize {
    crate::http::Head::read(reply).map_or(0, |(_, len)| len)
}

/// Whether it has an empty Content-Type.
fn is_without_type(reply: &[u8]) -> bool {
    let head = crate::http::Head::read(reply).map(|(head, _)| head);
    head.is_some_and(|head| head.all("content-type").any(<[u8]>::is_empty))
}

fn is_interim(reply: &[u8]) -> bool {
    reply.starts_with(b"HTTP/1.1 1") || reply.starts_with(b"HTTP/1.0 1")
}

/// The authority of an absolute target.
fn authority(target: &[u8]) -> Option<&[u8]> {
    let at = target.windows(3).position(|it| it == b"://")? + 3;
    target[at..].split(|byte| matches!(byte, b'/' | b'?')).next()
}

/// Whether two hosts are equivalent: except for case, a trailing dot, and the default port.
fn is_same_host(one: &[u8], other: &[u8]) -> bool {
    let plain = |host: &[u8]| {
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix(b":80").unwrap_or(&host);
        host.strip_suffix(b".").unwrap_or(host).to_vec()
    };
    plain(one) == plain(other)
}

/// Whether the target has the form `scheme://authority?query`.
fn is_absolute_without_path(target: &[u8]) -> bool {
    let authority = target.windows(3).position(|it| it == b"://").map(|at| &target[at + 3..]);
    authority.is_some_and(|rest| {
        rest.iter().find(|byte| matches!(**byte, b'/' | b'?')).is_some_and(|byte| *byte == b'?')
    })
}

/// Whether a value of Connection lists a name, which is in lower case.
fn is_listed(value: &[u8], name: &str) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether a value is a list of tokens, some of which may be empty.
fn is_list(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').all(|item| item.trim_ascii().iter().all(is_token))
}

/// Whether nginx cannot parse a path: it decodes it, and resolves dot segments.
fn is_no_path(target: &[u8]) -> bool {
    let target = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let is_escape = |at: usize| {
        let digits = target.get(at + 1..at + 3);
        digits.is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit) && it != b"00")
    };
    let escapes = target.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    contains(target, b"..")
        || contains(&target.to_ascii_lowercase(), b"%2e")
        || escapes.map(|(at, _)| at).any(|at| !is_escape(at))
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// Whether one half of a line end occurs alone.
fn lone(bytes: &[u8], half: u8) -> bool {
    bytes.iter().enumerate().any(|(at, byte)| {
        *byte == half
            && match half {
                b'\n' => at == 0 || bytes[at - 1] != b'\r',
                _ => bytes.get(at + 1) != Some(&b'\n'),
            }
    })
}

fn first_line(bytes: &[u8]) -> Vec<u8> {
    let from = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(0);
    let line = bytes[from..].split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line).to_vec()
}

fn word(bytes: &[u8], number: usize) -> Vec<u8> {
    first_line(bytes).split(|byte| *byte == b' ').nth(number).unwrap_or_default().to_vec()
}

/// Whether the line has the form `method SP target SP version`, each of visible bytes.
fn is_plain_line(line: &[u8]) -> bool {
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    words.len() == 3
        && words.iter().all(|word| !word.is_empty() && word.iter().all(u8::is_ascii_graphic))
}

fn is_of_target(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte)
}

fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

fn is_control(byte: u8) -> bool {
    (byte < 0x20 && !b"\t\r\n".contains(&byte)) || byte == 0x7f
}

fn is_plain_length(value: &[u8]) -> bool {
    value == b"0"
        || (!value.is_empty()
            && value[0] != b'0'
            && value.len() < 19
            && value.iter().all(u8::is_ascii_digit))
}

fn is_plain_host(host: &[u8]) -> bool {
    let mut parts = host.splitn(2, |byte| *byte == b':');
    let name = parts.next().unwrap_or_default();
    let is_port = |port: &[u8]| {
        let number = std::str::from_utf8(port).ok().and_then(|port| port.parse::<u32>().ok());
        port.iter().all(u8::is_ascii_digit)
            && port.len() < 6
            && number.is_some_and(|it| it < 65_536)
    };
    let is_label = |label: &[u8]| {
        !label.is_empty()
            && label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    name.split(|byte| *byte == b'.').all(is_label) && parts.next().is_none_or(is_port)
}

/// Whether chunks have the form that [`crate::message`] generates, and that RFC 9112 7.1 specifies.
fn is_plain_chunks(bytes: &[u8]) -> bool {
    let mut at = 0;
    loop {
        let Some(end) = bytes[at..].windows(2).position(|end| end == b"\r\n") else { return false };
        let line = &bytes[at..at + end];
        let digits = line.strip_suffix(b";a=b").unwrap_or(line);
        let number = std::str::from_utf8(digits)
            .ok()
            .filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        // More digits than a 64-bit number has (RFC 9112 7.1).
        let number = number.filter(|digits| digits.len() <= 16);
        let Some(size) = number.and_then(|it| usize::from_str_radix(it, 16).ok()) else {
            return false;
        };
        at += end + 2;
        if size == 0 {
            let rest = &bytes[at..];
            return rest.starts_with(b"\r\n") || rest.starts_with(b"X-Trailer: 1\r\n\r\n");
        }
        if bytes.get(at.saturating_add(size)..at.saturating_add(size).saturating_add(2))
            != Some(b"\r\n")
        {
            return false;
        }
        at += size + 2;
    }
}

/// Whether a reply is well-formed and has an end.
fn is_sound(answer: &Answer) -> bool {
    is_plain_reply(&answer.bytes) && (answer.closes || !is_open_ended(&answer.bytes))
}

/// Whether a reply has a form that the generator produces: see [`crate::message::reply`].
fn is_plain_reply(bytes: &[u8]) -> bool {
    let Some((head, len)) = crate::http::Head::read(bytes) else { return false };
    if head.start == "HTTP/1.1 103 Early Hints" {
        return are_lines(&bytes[..len]) && is_plain_reply(&bytes[len..]);
    }
    let status = head.word(1).parse().unwrap_or(0);
    let is_line = head.start.starts_with("HTTP/1.1 ")
        && head.word(1).len() == 3
        && matches!(status, 200..=599);
    let plain_head = is_line
        && !bytes[..len].iter().any(|byte| is_control(*byte) || *byte >= 0x80)
        && !lone(&bytes[..len], b'\r')
        && !lone(&bytes[..len], b'\n')
        && head.fields.iter().all(|(name, _)| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
        && are_lines(&bytes[..len])
        && head.all("connection").all(is_list)
        && head.fields.len() < 90
        && len < 8_000;
    let body = &bytes[len..];
    let framings = head.all("content-length").count() + head.all("transfer-encoding").count();
    let plain_body = match (framings, status) {
        (0, 204 | 304) => body.is_empty(),
        (0, _) => true,
        (1, 204 | 304) => false,
        (1, _) if head.all("transfer-encoding").any(|value| value == b"chunked") => {
            is_plain_chunks(body)
                && crate::http::body(crate::http::Framing::Chunked, body, false) == whole(body)
        }
        (1, _) => head
            .all("content-length")
            .any(|value| is_plain_length(value) && value == body.len().to_string().as_bytes()),
        _ => false,
    };
    plain_head && plain_body
}

/// Whether each line of a head but the first has a colon: `Head` takes a line without one for a name.
fn are_lines(head: &[u8]) -> bool {
    let mut lines = head[..head.len() - 4].split(|byte| *byte == b'\n').skip(1);
    lines.all(|line| line.contains(&b':'))
}

/// Reads a chunked body that is followed by nothing.
fn whole(wire: &[u8]) -> crate::http::Body {
    match crate::http::body(crate::http::Framing::Chunked, wire, false) {
        crate::http::Body::Whole(body, _) => crate::http::Body::Whole(body, wire.len()),
        other => other,
    }
}
