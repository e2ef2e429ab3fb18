//! Routes, rights and bans as last read from the authority.
//!
//! Holds the entries that were set and decides nothing. Strings are interned and counted, so that a directory whose
//! entries come and go for years does not grow with its past.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::fairness::{Fairness, Window};
use super::grants::Purse;
use super::intern::Interner;
use super::own_terms::{AuthorityClock, OWN, OwnTerms};
use super::phases::Profile;
use super::snapshot;

/// A route's limit as Fast applies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limited {
    /// There is none, and no permit is needed.
    #[default]
    No,
    /// It counts and refuses nothing.
    Watched,
    /// Without a permit nothing goes.
    Yes,
}

/// On what conditions a route is used from memory; many routes share them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Every command goes by Slow.
    pub cold_only: bool,
    pub limited: Limited,
    pub fairness: Fairness,
}

/// Destination of the commands of one name.
#[derive(Debug)]
pub struct Route {
    pub queue: u32,
    pub topic: Arc<str>,
    pub profile: Profile,
    pub strict: bool,
    pub terms: Arc<Terms>,
    live: Mutex<Option<Box<Live>>>,
}

/// State that traffic leaves behind on a route; made with its first command.
#[derive(Debug)]
pub struct Live {
    pub purse: Purse,
    pub window: Window,
}

impl Route {
    pub fn new(queue: u32, topic: Arc<str>, profile: Profile, strict: bool, terms: Arc<Terms>) -> Self {
        Self { queue, topic, profile, strict, terms, live: Mutex::new(None) }
    }

    pub fn live(&self) -> MutexGuard<'_, Option<Box<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live_mut(&mut self) -> &mut Option<Box<Live>> {
        self.live.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sources that its window counts.
    fn counted(&mut self) -> usize {
        self.live_mut().as_ref().map_or(0, |live| live.window.sources())
    }
}

/// Kind of a ban: the wire's BanList.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanList {
    WarmBan,
    ColdOnly,
    /// Nobody's commands go there; Slow refuses them. Of a target, or of one of its names.
    Frozen,
}

/// Rows of a part that are read together.
const BLOCK: usize = 1024;
/// Parts of a table that are filled one after the other; each fits the caches when the table has millions of entries.
const REGIONS: usize = 256;
/// In place of a target and a name: all of them.
const EVERY: u32 = u32::MAX;
/// The spelling of that in a snapshot; no target is called so.
pub const EVERY_TEXT: &str = "*";

#[derive(Debug, Default)]
pub struct Directory {
    strings: Interner,
    routes: HashMap<[u32; 2], Route, RandomState>,
    /// The version of each, with `OWN` where `own` has terms for it.
    acls: HashMap<[u32; 3], u64, RandomState>,
    own: HashMap<[u32; 3], OwnTerms, RandomState>,
    /// End of each ban, on the monotonic clock.
    warm_bans: HashMap<[u32; 3], i64, RandomState>,
    cold_only: HashMap<[u32; 3], i64, RandomState>,
    frozen: HashMap<[u32; 3], i64, RandomState>,
    /// Time of the last read from the authority; None is older than any limit.
    pub read_mono_ns: Option<i64>,
    /// What the ends of rights are compared with.
    pub authority: AuthorityClock,
}

/// A route with its key.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub route: &'a Route,
    key: [u32; 2],
}

/// A source's right to use a route.
#[derive(Clone, Copy, Debug)]
pub struct Right<'a> {
    /// Version of the directory that gave it.
    pub version: u64,
    /// Terms of its own.
    pub own: Option<&'a OwnTerms>,
    key: [u32; 3],
}

