//! Fast's decision about a batch, from memory alone.
//!
//! When unsure it escalates: a missing or aged entry never allows and never refuses anything.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::bundle::{Bundles, Destination, Send, write_escalations, write_sends};
use super::docket::{Docket, UNREADABLE};
use super::frames::Limits;
use super::intern::Interner;
use super::ledger::{Ledger, Part};
use super::snapshot;
use super::telemetry::TelemetryBlock;

/// Why a command goes to Slow; the wire's EscalationReason.
pub const CACHE_MISS: u8 = 1;
pub const ACL_EXPIRED: u8 = 2;
pub const ROUTE_EXPIRED: u8 = 3;
pub const DEDUPE_REQUIRED: u8 = 4;
pub const TOKEN_REQUIRED: u8 = 5;
pub const WARM_BANNED: u8 = 6;
pub const COLD_ONLY: u8 = 7;
pub const SYNC: u8 = 8;

/// Reasons by number, as telemetry spells them.
pub const REASONS: [&str; 9] = [
    "unspecified",
    "cache_miss",
    "acl_expired",
    "route_expired",
    "dedupe_required",
    "token_required",
    "warm_banned",
    "cold_only",
    "sync",
];

/// How old an ACL entry may be: the wire's Profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Critical,
    Moderate,
    Low,
    Sync,
}

impl Profile {
    /// A number that this version does not know is as strict as can be.
    pub fn from_wire(number: u32) -> Self {
        match number {
            0 | 3 => Self::Low,
            1 => Self::Critical,
            2 => Self::Moderate,
            _ => Self::Sync,
        }
    }

    /// (fresh, stale) in nanoseconds.
    fn phases(self) -> (i64, i64) {
        const SECOND: i64 = 1_000_000_000;
        match self {
            Self::Critical => (2 * SECOND, 4 * SECOND),
            Self::Moderate => (10 * SECOND, 20 * SECOND),
            Self::Low => (30 * SECOND, 90 * SECOND),
            Self::Sync => (0, 0),
        }
    }
}

/// Where commands of one name go.
#[derive(Clone, Debug)]
pub struct Route {
    pub queue: u32,
    pub topic: Arc<str>,
    pub profile: Profile,
    pub strict: bool,
}

/// How long routes are used; nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct RoutePhases {
    pub fresh_ns: i64,
    pub stale_ns: i64,
}

/// In which phase the entries were that a command relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    None,
    Fresh,
    Stale,
    Expired,
}

enum Decision {
    Send(Destination),
    Escalate(u8),
}

/// Routes and ACLs as last read from the authority.
#[derive(Debug, Default)]
struct Directory {
    strings: Interner,
    routes: HashMap<[u32; 2], Route, RandomState>,
    acls: HashMap<[u32; 3], u64, RandomState>,
    read_mono_ns: Option<i64>,
}

impl Directory {
    fn route_key(&self, target: &str, name: &str) -> Option<[u32; 2]> {
        Some([self.strings.find(target)?, self.strings.find(name)?])
    }

    fn put_route(&mut self, target: &str, name: &str, route: Route) {
        let key = [self.strings.hold(target), self.strings.hold(name)];
        if self.routes.insert(key, route).is_some() {
            self.release(&key);
        }
    }

    fn drop_route(&mut self, target: &str, name: &str) {
        if let Some(key) = self.route_key(target, name)
            && self.routes.remove(&key).is_some()
        {
            self.release(&key);
        }
    }

    fn allow(&mut self, source: &str, target: &str, name: &str, version: u64) {
        let key = [self.strings.hold(source), self.strings.hold(target), self.strings.hold(name)];
        if self.acls.insert(key, version).is_some() {
            self.release(&key);
        }
    }

    fn deny(&mut self, source: &str, target: &str, name: &str) {
        if let (Some(source), Some([target, name])) =
            (self.strings.find(source), self.route_key(target, name))
            && self.acls.remove(&[source, target, name]).is_some()
        {
            self.release(&[source, target, name]);
        }
    }

