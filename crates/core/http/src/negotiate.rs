//! Content negotiation: Accept-Encoding and Accept (RFC 9110 12).

use crate::bytes::{self, eq_lower};
use crate::{Known, RequestHead};

/// Weight of a preference, in thousandths; 0 means not acceptable.
type Weight = u16;
const WEIGHT_MAX: Weight = 1000;

/// A content coding of an object's variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    Br,
    Zstd,
    Gzip,
}

impl Encoding {
    /// Every coding, best first.
    pub const ALL: [Encoding; 3] = [Encoding::Br, Encoding::Zstd, Encoding::Gzip];

    /// Token in Content-Encoding.
    pub fn as_str(self) -> &'static str {
        match self {
            Encoding::Br => "br",
            Encoding::Zstd => "zstd",
            Encoding::Gzip => "gzip",
        }
    }

    /// File extension of such variants, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Encoding::Br => "br",
            Encoding::Zstd => "zst",
            Encoding::Gzip => "gz",
        }
    }
}

/// The codings that exist for an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingSet {
    pub br: bool,
    pub zstd: bool,
    pub gzip: bool,
}

impl EncodingSet {
    /// Whether it contains `encoding`.
    #[inline]
    pub fn has(self, encoding: Encoding) -> bool {
        match encoding {
            Encoding::Br => self.br,
            Encoding::Zstd => self.zstd,
            Encoding::Gzip => self.gzip,
        }
    }

    /// Whether it is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        !(self.br || self.zstd || self.gzip)
    }
}

/// The preferences of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptEncoding {
    br: Weight,
    zstd: Weight,
    gzip: Weight,
    /// `None`, which ranks below any stated weight, if the client did not mention it.
    identity: Option<Weight>,
}

impl AcceptEncoding {
    /// Parses Accept-Encoding. Without the field every coding is acceptable, but such clients are
    /// sent plain bytes, which all of them can read.
    #[inline]
    pub fn parse(head: &RequestHead<'_, '_>) -> AcceptEncoding {
        let mut accept = AcceptEncoding { br: 0, zstd: 0, gzip: 0, identity: None };
        if head.fields.known(Known::AcceptEncoding).is_some() {
            accept.read(head);
        }
        accept
    }

    /// The best of `available`; `None`: send the plain bytes. The greatest weight wins; of equal
    /// weights br, then zstd, then gzip, then plain.
    #[inline]
    pub fn choose(&self, available: EncodingSet) -> Option<Encoding> {
        let mut best = (None, self.identity.unwrap_or(0));
        // Worst first, so that a better coding of equal weight wins.
        for encoding in Encoding::ALL.into_iter().rev() {
            let weight = self.weight(encoding);
            if weight > 0 && weight >= best.1 && available.has(encoding) {
                best = (Some(encoding), weight);
            }
        }
        best.0
    }

    /// The same for `codings`, in the server's order: of equal weights the first coding wins.
    #[inline]
    pub fn choose_among(&self, codings: &[Encoding]) -> Option<Encoding> {
        let mut best = (None, self.identity.unwrap_or(0));
        for &coding in codings.iter().rev() {
            let weight = self.weight(coding);
            if weight > 0 && weight >= best.1 {
                best = (Some(coding), weight);
            }
        }
        best.0
    }

    #[inline]
    fn weight(&self, encoding: Encoding) -> Weight {
        match encoding {
            Encoding::Br => self.br,
            Encoding::Zstd => self.zstd,
            Encoding::Gzip => self.gzip,
        }
    }

    fn read(&mut self, head: &RequestHead<'_, '_>) {
        let (mut br, mut zstd, mut gzip, mut any) = (None, None, None, None);
        for member in head.fields.known_all(Known::AcceptEncoding).flat_map(bytes::list) {
            let (coding, weight) = split_weight(member);
            let slot = match coding {
                b"*" => &mut any,
                c if eq_lower(c, b"br") => &mut br,
                c if eq_lower(c, b"zstd") => &mut zstd,
                c if eq_lower(c, b"gzip") || eq_lower(c, b"x-gzip") => &mut gzip,
                c if eq_lower(c, b"identity") => &mut self.identity,
                _ => continue,
            };
            slot.get_or_insert(weight);
        }
        let other = any.unwrap_or(0);
        self.br = br.unwrap_or(other);
        self.zstd = zstd.unwrap_or(other);
        self.gzip = gzip.unwrap_or(other);
        if any == Some(0) {
            self.identity.get_or_insert(0);
        }
    }
}

/// Whether an Accept field prefers JSON to HTML; false without the field.
pub fn prefers_json(accept: Option<&[u8]>) -> bool {
    let (mut json, mut html) = (None, None);
    let (mut application, mut text, mut any) = (None, None, None);
    for member in accept.into_iter().flat_map(bytes::list) {
        let (media_range, weight) = split_weight(member);
        let slot = match media_range {
            b"*/*" => &mut any,
            b"application/*" => &mut application,
            b"text/*" => &mut text,
            r if r.eq_ignore_ascii_case(b"application/json") => &mut json,
            r if r.eq_ignore_ascii_case(b"text/html") => &mut html,
            _ => continue,
        };
        slot.get_or_insert(weight);
    }
    let json = json.or(application).or(any).unwrap_or(0);
    let html = html.or(text).or(any).unwrap_or(0);
    json > html
}

/// Splits `token;q=0.5`; other parameters are ignored. A malformed weight counts
/// as 0, so that its member is not acceptable.
fn split_weight(member: &[u8]) -> (&[u8], Weight) {
    let mut parts = member.split(|b| *b == b';').map(bytes::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|p| p.strip_prefix(b"q=").or(p.strip_prefix(b"Q=")));
    (name, weight.map_or(WEIGHT_MAX, |digits| parse_weight(digits).unwrap_or(0)))
}

/// `0`, `1`, or one of them with up to three decimals, at most 1
/// (RFC 9110 12.4.2).
fn parse_weight(digits: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match digits {
        [whole] | [whole, b'.'] => (*whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    if !matches!(whole, b'0' | b'1') || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |place: usize| decimals.get(place).map_or(0, |d| Weight::from(d - b'0'));
    let weight = Weight::from(whole - b'0') * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2);
    (weight <= WEIGHT_MAX).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_at_most_three_decimals() {
        for (digits, weight) in
            [("0", 0), ("1", 1000), ("0.5", 500), ("0.123", 123), ("1.000", 1000), ("0.", 0)]
        {
            assert_eq!(parse_weight(digits.as_bytes()), Some(weight), "{digits}");
        }
        for bad in ["", "2", "1.1", "0.1234", ".5", "0,5", "-1", "0.x", "00.5"] {
            assert_eq!(parse_weight(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn json_only_where_it_is_preferred() {
        for (accept, json) in [
            ("application/json", true),
            ("application/json, text/html;q=0.9", true),
            ("application/*, */*;q=0.1", true),
            ("text/html,application/xhtml+xml,*/*;q=0.8", false),
            ("*/*", false),
            ("", false),
            ("application/json;q=0", false),
            ("text/html, application/json", false),
            ("text/html;level=1;q=0.3, APPLICATION/JSON;q=0.4", true),
        ] {
            assert_eq!(prefers_json(Some(accept.as_bytes())), json, "{accept}");
        }
        assert!(!prefers_json(None));
    }
}
