//! The reasons for the cache's decisions: every rule with its section and a sentence for operators.

/// Declares the rules: variant, token, section, sentence.
macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident $token:literal $section:literal $text:literal)*) => {
        /// The rule behind a decision.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CachingRule { $(#[doc = $text] $name),* }

        impl CachingRule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// A stable name; a token of RFC 9110, so that it can be the `detail` of Cache-Status.
            pub fn token(self) -> &'static str {
                match self { $(Self::$name => $token),* }
            }

            /// The section that contains the rule; `policy` if it comes only from the settings.
            pub fn section(self) -> &'static str {
                match self { $(Self::$name => $section),* }
            }

            /// The rule in one sentence.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

rules! {
    // Sources of lifetimes.
    Targeted "targeted" "RFC 9213 2.2" "a targeted field (CDN-Cache-Control) sets the lifetime"
    SMaxage "s-maxage" "RFC 9111 5.2.2.10" "s-maxage sets the lifetime in shared caches"
    MaxAge "max-age" "RFC 9111 5.2.2.1" "max-age sets the lifetime"
    Expires "expires" "RFC 9111 5.3" "Expires sets the lifetime"
    Heuristic "heuristic" "RFC 9111 4.2.2" "no lifetime is given: a share of the time since the last change"
    DefaultLifetime "default" "policy" "no lifetime is given: that of the settings"
    NegativeLifetime "negative" "policy" "no lifetime is given with an error: that of the settings"
    StatusLifetime "status-lifetime" "policy" "no lifetime is given: that of the settings for this status"
    NoLifetime "no-lifetime" "RFC 9111 4.2.1" "no lifetime is given: stale from the beginning"
    // Reasons not to store a response.
    Method "method" "RFC 9111 3" "only responses to GET are stored"
    RequestNoStore "request-no-store" "RFC 9111 5.2.1.5" "the request has no-store"
    RequestBody "request-body" "policy" "the request has a body, which is no part of the key"
    NoStore "no-store" "RFC 9111 5.2.2.5" "the response has no-store"
    MustUnderstand "must-understand" "RFC 9111 5.2.2.3" "must-understand, and the status is unknown"
    Private "private" "RFC 9111 5.2.2.7" "the response is private"
    Authorization "authorization" "RFC 9111 3.5" "the request has Authorization, and the response does not allow sharing"
    SetCookie "set-cookie" "RFC 9111 7.3" "the response sets a cookie"
    VaryAll "vary-all" "RFC 9111 4.1" "Vary is * or has too many names"
    VaryRefused "vary-refused" "policy" "Vary names a field with as many values as there are clients"
    Status "status" "policy" "responses with this status are not stored"
    StatusNotHeuristic "status-no-lifetime" "RFC 9110 15.1" "responses with this status are stored only with a lifetime"
    OpenEnded "open-ended" "RFC 9111 3.3" "only the end of the connection ends the body: it may be incomplete"
    EventStream "event-stream" "policy" "the response is a stream of events"
    NothingToReuse "nothing-to-reuse" "RFC 9111 4.2.1" "neither a lifetime nor a validator"
    BypassCookie "bypass-cookie" "policy" "the request has a cookie with which it goes past the cache"
    BypassField "bypass-field" "policy" "the request has a field with which it goes past the cache"
    Cookie "cookie" "policy" "the request has a cookie, and the response gives no lifetime of its own"
    // Reasons to use a stored response.
    Fresh "fresh" "RFC 9111 4.2" "the response is fresh"
    MaxStale "max-stale" "RFC 9111 5.2.1.2" "the request accepts a stale response"
    WhileRevalidating "stale-while-revalidate" "RFC 5861 3" "stale-while-revalidate allows it, or the settings where it is silent"
    IfError "stale-if-error" "RFC 5861 4" "stale-if-error allows it, or the settings where it is silent"
    OnDisconnect "stale-on-disconnect" "RFC 9111 4.2.4" "the origin cannot be reached, and the settings allow a stale response"
    // Reasons to validate a stored response first, or not to use it at all.
    Stale "stale" "RFC 9111 4.2" "the response is stale"
    Purged "purged" "policy" "a soft purge made the response stale"
    NoCache "no-cache" "RFC 9111 5.2.2.4" "the response has no-cache"
    MustRevalidate "must-revalidate" "RFC 9111 5.2.2.2" "must-revalidate forbids a stale response"
    ProxyRevalidate "proxy-revalidate" "RFC 9111 5.2.2.8" "proxy-revalidate forbids a stale response"
    SMaxageRevalidate "s-maxage-revalidate" "RFC 9111 5.2.2.10" "s-maxage forbids a stale response"
    RequestNoCache "request-no-cache" "RFC 9111 5.2.1.4" "the request has no-cache"
    RequestMaxAge "request-max-age" "RFC 9111 5.2.1.1" "the request accepts no response of this age"
    MinFresh "min-fresh" "RFC 9111 5.2.1.3" "the request wants a response that stays fresh for longer"
    OnlyIfCached "only-if-cached" "RFC 9111 5.2.1.7" "the request wants a stored response, and there is none that can be used"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_unique_and_tokens() {
        let mut tokens: Vec<_> = CachingRule::ALL.iter().map(|rule| rule.token()).collect();
        let is_token = |text: &&str| text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        assert!(tokens.iter().all(is_token) && tokens.iter().all(|text| !text.is_empty()));
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), CachingRule::ALL.len());
        let is_place = |place: &str| place == "policy" || place.starts_with("RFC ");
        assert!(CachingRule::ALL.iter().all(|rule| is_place(rule.section())));
    }
}