    /// The directory of a snapshot; never read from the authority until somebody says when.
    fn of_snapshot(
        routes: &snapshot::Part,
        acl: &snapshot::Part,
        now_unix_ns: u64,
    ) -> Result<Self, snapshot::Unreadable> {
        if (routes.header.version, routes.header.epoch) != (acl.header.version, acl.header.epoch) {
            return Err(snapshot::Unreadable::Mixed);
        }
        let mut directory = Self::default();
        directory.load_routes(routes, now_unix_ns)?;
        directory.load_acl(acl)?;
        Ok(directory)
    }

    fn load_routes(&mut self, part: &snapshot::Part, now_unix_ns: u64) -> Result<(), snapshot::Unreadable> {
        let held = self.hold_all(part)?;
        let number =
            |column, row| held.get(part.id(column, row) as usize).copied().ok_or(snapshot::Unreadable::Row);
        // Routes of one target share its topic.
        let mut topics: Vec<Option<Arc<str>>> = vec![None; held.len()];
        self.routes.reserve(part.header.rows as usize);
        for row in 0..part.header.rows {
            let key = [number(0, row)?, number(1, row)?];
            let topic = topics.get_mut(part.id(2, row) as usize).ok_or(snapshot::Unreadable::Row)?;
            let topic = match topic {
                Some(topic) => Arc::clone(topic),
                None => Arc::clone(topic.insert(Arc::from(part.text(part.id(2, row))?))),
            };
            let strict = match (part.number(3, row), part.number(5, row)) {
                (0 | 1, 0 | 1) => false,
                (0 | 1, 2) => true,
                // Another kind of queue, or another promise: not to be guessed at.
                _ => return Err(snapshot::Unreadable::Row),
            };
            let end = part.number(7, row);
            if end != 0 && end <= now_unix_ns {
                continue;
            }
            let profile = Profile::from_wire(part.id(4, row));
            let route = Route { queue: 0, topic, profile, strict };
            if self.routes.insert(key, route).is_some() {
                return Err(snapshot::Unreadable::Duplicate);
            }
            key.iter().for_each(|at| self.strings.again(*at));
        }
        self.release(&held);
        Ok(())
    }

    fn load_acl(&mut self, part: &snapshot::Part) -> Result<(), snapshot::Unreadable> {
        let held = self.hold_all(part)?;
        let number =
            |column, row| held.get(part.id(column, row) as usize).copied().ok_or(snapshot::Unreadable::Row);
        self.acls.reserve(part.header.rows as usize);
        for row in 0..part.header.rows {
            let key = [number(0, row)?, number(1, row)?, number(2, row)?];
            if self.acls.insert(key, part.number(3, row)).is_some() {
                return Err(snapshot::Unreadable::Duplicate);
            }
            key.iter().for_each(|at| self.strings.again(*at));
        }
        self.release(&held);
        Ok(())
    }

    /// Our number for each string of a part, each held once until the rows hold those they use.
    fn hold_all(&mut self, part: &snapshot::Part) -> Result<Vec<u32>, snapshot::Unreadable> {
        self.strings.reserve(part.strings());
        (0..part.strings() as u32).map(|at| Ok(self.strings.hold(part.text(at)?))).collect()
    }

    fn release(&mut self, key: &[u32]) {
        for at in key {
            self.strings.release(*at);
        }
    }

