//! Fast's decision about a batch, from memory alone.
//!
//! When unsure it escalates: a missing or aged entry never allows and never refuses anything. It reads no clock
//! and knows no wall time, so that no step of one changes a decision.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::fast::RandomState;

use super::bundle::Destination;
use super::counters::Counters;
use super::directory::{BanList, Directory, Limited, Live, Now, Parts, Route};
use super::duplicates::Duplicates;
use super::escalation::{
    ACL_EXPIRED, CACHE_MISS, COLD_ONLY, ROUTE_EXPIRED, SYNC, TOKEN_REQUIRED, WARM_BANNED,
};
use super::fairness::{Dominance, Room, Window};
use super::frames::Limits;
use super::grants::{Grant, Need, Purse};
use super::ledger::Ledger;
use super::phases::{Phase, Phases, Profile, SECOND_NS};
use super::plan::{Lessons, Plan};
use super::snapshot;
use super::telemetry::{GRANT_PREFETCHED, GRANT_SHADOW, GRANT_UNLIMITED};
use super::unknown::{self, Advice, Unknown};
use super::verdict::{DELIVERED, ROUTE_MISSING, SATURATED};

/// What holds for all routes of one instance.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How old a route may be.
    pub routes: Phases,
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
            shorten: 0,
            cold_only: false,
            duplicates: 65_536,
            dedupe_ns: 300 * SECOND_NS,
            unknown: unknown::Bounds { routes: 65_536, routes_per_source: 1024, life_ns: 2 * SECOND_NS },
            counted_sources: 262_144,
        }
    }
}

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub source: &'a str,
    pub target: &'a str,
    pub name: &'a str,
}

/// What becomes of a lane.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The first so many go to the queue, the others to Slow for want of a permit.
    Send(Destination, u32),
    Escalate(u8),
    /// As `Escalate`, and Slow's answer is worth remembering.
    EscalateUnknown,
    /// Duplicates of what was delivered are answered, the others go to Slow.
    Strict,
    Refuse {
        code: u8,
        retry_after_ms: u32,
        detail: &'static str,
    },
}

/// A decision, what it relied on, and what came of it.
#[derive(Debug)]
pub struct Outlook {
    pub decision: Decision,
    /// The older of route and right.
    pub usage: Option<Phase>,
    pub acl: Option<Phase>,
    pub routing: Option<Phase>,
    /// Version of the right that was used; 0 without one.
    pub acl_version: u64,
    /// A `GRANT_`: by what permit commands are sent.
    pub grant: u8,
    pub banned: Option<(Dominance, i64)>,
    /// The first command since the last report that wanted a permit here.
    pub thirsty: bool,
}

impl Outlook {
    fn of(decision: Decision) -> Self {
        Self {
            decision,
            usage: None,
            acl: None,
            routing: None,
            acl_version: 0,
            grant: 0,
            banned: None,
            thirsty: false,
        }
    }
}

/// The directory with the rules for using it.
#[derive(Debug)]
pub struct Dispatch {
    pub(super) limits: Limits,
    pub(super) counters: Counters,
    rules: Rules,
    cold_only: AtomicBool,
    directory: RwLock<Directory>,
    unknown: Mutex<Unknown>,
    duplicates: Mutex<Duplicates>,
    /// Routes whose permits were wanted since the last report.
    thirsty: Mutex<Vec<(Box<str>, Box<str>)>>,
    /// Sources that all windows count.
    counted: AtomicUsize,
    seed: RandomState,
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
        self.write().allow(source, target, name, version);
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

    /// Whether every command goes by Slow from now on.
    pub fn set_cold_only(&self, cold_only: bool) {
        self.cold_only.store(cold_only, Relaxed);
    }