impl Directory {
    #[inline]
    pub fn route(&self, target: &str, name: &str) -> Option<Found<'_>> {
        let key = [self.strings.find(target)?, self.strings.find(name)?];
        Some(Found { route: self.routes.get(&key)?, key })
    }

    #[inline]
    pub fn right(&self, source: &str, found: &Found<'_>, now_mono_ns: i64) -> Option<Right<'_>> {
        let key = [self.strings.find(source)?, found.key[0], found.key[1]];
        let version = *self.acls.get(&key)?;
        if version & OWN == 0 {
            return Some(Right { version, own: None, key });
        }
        let own = self.own.get(&key)?;
        // One that has ended is as good as none: it is not used, and proves nothing.
        let ended = own.ends_unix_ns != 0 && self.authority.is_past(own.ends_unix_ns, now_mono_ns);
        (!ended).then_some(Right { version: version & !OWN, own: Some(own), key })
    }

    /// The terms of a source of its own on a route.
    pub fn own_terms(&self, source: &str, target: &str, name: &str) -> Option<&OwnTerms> {
        let key = [self.strings.find(source)?, self.strings.find(target)?, self.strings.find(name)?];
        self.own.get(&key)
    }

    /// Every source's limit of its own, by its names.
    pub fn limited_sources(&self) -> impl Iterator<Item = ([&str; 3], &OwnTerms)> {
        self.own
            .iter()
            .filter(|(_, own)| own.limited != Limited::No)
            .map(|(key, own)| (key.map(|at| self.strings.text(at)), own))
    }

    #[inline]
    pub fn is_cold_only(&self, right: &Right<'_>, now_mono_ns: i64) -> bool {
        if self.cold_only.is_empty() {
            return false;
        }
        let until = |key: [u32; 3]| self.cold_only.get(&key).is_some_and(|until| now_mono_ns < *until);
        until(right.key) || until([right.key[0], EVERY, EVERY])
    }

    #[inline]
    pub fn is_warm_banned(&self, right: &Right<'_>, now_mono_ns: i64) -> bool {
        if self.warm_bans.is_empty() {
            return false;
        }
        let until = |key: [u32; 3]| self.warm_bans.get(&key).is_some_and(|until| now_mono_ns < *until);
        until(right.key) || until([right.key[0], EVERY, EVERY])
    }

    #[inline]
    pub fn is_frozen(&self, right: &Right<'_>, now_mono_ns: i64) -> bool {
        if self.frozen.is_empty() {
            return false;
        }
        let until = |key: [u32; 3]| self.frozen.get(&key).is_some_and(|until| now_mono_ns < *until);
        until([EVERY, right.key[1], right.key[2]]) || until([EVERY, right.key[1], EVERY])
    }

    pub fn age_ns(&self, now_mono_ns: i64) -> i64 {
        self.read_mono_ns.map_or(i64::MAX, |read| now_mono_ns.saturating_sub(read).max(0))
    }

    pub fn routes(&self) -> usize {
        self.routes.len()
    }

    pub fn acls(&self) -> usize {
        self.acls.len()
    }

    pub fn bans(&self) -> usize {
        self.warm_bans.len() + self.cold_only.len() + self.frozen.len()
    }

    /// Every route that traffic has touched, by its names.
    pub fn touched(&self) -> impl Iterator<Item = (&str, &str, &Route)> {
        self.routes.iter().filter(|(_, route)| route.live().is_some()).map(|(key, route)| {
            let text = |at: u32| self.strings.text(at);
            (text(key[0]), text(key[1]), route)
        })
    }

    /// The state of traffic stays; permits that were taken under the old terms are lost.
    pub fn put_route(&mut self, target: &str, name: &str, mut route: Route) {
        let key = [self.strings.hold(target), self.strings.hold(name)];
        if let Some(old) = self.routes.get_mut(&key) {
            let mut live = old.live_mut().take();
            if let Some(live) = &mut live {
                live.purse = Purse::default();
            }
            *route.live_mut() = live;
        }
        if self.routes.insert(key, route).is_some() {
            self.release(&key);
        }
    }

    /// Returns how many sources its window counted.
    pub fn drop_route(&mut self, target: &str, name: &str) -> usize {
        let (Some(target), Some(name)) = (self.strings.find(target), self.strings.find(name)) else {
            return 0;
        };
        let key = [target, name];
        let Some(mut route) = self.routes.remove(&key) else { return 0 };
        self.release(&key);
        route.counted()
    }

    /// `profile` is in place of the route's, and 0 is no end.
    pub fn allow(
        &mut self,
        source: &str,
        target: &str,
        name: &str,
        version: u64,
        profile: Option<Profile>,
        ends_unix_ns: u64,
    ) {
        let key = [source, target, name].map(|text| self.strings.hold(text));
        if self.acls.insert(key, version & !OWN).is_some() {
            self.release(&key);
        }
        self.change_own(key, |own| (own.profile, own.ends_unix_ns) = (profile, ends_unix_ns));
    }

    /// The limit of one source on a route, beside the route's own.
    pub fn limit_source(&mut self, source: &str, target: &str, name: &str, limited: Limited) {
        let key = [source, target, name].map(|text| self.strings.hold(text));
        self.change_own(key, |own| own.limit(limited));
        self.release(&key);
    }

    /// Changes the terms of a key whose strings are held, and keeps them only if there are any.
    fn change_own(&mut self, key: [u32; 3], change: impl FnOnce(&mut OwnTerms)) {
        let mut own = self.own.remove(&key);
        if own.is_some() {
            self.release(&key);
        }
        change(own.get_or_insert_default());
        let own = own.filter(|own| !own.is_empty());
        if let Some(version) = self.acls.get_mut(&key) {
            *version = if own.is_some() { *version | OWN } else { *version & !OWN };
        }
        if let Some(own) = own {
            key.iter().for_each(|at| self.strings.again(*at, 1));
            self.own.insert(key, own);
        }
    }

    pub fn deny(&mut self, source: &str, target: &str, name: &str) {
        if let [Some(source), Some(target), Some(name)] =
            [source, target, name].map(|text| self.strings.find(text))
            && self.acls.remove(&[source, target, name]).is_some()
        {
            let key = [source, target, name];
            if self.own.contains_key(&key) {
                self.change_own(key, |own| (own.profile, own.ends_unix_ns) = (None, 0));
            }
            self.release(&key);
        }
    }

    /// `route` is None for all routes of the source; an empty source or name means all of them.
    pub fn ban(&mut self, list: BanList, source: &str, route: Option<(&str, &str)>, until_mono_ns: i64) {
        let (target, name) = route.unwrap_or_default();
        let key =
            [source, target, name].map(|text| if text.is_empty() { EVERY } else { self.strings.hold(text) });
        if self.list(list).insert(key, until_mono_ns).is_some() {
            self.release(&key);
        }
    }

    pub fn lift(&mut self, list: BanList, source: &str, route: Option<(&str, &str)>) {
        let (target, name) = route.unwrap_or_default();
        let key = [source, target, name]
            .map(|text| if text.is_empty() { Some(EVERY) } else { self.strings.find(text) });
        if let [Some(source), Some(target), Some(name)] = key {
            let key = [source, target, name];
            if self.list(list).remove(&key).is_some() {
                self.release(&key);
            }
        }
    }

    fn list(&mut self, list: BanList) -> &mut HashMap<[u32; 3], i64, RandomState> {
        match list {
            BanList::WarmBan => &mut self.warm_bans,
            BanList::ColdOnly => &mut self.cold_only,
            BanList::Frozen => &mut self.frozen,
        }
    }

    pub(super) fn release(&mut self, key: &[u32]) {
        for at in key.iter().filter(|at| **at != EVERY) {
            self.strings.release(*at);
        }
    }

    #[cfg(test)]
    pub fn holds_no_strings(&self) -> bool {
        self.strings.is_empty()
    }
}