    /// The order of these questions is part of the promise: see the tests.
    fn decide(
        &self,
        phases: &RoutePhases,
        now_mono_ns: i64,
        (source, target, name): (&str, &str, &str),
    ) -> (Decision, Usage) {
        let escalate = |reason, usage| (Decision::Escalate(reason), usage);
        let Some(key) = self.route_key(target, name) else { return escalate(CACHE_MISS, Usage::None) };
        let Some(route) = self.routes.get(&key) else { return escalate(CACHE_MISS, Usage::None) };
        if route.profile == Profile::Sync {
            return escalate(SYNC, Usage::None);
        }
        // Never read from the authority is as old as can be.
        let age = self.read_mono_ns.map_or(i64::MAX, |read| now_mono_ns.saturating_sub(read).max(0));
        if age >= phases.stale_ns {
            return escalate(ROUTE_EXPIRED, Usage::Expired);
        }
        let (fresh, stale) = route.profile.phases();
        if age >= stale {
            return escalate(ACL_EXPIRED, Usage::Expired);
        }
        let allowed =
            self.strings.find(source).is_some_and(|at| self.acls.contains_key(&[at, key[0], key[1]]));
        if !allowed {
            return escalate(CACHE_MISS, Usage::None);
        }
        let usage = if age >= fresh || age >= phases.fresh_ns { Usage::Stale } else { Usage::Fresh };
        if route.strict {
            return escalate(DEDUPE_REQUIRED, usage);
        }
        (Decision::Send(Destination { queue: route.queue, topic: Arc::clone(&route.topic) }), usage)
    }
}

/// What has happened since start.
#[derive(Debug, Default)]
struct Counters {
    dispatched: AtomicU64,
    refused: AtomicU64,
    escalated: [AtomicU64; REASONS.len()],
    fresh: AtomicU64,
    stale: AtomicU64,
    expired: AtomicU64,
}

/// The directory with the rules for using it.
#[derive(Debug)]
pub struct Dispatch {
    limits: Limits,
    phases: RoutePhases,
    directory: RwLock<Directory>,
    counters: Counters,
}

/// What becomes of one batch.
#[derive(Debug)]
pub struct Plan {
    /// One part per send, then one for the escalations.
    pub ledger: Ledger,
    pub budget_ms: u32,
    pub sends: Vec<Send>,
    pub escalated: usize,
    /// Serialised `ArbitrationBatch.escalation` fields.
    pub escalations: Vec<u8>,
    pub frame_code: u8,
    pub stale_used: bool,
    /// One row per command that this service settles.
    pub block: TelemetryBlock,
}

impl Dispatch {
    pub fn new(limits: Limits, phases: RoutePhases) -> Self {
        Self { limits, phases, directory: RwLock::default(), counters: Counters::default() }
    }

    pub fn put_route(&self, target: &str, name: &str, route: Route) {
        self.write().put_route(target, name, route);
    }

    pub fn drop_route(&self, target: &str, name: &str) {
        self.write().drop_route(target, name);
    }

    pub fn allow(&self, source: &str, target: &str, name: &str, version: u64) {
        self.write().allow(source, target, name, version);
    }

    pub fn deny(&self, source: &str, target: &str, name: &str) {
        self.write().deny(source, target, name);
    }

    /// Takes a snapshot's parts in place of everything, all of it or nothing; returns its version.
    ///
    /// What was loaded counts as never read until `renewed` says when it was.
    /// Routes that have ended by `now_unix_ns` are left out.
    pub fn load_snapshot(
        &self,
        routes: &[u8],
        acl: &[u8],
        now_unix_ns: u64,
    ) -> Result<u64, snapshot::Unreadable> {
        let routes = snapshot::Part::open(routes, snapshot::Kind::Routes)?;
        let acl = snapshot::Part::open(acl, snapshot::Kind::Acl)?;
        let loaded = Directory::of_snapshot(&routes, &acl, now_unix_ns)?;
        let forgotten = std::mem::replace(&mut *self.write(), loaded);
        drop(forgotten);
        Ok(acl.header.version)
    }

    /// Forgets everything, the time of reading included.
    pub fn clear(&self) {
        // The old entries are freed after the lock: a million of them would hold up every plan.
        let forgotten = std::mem::take(&mut *self.write());
        drop(forgotten);
    }

    /// The authority was read at this time; never moves back.
    pub fn renewed(&self, read_mono_ns: i64) {
        let mut directory = self.write();
        directory.read_mono_ns = directory.read_mono_ns.max(Some(read_mono_ns));
    }

