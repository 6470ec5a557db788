//! Maps the failure of an origin to the error of a reply.

use skep_origin::FaultKind;
use skep_segments::FetchError;

/// The error of a reply for which an origin failed.
pub(crate) fn fetch_error(kind: FaultKind) -> FetchError {
    let status = match kind {
        FaultKind::Ask => 400,
        FaultKind::Busy => 503,
        FaultKind::Late | FaultKind::Stalled => 504,
        _ => 502,
    };
    FetchError::Origin { fault: kind.name(), status }
}
