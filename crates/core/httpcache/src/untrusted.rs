//! Request fields that change an answer and are part of no key: what an untrusted client could have
//! reflected into the stored answer of all others (Kettle, "Practical Web Cache Poisoning", 2018).
//!
//! Applications take them from the proxy in front of them, so they are dropped from clients that
//! are none. Forwarded and X-Forwarded-* are written anew by `skep_http::forward`.

use skep_http::Known;

/// Names in lower case; with `*` at their end: all that begin so.
const UNTRUSTED: &[&str] = &[
    // What a proxy says of the client's request.
    "forwarded",
    "x-forwarded",
    "x-forwarded-*",
    "x-forward-*",
    "x-host",
    "x-http-host-override",
    "x-scheme",
    "x-url-scheme",
    "x-script-name",
    "front-end-https",
    // Who the client is.
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    // Another path or method than that of the key: Symfony, Zend, IIS, Envoy; Rack, Rails, Express, Spring.
    "x-original-*",
    "x-rewrite-url",
    "x-envoy-*",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    // Between the parts of a framework: Next.js answers with an empty page or an error page by them
    // (CVE-2024-46982, CVE-2025-29927, CVE-2025-49005).
    "x-middleware-*",
    "x-invoke-*",
    "x-now-route-matches",
    // CGI programs, and what names files.
    "proxy",
    "x-accel-*",
    "x-sendfile",
    "x-sendfile-type",
    "surrogate-*",
];

/// Whether a field of an untrusted client is dropped before its request is looked up or forwarded.
pub fn is_untrusted(name: &[u8]) -> bool {
    match Known::of(name) {
        Some(known) => matches!(known, Known::Forwarded | Known::XForwardedFor),
        None => UNTRUSTED.iter().any(|pattern| names_field(pattern, name)),
    }
}

/// Whether the field `name` is `pattern`, which is in lower case, or begins so where that ends with `*`.
pub fn names_field(pattern: &str, name: &[u8]) -> bool {
    let (name, pattern) = match pattern.strip_suffix('*') {
        Some(begin) => (name.get(..begin.len()).unwrap_or(name), begin),
        None => (name, pattern),
    };
    name.eq_ignore_ascii_case(pattern.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_fields_that_are_untrusted_are_those_of_the_list() {
        let listed = |name: &str| UNTRUSTED.iter().any(|it| names_field(it, name.as_bytes()));
        for name in ["forwarded", "x-forwarded-for", "cookie", "host", "if-match", "upgrade"] {
            assert_eq!(is_untrusted(name.as_bytes()), listed(name), "{name}");
        }
    }

    #[test]
    fn fields_that_applications_believe_are_dropped_in_any_case() {
        for name in [
            "X-Forwarded-Host",
            "x-forwarded",
            "X-Forward-Proto",
            "x-original-url",
            "X-Rewrite-URL",
            "X-HTTP-Method-Override",
            "X-Middleware-Prefetch",
            "x-now-route-matches",
            "Proxy",
        ] {
            assert!(is_untrusted(name.as_bytes()), "{name}");
        }
        for name in ["Accept", "Proxy-Foo", "X-Forwardedx", "Cookie", "Origin", "X-Origin", ""] {
            assert!(!is_untrusted(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn patterns_of_names_have_no_case() {
        assert!(
            names_field("x-a*", b"X-A") && names_field("x-a*", b"X-aBC") && names_field("*", b"")
        );
        assert!(names_field("x-a", b"X-A") && !names_field("x-a", b"X-AB"));
        assert!(!names_field("x-a*", b"X-") && !names_field("x-a*", b"Y-A"));
    }
}
