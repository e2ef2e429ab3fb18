//! Fast's tables, in memory: directory, permits, deliveries, routes that do not exist.
//!
//! Decides nothing: `deciding` asks it about a lane, `plan` about a batch. Every table here is bounded.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::fast::RandomState;

use super::counters::Counters;
use super::directory::{BanList, Directory, Limited, Live, Now, Parts, Route};
use super::duplicates::Duplicates;
use super::fairness::{Room, Window};
use super::frames::Limits;
use super::grants::{Grant, Need, Purse};
use super::ledger::Ledger;
use super::phases::{Phases, Profile, ProfilePhases, SECOND_NS};
use super::plan::{Lessons, Plan};
use super::snapshot;
use super::unknown::{self, Unknown};
use super::verdict::{DELIVERED, ROUTE_MISSING};

/// Settings for all routes of one instance.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The age that a route may have.
    pub routes: Phases,
    /// The age that a right may have.
    pub rights: ProfilePhases,
    /// Thousandths taken off every fresh time.
    pub shorten: u16,
    /// Every command goes by Slow.
    pub cold_only: bool,
    /// Deliveries on strict routes that are remembered, and for how long.
    pub duplicates: usize,
    pub dedupe_ns: i64,
    pub unknown: unknown::Bounds,
    /// Sources that all fairness windows together count one by one.
    pub counted_sources: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            routes: Phases { fresh_ns: 60 * SECOND_NS, stale_ns: 180 * SECOND_NS },
            rights: ProfilePhases::default(),
            shorten: 0,
            cold_only: false,
            duplicates: 65_536,
            dedupe_ns: 300 * SECOND_NS,
            unknown: unknown::Bounds { routes: 65_536, routes_per_source: 1024, life_ns: 2 * SECOND_NS },
            counted_sources: 262_144,
        }
    }
}

/// Source, target and name of a limit; the source is empty for the limit of the route.
pub type LimitKey = [Box<str>; 3];

/// The directory with the rules for using it.
#[derive(Debug)]
pub struct Dispatch {
    pub(super) limits: Limits,
    pub(super) counters: Counters,
    pub(super) rules: Rules,
    pub(super) cold_only: AtomicBool,
    directory: RwLock<Directory>,
    pub(super) unknown: Mutex<Unknown>,
    duplicates: Mutex<Duplicates>,
    /// Limits whose permits were wanted since the last report.
    thirsty: Mutex<Vec<LimitKey>>,
    /// Sources that all windows count.
    counted: AtomicUsize,
    pub(super) seed: RandomState,
}

impl Dispatch {
    pub fn new(limits: Limits, rules: Rules) -> Self {
        Self {
            limits,
            counters: Counters::default(),
            rules,
            cold_only: AtomicBool::new(rules.cold_only),
            directory: RwLock::default(),
            unknown: Mutex::new(Unknown::new(rules.unknown)),
            duplicates: Mutex::new(Duplicates::new(rules.duplicates)),
            thirsty: Mutex::default(),
            counted: AtomicUsize::new(0),
            seed: RandomState::default(),
        }
    }

    pub fn put_route(&self, target: &str, name: &str, route: Route) {
        self.write().put_route(target, name, route);
    }

    pub fn drop_route(&self, target: &str, name: &str) {
        let counted = self.write().drop_route(target, name);
        self.room().give(counted);
    }

    pub fn allow(&self, source: &str, target: &str, name: &str, version: u64) {
        self.allow_until(source, target, name, version, None, 0);
    }

    /// A right with a profile of its own, if any, and an end on the authority's clock, if not 0.
    pub fn allow_until(
        &self,
        source: &str,
        target: &str,
        name: &str,
        version: u64,
        profile: Option<Profile>,
        ends_unix_ns: u64,
    ) {
        self.write().allow(source, target, name, version, profile, ends_unix_ns);
    }

    /// The limit of one source on a route, beside that of the route.
    pub fn limit_source(&self, source: &str, target: &str, name: &str, limited: Limited) {
        self.write().limit_source(source, target, name, limited);
    }

    /// The authority's clock said this at or after `mono_ns`.
    pub fn heard_time(&self, unix_ns: u64, mono_ns: i64) {
        self.write().authority.heard(unix_ns, mono_ns);
    }