/// The parts of a snapshot that Fast reads.
pub struct Parts<'a> {
    pub routes: &'a snapshot::Part,
    pub acl: &'a snapshot::Part,
    pub bans: Option<&'a snapshot::Part>,
    /// Absent from snapshots that were written when no right had terms of its own.
    pub terms: Option<&'a snapshot::Part>,
}

/// Now, on both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    pub unix_ns: u64,
    pub mono_ns: i64,
}

impl Directory {
    /// The directory of a snapshot; it has no time of a read from the authority until one is set.
    pub fn of_snapshot(parts: &Parts<'_>, now: Now) -> Result<Self, snapshot::Unreadable> {
        let of = |part: &snapshot::Part| (part.header.version, part.header.epoch);
        let others = [Some(parts.routes), parts.bans, parts.terms];
        if others.into_iter().flatten().any(|part| of(part) != of(parts.acl)) {
            return Err(snapshot::Unreadable::Mixed);
        }
        let mut directory = Self::default();
        directory.load_routes(parts.routes, now.unix_ns)?;
        directory.load_acl(parts.acl)?;
        if let Some(bans) = parts.bans {
            directory.load_bans(bans, now)?;
        }
        if let Some(terms) = parts.terms {
            directory.load_terms(terms)?;
        }
        Ok(directory)
    }