    /// Takes a snapshot's parts in place of everything, all of it or nothing; returns its version.
    ///
    /// What was loaded counts as never read until `renewed` says when it was.
    /// Routes and bans that have ended by `now` are left out.
    pub fn load_snapshot(
        &self,
        routes: &[u8],
        acl: &[u8],
        bans: Option<&[u8]>,
        now: Now,
    ) -> Result<u64, snapshot::Unreadable> {
        let routes = snapshot::Part::open(routes, snapshot::Kind::Routes)?;
        let acl = snapshot::Part::open(acl, snapshot::Kind::Acl)?;
        let bans = bans.map(|bans| snapshot::Part::open(bans, snapshot::Kind::Bans)).transpose()?;
        let parts = Parts { routes: &routes, acl: &acl, bans: bans.as_ref() };
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

    /// How old what is known is; None before it was ever read.
    pub fn age_ns(&self, now_mono_ns: i64) -> Option<i64> {
        let directory = self.read();
        directory.read_mono_ns.map(|_| directory.age_ns(now_mono_ns))
    }

    // -- permits ---------------------------------------------------------------------------------------

    /// Takes a grant in; false when the route is not there, or needs none: its permits are to be given back.
    pub fn grant(&self, target: &str, name: &str, grant: Grant, now_mono_ns: i64) -> bool {
        let directory = self.read();
        let Some(found) = directory.route(target, name) else { return false };
        if found.route.terms.limited == Limited::No || now_mono_ns >= grant.ends_mono_ns {
            return false;
        }
        let mut live = found.route.live();
        live_at(&mut live, now_mono_ns).purse.put(grant, now_mono_ns);
        true
    }

    /// What was wanted since the last report, of each route that was wanted.
    pub fn needs(&self, now_mono_ns: i64) -> Vec<(Box<str>, Box<str>, Need)> {
        let asked = std::mem::take(&mut *lock(&self.thirsty));
        let directory = self.read();
        let need = |(target, name): (Box<str>, Box<str>)| {
            let found = directory.route(&target, &name)?;
            let need = found.route.live().as_mut().map(|live| live.purse.report(now_mono_ns))?;
            Some((target, name, need))
        };
        asked.into_iter().filter_map(need).collect()
    }

    /// Gives up every permit that is left, so that it can be given back.
    pub fn give_up(&self, now_mono_ns: i64) -> Vec<(String, String, Grant)> {
        let directory = self.read();
        let left = |(target, name, route): (&str, &str, &Route)| {
            let grants = route.live().as_mut().map(|live| live.purse.empty(now_mono_ns)).unwrap_or_default();
            let named = (target.to_owned(), name.to_owned());
            grants.into_iter().map(move |grant| (named.0.clone(), named.1.clone(), grant))
        };
        directory.touched().flat_map(left).collect()
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
            for (index, command) in &lessons.strict {
                if ledger.code(*index as usize) == DELIVERED {
                    duplicates.remember(command, until_mono_ns, now_mono_ns);
                }
            }
        }
    }

    /// Frees what nobody needs any more: idle windows, old answers. To be called now and then.
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

    pub(super) fn note_thirsty(&self, routes: Vec<(Box<str>, Box<str>)>) {
        lock(&self.thirsty).extend(routes);
    }

    // -- deciding --------------------------------------------------------------------------------------

    /// Plans a Batch. Bad bytes become verdicts.
    pub fn plan(&self, frame: &[u8], now_mono_ns: i64) -> Plan {
        Plan::of(self, frame, now_mono_ns)
    }