    pub fn deny(&self, source: &str, target: &str, name: &str) {
        self.write().deny(source, target, name);
    }

    /// `until_mono_ns` is when it ends by itself, whether or not it is lifted.
    pub fn ban(&self, list: BanList, source: &str, route: Option<(&str, &str)>, until_mono_ns: i64) {
        self.write().ban(list, source, route, until_mono_ns);
    }

    pub fn lift(&self, list: BanList, source: &str, route: Option<(&str, &str)>) {
        self.write().lift(list, source, route);
    }

    /// Sends every command by Slow from now on, or not any more.
    pub fn set_cold_only(&self, cold_only: bool) {
        self.cold_only.store(cold_only, Relaxed);
    }

    /// Takes a snapshot's parts in place of everything, all of it or nothing; returns its version.
    ///
    /// Loaded entries count as never read until `renewed` says when they were.
    /// Routes and bans that have ended by `now` are left out.
    pub fn load_snapshot(
        &self,
        routes: &[u8],
        acl: &[u8],
        bans: Option<&[u8]>,
        terms: Option<&[u8]>,
        now: Now,
    ) -> Result<u64, snapshot::Unreadable> {
        let routes = snapshot::Part::open(routes, snapshot::Kind::Routes)?;
        let acl = snapshot::Part::open(acl, snapshot::Kind::Acl)?;
        let bans = bans.map(|bans| snapshot::Part::open(bans, snapshot::Kind::Bans)).transpose()?;
        let terms = terms.map(|terms| snapshot::Part::open(terms, snapshot::Kind::Terms)).transpose()?;
        let parts = Parts { routes: &routes, acl: &acl, bans: bans.as_ref(), terms: terms.as_ref() };
        self.replace(Directory::of_snapshot(&parts, now)?);
        Ok(acl.header.version)
    }

    /// Forgets everything, the time of reading included.
    pub fn clear(&self) {
        self.replace(Directory::default());
    }

    fn replace(&self, directory: Directory) {
        // The old entries are freed after the lock: a million of them would hold up every plan.
        let forgotten = {
            let mut held = self.write();
            self.counted.store(0, Relaxed);
            std::mem::replace(&mut *held, directory)
        };
        drop(forgotten);
    }

    /// The authority was read at this time; never moves back.
    pub fn renewed(&self, read_mono_ns: i64) {
        let mut directory = self.write();
        directory.read_mono_ns = directory.read_mono_ns.max(Some(read_mono_ns));
    }

    /// The age of the directory; None before it was ever read.
    pub fn age_ns(&self, now_mono_ns: i64) -> Option<i64> {
        let directory = self.read();
        directory.read_mono_ns.map(|_| directory.age_ns(now_mono_ns))
    }

    // -- permits ---------------------------------------------------------------------------------------

    /// Takes a grant in; false when the limit is not there: its permits are to be given back. Those of one limit
    /// never serve another: an empty source is the route's.
    pub fn grant(&self, source: &str, target: &str, name: &str, grant: Grant, now_mono_ns: i64) -> bool {
        let directory = self.read();
        if !source.is_empty() {
            let own = directory.own_terms(source, target, name).filter(|own| own.limited != Limited::No);
            let Some(own) = own.filter(|_| now_mono_ns < grant.ends_mono_ns) else { return false };
            own.purse().put(grant, now_mono_ns);
            return true;
        }
        let Some(found) = directory.route(target, name) else { return false };
        if found.route.terms.limited == Limited::No || now_mono_ns >= grant.ends_mono_ns {
            return false;
        }
        let mut live = found.route.live();
        live_at(&mut live, now_mono_ns).purse.put(grant, now_mono_ns);
        true
    }

    /// The demand since the last report, of each limit with any.
    pub fn needs(&self, now_mono_ns: i64) -> Vec<(LimitKey, Need)> {
        let asked = std::mem::take(&mut *lock(&self.thirsty));
        let directory = self.read();
        let need = |key: LimitKey| {
            let [source, target, name] = &key;
            let need = if source.is_empty() {
                let found = directory.route(target, name)?;
                found.route.live().as_mut().map(|live| live.purse.report(now_mono_ns))?
            } else {
                directory.own_terms(source, target, name)?.purse().report(now_mono_ns)
            };
            Some((key, need))
        };
        asked.into_iter().filter_map(need).collect()
    }