    /// Plans a Batch. Bad bytes become verdicts.
    pub fn plan(&self, frame: &[u8], now_mono_ns: i64) -> Plan {
        let mut docket = Docket::open_batch(frame, &self.limits, "fast");
        let mut sends = Bundles::default();
        let mut escalations = Bundles::default();
        let mut stale_used = false;
        let ways: Vec<Way> = {
            let directory = self.read();
            docket
                .lanes
                .iter()
                .map(|lane| {
                    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
                    let key =
                        (text(lane.source.of(frame)), text(lane.target.of(frame)), text(lane.name.of(frame)));
                    let (decision, usage) = directory.decide(&self.phases, now_mono_ns, key);
                    stale_used |= usage == Usage::Stale;
                    self.count(&decision, usage, u64::from(lane.count));
                    match decision {
                        Decision::Send(destination) => Way::Send(sends.place(destination)),
                        Decision::Escalate(reason) => Way::Escalate(escalations.place(reason)),
                    }
                })
                .collect()
        };
        for (index, item) in (0..).zip(&docket.items) {
            match ways.get(item.lane as usize) {
                Some(Way::Send(at)) => sends.bundles[*at].1.add(index, item.run, item.raw),
                Some(Way::Escalate(at)) => escalations.bundles[*at].1.add(index, item.run, item.raw),
                None => {}
            }
        }
        self.counters.refused.fetch_add(u64::from(docket.unreadable), Relaxed);
        let mut ledger = docket.ledger();
        let sends = write_sends(frame, &docket.runs, sends.bundles, &mut ledger);
        let escalations = escalations.bundles;
        let written = write_escalations(frame, &docket.runs, &escalations);
        let escalated: Vec<u32> = escalations.into_iter().flat_map(|(_, bundle)| bundle.indices).collect();
        if !escalated.is_empty() {
            // Slow settles these and writes their rows.
            let items = &docket.items;
            docket.block.retain(|row| match items.get(row.index as usize) {
                Some(item) if item.lane != UNREADABLE => {
                    matches!(ways.get(item.lane as usize), Some(Way::Send(_)))
                }
                _ => true,
            });
        }
        let count = escalated.len();
        ledger.add_part(Part::of(escalated));
        Plan {
            ledger,
            budget_ms: docket.header.budget_ms,
            sends,
            escalated: count,
            escalations: written,
            frame_code: docket.frame_code,
            stale_used,
            block: docket.block,
        }
    }

