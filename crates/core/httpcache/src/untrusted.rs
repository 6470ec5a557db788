//! Request fields that change an answer and are part of no key: what an untrusted client could have
//! reflected into the stored answer of all others (Kettle, "Practical Web Cache Poisoning", 2018).
//!
//! Applications take them from the proxy in front of them, so they are dropped from clients that
//! are none. Forwarded and X-Forwarded-* are written anew by `skep_http::forward`.

/// Names in lower case; with `*` at their end: all that begin so.
const UNTRUSTED: &[&str] = &[
    "forwarded",
    "x-forwarded-*",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "x-original-*",
    "x-rewrite-url",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "proxy",
    "x-accel-*",
    "x-sendfile",
    "x-sendfile-type",
    "surrogate-*",
];

/// Whether a field of an untrusted client is dropped before its request is looked up or forwarded.
pub fn is_untrusted(name: &[u8]) -> bool {
    let begins = |begin: &str| {
        name.get(..begin.len()).is_some_and(|of| of.eq_ignore_ascii_case(begin.as_bytes()))
    };
    UNTRUSTED.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(begin) => begins(begin),
        None => name.eq_ignore_ascii_case(pattern.as_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_applications_believe_are_dropped_in_any_case() {
        for name in ["X-Forwarded-Host", "x-original-url", "X-HTTP-Method-Override", "Proxy"] {
            assert!(is_untrusted(name.as_bytes()), "{name}");
        }
        for name in ["Accept", "Proxy-Foo", "X-Forwarded", "Cookie", "Origin", ""] {
            assert!(!is_untrusted(name.as_bytes()), "{name}");
        }
    }
}
