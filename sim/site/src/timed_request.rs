//! A request that arrives at a given time.

use crate::part::ObjectPart;

/// A request of a log with its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedRequest {
    pub(crate) at_ns: u64,
    pub(crate) client: u32,
    pub(crate) object: u32,
    pub(crate) part: ObjectPart,
}
