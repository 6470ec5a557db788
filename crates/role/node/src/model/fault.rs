//! What a reply hears of an origin that failed.

use skep_origin::FaultKind;
use skep_segments::FetchError;

/// The error of a reply that needs what an origin did not give.
pub(crate) fn fetch_error(kind: FaultKind) -> FetchError {
    let status = match kind {
        FaultKind::Ask => 400,
        FaultKind::Busy => 503,
        FaultKind::Late | FaultKind::Stalled => 504,
        _ => 502,
    };
    FetchError::Origin { fault: kind.name(), status }
}
