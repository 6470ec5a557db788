//! The purge table: for each place and tag the latest purge that matches it.
//!
//! Nodes and dispatchers each have one, and exchange their entries. A merge can only raise stamps,
//! and entries that arrive twice or late have no effect, so they may arrive by any path and in any
//! order.
//!
//! ```text
//!   recent: what -> stamp     exact, the latest ones
//!      | too many: the oldest
//!      v
//!   cells: hash -> stamp      everything that hashes to a cell counts as purged, too
//!      | a prefix without a whole folder
//!      v
//!   floor                     everything
//! ```
//!
//! Hard and soft purges have one table each ([`PurgeTables`]); their stamps form one sequence.
//!
//! Invariants: whatever a purge in the table matches never gets an earlier stamp as its answer;
//! memory is bounded by [`PurgeBounds`] and the number of cells.

use std::collections::BTreeMap;

use skep_units::stable_hash;
use skep_wire::cache::{PurgeKind, PurgeNews, PurgePlace, PurgeStamp, PurgeWhat};
use skep_wire::limits::{PURGE_CELLS_PER_MESSAGE_MAX, PURGES_PER_MESSAGE_MAX};

use crate::limits::{PURGE_PREFIXES_MAX, PURGE_TEXT_BYTES_MAX, PURGES_MAX};

const URL_SEED: u64 = 0x75_726c;
const FOLDER_SEED: u64 = 0x666f_6c64_6572;
const TAG_SEED: u64 = 0x74_6167;

/// How many purges are stored exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PurgeBounds {
    /// Of URLs and tags.
    pub(crate) purges_max: usize,
    /// Of prefixes.
    pub(crate) prefixes_max: usize,
    /// Bytes of text of each of the two kinds.
    pub(crate) text_bytes_max: usize,
}

impl Default for PurgeBounds {
    fn default() -> Self {
        Self {
            purges_max: PURGES_MAX,
            prefixes_max: PURGE_PREFIXES_MAX,
            text_bytes_max: PURGE_TEXT_BYTES_MAX,
        }
    }
}

/// Whether places that differ only in their queries are distinct on a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// They are distinct.
    Matter,
    /// They are not: a purge of a place with a query also hits the place.
    DoNot,
}

/// The purge tables of both kinds.
///
/// A hard purge takes precedence over a soft one, whichever is later: the object is removed, so
/// that nothing is left to be stale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeTables {
    hard: PurgeTable,
    soft: PurgeTable,
}

impl PurgeTables {
    /// The table of one kind.
    pub fn of(&self, kind: PurgeKind) -> &PurgeTable {
        match kind {
            PurgeKind::Hard => &self.hard,
            PurgeKind::Soft => &self.soft,
        }
    }

    /// Merges the purges of another machine; returns those that were new.
    ///
    /// A node of a build without soft purges reports them as hard ones. They are ignored if they
    /// are known to be soft, since no two commands have the same stamp.
    pub fn learn(&mut self, kind: PurgeKind, news: &PurgeNews) -> Option<PurgeNews> {
        if kind == PurgeKind::Soft {
            return self.soft.learn(news);
        }
        let is_soft = |(what, stamp): &(PurgeWhat, PurgeStamp)| {
            self.soft.recent.get(what).is_some_and(|known| known == stamp)
        };
        if !news.purges.iter().any(is_soft) {
            return self.hard.learn(news);
        }
        let mut hard = news.clone();
        hard.purges.retain(|purge| !is_soft(purge));
        self.hard.learn(&hard)
    }

    /// Records that a purge with this stamp exists, although its contents are unknown.
    pub fn heard_of(&mut self, stamp: PurgeStamp) {
        self.hard.heard_of(stamp);
    }

    /// The latest known stamp.
    pub fn newest(&self) -> PurgeStamp {
        self.hard.newest.max(self.soft.newest)
    }