    fn load_routes(&mut self, part: &snapshot::Part, now_unix_ns: u64) -> Result<(), snapshot::Unreadable> {
        let held = self.hold_all(part)?;
        let number =
            |column, row| held.get(part.id(column, row) as usize).copied().ok_or(snapshot::Unreadable::Row);
        // Routes of one target share its topic, and most routes share their terms.
        let mut topics: Vec<Option<Arc<str>>> = vec![None; held.len()];
        let mut terms: Vec<Arc<Terms>> = Vec::new();
        self.routes.reserve(part.header.rows as usize);
        for row in 0..part.header.rows {
            let key = [number(0, row)?, number(1, row)?];
            let topic = topics.get_mut(part.id(2, row) as usize).ok_or(snapshot::Unreadable::Row)?;
            let topic = match topic {
                Some(topic) => Arc::clone(topic),
                None => Arc::clone(topic.insert(Arc::from(part.text(part.id(2, row))?))),
            };
            let (queue, strict) = match (part.number(3, row), part.number(5, row)) {
                (kind @ 0..=3, dedupe @ 0..=2) => (kind.saturating_sub(1) as u32, dedupe == 2),
                // Another kind of queue, or another promise: not to be guessed at.
                _ => return Err(snapshot::Unreadable::Row),
            };
            let end = part.number(7, row);
            if end != 0 && end <= now_unix_ns {
                continue;
            }
            let said = terms_of(part, row)?;
            let said = match terms.iter().rev().take(8).find(|known| ***known == said) {
                Some(known) => Arc::clone(known),
                None => {
                    terms.push(Arc::new(said));
                    Arc::clone(&terms[terms.len() - 1])
                }
            };
            let route = Route::new(queue, topic, Profile::from_wire(part.id(4, row)), strict, said);
            if self.routes.insert(key, route).is_some() {
                return Err(snapshot::Unreadable::Duplicate);
            }
            key.iter().for_each(|at| self.strings.again(*at, 1));
        }
        self.release(&held);
        Ok(())
    }

    fn load_acl(&mut self, part: &snapshot::Part) -> Result<(), snapshot::Unreadable> {
        let held = self.hold_all(part)?;
        self.acls.reserve(part.header.rows as usize);
        let mut uses = vec![0u32; held.len()];
        let mut regions = Regions::of(&self.acls);
        for_each_right(part, &held, |numbers, key, _| {
            numbers.iter().for_each(|number| uses[*number] += 1);
            regions.count(self.acls.hasher().hash_one(key));
        })?;
        regions.counted();
        let mut rights = vec![([0; 3], 0); part.header.rows as usize];
        for_each_right(part, &held, |_, key, version| {
            rights[regions.next(self.acls.hasher().hash_one(key))] = (key, version);
        })?;
        for (key, version) in rights {
            if self.acls.insert(key, version).is_some() {
                return Err(snapshot::Unreadable::Duplicate);
            }
        }
        for (at, times) in held.iter().zip(uses) {
            self.strings.again(*at, times);
        }
        self.release(&held);
        Ok(())
    }

    fn load_bans(&mut self, part: &snapshot::Part, now: Now) -> Result<(), snapshot::Unreadable> {
        for row in 0..part.header.rows {
            let [source, target, name] = [0, 1, 2].map(|column| part.text(part.id(column, row)));
            let (source, target, name) = (source?, target?, name?);
            let list = match part.number(3, row) {
                1 => BanList::WarmBan,
                2 => BanList::ColdOnly,
                3 => BanList::Frozen,
                _ => return Err(snapshot::Unreadable::Row),
            };
            let frozen = list == BanList::Frozen;
            let (source, route) = match (source, target, name) {
                (EVERY_TEXT, target, EVERY_TEXT) if frozen && target != EVERY_TEXT => {
                    ("", Some((target, "")))
                }
                (EVERY_TEXT, target, name) if frozen && target != EVERY_TEXT => ("", Some((target, name))),
                (source, EVERY_TEXT, EVERY_TEXT) if !frozen && source != EVERY_TEXT => (source, None),
                (EVERY_TEXT, ..) | (_, EVERY_TEXT, _) | (_, _, EVERY_TEXT) => {
                    return Err(snapshot::Unreadable::Row);
                }
                (source, target, name) if !frozen => (source, Some((target, name))),
                _ => return Err(snapshot::Unreadable::Row),
            };
            let until = part.number(4, row);
            let until_mono_ns = match until {
                0 => i64::MAX,
                _ if until <= now.unix_ns => continue,
                _ => now.mono_ns.saturating_add((until - now.unix_ns).min(i64::MAX as u64) as i64),
            };
            self.ban(list, source, route, until_mono_ns);
        }
        Ok(())
    }