    /// Decides about `count` commands of one lane. The order of the questions is part of the promise: see the tests.
    pub(super) fn decide(
        &self,
        directory: &Directory,
        key: Key<'_>,
        count: u32,
        now_mono_ns: i64,
    ) -> Outlook {
        let Key { source, target, name } = key;
        if self.cold_only.load(Relaxed) {
            return Outlook::of(Decision::Escalate(COLD_ONLY));
        }
        let Some(found) = directory.route(target, name) else {
            return Outlook::of(self.decide_unknown(key, now_mono_ns));
        };
        let route = found.route;
        if route.profile == Profile::Sync {
            return Outlook::of(Decision::Escalate(SYNC));
        }
        let age_ns = directory.age_ns(now_mono_ns);
        let routing = self.rules.routes.at(age_ns, self.rules.shorten);
        let acl = route.profile.phases().at(age_ns, self.rules.shorten);
        let mut outlook = Outlook::of(Decision::Escalate(CACHE_MISS));
        if routing == Phase::Expired {
            (outlook.usage, outlook.routing) = (Some(Phase::Expired), Some(routing));
            outlook.decision = Decision::Escalate(ROUTE_EXPIRED);
            return outlook;
        }
        if acl == Phase::Expired {
            (outlook.usage, outlook.acl) = (Some(Phase::Expired), Some(acl));
            outlook.decision = Decision::Escalate(ACL_EXPIRED);
            return outlook;
        }
        let Some(right) = directory.right(source, &found) else { return outlook };
        (outlook.usage, outlook.acl, outlook.routing) = (Some(routing.max(acl)), Some(acl), Some(routing));
        outlook.acl_version = right.version;

        // From here on the command is allowed, and counts as offered.
        let mut live = route.live();
        let live = live_at(&mut live, now_mono_ns);
        let cold = route.terms.cold_only
            || directory.is_cold_only(&right, now_mono_ns)
            || directory.is_frozen(&right, now_mono_ns);
        outlook.decision = if cold {
            Decision::Escalate(COLD_ONLY)
        } else if directory.is_warm_banned(&right, now_mono_ns) || live.window.is_banned(source, now_mono_ns)
        {
            Decision::Escalate(WARM_BANNED)
        } else if route.strict {
            Decision::Strict
        } else {
            match permits(route, live, count, now_mono_ns, &mut outlook) {
                0 => Decision::Escalate(TOKEN_REQUIRED),
                permits => {
                    let topic = std::sync::Arc::clone(&route.topic);
                    Decision::Send(Destination { queue: route.queue, topic, once: false }, permits)
                }
            }
        };
        // Who is kept off the warm path does not compete for it: its traffic would make a dominant source of the one
        // that the ban protects.
        if matches!(outlook.decision, Decision::Escalate(COLD_ONLY | WARM_BANNED)) {
            return outlook;
        }
        let sent = if let Decision::Send(_, sent) = outlook.decision { sent } else { 0 };
        let fairness = &route.terms.fairness;
        let counts = (u64::from(count), u64::from(sent));
        outlook.banned = live
            .window
            .note(fairness, &self.seed, source, counts, now_mono_ns, &mut self.room())
            .map(|dominance| (dominance, fairness.ban_ns));
        outlook
    }

