//! Content negotiation: Accept-Encoding and Accept (RFC 9110 12.5).
use crate::RequestHead;

/// A content coding that sidecar files come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the coding of that name")]
pub enum Encoding {
    Br,
    Zstd,
    Gzip,
}

impl Encoding {
    /// Token of `Content-Encoding`.
    pub fn as_str(self) -> &'static str {
        unimplemented!("as_str")
    }
}

/// Which codings exist for an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the coding of that name")]
pub struct EncodingSet {
    pub br: bool,
    pub zstd: bool,
    pub gzip: bool,
}

/// What a client accepts, with weights in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptEncoding {
    br: u16,
    zstd: u16,
    gzip: u16,
    identity: u16,
}

impl AcceptEncoding {
    /// Reads Accept-Encoding; none: identity only.
    pub fn parse(head: &RequestHead<'_, '_>) -> AcceptEncoding {
        let _ = head;
        unimplemented!("parse")
    }

    /// The best of `available`; `None`: send the plain bytes. Equal weights:
    /// br, then zstd, then gzip.
    pub fn choose(&self, available: EncodingSet) -> Option<Encoding> {
        let _ = (available, self.br, self.zstd, self.gzip, self.identity);
        unimplemented!("choose")
    }

    /// Whether plain bytes are acceptable (no `identity;q=0`).
    pub fn identity_ok(&self) -> bool {
        unimplemented!("identity_ok")
    }
}

/// Whether an Accept field prefers JSON to HTML.
pub fn prefers_json(accept: Option<&[u8]>) -> bool {
    let _ = accept;
    unimplemented!("prefers_json")
}
