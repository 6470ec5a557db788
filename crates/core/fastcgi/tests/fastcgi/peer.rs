//! The application's side of FastCGI, according to the specification, for tests and fuzz targets:
//! parses requests as php-fpm does, writes replies. Shares no code with the codec.

/// A request, as php-fpm parses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) keep_conn: bool,
    pub(crate) params: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// Whether STDIN has ended.
    pub(crate) is_whole: bool,
}

impl Begun {
    /// Value of a parameter.
    pub(crate) fn param(&self, name: &str) -> Option<&[u8]> {
        let mut found = self.params.iter().filter(|(it, _)| it == name);
        let first = found.next().map(|(_, value)| value.as_slice());
        assert!(found.next().is_none(), "{name} was sent twice");
        first
    }
}

/// Parses a record: type, content, and the rest.
pub(crate) fn record(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [1, kind, 0, 1, high, low, padding, _, rest @ ..] = bytes else { return None };
    let (content, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
    let (_, rest) = rest.split_at_checked(usize::from(*padding))?;
    // `FCGI_MAX_LENGTH` of php-fpm covers both.
    (content.len() + usize::from(*padding) <= 0xffff).then_some((*kind, content, rest))
}

/// Parses all records of a request; `None` if php-fpm would close the connection.
pub(crate) fn request(bytes: &[u8]) -> Option<Begun> {
    let (1, begin, mut rest) = record(bytes)? else { return None };
    let [0, 1, flags, _, _, _, _, _] = begin else { return None };
    let mut request = Begun { keep_conn: flags & 1 == 1, ..Begun::default() };
    loop {
        let (4, content, behind) = record(rest)? else { return None };
        rest = behind;
        if content.is_empty() {
            break;
        }
        request.params.extend(pairs(content)?);
    }
    while !rest.is_empty() {
        let (5, content, behind) = record(rest)? else { return None };
        assert!(!request.is_whole, "STDIN behind its end");
        rest = behind;
        request.is_whole = content.is_empty();
        request.body.extend(content);
    }
    Some(request)
}

/// All pairs of a record: none may be split.
fn pairs(mut rest: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let (name_bytes, value_bytes) = (length(&mut rest)?, length(&mut rest)?);
        let (name, behind) = rest.split_at_checked(name_bytes)?;
        let (value, behind) = behind.split_at_checked(value_bytes)?;
        rest = behind;
        pairs.push((String::from_utf8(name.to_vec()).ok()?, value.to_vec()));
    }
    Some(pairs)
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    match *rest {
        [a, b, c, d, behind @ ..] if *a >= 0x80 => {
            *rest = behind;
            Some(u32::from_be_bytes([a & 0x7f, *b, *c, *d]) as usize)
        }
        [a, behind @ ..] if *a < 0x80 => {
            *rest = behind;
            Some(usize::from(*a))
        }
        _ => None,
    }
}

/// STDOUT.
pub(crate) fn stdout(content: &[u8]) -> Vec<u8> {
    reply(6, content, 0)
}

/// STDERR.
pub(crate) fn stderr(content: &[u8]) -> Vec<u8> {
    reply(7, content, 0)
}

/// END_REQUEST.
pub(crate) fn end(app_status: u32, protocol_status: u8) -> Vec<u8> {
    let status = app_status.to_be_bytes();
    reply(3, &[&status[..], &[protocol_status, 0, 0, 0]].concat(), 0)
}

/// A record of an application.
pub(crate) fn reply(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let head = [1, kind, 0, 1, high, low, padding, 0];
    [&head[..], content, &vec![b'P'; usize::from(padding)]].concat()
}