    fn load_terms(&mut self, part: &snapshot::Part) -> Result<(), snapshot::Unreadable> {
        for row in 0..part.header.rows {
            let [source, target, name] = [0, 1, 2].map(|column| part.text(part.id(column, row)));
            let (source, target, name) = (source?, target?, name?);
            let profile = match part.number(3, row) {
                0 => None,
                number @ 1..=4 => Some(Profile::from_wire(number as u32)),
                _ => return Err(snapshot::Unreadable::Row),
            };
            let (ends_unix_ns, limited) = (part.number(4, row), limited_of(part.number(5, row))?);
            let of_right = profile.is_some() || ends_unix_ns != 0;
            if of_right == (limited != Limited::No) {
                // A row is of a right or of a limit; neither says nothing, both is what nobody writes.
                return Err(snapshot::Unreadable::Row);
            }
            let known = self.own_terms(source, target, name);
            if known.is_some_and(|own| {
                if of_right {
                    own.profile.is_some() || own.ends_unix_ns != 0
                } else {
                    own.limited != Limited::No
                }
            }) {
                return Err(snapshot::Unreadable::Duplicate);
            }
            let key = [source, target, name].map(|text| self.strings.hold(text));
            self.change_own(key, |own| {
                if of_right {
                    (own.profile, own.ends_unix_ns) = (profile, ends_unix_ns);
                } else {
                    own.limit(limited);
                }
            });
            self.release(&key);
        }
        Ok(())
    }

    /// Our number for each string of a part, each held once until the rows hold those they use.
    fn hold_all(&mut self, part: &snapshot::Part) -> Result<Vec<u32>, snapshot::Unreadable> {
        self.strings.reserve(part.strings());
        (0..part.strings() as u32).map(|at| Ok(self.strings.hold(part.text(at)?))).collect()
    }
}

/// Every row of a part of rights: the part's own numbers of its strings, ours, and the version.
fn for_each_right(
    part: &snapshot::Part,
    held: &[u32],
    mut visit: impl FnMut([usize; 3], [u32; 3], u64),
) -> Result<(), snapshot::Unreadable> {
    let mut block = [[0; BLOCK]; 4];
    for from in (0..part.header.rows).step_by(BLOCK) {
        let rows = (part.header.rows - from).min(BLOCK as u32) as usize;
        for (column, numbers) in block.iter_mut().enumerate() {
            part.numbers(column, from, &mut numbers[..rows]);
        }
        let [sources, targets, names, versions] = &block;
        for row in 0..rows {
            let numbers = [sources, targets, names].map(|column| column[row] as usize);
            let mut key = [0; 3];
            for (at, number) in key.iter_mut().zip(numbers) {
                *at = *held.get(number).ok_or(snapshot::Unreadable::Row)?;
            }
            visit(numbers, key, versions[row]);
        }
    }
    Ok(())
}

/// Sorts entries by about where they go in a table, counting first and placing then.
///
/// In any other order a table that outgrows the caches costs a trip to memory for every entry, so that four times the
/// entries take six times the time. Which bits of a hash choose the place is the table's own business; if it changes its
/// mind, only time is lost.
struct Regions {
    shift: u32,
    starts: [usize; REGIONS + 1],
}

impl Regions {
    /// `table` has room for all that will come.
    fn of<K, V>(table: &HashMap<K, V, RandomState>) -> Self {
        let places = table.capacity().next_power_of_two().trailing_zeros();
        Self { shift: places.saturating_sub(REGIONS.trailing_zeros()), starts: [0; REGIONS + 1] }
    }

    fn region(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize % REGIONS
    }

    fn count(&mut self, hash: u64) {
        self.starts[self.region(hash) + 1] += 1;
    }

    fn counted(&mut self) {
        for at in 1..self.starts.len() {
            self.starts[at] += self.starts[at - 1];
        }
    }

