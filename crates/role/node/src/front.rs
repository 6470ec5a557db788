//! Each worker's own index of what it served last: no lock, no allocation.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;

use crate::limits::FRONT_ENTRIES_MAX;
use crate::resource::Resource;
use crate::segment::Segment;

/// What a worker remembers of a path.
pub(crate) struct Entry {
    pub(crate) resource: Arc<Resource>,
    /// First segments of the variants, by slot. Weak: the store decides what
    /// stays in memory.
    pub(crate) segments: [Weak<Segment>; 4],
}

type Paths = HashMap<Box<[u8]>, Entry, foldhash::fast::RandomState>;

/// Paths by site.
pub(crate) struct Front {
    sites: RefCell<Vec<Paths>>,
}

impl Front {
    pub(crate) fn new(sites: usize) -> Self {
        Self { sites: RefCell::new((0..sites).map(|_| HashMap::default()).collect()) }
    }

    /// Calls `job` with the entry of a path, if there is one.
    pub(crate) fn with<R>(
        &self,
        site: usize,
        path: &[u8],
        job: impl FnOnce(&Entry) -> R,
    ) -> Option<R> {
        self.sites.borrow()[site].get(path).map(job)
    }

    /// Remembers a resource and the first segment of one of its variants
    /// (none: it is empty).
    pub(crate) fn remember(
        &self,
        path: &[u8],
        resource: &Arc<Resource>,
        slot: usize,
        segment: Option<&Arc<Segment>>,
    ) {
        let segment = segment.map_or_else(Weak::new, Arc::downgrade);
        let site = &mut self.sites.borrow_mut()[resource.site.index];
        if let Some(entry) = site.get_mut(path) {
            if !Arc::ptr_eq(&entry.resource, resource) {
                *entry = Entry { resource: Arc::clone(resource), segments: Default::default() };
            }
            entry.segments[slot] = segment;
            return;
        }
        if site.len() >= FRONT_ENTRIES_MAX {
            site.clear();
        }
        let mut segments: [Weak<Segment>; 4] = Default::default();
        segments[slot] = segment;
        site.insert(path.into(), Entry { resource: Arc::clone(resource), segments });
    }
}