    /// Gives up every permit that is left, so that it can be given back.
    pub fn give_up(&self, now_mono_ns: i64) -> Vec<(LimitKey, Grant)> {
        let directory = self.read();
        let routes = directory.touched().map(|(target, name, route): (&str, &str, &Route)| {
            let grants = route.live().as_mut().map(|live| live.purse.empty(now_mono_ns)).unwrap_or_default();
            (["", target, name].map(Box::from), grants)
        });
        let sources = directory
            .limited_sources()
            .map(|(key, own)| (key.map(Box::from), own.purse().empty(now_mono_ns)));
        let each =
            |(key, grants): (LimitKey, Vec<Grant>)| grants.into_iter().map(move |grant| (key.clone(), grant));
        routes.chain(sources).flat_map(each).collect()
    }

    // -- memory ----------------------------------------------------------------------------------------

    /// Takes what the answers to a batch teach.
    pub fn learn(&self, lessons: &Lessons, ledger: &Ledger, now_mono_ns: i64) {
        if !lessons.unknown.is_empty() {
            let mut unknown = lock(&self.unknown);
            for (index, [source, target, name]) in &lessons.unknown {
                if ledger.code(*index as usize) == ROUTE_MISSING {
                    unknown.learn(source, target, name);
                }
            }
        }
        if !lessons.strict.is_empty() {
            let mut duplicates = lock(&self.duplicates);
            // From when it was planned, which is before the authority began to count.
            let until_mono_ns = lessons.planned_mono_ns.saturating_add(self.rules.dedupe_ns);
            let places = ledger.places();
            for (index, command) in &lessons.strict {
                if ledger.code(*index as usize) == DELIVERED {
                    let first = places.get(index).copied().unwrap_or_default();
                    duplicates.remember(command, first, until_mono_ns, now_mono_ns);
                }
            }
        }
    }

    /// Frees idle windows and old answers. To be called now and then.
    pub fn sweep(&self, now_mono_ns: i64) {
        lock(&self.unknown).sweep(now_mono_ns);
        lock(&self.duplicates).forget_until(now_mono_ns);
        let directory = self.read();
        for (_, _, route) in directory.touched() {
            let mut live = route.live();
            let idle = live.as_ref().is_some_and(|live| {
                live.window.is_idle(&route.terms.fairness, now_mono_ns) && live.purse.is_idle(now_mono_ns)
            });
            if idle && let Some(gone) = live.take() {
                self.room().give(gone.window.sources());
            }
        }
    }

    pub(super) fn duplicates(&self) -> MutexGuard<'_, Duplicates> {
        lock(&self.duplicates)
    }

    pub(super) fn note_thirsty(&self, limits: Vec<LimitKey>) {
        lock(&self.thirsty).extend(limits);
    }

    /// Plans a Batch. Bad bytes become verdicts.
    pub fn plan(&self, frame: &[u8], now_mono_ns: i64) -> Plan {
        Plan::of(self, frame, now_mono_ns)
    }

    /// Names with what they counted, in a fixed order.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut told = self.counters.told();
        let directory = self.read();
        let mut tell = |name: &str, count: usize| told.push((name.to_owned(), count as u64));
        tell("routes", directory.routes());
        tell("acls", directory.acls());
        tell("bans", directory.bans());
        drop(directory);
        tell("unknown_routes", lock(&self.unknown).len());
        tell("remembered_deliveries", lock(&self.duplicates).len());
        tell("counted_sources", self.counted.load(Relaxed));
        told
    }

    pub(super) fn room(&self) -> Room<'_> {
        Room::new(&self.counted, self.rules.counted_sources)
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Directory> {
        self.directory.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn live_at(live: &mut Option<Box<Live>>, now_mono_ns: i64) -> &mut Live {
    live.get_or_insert_with(|| Box::new(Live { purse: Purse::default(), window: Window::new(now_mono_ns) }))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