    fn decide_unknown(&self, key: Key<'_>, now_mono_ns: i64) -> Decision {
        match lock(&self.unknown).ask(key.source, key.target, key.name, now_mono_ns) {
            Advice::Ask => Decision::EscalateUnknown,
            Advice::Missing => Decision::Refuse {
                code: ROUTE_MISSING,
                retry_after_ms: 0,
                detail: "No route is registered for this target and name.",
            },
            Advice::Wait(ns) => Decision::Refuse {
                code: SATURATED,
                retry_after_ms: u32::try_from(ns.max(0) / 1_000_000 + 1).unwrap_or(u32::MAX),
                detail: "The source names too many routes that are not registered.",
            },
        }
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

    fn room(&self) -> Room<'_> {
        Room::new(&self.counted, self.rules.counted_sources)
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Directory> {
        self.directory.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many of `count` commands may go now.
fn permits(route: &Route, live: &mut Live, count: u32, now_mono_ns: i64, outlook: &mut Outlook) -> u32 {
    outlook.grant = GRANT_UNLIMITED;
    if route.terms.limited == Limited::No {
        return count;
    }
    outlook.grant = GRANT_PREFETCHED;
    outlook.thirsty = !std::mem::replace(&mut live.purse.listed, true);
    let taken = live.purse.take(u64::from(count), now_mono_ns);
    if route.terms.limited == Limited::Watched {
        if taken < u64::from(count) {
            // The lane is told as one: part of it went without.
            outlook.grant = GRANT_SHADOW;
        }
        live.purse.went_without(u64::from(count) - taken);
        return count;
    }
    // No more than `count`, which fits.
    taken as u32
}

fn live_at(live: &mut Option<Box<Live>>, now_mono_ns: i64) -> &mut Live {
    live.get_or_insert_with(|| Box::new(Live { purse: Purse::default(), window: Window::new(now_mono_ns) }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::directory::Terms;
    use super::super::ledger::Reply;
    use super::super::testing::{batch, command, mangled};
    use super::super::verdict::{DELIVERED, DUPLICATE, MALFORMED, OVERSIZED};
    use super::*;

    fn route(profile: Profile, strict: bool, terms: Terms) -> Route {
        Route::new(2, Arc::from("acme/bot"), profile, strict, Arc::new(terms))
    }

    fn knowing(profile: Profile, strict: bool, terms: Terms) -> Dispatch {
        let dispatch = Dispatch::new(Limits::MESH, Rules::default());
        dispatch.put_route("bot", "say", route(profile, strict, terms));
        dispatch.allow("acme/shop", "bot", "say", 1);
        dispatch.renewed(0);
        dispatch
    }

    fn dispatch(profile: Profile, strict: bool) -> Dispatch {
        knowing(profile, strict, Terms::default())
    }

    fn limited() -> Dispatch {
        knowing(Profile::Low, false, Terms { limited: Limited::Yes, ..Terms::default() })
    }

    fn counted(dispatch: &Dispatch, name: &str) -> u64 {
        dispatch.counters().into_iter().find(|(known, _)| known == name).map_or(0, |(_, count)| count)
    }

    fn say(count: usize) -> Vec<u8> {
        batch(&[("acme/shop", vec![command("bot", "say"); count])])
    }

    fn sent(plan: &Plan) -> usize {
        plan.sends.iter().map(|send| send.count).sum()
    }

    #[test]
    fn ages_move_a_command_from_fresh_to_expired() {
        let frame = say(1);
        for (profile, fresh, stale) in
            [(Profile::Critical, 2, 4), (Profile::Moderate, 10, 20), (Profile::Low, 30, 90)]
        {
            let dispatch = dispatch(profile, false);
            let at = |age: i64| {
                let plan = dispatch.plan(&frame, age);
                (plan.sends.len(), plan.escalated, plan.stale_used)
            };
            assert_eq!(at(fresh * SECOND_NS - 1), (1, 0, false));
            assert_eq!(at(fresh * SECOND_NS), (1, 0, true));
            assert_eq!(at(stale * SECOND_NS - 1), (1, 0, true));
            assert_eq!(at(stale * SECOND_NS), (0, 1, false));
            assert_eq!(counted(&dispatch, "escalated.acl_expired"), 1);
            assert_eq!(at(180 * SECOND_NS), (0, 1, false));
            assert_eq!(counted(&dispatch, "escalated.route_expired"), 1);
        }
    }

    #[test]
    fn whole_batch_to_one_topic_needs_no_map() {
        let mut plan = dispatch(Profile::Low, false).plan(&say(50), 0);
        assert_eq!((plan.sends.len(), plan.sends[0].queue, plan.sends[0].count), (1, 2, 50));
        assert_eq!(plan.ledger.parts(), 1);
        let reply = Reply { codes: vec![DELIVERED; 50], ..Reply::default() };
        assert!(!plan.ledger.merge(0, 0, &reply).is_empty());
        assert!(plan.ledger.done());
    }

    #[test]
    fn permits_let_the_first_go_and_slow_decides_about_the_rest() {
        let dispatch = limited();
        let plan = dispatch.plan(&say(10), 0);
        assert_eq!((sent(&plan), plan.escalated, plan.thirsty), (0, 10, true));
        let grant = Grant { permits: 4, ends_mono_ns: 100, interval: 1 };
        assert!(dispatch.grant("bot", "say", grant, 0));
        let mut plan = dispatch.plan(&say(10), 99);
        assert_eq!((sent(&plan), plan.escalated, plan.thirsty), (4, 6, false));
        let reply = Reply { codes: vec![DELIVERED; 4], ..Reply::default() };
        plan.ledger.merge(0, 0, &reply);
        assert_eq!(plan.ledger.codes(), [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
        let needs = dispatch.needs(99);
        assert_eq!(needs.len(), 1);
        assert_eq!(needs[0].2, Need { wanted: 20, debt: 0, left: 0 });
        assert!(dispatch.needs(99).is_empty());
        // Another lane, another life: a grant ends with its interval.
        assert!(dispatch.grant("bot", "say", grant, 99));
        assert_eq!(sent(&dispatch.plan(&say(10), 100)), 0);
        assert!(!dispatch.grant("bot", "say", grant, 100));
        assert!(!dispatch.grant("bot", "nothing", grant, 0));
    }

    #[test]
    fn new_terms_lose_old_permits_and_the_end_gives_the_rest_back() {
        let dispatch = limited();
        let grant = Grant { permits: 4, ends_mono_ns: 100, interval: 7 };
        dispatch.grant("bot", "say", grant, 0);
        dispatch.put_route(
            "bot",
            "say",
            route(Profile::Low, false, Terms { limited: Limited::Yes, ..Terms::default() }),
        );
        assert_eq!(sent(&dispatch.plan(&say(1), 0)), 0);
        dispatch.grant("bot", "say", grant, 0);
        assert_eq!(dispatch.give_up(0), [("bot".to_owned(), "say".to_owned(), grant)]);
        assert!(dispatch.give_up(0).is_empty());
    }

    #[test]
    fn a_limit_that_only_watches_stops_nothing() {
        let dispatch = knowing(Profile::Low, false, Terms { limited: Limited::Watched, ..Terms::default() });
        assert_eq!(sent(&dispatch.plan(&say(10), 0)), 10);
        assert_eq!(dispatch.needs(0)[0].2, Need { wanted: 10, debt: 10, left: 0 });
    }

    #[test]
    fn lists_send_to_slow_until_they_end() {
        let frame = say(1);
        let dispatch = dispatch(Profile::Low, false);
        let reason = |now| {
            let plan = dispatch.plan(&frame, now);
            plan.escalations.first().map_or(0, |escalation| escalation.body[3])
        };
        dispatch.ban(BanList::WarmBan, "acme/shop", Some(("bot", "say")), 10);
        assert_eq!((reason(9), reason(10)), (WARM_BANNED, 0));
        dispatch.ban(BanList::ColdOnly, "acme/shop", None, i64::MAX);
        assert_eq!(reason(9), COLD_ONLY);
        dispatch.lift(BanList::ColdOnly, "acme/shop", Some(("bot", "say")));
        assert_eq!(reason(9), COLD_ONLY);
        dispatch.lift(BanList::ColdOnly, "acme/shop", None);
        assert_eq!(reason(9), WARM_BANNED);
        dispatch.lift(BanList::WarmBan, "acme/shop", Some(("bot", "say")));
        assert_eq!(reason(9), 0);
        dispatch.ban(BanList::WarmBan, "acme/shop", None, 10);
        assert_eq!((reason(9), reason(10)), (WARM_BANNED, 0));
        dispatch.lift(BanList::WarmBan, "acme/shop", None);
        assert_eq!(reason(9), 0);
        for name in ["say", ""] {
            dispatch.ban(BanList::Frozen, "", Some(("bot", name)), i64::MAX);
            assert_eq!(reason(9), COLD_ONLY);
            dispatch.lift(BanList::Frozen, "", Some(("bot", name)));
            assert_eq!(reason(9), 0);
        }
        dispatch.ban(BanList::Frozen, "", Some(("bot", "shout")), i64::MAX);
        dispatch.ban(BanList::Frozen, "", Some(("say", "")), i64::MAX);
        assert_eq!(reason(9), 0);
        dispatch.set_cold_only(true);
        assert_eq!(reason(9), COLD_ONLY);
    }

    #[test]
    fn only_what_slow_delivered_is_a_duplicate_here() {
        let dispatch = dispatch(Profile::Low, true);
        let frame = say(1);
        let answered = |code: u8| {
            let mut plan = dispatch.plan(&frame, 5);
            if plan.escalated == 1 {
                plan.ledger.merge(0, 0, &Reply { codes: vec![code], ..Reply::default() });
            }
            dispatch.learn(&plan.lessons, &plan.ledger, 6);
            plan.ledger.codes().to_vec()
        };
        assert_eq!(answered(SATURATED), [SATURATED]);
        assert_eq!(answered(DELIVERED), [DELIVERED]);
        assert_eq!(answered(DELIVERED), [DUPLICATE]);
        dispatch.renewed(300 * SECOND_NS);
        let plan = dispatch.plan(&frame, 5 + 300 * SECOND_NS);
        assert_eq!((plan.escalated, plan.block.len()), (1, 0));
        assert_eq!(dispatch.plan(&frame, 5 + 300 * SECOND_NS - 1).block.len(), 1);
        assert_eq!((counted(&dispatch, "strict"), counted(&dispatch, "duplicates")), (5, 2));
    }

    #[test]
    fn a_route_that_slow_does_not_know_is_missing_for_a_while() {
        let dispatch = dispatch(Profile::Low, false);
        let frame =
            batch(&[("acme/shop", vec![command("bot", "x"), command("bot", "say"), command("bot", "x")])]);
        let mut plan = dispatch.plan(&frame, 0);
        assert_eq!((plan.escalated, sent(&plan)), (2, 1));
        plan.ledger.merge(1, 0, &Reply { codes: vec![ROUTE_MISSING; 2], ..Reply::default() });
        dispatch.learn(&plan.lessons, &plan.ledger, 1);
        let plan = dispatch.plan(&frame, 2 * SECOND_NS - 1);
        assert_eq!((plan.escalated, plan.ledger.codes()), (0, &[ROUTE_MISSING, 0, ROUTE_MISSING][..]));
        let opening = Reply::read(&plan.ledger.opening()).unwrap();
        assert_eq!((opening.refusals.len(), opening.refusals[0].index, opening.last), (1, 0, false));
        assert_eq!(dispatch.plan(&frame, 2 * SECOND_NS).escalated, 2);
        // Registered meanwhile: known is known.
        dispatch.put_route("bot", "x", route(Profile::Low, false, Terms::default()));
        dispatch.allow("acme/shop", "bot", "x", 1);
        assert_eq!(sent(&dispatch.plan(&frame, 2)), 3);
    }

    #[test]
    fn one_source_takes_the_warm_path_and_loses_it_for_a_while() {
        let dispatch = dispatch(Profile::Low, false);
        dispatch.allow("globex/shop", "bot", "say", 1);
        dispatch.plan(&batch(&[("globex/shop", vec![command("bot", "say"); 20])]), 0);
        let plan = dispatch.plan(&say(99), 0);
        assert_eq!((sent(&plan), plan.warm_bans.len()), (99, 1));
        assert_eq!(&*plan.warm_bans[0].source, "acme/shop");
        let plan = dispatch.plan(&say(99), 1);
        assert_eq!((sent(&plan), plan.escalated, plan.warm_bans.len()), (0, 99, 0));
        let plan = dispatch.plan(&batch(&[("globex/shop", vec![command("bot", "say"); 20])]), 1);
        assert_eq!((sent(&plan), plan.warm_bans.len()), (20, 0));
        assert_eq!(sent(&dispatch.plan(&say(1), 30 * SECOND_NS)), 1);
        dispatch.sweep(10_000 * SECOND_NS);
        assert_eq!(counted(&dispatch, "counted_sources"), 0);
    }

    #[test]
    fn a_ban_does_not_make_a_dominant_source_of_the_one_it_protects() {
        let dispatch = dispatch(Profile::Low, false);
        dispatch.allow("acme/rival", "bot", "say", 1);
        let from = |source: &'static str, count| batch(&[(source, vec![command("bot", "say"); count])]);
        assert!(dispatch.plan(&from("acme/rival", 30), 0).warm_bans.is_empty());
        assert_eq!(dispatch.plan(&from("acme/shop", 200), 0).warm_bans.len(), 1);
        for _ in 0..10 {
            assert_eq!(dispatch.plan(&from("acme/shop", 200), 1).escalated, 200);
            let plan = dispatch.plan(&from("acme/rival", 30), 1);
            assert_eq!((sent(&plan), plan.warm_bans.len()), (30, 0));
        }
    }

    #[test]
    fn forgotten_entries_leave_nothing_behind() {
        let dispatch = dispatch(Profile::Low, false);
        dispatch.allow("acme/shop", "bot", "say", 2);
        dispatch.plan(&say(3), 0);
        assert_eq!(counted(&dispatch, "counted_sources"), 1);
        for list in [BanList::WarmBan, BanList::ColdOnly] {
            for route in [Some(("bot", "say")), None] {
                dispatch.ban(list, "acme/shop", route, 5);
                dispatch.ban(list, "acme/shop", route, 6);
                dispatch.lift(list, "acme/shop", route);
                dispatch.lift(list, "acme/shop", route);
            }
        }
        for name in ["say", ""] {
            dispatch.ban(BanList::Frozen, "", Some(("bot", name)), 5);
            dispatch.ban(BanList::Frozen, "", Some(("bot", name)), 6);
            dispatch.lift(BanList::Frozen, "", Some(("bot", name)));
        }
        dispatch.deny("acme/shop", "bot", "say");
        dispatch.deny("acme/shop", "bot", "say");
        dispatch.drop_route("bot", "say");
        dispatch.drop_route("nobody", "say");
        assert!(dispatch.read().holds_no_strings());
        assert_eq!(counted(&dispatch, "counted_sources"), 0);
    }

    fn parts(version: u64, profile: u64) -> [Vec<u8>; 3] {
        use snapshot::{Kind, Table};
        let (mut routes, mut acl) = (Table::new(Kind::Routes), Table::new(Kind::Acl));
        for name in ["say", "sing"] {
            let key =
                [routes.string("bot"), routes.string(name), routes.string("acme/bot")].map(Result::unwrap);
            let end = if name == "sing" { 0 } else { 50 };
            let shares = [0.8f64.to_bits(), 0.1f64.to_bits()];
            let row =
                [key[0], key[1], key[2], 1, profile, 1, 300, end, 1, 30, shares[0], shares[1], 2, 50, 30];
            routes.row(&row).unwrap();
            let key = [acl.string("acme/shop"), acl.string("bot"), acl.string(name)].map(Result::unwrap);
            acl.row(&[key[0], key[1], key[2], version]).unwrap();
        }
        let mut bans = Table::new(Kind::Bans);
        let every = bans.string("*").unwrap();
        let row = [bans.string("acme/cold").unwrap(), every, every, 2, 60];
        bans.row(&row).unwrap();
        [routes, acl, bans].map(|table| table.write(version, 5).unwrap())
    }

    fn load(dispatch: &Dispatch, parts: [&[u8]; 3], unix_ns: u64) -> Result<u64, snapshot::Unreadable> {
        dispatch.load_snapshot(parts[0], parts[1], Some(parts[2]), Now { unix_ns, mono_ns: 1000 })
    }

    #[test]
    fn a_snapshot_takes_the_place_of_everything_and_has_no_age_of_its_own() {
        let frame = batch(&[("acme/shop", vec![command("bot", "sing")])]);
        let dispatch = dispatch(Profile::Low, false);
        dispatch.put_route("old", "say", route(Profile::Low, false, Terms::default()));
        let [routes, acl, bans] = parts(7, 3);
        assert_eq!(load(&dispatch, [&routes, &acl, &bans], 49), Ok(7));
        let told = ["routes", "acls", "bans"].map(|name| counted(&dispatch, name));
        assert_eq!(told, [2, 2, 1]);
        assert_eq!(dispatch.plan(&frame, 0).escalated, 1);
        dispatch.renewed(-SECOND_NS);
        // Its limit was loaded with it.
        assert_eq!(sent(&dispatch.plan(&frame, 0)), 0);
        dispatch.grant("bot", "sing", Grant { permits: 1, ends_mono_ns: 9, interval: 1 }, 0);
        assert_eq!(sent(&dispatch.plan(&frame, 0)), 1);
        for name in ["say", "sing"] {
            dispatch.deny("acme/shop", "bot", name);
            dispatch.drop_route("bot", name);
        }
        dispatch.lift(BanList::ColdOnly, "acme/cold", None);
        assert!(dispatch.read().holds_no_strings());
    }

    #[test]
    fn a_bad_snapshot_changes_nothing() {
        let dispatch = dispatch(Profile::Low, false);
        let ([routes, acl, bans], [_, other, later]) = (parts(7, 3), parts(8, 3));
        assert_eq!(load(&dispatch, [&routes, &other, &bans], 49), Err(snapshot::Unreadable::Mixed));
        assert_eq!(load(&dispatch, [&routes, &acl, &later], 49), Err(snapshot::Unreadable::Mixed));
        assert_eq!(load(&dispatch, [&acl, &routes, &bans], 49), Err(snapshot::Unreadable::Kind));
        let mut table = snapshot::Table::new(snapshot::Kind::Acl);
        let at = table.string("a").unwrap();
        table.row(&[at, at, at, 1]).unwrap();
        table.row(&[at, at, at, 2]).unwrap();
        let twice = table.write(7, 5).unwrap();
        assert_eq!(load(&dispatch, [&routes, &twice, &bans], 49), Err(snapshot::Unreadable::Duplicate));
        assert_eq!((counted(&dispatch, "routes"), counted(&dispatch, "acls")), (1, 1));
    }

    #[test]
    fn no_bytes_of_a_snapshot_make_it_panic_and_what_has_ended_stays_out() {
        let dispatch = dispatch(Profile::Low, false);
        let [routes, acl, bans] = parts(7, 3);
        assert_eq!(load(&dispatch, [&routes, &acl, &bans], 60), Ok(7));
        assert_eq!((counted(&dispatch, "routes"), counted(&dispatch, "bans")), (1, 0));
        for damaged in mangled(&routes) {
            let _ = load(&dispatch, [&damaged, &acl, &bans], 49);
        }
        for damaged in mangled(&acl) {
            let _ = load(&dispatch, [&routes, &damaged, &bans], 49);
        }
        for damaged in mangled(&bans) {
            let _ = load(&dispatch, [&routes, &acl, &damaged], 49);
        }
    }

    #[test]
    fn frames_are_refused_with_their_number() {
        let frame = say(3);
        let limits = Limits { max_batch_bytes: frame.len(), max_batch_commands: 2 };
        let plan = Dispatch::new(limits, Rules::default()).plan(&frame, 0);
        assert_eq!((plan.frame_code, plan.ledger.batch_seq()), (OVERSIZED, 9));
        let limits = Limits { max_batch_bytes: frame.len() - 1, max_batch_commands: 3 };
        let plan = Dispatch::new(limits, Rules::default()).plan(&frame, 0);
        assert_eq!((plan.frame_code, plan.ledger.batch_seq()), (OVERSIZED, 9));
        assert_eq!(dispatch(Profile::Low, false).plan(&frame[..frame.len() - 1], 0).frame_code, MALFORMED);
    }

    #[test]
    fn no_bytes_make_it_panic_or_lose_a_command() {
        let frame = batch(&[
            ("acme/shop", vec![command("bot", "say"), command("x", "y"), vec![0xff]]),
            ("globex/shop", vec![command("bot", "say"), command("bot", "once")]),
        ]);
        let dispatch = limited();
        dispatch.put_route("bot", "once", route(Profile::Low, true, Terms::default()));
        dispatch.allow("globex/shop", "bot", "once", 1);
        dispatch.grant("bot", "say", Grant { permits: 1000, ends_mono_ns: 9, interval: 1 }, 0);
        for frame in mangled(&frame) {
            let plan = dispatch.plan(&frame, 0);
            let settled = plan.ledger.codes().iter().filter(|code| **code != 0).count();
            assert_eq!(settled + sent(&plan) + plan.escalated, plan.ledger.count());
            assert_eq!(plan.escalated, plan.escalations.iter().map(|each| each.count).sum::<usize>());
            assert_eq!(plan.block.len(), plan.ledger.count() - plan.escalated);
        }
    }
}
