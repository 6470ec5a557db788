//! Requests of clients, and the replies that they may get.

use std::time::Duration;

use skep_tests::{ClientError, RawClient, Response};

use crate::victim::Victim;

/// Longer than all timeouts of the victim together on a busy machine. A client that waits longer is
/// considered hung.
pub(crate) const HANG: Duration = Duration::from_secs(30);

/// The allowed results of a lie.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// Not a lie: exactly these bytes.
    Right(Vec<u8>),
    /// These bytes in full, or a detectable failure.
    Either(Vec<u8>),
    /// One of these bodies, or a detectable failure.
    OneOf(Vec<Vec<u8>>),
    /// No reply that looks complete.
    Fails,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Get,
    /// Bytes 5 to 24.
    Range,
    Head,
    /// HTTP/1.0, where the end of the connection may end a body.
    Old,
    /// The client leaves after the first bytes.
    Leave,
}

impl Ask {
    /// All kinds.
    pub(crate) const ALL: [Self; 5] = [Self::Get, Self::Range, Self::Head, Self::Old, Self::Leave];

    fn request(self, target: &str) -> String {
        let (method, version) = match self {
            Self::Head => ("HEAD", "1.1"),
            Self::Old => ("GET", "1.0"),
            _ => ("GET", "1.1"),
        };
        let range = if self == Self::Range { "Range: bytes=5-24\r\n" } else { "" };
        format!(
            "{method} {target} HTTP/{version}\r\nHost: test\r\n{range}Connection: close\r\n\r\n"
        )
    }
}

/// Requests `target`; the error describes what is wrong with the reply.
pub(crate) fn ask(victim: &Victim, target: &str, how: Ask, expect: &Expect) -> Result<(), String> {
    let mut client = victim.connect();
    client.set_timeout(HANG);
    client.send(how.request(target));
    if how == Ask::Leave {
        // The content is irrelevant, as this client leaves.
        return client.try_read_some().map(drop).or_else(|error| unless_hung(&error));
    }
    let method = if how == Ask::Head { "HEAD" } else { "GET" };
    judge(how, expect, final_response(&mut client, method))
}

/// Reads the final response after interim ones (1xx), which are forwarded as they arrive.
fn final_response(client: &mut RawClient, method: &str) -> Result<Response, ClientError> {
    loop {
        match client.try_response_to(method) {
            Ok(hint) if matches!(hint.status, 102 | 103) => {}
            came => return came,
        }
    }
}

/// Returns the body of `target` if it is received in full with 200.
pub(crate) fn whole(client: &mut RawClient, target: &str) -> Option<Vec<u8>> {
    client.set_timeout(HANG);
    client.send(Ask::Get.request(target));
    final_response(client, "GET").ok().filter(|it| it.status == 200).map(|it| it.body)
}

fn judge(how: Ask, expect: &Expect, came: Result<Response, ClientError>) -> Result<(), String> {
    let is_right = matches!(expect, Expect::Right(_)) && how != Ask::Range;
    let response = match came {
        Err(ClientError::Closed(0)) => return Err("closed without a byte".into()),
        Err(error) if is_right => return Err(format!("failed: {error}")),
        Err(error) => return unless_hung(&error),
        Ok(response) => response,
    };
    let is_short = response.body.len() < 10_000;
    if is_short && response.body.windows(6).any(|window| window == b"POISON") {
        return Err(format!("what was not asked for:\n{}", response.head_text()));
    }
    // A response to HEAD has no body that could be truncated.
    if !(200..300).contains(&response.status) || how == Ask::Head {
        return if is_right && how != Ask::Head { Err(response.head_text()) } else { Ok(()) };
    }
    let is_one = match response.status {
        206 => expect.allows_part(&response.body),
        _ => expect.allows(&response.body),
    };
    match is_one {
        true => Ok(()),
        false => Err(format!(
            "{} bytes that look whole:\n{}\n\n{}",
            response.body.len(),
            response.head_text(),
            String::from_utf8_lossy(&response.body[..response.body.len().min(200)])
        )),
    }
}

fn unless_hung(error: &ClientError) -> Result<(), String> {
    match error {
        ClientError::Timeout => Err("hangs".into()),
        ClientError::Malformed(what) => Err(format!("malformed: {what}")),
        _ => Ok(()),
    }
}

impl Expect {
    /// Whether these bytes may be a whole body.
    pub(crate) fn allows(&self, body: &[u8]) -> bool {
        match self {
            Self::Right(bytes) | Self::Either(bytes) => bytes == body,
            Self::OneOf(all) => all.iter().any(|one| one == body),
            Self::Fails => false,
        }
    }

    /// Whether these bytes may be the range that [`Ask::Range`] requests.
    fn allows_part(&self, body: &[u8]) -> bool {
        let is_of = |whole: &Vec<u8>| whole.get(5..25.min(whole.len())) == Some(body);
        match self {
            Self::Right(bytes) | Self::Either(bytes) => is_of(bytes),
            Self::OneOf(all) => all.iter().any(is_of),
            Self::Fails => false,
        }
    }
}
