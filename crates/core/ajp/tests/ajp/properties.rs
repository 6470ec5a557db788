//! Properties that hold for any bytes: the way they arrive does not matter, nothing panics, no body
//! is longer than announced, and a server would parse a request as it was written.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use skep_ajp::{AjpExchange, AjpSettings};
use skep_http::gateway::GatewayRequest;
use skep_http::{BodyFraming, Method};

use crate::peer;
use crate::replies::{Said, exchange, hear};
use crate::requests::get;

/// Packets of a server that knows the protocol but not the order of messages.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let fields: &[&[(&str, &str)]] = &[
        &[],
        &[("Content-Length", "5")],
        &[("Content-Length", "0"), ("Set-Cookie", "a=b"), ("Set-Cookie", "c=d")],
        &[("Content-Type", "text/html"), ("X-Long", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")],
    ];
    let piece = prop_oneof![
        (select(&[200_u16, 204, 304, 404][..]), select(fields))
            .prop_map(|(status, fields)| peer::headers(status, fields)),
        vec(any::<u8>(), 0..20).prop_map(|data| peer::chunk(&data)),
        (0..20_u16).prop_map(peer::ask),
        (0..2_u8).prop_map(peer::end),
    ];
    let head = select(&[200_u16, 404][..]).prop_map(|status| peer::headers(status, &[]));
    (head, vec(piece, 0..8)).prop_map(|(head, pieces)| [head, pieces.concat()].concat())
}

/// The same with some bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    (packets(), vec((any::<Index>(), any::<u8>()), 0..4)).prop_map(|(mut bytes, changes)| {
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

fn methods() -> impl Strategy<Value = Method<'static>> {
    select(&[Method::Get, Method::Head, Method::Post][..])
}

proptest! {
    #[test]
    fn events_do_not_depend_on_how_bytes_arrive(
        bytes in mutated(),
        cuts in vec(any::<Index>(), 0..8),
        method in methods(),
    ) {
        let request = GatewayRequest { method, ..get() };
        let mut whole = exchange(&request);
        let expected = hear(&mut whole, &bytes, &[bytes.len()]);
        let mut cut = exchange(&request);
        let found = hear(&mut cut, &bytes, &ends(&cuts, bytes.len()));
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(cut.is_reusable(0), whole.is_reusable(0));
        let singly: Vec<usize> = (0..=bytes.len()).collect();
        let found = hear(&mut exchange(&request), &bytes, &singly);
        prop_assert_eq!(&found, &expected);
    }

    #[test]
    fn no_body_is_longer_than_announced(bytes in mutated()) {
        let (said, error) = hear(&mut exchange(&get()), &bytes, &[bytes.len()]);
        let announced = said.iter().find_map(|it| match it {
            Said::Head(head) => {
                let (_, rest) = head.split_once("Content-Length: ")?;
                rest.split_once("\r\n")?.0.parse::<usize>().ok()
            }
            _ => None,
        });
        let body = |it: &Said| if let Said::Body(body) = it { body.len() } else { 0 };
        let body: usize = said.iter().map(body).sum();
        if let Some(announced) = announced {
            prop_assert!(body <= announced);
            prop_assert!(!said.contains(&Said::End) || body == announced);
        }
        let heads = said.iter().filter(|it| matches!(it, Said::Head(_))).count();
        prop_assert!(heads <= 1);
        // After the end there is only an error.
        let end = said.iter().position(|it| *it == Said::End);
        prop_assert!(end.is_none_or(|at| at + 1 == said.len()));
        prop_assert!(end.is_none() || heads == 1 || error.is_some());
    }

    #[test]
    fn any_bytes_are_taken_without_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = hear(&mut exchange(&get()), &bytes, &[bytes.len()]);
        let after = [b"AB\x00\x20".to_vec(), bytes].concat();
        let _ = hear(&mut exchange(&get()), &after, &[after.len()]);
    }

    #[test]
    fn a_request_is_read_as_it_was_written(
        method in select(&["GET", "POST", "PATCH", "LOCK", "X"][..]),
        path in "/[a-z%;.]{0,20}",
        query in proptest::option::of("[a-z=&]{0,20}"),
        fields in vec(("[A-Za-z-]{1,20}", "[ -~\u{e9}]{0,30}"), 0..12),
        secret in proptest::option::of("[a-z]{1,20}"),
    ) {
        let listed: Vec<(&str, &[u8])> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let request = GatewayRequest {
            method: Method::of(method),
            path: path.as_bytes(),
            query: query.as_deref().map(str::as_bytes),
            fields: &listed,
            ..get()
        };
        let secret = secret.as_deref().map(str::as_bytes);
        let settings = AjpSettings { secret, ..AjpSettings::default() };
        let mut out = Vec::new();
        AjpExchange::start(&mut out, &request, &settings).unwrap();
        let (read, behind) = peer::request(&out).unwrap();
        prop_assert!(behind.is_empty());
        prop_assert_eq!(read.method.as_str(), method);
        prop_assert_eq!(read.uri.as_slice(), path.as_bytes());
        prop_assert_eq!(read.attribute("query_string"), request.query);
        prop_assert_eq!(read.attribute("secret"), secret);
        let mut expected: Vec<(String, Vec<u8>)> = vec![("host".to_owned(), b"ex.org".to_vec())];
        let told = request.content_length().map(|it| it.to_string().into_bytes());
        expected.extend(told.map(|it| ("content-length".to_owned(), it)));
        let kept = request.end_to_end().map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()));
        expected.extend(kept);
        prop_assert_eq!(read.fields, expected);
    }

    /// A server that asks in any way receives every byte, only in packets that it waits for.
    #[test]
    fn a_body_arrives_whole_and_only_as_asked_for(
        body in vec(any::<u8>(), 0..3000),
        is_known in any::<bool>(),
        asks in vec(1..700_u16, 1..40),
    ) {
        let framing = match (is_known, body.len()) {
            (true, 0) => BodyFraming::None,
            (true, bytes) => BodyFraming::Length(bytes as u64),
            (false, _) => BodyFraming::Chunked,
        };
        let request = GatewayRequest { method: Method::Post, body: framing, ..get() };
        let mut exchange = exchange(&request);
        let (mut sent, mut received) = (0, Vec::new());
        let mut is_asked = matches!(framing, BodyFraming::Length(_));
        prop_assert_eq!(exchange.is_awaited(), is_asked);
        let mut asks = asks.into_iter().cycle();
        let mut limit = 8186;
        loop {
            if is_asked {
                let bytes = exchange.wanted().min(body.len() - sent);
                if bytes == 0 {
                    prop_assert_eq!(exchange.body_end(), [0x12, 0x34, 0, 2, 0, 0]);
                    break;
                }
                prop_assert!(bytes <= limit);
                let packet =
                    [&exchange.body_head(bytes)[..], &body[sent..][..bytes]].concat();
                let (data, behind) = peer::data(&packet).unwrap();
                prop_assert!(behind.is_empty());
                received.extend_from_slice(data);
                sent += bytes;
                prop_assert_eq!((exchange.wanted(), exchange.is_awaited()), (0, false));
            }
            limit = usize::from(asks.next().unwrap());
            let ask = peer::ask(limit as u16);
            let (said, error) = hear(&mut exchange, &ask, &[ask.len()]);
            prop_assert!(error.is_none() && matches!(said[..], [Said::Wants(_)]));
            is_asked = true;
        }
        prop_assert_eq!(received, body);
    }
}
