//! Requests as bytes. A test that needs an invalid request writes the bytes itself.

/// The name that clients ask for which want no particular one.
pub const HOST: (&str, &str) = ("Host", "test");

/// The bytes of a request without a body. The fields are all that it has: `Host` is one of them.
pub fn request_bytes(method: &str, target: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    for (name, value) in fields {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// The same with a body, and the `Content-Length` of it behind all fields.
pub fn request_with_body(
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len().to_string();
    let fields = [fields, &[("Content-Length", &length)]].concat();
    [request_bytes(method, target, &fields).as_slice(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_what_they_are_given_in_this_order() {
        let fields = [("Range", "bytes=0-1"), HOST];
        let bytes = request_bytes("HEAD", "/a", &fields);
        assert_eq!(bytes, b"HEAD /a HTTP/1.1\r\nRange: bytes=0-1\r\nHost: test\r\n\r\n");
        let bytes = request_with_body("POST", "/a", &[HOST], "ab");
        assert_eq!(bytes, b"POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nab");
    }
}
