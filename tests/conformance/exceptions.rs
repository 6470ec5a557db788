//! The recorded score: failing required and optional tests with reasons. All others pass in every place.
//! tidy: table

use crate::rig::Settings;

/// Tests that fail for the same reason.
pub(crate) struct Exception {
    pub(crate) ids: &'static [&'static str],
    /// Whether the tests fail under safe defaults only, or under both configurations.
    pub(crate) is_safe_only: bool,
    pub(crate) reason: &'static str,
}

pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        ids: &["headers-store-Transfer-Encoding"],
        is_safe_only: false,
        reason: "The response has a transfer coding that does not exist. Skep cannot decode such a body, and \
                 answers 502 instead of passing on what it does not understand; the suite wants the response.",
    },
    Exception {
        ids: &["headers-store-Set-Cookie", "other-set-cookie"],
        is_safe_only: true,
        reason: "`set_cookie = \"never\"`: all clients would get the same cookie.",
    },
    Exception {
        ids: &[
            "status-400-fresh",
            "status-499-fresh",
            "status-500-fresh",
            "status-502-fresh",
            "status-503-fresh",
            "status-504-fresh",
            "status-599-fresh",
        ],
        is_safe_only: true,
        reason: "`statuses = \"usual\"`: errors can be provoked by odd requests, and all clients would get them.",
    },
    Exception {
        ids: &[
            "heuristic-200-cached",
            "heuristic-203-cached",
            "heuristic-204-cached",
            "heuristic-404-cached",
            "heuristic-405-cached",
            "heuristic-410-cached",
            "heuristic-414-cached",
            "heuristic-501-cached",
            "heuristic-599-cached",
        ],
        is_safe_only: true,
        reason: "`heuristic = false`: what an application does not say is not guessed.",
    },
    Exception {
        ids: &["method-POST"],
        is_safe_only: false,
        reason: "Responses to POST are not stored. RFC 9110 9.3.3 allows it for those with Content-Location and a \
                 lifetime; none of the caches below does it.",
    },
    Exception {
        ids: &["vary-normalise-lang-order"],
        is_safe_only: false,
        reason: "Languages of equal weight are not reordered: applications choose by their order.",
    },
    Exception {
        ids: &["vary-normalise-lang-select"],
        is_safe_only: false,
        reason: "Which language an application would choose is known to the application only.",
    },
    Exception {
        ids: &["conditional-lm-fresh-no-lm"],
        is_safe_only: false,
        reason: "The stored response has no Last-Modified, and its Date is later than that of \
                 If-Modified-Since: RFC 9111 4.3.2 names no case in which it is answered with 304.",
    },
    Exception {
        ids: &[
            "partial-store-partial-complete",
            "partial-store-partial-reuse-partial",
            "partial-store-partial-reuse-partial-absent",
            "partial-store-partial-reuse-partial-byterange",
            "partial-store-partial-reuse-partial-suffix",
        ],
        is_safe_only: false,
        reason: "Partial responses are not stored: the server is asked for the whole, which answers all further \
                 ranges. The suite's server sends a part all the same; the request is then repeated as the \
                 client has sent it, which the suite takes for a retry.",
    },
];

/// Returns why a test may fail under these settings, or `None` if it must pass.
pub(crate) fn reason(id: &str, settings: Settings) -> Option<&'static str> {
    let applies = |it: &&Exception| !it.is_safe_only || settings == Settings::Safe;
    let mut all = EXCEPTIONS.iter().filter(applies);
    all.find(|it| it.ids.contains(&id)).map(|it| it.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../docs/conformance.md");

    #[test]
    fn the_page_has_every_exception_with_its_reason() {
        for Exception { ids, reason, .. } in EXCEPTIONS {
            assert!(
                PAGE.contains(reason),
                "not in docs/conformance.md, make conformance writes it: {reason}"
            );
            ids.iter().for_each(|id| assert!(PAGE.contains(&format!("`{id}`")), "{id}"));
        }
    }

    #[test]
    fn what_fails_under_safe_defaults_only_is_no_excuse_elsewhere() {
        assert!(reason("method-POST", Settings::Made).is_some());
        assert!(reason("other-set-cookie", Settings::Safe).is_some());
        assert!(reason("other-set-cookie", Settings::Made).is_none());
        assert!(reason("freshness-none", Settings::Safe).is_none());
    }
}
