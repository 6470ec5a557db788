//! Properties that hold for any bytes: the way they arrive does not matter, nothing panics, no body
//! is longer than announced, and php-fpm would parse a request as it was written.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use skep_fastcgi::FcgiExchange;
use skep_http::gateway::GatewayRequest;
use skep_http::{BodyFraming, Method};

use crate::peer;
use crate::replies::{Said, exchange, hear};
use crate::requests::{get, php};

/// Records of an application that knows the protocol but not the order of messages.
fn records() -> impl Strategy<Value = Vec<u8>> {
    let heads: &[&[u8]] = &[
        b"A: b\r\n\r\n",
        b"A: b\n\nbody",
        b"Content-Length: 5\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Status: 304\r\n\r\n",
        b"Status: 200\r\nLocation: /\r\n",
        b"\r\n",
        b"\n",
    ];
    let piece = prop_oneof![
        4 => (select(heads), 0..9_u8).prop_map(|(head, padding)| peer::reply(6, head, padding)),
        4 => vec(any::<u8>(), 0..20).prop_map(|body| peer::stdout(&body)),
        2 => vec(select(&b"ab\r\n"[..]), 0..20).prop_map(|lines| peer::stderr(&lines)),
        1 => (0..2_u32, 0..2_u8).prop_map(|(app, protocol)| peer::end(app, protocol)),
    ];
    let head = select(&heads[..3]).prop_map(peer::stdout);
    let end = any::<bool>().prop_map(|ends| if ends { peer::end(0, 0) } else { Vec::new() });
    (head, vec(piece, 0..8), end)
        .prop_map(|(head, pieces, end)| [head, pieces.concat(), end].concat())
}

/// The same with some bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    (records(), vec((any::<Index>(), any::<u8>()), 0..3)).prop_map(|(mut bytes, changes)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

fn ends(cuts: &[Index], len: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
    ends.push(len);
    ends.sort_unstable();
    ends
}

proptest! {
    #[test]
    fn events_do_not_depend_on_how_bytes_arrive(
        bytes in mutated(),
        cuts in vec(any::<Index>(), 0..8),
        method in select(&[Method::Get, Method::Head][..]),
    ) {
        let request = GatewayRequest { method, ..get() };
        let mut whole = exchange(&request);
        let expected = hear(&mut whole, &bytes, &[bytes.len()]);
        let mut cut = exchange(&request);
        prop_assert_eq!(&hear(&mut cut, &bytes, &ends(&cuts, bytes.len())), &expected);
        prop_assert_eq!(cut.is_reusable(0), whole.is_reusable(0));
        prop_assert_eq!(cut.stderr_rest(), whole.stderr_rest());
        let singly: Vec<usize> = (0..=bytes.len()).collect();
        prop_assert_eq!(&hear(&mut exchange(&request), &bytes, &singly), &expected);
    }

    #[test]
    fn no_body_is_longer_than_announced(bytes in mutated()) {
        let (said, _) = hear(&mut exchange(&get()), &bytes, &[bytes.len()]);
        let announced = said.iter().find_map(|it| match it {
            Said::Head(head) => {
                let (_, rest) = head.split_once("Content-Length: ")?;
                rest.split_once("\r\n")?.0.parse::<usize>().ok()
            }
            _ => None,
        });
        let body = |it: &Said| if let Said::Body(body) = it { body.len() } else { 0 };
        let body: usize = said.iter().map(body).sum();
        let has_ended = said.iter().any(|it| matches!(it, Said::End(_)));
        if let Some(announced) = announced {
            prop_assert!(body <= announced);
            prop_assert!(!has_ended || body == announced);
        }
        let heads = said.iter().filter(|it| matches!(it, Said::Head(_))).count();
        prop_assert!(heads <= 1 && (heads == 1 || !has_ended && body == 0));
    }

    #[test]
    fn any_bytes_are_taken_without_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = hear(&mut exchange(&get()), &bytes, &[bytes.len()]);
        let content = peer::stdout(&bytes);
        let _ = hear(&mut exchange(&get()), &content, &[content.len()]);
    }

    #[test]
    fn a_request_is_read_as_it_was_written(
        method in select(&["GET", "POST", "PATCH", "X"][..]),
        info in "(/[a-z.]{1,9}){0,3}",
        query in proptest::option::of("[a-z=&]{0,20}"),
        fields in vec(("[A-Za-z_.-]{1,12}", "[ -~\u{e9}]{0,200}"), 0..12),
    ) {
        prop_assume!(!info.split('/').any(|it| it == "." || it == ".."));
        let path = format!("/a.php{info}");
        let listed: Vec<(&str, &[u8])> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let request = GatewayRequest {
            method: Method::of(method),
            path: path.as_bytes(),
            query: query.as_deref().map(str::as_bytes),
            fields: &listed,
            ..get()
        };
        let mut out = Vec::new();
        FcgiExchange::start(&mut out, &request, &php()).unwrap();
        let begun = peer::request(&out).unwrap();
        prop_assert!(begun.is_whole);
        prop_assert_eq!(begun.param("REQUEST_METHOD"), Some(method.as_bytes()));
        prop_assert_eq!(begun.param("SCRIPT_NAME"), Some(&b"/a.php"[..]));
        let found = begun.param("PATH_INFO").unwrap_or_default();
        prop_assert_eq!(found, info.as_bytes());
        let query = query.unwrap_or_default();
        prop_assert_eq!(begun.param("QUERY_STRING"), Some(query.as_bytes()));
        let names: BTreeSet<&String> = begun.params.iter().map(|(name, _)| name).collect();
        prop_assert_eq!(names.len(), begun.params.len(), "a parameter was sent twice");
        // Every variable belongs to a field with the same spelling, except for case and `-`.
        for name in names.iter().filter_map(|it| it.strip_prefix("HTTP_")) {
            let spelt = name.replace('_', "-");
            let is_field = |(it, _): &(String, String)| it.eq_ignore_ascii_case(&spelt);
            prop_assert!(spelt == "HOST" || fields.iter().any(is_field), "{name}");
        }
    }

    #[test]
    fn a_body_arrives_whole(body in vec(any::<u8>(), 1..3000), pieces in vec(1..900_usize, 1..9)) {
        let framing = BodyFraming::Length(body.len() as u64);
        let mut out = Vec::new();
        let request = GatewayRequest { body: framing, ..get() };
        let mut exchange = FcgiExchange::start(&mut out, &request, &php()).unwrap();
        let (mut sent, mut pieces) = (0, pieces.into_iter().cycle());
        while exchange.wanted() > 0 {
            let bytes = exchange.wanted().min(pieces.next().unwrap());
            out.extend(exchange.body_head(bytes));
            out.extend(&body[sent..][..bytes]);
            sent += bytes;
        }
        out.extend(exchange.body_end());
        let begun = peer::request(&out).unwrap();
        prop_assert!(begun.is_whole && !exchange.is_awaited());
        prop_assert_eq!(begun.body, body);
    }
}