    /// All purges, in messages within their bounds; none if the tables are empty.
    pub fn told(&self) -> Vec<(PurgeKind, PurgeNews)> {
        let of = |kind| self.of(kind).told().into_iter().map(move |news| (kind, news));
        of(PurgeKind::Hard).chain(of(PurgeKind::Soft)).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeTable {
    bounds: PurgeBounds,
    newest: PurgeStamp,
    floor: PurgeStamp,
    cells: BTreeMap<u16, PurgeStamp>,
    recent: BTreeMap<PurgeWhat, PurgeStamp>,
}

impl PurgeTable {
    /// An empty table with other bounds than the defaults.
    #[cfg(test)]
    pub(crate) fn new(bounds: PurgeBounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// Merges the purges of another machine; returns those that were new.
    pub fn learn(&mut self, news: &PurgeNews) -> Option<PurgeNews> {
        self.newest = self.newest.max(news.newest());
        let mut new = PurgeNews::default();
        if news.floor > self.floor {
            new.floor = news.floor;
            self.raise_floor(news.floor);
        }
        for &(cell, stamp) in &news.cells {
            if self.raise_cell(cell, stamp) {
                new.cells.push((cell, stamp));
            }
        }
        for (what, stamp) in &news.purges {
            let coarse = coarse(what).and_then(|cell| self.cells.get(&cell));
            let is_new = coarse.is_none_or(|known| known < stamp);
            if is_new && self.raise(what, *stamp) {
                new.purges.push((what.clone(), *stamp));
            }
        }
        self.bound();
        (!new.is_empty()).then_some(new)
    }

    /// Records that a purge with this stamp exists, although its contents are unknown.
    pub fn heard_of(&mut self, stamp: PurgeStamp) {
        self.newest = self.newest.max(stamp);
    }

    /// The latest known stamp.
    pub fn newest(&self) -> PurgeStamp {
        self.newest
    }

    /// All purges, in messages within their bounds; none if the table is
    /// empty.
    pub fn told(&self) -> Vec<PurgeNews> {
        let cells: Vec<_> = self.cells.iter().map(|(&cell, &stamp)| (cell, stamp)).collect();
        let cells = cells.chunks(PURGE_CELLS_PER_MESSAGE_MAX);
        let purges: Vec<_> = self.recent.iter().map(|(what, &it)| (what.clone(), it)).collect();
        let purges = purges.chunks(PURGES_PER_MESSAGE_MAX);
        let floor = PurgeNews { floor: self.floor, ..PurgeNews::default() };
        let floor = (self.floor != PurgeStamp::NONE).then_some(floor);
        let cells = cells.map(|it| PurgeNews { cells: it.to_vec(), ..PurgeNews::default() });
        let purges = purges.map(|it| PurgeNews { purges: it.to_vec(), ..PurgeNews::default() });
        floor.into_iter().chain(cells).chain(purges).collect()
    }

    /// The latest purge of `target`, a path as normalised in [`PurgePlace`], perhaps with a query,
    /// on the site for whose names `is_host` returns true.
    pub fn of_target(
        &self,
        target: &str,
        queries: Queries,
        is_host: impl Fn(&str) -> bool,
    ) -> PurgeStamp {
        if self.newest == PurgeStamp::NONE {
            return PurgeStamp::NONE;
        }
        let mut latest = self.floor;
        let mut hit = |place: &PurgePlace, stamp: PurgeStamp| {
            if stamp > latest && place.host.as_deref().is_none_or(&is_host) {
                latest = stamp;
            }
        };
        let urls = self.urls_from(target).take_while(|(it, _)| it.target == target);
        urls.for_each(|(it, stamp)| hit(it, stamp));
        let with_query = format!("{target}?");
        let adds_query =
            |it: &PurgePlace| queries == Queries::DoNot && it.target.starts_with(&with_query);
        let urls = self.urls_from(&with_query).take_while(|(it, _)| adds_query(it));
        urls.for_each(|(it, stamp)| hit(it, stamp));
        let is_prefix = |it: &PurgePlace| target.starts_with(&it.target) || adds_query(it);
        let prefixes = self.prefixes().filter(|(it, _)| is_prefix(it));
        prefixes.for_each(|(it, stamp)| hit(it, stamp));
        let path = path_of(target);
        let folder = folder_of(path).and_then(|folder| self.cell(folder, FOLDER_SEED));
        latest.max(self.cell(path, URL_SEED).max(folder).unwrap_or_default())
    }

    /// The latest purge of `tag`.
    pub fn of_tag(&self, tag: &str) -> PurgeStamp {
        if self.newest == PurgeStamp::NONE {
            return PurgeStamp::NONE;
        }
        let exact = self.recent.get(&PurgeWhat::Tag(tag.to_owned())).copied();
        exact.max(self.cell(tag, TAG_SEED)).unwrap_or_default().max(self.floor)
    }

    /// Purges of URLs whose targets are not before `target`, in order.
    fn urls_from(&self, target: &str) -> impl Iterator<Item = (&PurgePlace, PurgeStamp)> {
        let first = PurgePlace { target: target.to_owned(), host: None };
        self.recent.range(PurgeWhat::Url(first)..).map_while(|(what, &stamp)| match what {
            PurgeWhat::Url(place) => Some((place, stamp)),
            _ => None,
        })
    }

    fn prefixes(&self) -> impl Iterator<Item = (&PurgePlace, PurgeStamp)> {
        let first = PurgePlace { target: String::new(), host: None };
        self.recent.range(PurgeWhat::Prefix(first)..).map_while(|(what, &stamp)| match what {
            PurgeWhat::Prefix(place) => Some((place, stamp)),
            _ => None,
        })
    }

    fn cell(&self, text: &str, seed: u64) -> Option<PurgeStamp> {
        self.cells.get(&cell(text, seed)).copied()
    }

    fn raise(&mut self, what: &PurgeWhat, stamp: PurgeStamp) -> bool {
        let known = self.recent.get(what).copied().unwrap_or_default().max(self.floor);
        if known < stamp {
            self.recent.insert(what.clone(), stamp);
        }
        known < stamp
    }

    fn raise_cell(&mut self, cell: u16, stamp: PurgeStamp) -> bool {
        let known = self.cells.get(&cell).copied().unwrap_or_default().max(self.floor);
        if known < stamp {
            self.cells.insert(cell, stamp);
        }
        known < stamp
    }

    /// Makes the oldest purges of each kind coarse until the others fit.
    fn bound(&mut self) {
        self.drop_covered();
        let PurgeBounds { purges_max, prefixes_max, text_bytes_max } = self.bounds;
        for (is_prefix, count_max) in [(false, purges_max), (true, prefixes_max)] {
            let of_kind = |what: &PurgeWhat| matches!(what, PurgeWhat::Prefix(_)) == is_prefix;
            let recent = self.recent.iter().filter(|(what, _)| of_kind(what));
            let mut by_age: Vec<_> = recent.map(|(what, stamp)| (*stamp, what)).collect();
            // Contents break ties between stamps: machines that know the same purges forget the
            // same ones.
            by_age.sort_unstable_by(|a, b| b.cmp(a));
            let mut text_bytes = 0;
            let newest = by_age.iter().take(count_max).take_while(|(_, what)| {
                text_bytes += what.text_bytes();
                text_bytes <= text_bytes_max
            });
            let old = by_age[newest.count()..].iter().map(|&(stamp, what)| (what.clone(), stamp));
            for (what, stamp) in old.collect::<Vec<_>>() {
                self.recent.remove(&what);
                match coarse(&what) {
                    Some(cell) => _ = self.raise_cell(cell, stamp),
                    None => self.raise_floor(stamp),
                }
            }
        }
        self.drop_covered();
    }

    /// Drops exact purges that a cell covers: otherwise they would displace others when they are
    /// received again.
    fn drop_covered(&mut self) {
        let cells = &self.cells;
        if !cells.is_empty() {
            self.recent.retain(|what, stamp| {
                let cell = coarse(what).and_then(|cell| cells.get(&cell));
                cell.is_none_or(|covered| covered < stamp)
            });
        }
    }

    fn raise_floor(&mut self, floor: PurgeStamp) {
        self.floor = self.floor.max(floor);
        self.recent.retain(|_, stamp| *stamp > floor);
        self.cells.retain(|_, stamp| *stamp > floor);
    }
}

/// The cell of a purge that is no longer stored exactly; `None`: everything.
fn coarse(what: &PurgeWhat) -> Option<u16> {
    match what {
        PurgeWhat::Url(place) => Some(cell(path_of(&place.target), URL_SEED)),
        PurgeWhat::Prefix(place) => {
            folder_of(path_of(&place.target)).map(|folder| cell(folder, FOLDER_SEED))
        }
        PurgeWhat::Tag(tag) => Some(cell(tag, TAG_SEED)),
    }
}

fn cell(text: &str, seed: u64) -> u16 {
    stable_hash(text.as_bytes(), seed) as u16
}

/// A target without its query.
fn path_of(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}

/// The topmost folder of a path or prefix, with both of its slashes.
fn folder_of(path: &str) -> Option<&str> {
    let end = path.strip_prefix('/')?.find('/')?;
    path.get(..end + 2)
}
