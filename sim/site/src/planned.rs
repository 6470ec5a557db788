//! Requests that are given one by one: what a test bed was asked for, asked of a simulated cluster.

use skep_workload::Popularity;

use crate::timed_request::TimedRequest;
use crate::workload::{SiteObject, SiteWorkload};

/// A request for a whole object, at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRequest {
    /// Since the first one may come.
    pub at_ns: u64,
    pub client: u32,
    /// Its place among the objects.
    pub object: u32,
}

impl SiteWorkload {
    /// These objects, each a path and its bytes, none of which is 0, and these requests in the order of their times; for
    /// [`OfferedLoad::Logged`](crate::OfferedLoad::Logged).
    ///
    /// # Panics
    /// There is no request, or one for an object that does not exist.
    pub fn planned<'a>(
        objects: impl IntoIterator<Item = (&'a str, u64)>,
        requests: &[PlannedRequest],
    ) -> Self {
        assert!(!requests.is_empty(), "there is something to ask for");
        let mut segments = 0;
        let object = |(path, bytes): (&str, u64)| {
            assert!(bytes > 0, "objects are not empty");
            let object = SiteObject::at_path(path.as_bytes().into(), bytes, segments);
            segments += object.whole().segments().end;
            object
        };
        let objects: Vec<SiteObject> = objects.into_iter().map(object).collect();
        let mut counts = vec![0.0; objects.len()];
        let timed = |request: &PlannedRequest| {
            let PlannedRequest { at_ns, client, object } = *request;
            counts[object as usize] += 1.0;
            TimedRequest { at_ns, client, object, part: objects[object as usize].whole() }
        };
        let logged = requests.iter().map(timed).collect();
        Self { popularity: Popularity::weighted(counts), segments, objects, logged }
    }
}