    /// Position of the next entry; to be called once for each that was counted.
    fn next(&mut self, hash: u64) -> usize {
        let start = &mut self.starts[self.region(hash)];
        *start += 1;
        *start - 1
    }
}

fn limited_of(flags: u64) -> Result<Limited, snapshot::Unreadable> {
    match flags {
        0 => Ok(Limited::No),
        0b001 => Ok(Limited::Yes),
        0b011 => Ok(Limited::Watched),
        _ => Err(snapshot::Unreadable::Row),
    }
}

/// The terms in a row of a routes part.
fn terms_of(part: &snapshot::Part, row: u32) -> Result<Terms, snapshot::Unreadable> {
    let flags = part.number(8, row);
    let limited = limited_of(flags & 0b011)?;
    if flags > 0b111 {
        return Err(snapshot::Unreadable::Row);
    }
    let seconds = |column| part.number(column, row) as i64 * 1_000_000_000;
    let share = |column| {
        let share = f64::from_bits(part.number(column, row));
        if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(snapshot::Unreadable::Row) }
    };
    Ok(Terms {
        cold_only: flags & 0b100 != 0,
        limited,
        fairness: Fairness {
            window_ns: seconds(9),
            dominant_share: share(10)?,
            competing_share: share(11)?,
            competitors: part.id(12, row),
            minimum_volume: part.id(13, row),
            ban_ns: seconds(14),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use snapshot::{Kind, Part, Table, Unreadable};

    /// Several blocks of rows, and a last one that is not full.
    const ROWS: u64 = 5 * BLOCK as u64 + 7;

    fn names(row: u64) -> [String; 3] {
        [format!("tenant/source-{}", row / 50), format!("target-{}", row % 50), format!("say-{}", row % 3)]
    }

    fn loaded(rows: impl Iterator<Item = u64>) -> Result<Directory, Unreadable> {
        let (routes, mut acl) = (Table::new(Kind::Routes), Table::new(Kind::Acl));
        for row in rows {
            let [source, target, name] = names(row).map(|text| acl.string(&text).unwrap());
            acl.row(&[source, target, name, row << 20]).unwrap();
        }
        let [routes, acl] = [routes, acl].map(|table| table.write(7, 5).unwrap());
        let routes = Part::open(&routes, Kind::Routes).unwrap();
        let acl = Part::open(&acl, Kind::Acl).unwrap();
        Directory::of_snapshot(&Parts { routes: &routes, acl: &acl, bans: None, terms: None }, Now::default())
    }

    fn key(directory: &Directory, row: u64) -> Option<[u32; 3]> {
        let [source, target, name] = names(row).map(|text| directory.strings.find(&text));
        Some([source?, target?, name?])
    }

    #[test]
    fn every_right_of_a_snapshot_is_there_with_its_version_and_nothing_else_is() {
        let mut directory = loaded(0..ROWS).unwrap();
        assert_eq!(directory.acls(), ROWS as usize);
        for row in 0..ROWS {
            assert_eq!(directory.acls.get(&key(&directory, row).unwrap()), Some(&(row << 20)));
        }
        assert_eq!(key(&directory, ROWS + 50), None);
        for row in 0..ROWS {
            let [source, target, name] = names(row);
            directory.deny(&source, &target, &name);
        }
        assert!(directory.holds_no_strings());
    }

    #[test]
    fn a_right_that_stands_twice_is_found_however_far_apart() {
        assert_eq!(loaded((0..ROWS).chain([3])).err(), Some(Unreadable::Duplicate));
    }

    #[test]
    fn each_entry_has_a_place_of_its_own_in_the_order_of_regions() {
        let table: HashMap<u64, u64, RandomState> =
            HashMap::with_capacity_and_hasher(100_000, RandomState::default());
        let hashes: Vec<u64> = (0..3000u64).map(|number| table.hasher().hash_one(number)).collect();
        let mut regions = Regions::of(&table);
        hashes.iter().for_each(|hash| regions.count(*hash));
        regions.counted();
        let mut placed = vec![None; hashes.len()];
        for hash in &hashes {
            let place = regions.next(*hash);
            assert!(placed[place].replace(regions.region(*hash)).is_none());
        }
        assert!(placed.iter().all(Option::is_some) && placed.is_sorted());
    }
}
