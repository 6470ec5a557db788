//! The server's side of AJP13, according to the specification, for tests and fuzz targets: parses
//! requests, writes replies. Shares no code with the codec.

/// A request, as a servlet engine parses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) method: String,
    pub(crate) protocol: String,
    pub(crate) uri: Vec<u8>,
    pub(crate) remote_addr: String,
    pub(crate) remote_host: Option<Vec<u8>>,
    pub(crate) server_name: Vec<u8>,
    pub(crate) server_port: u16,
    pub(crate) is_ssl: bool,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    /// By the names in the specification; those of `req_attribute` by their own names.
    pub(crate) attributes: Vec<(String, Vec<u8>)>,
}

impl Forwarded {
    /// Values of a field.
    pub(crate) fn field(&self, name: &str) -> Vec<&[u8]> {
        let lines = self.fields.iter().filter(|(it, _)| it == name);
        lines.map(|(_, value)| value.as_slice()).collect()
    }

    /// Value of an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Option<&[u8]> {
        let mut found = self.attributes.iter().filter(|(it, _)| it == name);
        let first = found.next().map(|(_, value)| value.as_slice());
        assert!(found.next().is_none(), "{name} was sent twice");
        first
    }
}

/// Parses a packet to a server: its payload, and the rest.
pub(crate) fn packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let [0x12, 0x34, high, low, rest @ ..] = bytes else { return None };
    rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))
}

/// Parses body data: the bytes, and the rest after the packet.
pub(crate) fn data(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (payload, behind) = packet(bytes)?;
    let mut payload = payload;
    let length = usize::from(u16(&mut payload)?);
    (payload.len() == length).then_some((payload, behind))
}

/// Parses FORWARD_REQUEST.
pub(crate) fn request(bytes: &[u8]) -> Option<(Forwarded, &[u8])> {
    let (mut payload, behind) = packet(bytes)?;
    let rest = &mut payload;
    let mut request = Forwarded::default();
    if byte(rest)? != 2 {
        return None;
    }
    let method = byte(rest)?;
    request.protocol = text(rest)?;
    request.uri = string(rest)??;
    request.remote_addr = text(rest)?;
    request.remote_host = string(rest)?;
    request.server_name = string(rest)??;
    request.server_port = u16(rest)?;
    request.is_ssl = byte(rest)? == 1;
    for _ in 0..u16(rest)? {
        let name = match rest {
            [0xa0, code, ..] => {
                let name = FIELDS.get(usize::from(*code).checked_sub(1)?)?;
                *rest = &rest[2..];
                (*name).to_owned()
            }
            _ => text(rest)?.to_ascii_lowercase(),
        };
        request.fields.push((name, string(rest)??));
    }
    request.attributes = attributes(rest)?;
    request.method = match method {
        0xff => String::from_utf8(request.attribute("stored_method")?.to_vec()).ok()?,
        code => (*METHODS.get(usize::from(code).checked_sub(1)?)?).to_owned(),
    };
    rest.is_empty().then_some((request, behind))
}

fn attributes(rest: &mut &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut attributes = Vec::new();
    loop {
        let name = match byte(rest)? {
            0xff => return Some(attributes),
            0x0a => text(rest)?,
            0x0b => {
                attributes.push(("ssl_key_size".to_owned(), u16(rest)?.to_be_bytes().to_vec()));
                continue;
            }
            code => {
                let names = ["query_string", "route", "ssl_cert", "ssl_cipher", "ssl_session"];
                match code {
                    0x0c => "secret".to_owned(),
                    0x0d => "stored_method".to_owned(),
                    5..=9 => names[usize::from(code) - 5].to_owned(),
                    _ => return None,
                }
            }
        };
        attributes.push((name, string(rest)??));
    }
}

/// SEND_HEADERS.
pub(crate) fn headers(status: u16, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut payload = vec![4];
    payload.extend(status.to_be_bytes());
    write_string(&mut payload, status.to_string().as_bytes());
    payload.extend((fields.len() as u16).to_be_bytes());
    for (name, value) in fields {
        match REPLY_FIELDS.iter().position(|it| it.eq_ignore_ascii_case(name)) {
            Some(at) => payload.extend([0xa0, at as u8 + 1]),
            None => write_string(&mut payload, name.as_bytes()),
        }
        write_string(&mut payload, value.as_bytes());
    }
    reply(&payload)
}

/// SEND_BODY_CHUNK; without data it is a flush.
pub(crate) fn chunk(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    reply(&[&[3], &length[..], data, &[0]].concat())
}

/// GET_BODY_CHUNK.
pub(crate) fn ask(bytes: u16) -> Vec<u8> {
    reply(&[&[6], &bytes.to_be_bytes()[..]].concat())
}

/// END_RESPONSE.
pub(crate) fn end(reuse: u8) -> Vec<u8> {
    reply(&[5, reuse])
}

/// A packet from a server.
pub(crate) fn reply(payload: &[u8]) -> Vec<u8> {
    [b"AB", &(payload.len() as u16).to_be_bytes()[..], payload].concat()
}

/// Appends a string.
pub(crate) fn write_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u16).to_be_bytes());
    out.extend(bytes);
    out.push(0);
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    Some(*first)
}

fn u16(rest: &mut &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes([byte(rest)?, byte(rest)?]))
}

/// `Some(None)` for an absent string.
fn string(rest: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    let length = u16(rest)?;
    if length == 0xffff {
        return Some(None);
    }
    let (bytes, behind) = rest.split_at_checked(usize::from(length))?;
    *rest = behind;
    (byte(rest)? == 0).then(|| Some(bytes.to_vec()))
}

fn text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(string(rest)??).ok()
}

const METHODS: [&str; 27] = [
    "OPTIONS",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "TRACE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "ACL",
    "REPORT",
    "VERSION-CONTROL",
    "CHECKIN",
    "CHECKOUT",
    "UNCHECKOUT",
    "SEARCH",
    "MKWORKSPACE",
    "UPDATE",
    "LABEL",
    "MERGE",
    "BASELINE-CONTROL",
    "MKACTIVITY",
];

const FIELDS: [&str; 14] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "content-type",
    "content-length",
    "cookie",
    "cookie2",
    "host",
    "pragma",
    "referer",
    "user-agent",
];

const REPLY_FIELDS: [&str; 11] = [
    "Content-Type",
    "Content-Language",
    "Content-Length",
    "Date",
    "Last-Modified",
    "Location",
    "Set-Cookie",
    "Set-Cookie2",
    "Servlet-Engine",
    "Status",
    "WWW-Authenticate",
];
