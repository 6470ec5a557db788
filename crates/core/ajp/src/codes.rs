//! The numbers of AJP13 (Tomcat: `org.apache.coyote.ajp.Constants`; mod_jk: `ajpv13a.xml`).
//! tidy: table

/// Begins a packet to the server.
pub(crate) const TO_SERVER: [u8; 2] = [0x12, 0x34];
/// Begins a packet from the server: "AB".
pub(crate) const FROM_SERVER: [u8; 2] = [0x41, 0x42];

pub(crate) const FORWARD_REQUEST: u8 = 2;
pub(crate) const SEND_BODY_CHUNK: u8 = 3;
pub(crate) const SEND_HEADERS: u8 = 4;
pub(crate) const END_RESPONSE: u8 = 5;
pub(crate) const GET_BODY_CHUNK: u8 = 6;
pub(crate) const CPONG_REPLY: u8 = 9;
pub(crate) const CPING_REQUEST: u8 = 10;

/// The length of an absent string.
pub(crate) const NULL_STRING: u16 = 0xffff;

/// A method without a code; its name is an attribute.
pub(crate) const STORED_METHOD: u8 = 0xff;

pub(crate) const ATTRIBUTE_QUERY: u8 = 0x05;
pub(crate) const ATTRIBUTE_TLS_CERTIFICATE: u8 = 0x07;
pub(crate) const ATTRIBUTE_TLS_CIPHER: u8 = 0x08;
pub(crate) const ATTRIBUTE_TLS_SESSION: u8 = 0x09;
pub(crate) const ATTRIBUTE_NAMED: u8 = 0x0a;
/// The only attribute with a numeric value.
pub(crate) const ATTRIBUTE_TLS_KEY_BITS: u8 = 0x0b;
pub(crate) const ATTRIBUTE_SECRET: u8 = 0x0c;
pub(crate) const ATTRIBUTE_METHOD: u8 = 0x0d;
pub(crate) const ATTRIBUTES_END: u8 = 0xff;

/// Names of [`ATTRIBUTE_NAMED`] that Tomcat knows. It responds with 403 to any other one, unless
/// `allowedRequestAttributesPattern` allows it.
pub(crate) const NAMED_REMOTE_PORT: &[u8] = b"AJP_REMOTE_PORT";
pub(crate) const NAMED_LOCAL_ADDR: &[u8] = b"AJP_LOCAL_ADDR";
pub(crate) const NAMED_TLS_PROTOCOL: &[u8] = b"AJP_SSL_PROTOCOL";
pub(crate) const NAMED_ACTIVATION: &[u8] = b"JK_LB_ACTIVATION";

/// The high byte of a name's code; no length has this high byte.
pub(crate) const NAME_CODE: u8 = 0xa0;

/// Methods by code, starting with 1.
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

/// Names of request fields by code, starting with 1.
const REQUEST_NAMES: [&str; 14] = [
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

pub(crate) const NAME_CONTENT_LENGTH: u8 = 0x08;
pub(crate) const NAME_HOST: u8 = 0x0b;

/// Names of response fields by code, starting with 1.
const RESPONSE_NAMES: [&str; 11] = [
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

/// The code of a method; `None` if it is sent by name.
pub(crate) fn method_code(name: &str) -> Option<u8> {
    METHODS.iter().position(|it| *it == name).map(|at| at as u8 + 1)
}

/// The low byte of a request field name's code; `None` if it is sent as a string.
pub(crate) fn request_name_code(name: &str) -> Option<u8> {
    REQUEST_NAMES.iter().position(|it| it.eq_ignore_ascii_case(name)).map(|at| at as u8 + 1)
}

/// The name of a response field, by the low byte of its code.
pub(crate) fn response_name(code: u8) -> Option<&'static str> {
    RESPONSE_NAMES.get(usize::from(code).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_tomcat() {
        for (name, code) in [
            ("OPTIONS", 1),
            ("GET", 2),
            ("DELETE", 6),
            ("PROPFIND", 8),
            ("ACL", 15),
            ("SEARCH", 21),
            ("MKACTIVITY", 27),
        ] {
            assert_eq!(method_code(name), Some(code), "{name}");
        }
        for name in ["PATCH", "get", "QUERY", ""] {
            assert_eq!(method_code(name), None, "{name}");
        }
        assert_eq!(request_name_code("Content-Length"), Some(NAME_CONTENT_LENGTH));
        assert_eq!(request_name_code("HOST"), Some(NAME_HOST));
        assert_eq!(request_name_code("user-agent"), Some(0x0e));
        assert_eq!(request_name_code("range"), None);
        assert_eq!(response_name(1), Some("Content-Type"));
        assert_eq!(response_name(0x0b), Some("WWW-Authenticate"));
        assert_eq!((response_name(0), response_name(0x0c)), (None, None));
    }
}