    /// Names with what they counted, in a fixed order.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let counters = &self.counters;
        let mut told = vec![
            ("dispatched".to_owned(), counters.dispatched.load(Relaxed)),
            ("refused".to_owned(), counters.refused.load(Relaxed)),
        ];
        for (reason, count) in REASONS.iter().zip(&counters.escalated).skip(1) {
            told.push((format!("escalated.{reason}"), count.load(Relaxed)));
        }
        told.push(("usage.fresh".to_owned(), counters.fresh.load(Relaxed)));
        told.push(("usage.stale".to_owned(), counters.stale.load(Relaxed)));
        told.push(("usage.expired".to_owned(), counters.expired.load(Relaxed)));
        let directory = self.read();
        told.push(("routes".to_owned(), directory.routes.len() as u64));
        told.push(("acls".to_owned(), directory.acls.len() as u64));
        told
    }

    fn count(&self, decision: &Decision, usage: Usage, commands: u64) {
        let counters = &self.counters;
        match decision {
            Decision::Send(_) => counters.dispatched.fetch_add(commands, Relaxed),
            Decision::Escalate(reason) => match counters.escalated.get(usize::from(*reason)) {
                Some(counter) => counter.fetch_add(commands, Relaxed),
                None => 0,
            },
        };
        match usage {
            Usage::None => 0,
            Usage::Fresh => counters.fresh.fetch_add(commands, Relaxed),
            Usage::Stale => counters.stale.fetch_add(commands, Relaxed),
            Usage::Expired => counters.expired.fetch_add(commands, Relaxed),
        };
    }

    fn read(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Directory> {
        self.directory.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which bundle a lane's commands go to.
enum Way {
    Send(usize),
    Escalate(usize),
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Reply;
    use super::super::testing::{batch, command, mangled};
    use super::super::verdict::{DELIVERED, MALFORMED, OVERSIZED};
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const PHASES: RoutePhases = RoutePhases { fresh_ns: 60 * SECOND, stale_ns: 180 * SECOND };

    fn dispatch(profile: Profile, strict: bool) -> Dispatch {
        let dispatch = Dispatch::new(Limits::MESH, PHASES);
        dispatch.put_route("bot", "say", Route { queue: 2, topic: Arc::from("acme/bot"), profile, strict });
        dispatch.allow("acme/shop", "bot", "say", 1);
        dispatch.renewed(0);
        dispatch
    }

    fn counted(dispatch: &Dispatch, name: &str) -> u64 {
        dispatch.counters().into_iter().find(|(known, _)| known == name).map_or(0, |(_, count)| count)
    }

    #[test]
    fn ages_move_a_command_from_fresh_to_expired() {
        let frame = batch(&[("acme/shop", vec![command("bot", "say")])]);
        for (profile, fresh, stale) in
            [(Profile::Critical, 2, 4), (Profile::Moderate, 10, 20), (Profile::Low, 30, 90)]
        {
            let dispatch = dispatch(profile, false);
            let at = |age: i64| {
                let plan = dispatch.plan(&frame, age);
                (plan.sends.len(), plan.escalated, plan.stale_used)
            };
            assert_eq!(at(fresh * SECOND - 1), (1, 0, false));
            assert_eq!(at(fresh * SECOND), (1, 0, true));
            assert_eq!(at(stale * SECOND - 1), (1, 0, true));
            assert_eq!(at(stale * SECOND), (0, 1, false));
            assert_eq!(counted(&dispatch, "escalated.acl_expired"), 1);
            assert_eq!(at(180 * SECOND), (0, 1, false));
            assert_eq!(counted(&dispatch, "escalated.route_expired"), 1);
        }
    }

    #[test]
    fn whole_batch_to_one_topic_needs_no_map() {
        let commands: Vec<_> = (0..50).map(|_| command("bot", "say")).collect();
        let frame = batch(&[("acme/shop", commands)]);
        let mut plan = dispatch(Profile::Low, false).plan(&frame, 0);
        assert_eq!((plan.sends.len(), plan.sends[0].queue, plan.sends[0].count), (1, 2, 50));
        assert_eq!(plan.sends[0].topics.capacity(), plan.sends[0].topics.len());
        assert_eq!(plan.ledger.parts(), 2);
        let reply = Reply { codes: vec![DELIVERED; 50], ..Reply::default() };
        assert!(!plan.ledger.merge(0, 0, &reply).is_empty());
        assert!(plan.ledger.done());
    }

    #[test]
    fn forgotten_entries_leave_nothing_behind() {
        let dispatch = dispatch(Profile::Low, false);
        dispatch.allow("acme/shop", "bot", "say", 2);
        dispatch.deny("acme/shop", "bot", "say");
        dispatch.deny("acme/shop", "bot", "say");
        dispatch.drop_route("bot", "say");
        dispatch.drop_route("nobody", "say");
        assert!(dispatch.read().strings.is_empty());
    }

    fn parts(version: u64, profile: u64) -> [Vec<u8>; 2] {
        let (mut routes, mut acl) =
            (snapshot::Table::new(snapshot::Kind::Routes), snapshot::Table::new(snapshot::Kind::Acl));
        for name in ["say", "sing"] {
            let key =
                [routes.string("bot"), routes.string(name), routes.string("acme/bot")].map(Result::unwrap);
            let end = if name == "sing" { 0 } else { 50 };
            routes.row(&[key[0], key[1], key[2], 1, profile, 1, 300, end]).unwrap();
            let key = [acl.string("acme/shop"), acl.string("bot"), acl.string(name)].map(Result::unwrap);
            acl.row(&[key[0], key[1], key[2], version]).unwrap();
        }
        [routes, acl].map(|table| table.write(version, 5).unwrap())
    }

    #[test]
    fn a_snapshot_takes_the_place_of_everything_and_has_no_age_of_its_own() {
        let frame = batch(&[("acme/shop", vec![command("bot", "sing")])]);
        let dispatch = dispatch(Profile::Low, false);
        dispatch.put_route(
            "old",
            "say",
            Route { queue: 0, topic: Arc::from("x"), profile: Profile::Low, strict: false },
        );
        let [routes, acl] = parts(7, 3);
        assert_eq!(dispatch.load_snapshot(&routes, &acl, 49), Ok(7));
        assert_eq!((counted(&dispatch, "routes"), counted(&dispatch, "acls")), (2, 2));
        assert_eq!(dispatch.plan(&frame, 0).escalated, 1);
        dispatch.renewed(-SECOND);
        assert_eq!(dispatch.plan(&frame, 0).sends.len(), 1);
        for name in ["say", "sing"] {
            dispatch.deny("acme/shop", "bot", name);
            dispatch.drop_route("bot", name);
        }
        assert!(dispatch.read().strings.is_empty());
    }

    #[test]
    fn a_bad_snapshot_changes_nothing() {
        let dispatch = dispatch(Profile::Low, false);
        let ([routes, acl], [_, other]) = (parts(7, 3), parts(8, 3));
        assert_eq!(dispatch.load_snapshot(&routes, &other, 49), Err(snapshot::Unreadable::Mixed));
        assert_eq!(dispatch.load_snapshot(&acl, &routes, 49), Err(snapshot::Unreadable::Kind));
        let mut table = snapshot::Table::new(snapshot::Kind::Acl);
        let at = table.string("a").unwrap();
        table.row(&[at, at, at, 1]).unwrap();
        table.row(&[at, at, at, 2]).unwrap();
        let twice = table.write(7, 5).unwrap();
        assert_eq!(dispatch.load_snapshot(&routes, &twice, 49), Err(snapshot::Unreadable::Duplicate));
        assert_eq!((counted(&dispatch, "routes"), counted(&dispatch, "acls")), (1, 1));
    }

    #[test]
    fn no_bytes_of_a_snapshot_make_it_panic_and_ended_routes_stay_out() {
        let dispatch = dispatch(Profile::Low, false);
        let [routes, acl] = parts(7, 3);
        assert_eq!(dispatch.load_snapshot(&routes, &acl, 50), Ok(7));
        assert_eq!(counted(&dispatch, "routes"), 1);
        for damaged in mangled(&routes) {
            let _ = dispatch.load_snapshot(&damaged, &acl, 49);
        }
        for damaged in mangled(&acl) {
            let _ = dispatch.load_snapshot(&routes, &damaged, 49);
        }
    }

    #[test]
    fn frames_are_refused_with_their_number() {
        let frame = batch(&[("acme/shop", vec![command("bot", "say"); 3])]);
        let limits = Limits { max_batch_bytes: frame.len(), max_batch_commands: 2 };
        let plan = Dispatch::new(limits, PHASES).plan(&frame, 0);
        assert_eq!((plan.frame_code, plan.ledger.batch_seq()), (OVERSIZED, 9));
        let limits = Limits { max_batch_bytes: frame.len() - 1, max_batch_commands: 3 };
        let plan = Dispatch::new(limits, PHASES).plan(&frame, 0);
        assert_eq!((plan.frame_code, plan.ledger.batch_seq()), (OVERSIZED, 9));
        assert_eq!(dispatch(Profile::Low, false).plan(&frame[..frame.len() - 1], 0).frame_code, MALFORMED);
    }

    #[test]
    fn no_bytes_make_it_panic_or_lose_a_command() {
        let frame = batch(&[
            ("acme/shop", vec![command("bot", "say"), command("x", "y"), vec![0xff]]),
            ("globex/shop", vec![command("bot", "say")]),
        ]);
        let dispatch = dispatch(Profile::Low, false);
        for frame in mangled(&frame) {
            let plan = dispatch.plan(&frame, 0);
            let refused = plan.ledger.codes().iter().filter(|code| **code == MALFORMED).count();
            let sent: usize = plan.sends.iter().map(|send| send.count).sum();
            assert_eq!(refused + sent + plan.escalated, plan.ledger.count());
        }
    }
}
