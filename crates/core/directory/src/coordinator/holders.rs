//! The holders of one segment, in eight bytes if there are at most four.

use slab::Slab;

/// The number of a holder; see [`super::directory`].
pub(crate) type Holder = u16;

/// Largest number of a holder.
pub(crate) const HOLDER_MAX: Holder = Holder::MAX - 2;

/// Marks the end of the list.
const NOBODY: Holder = Holder::MAX;
/// In the first element: the list is in [`HolderLists`], and its index follows.
const CROWD: Holder = Holder::MAX - 1;
/// Holders stored in place.
const FEW: usize = 4;

/// A list of distinct holders: up to four are stored here, longer lists in [`HolderLists`].
#[derive(Debug)]
pub(crate) struct Holders([Holder; FEW]);

/// The lists of segments with many holders.
#[derive(Debug, Default)]
pub(crate) struct HolderLists(Slab<Vec<Holder>>);

impl Holders {
    /// A list with one holder.
    pub(crate) fn one(holder: Holder) -> Self {
        Self([holder, NOBODY, NOBODY, NOBODY])
    }

    fn crowd(&self) -> Option<usize> {
        let [first, low, high, _] = self.0;
        (first == CROWD).then(|| usize::from(low) | usize::from(high) << 16)
    }

    fn few(&self) -> &[Holder] {
        let end = self.0.iter().position(|&it| it == NOBODY).unwrap_or(FEW);
        &self.0[..end]
    }
}

impl HolderLists {
    /// The holders of a list.
    pub(crate) fn all<'a>(&'a self, holders: &'a Holders) -> &'a [Holder] {
        match holders.crowd() {
            Some(place) => &self.0[place],
            None => holders.few(),
        }
    }

    /// Adds a holder that is not in the list.
    pub(crate) fn push(&mut self, holders: &mut Holders, holder: Holder) {
        if let Some(place) = holders.crowd() {
            self.0[place].push(holder);
        } else if let Some(free) = holders.0.iter_mut().find(|it| **it == NOBODY) {
            *free = holder;
        } else {
            let mut crowd = holders.0.to_vec();
            crowd.push(holder);
            let place = self.0.insert(crowd);
            assert!(u32::try_from(place).is_ok(), "fewer crowds than holdings, which are bounded");
            *holders = Holders([CROWD, place as u16, (place >> 16) as u16, NOBODY]);
        }
    }

    /// Removes a holder from its list.
    pub(crate) fn remove(&mut self, holders: &mut Holders, holder: Holder) {
        let Some(place) = holders.crowd() else {
            let mut few = [NOBODY; FEW];
            let left = holders.few().iter().copied().filter(|&it| it != holder);
            few.iter_mut().zip(left).for_each(|(slot, it)| *slot = it);
            holders.0 = few;
            return;
        };
        self.0[place].retain(|&it| it != holder);
        if let Ok(few) = <[Holder; FEW]>::try_from(self.0[place].as_slice()) {
            self.0.remove(place);
            holders.0 = few;
        }
    }

    /// Memory of the lists, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let lists: usize = self.0.iter().map(|(_, list)| list.capacity() * 2).sum();
        lists + self.0.capacity() * (size_of::<Vec<Holder>>() + size_of::<usize>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_grow_into_crowds_and_back() {
        let mut crowds = HolderLists::default();
        let mut holders = Holders::one(0);
        for holder in 1..40 {
            crowds.push(&mut holders, holder);
        }
        assert_eq!(crowds.all(&holders), (0..40).collect::<Vec<_>>());
        for holder in 0..40 {
            assert!(crowds.all(&holders).contains(&holder));
            crowds.remove(&mut holders, holder);
            assert_eq!(crowds.all(&holders), (holder + 1..40).collect::<Vec<_>>());
        }
        assert!(crowds.0.is_empty());
        assert_eq!(size_of::<Holders>(), 8);
    }
}
