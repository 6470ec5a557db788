//! Maps the failure of an origin to the error of a reply.

use skep_origin::FaultKind;
use skep_segments::FetchError;

/// The error of a reply after a failure of an origin.
pub(crate) fn fetch_error(kind: FaultKind) -> FetchError {
    let status = match kind {
        FaultKind::Ask => 400,
        FaultKind::Busy => 503,
        FaultKind::Late | FaultKind::Stalled => 504,
        _ => 502,
    };
    FetchError::Origin { fault: kind.name(), status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_explains_each_kind() {
        let page = include_str!("../../../../../docs/operate/troubleshooting.md");
        for kind in FaultKind::ALL {
            let cell = format!("`origin-{}`", kind.name());
            let first = |line: &str| line.split('|').nth(1).is_some_and(|it| it.contains(&cell));
            assert!(page.lines().any(first), "no row of {cell}");
            let line = fetch_error(kind).cache_status();
            assert!(
                String::from_utf8_lossy(&line).contains(&format!("detail=origin-{}", kind.name()))
            );
        }
    }
}
