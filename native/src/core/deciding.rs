//! The decision about one lane, from memory alone: the checks of Fast, in their order.
//!
//! Escalates in doubt: a missing or aged entry never allows and never refuses anything. It reads no clock and knows no
//! wall time, so that no step of one changes a decision.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::directory::{Directory, Limited, Live, Route};
use super::dispatch::{Dispatch, live_at, lock};
use super::escalation::{
    ACL_EXPIRED, CACHE_MISS, COLD_ONLY, ROUTE_EXPIRED, SYNC, TOKEN_REQUIRED, WARM_BANNED,
};
use super::fairness::{BanTerms, Dominance};
use super::grants::Purse;
use super::own_terms::OwnTerms;
use super::phases::{Phase, Profile};
use super::reframer::Destination;
use super::telemetry::{GRANT_PREFETCHED, GRANT_SHADOW, GRANT_UNLIMITED};
use super::unknown::Advice;
use super::verdict::{ROUTE_MISSING, SATURATED};

/// Source, target and name of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub source: &'a str,
    pub target: &'a str,
    pub name: &'a str,
}

/// The decision about a lane.
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
    pub banned: Option<(Dominance, BanTerms)>,
    /// The first command since the last report that wanted a permit of the route.
    pub thirsty: bool,
    /// The same of the source's own limit.
    pub source_thirsty: bool,
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
            source_thirsty: false,
        }
    }
}

impl Dispatch {
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
        let right = directory.right(source, &found, now_mono_ns);
        let own = right.as_ref().and_then(|right| right.own);
        let profile = own.and_then(|own| own.profile).unwrap_or(route.profile);
        if profile == Profile::Sync {
            return Outlook::of(Decision::Escalate(SYNC));
        }
        let age_ns = directory.age_ns(now_mono_ns);
        let routing = self.rules.routes.at(age_ns, self.rules.shorten);
        let acl = self.rules.rights.of(profile).at(age_ns, self.rules.shorten);
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
        let Some(right) = right else { return outlook };
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
            match permits(route, own, live, count, now_mono_ns, &mut outlook) {
                0 => Decision::Escalate(TOKEN_REQUIRED),
                permits => {
                    let topic = Arc::clone(&route.topic);
                    Decision::Send(Destination { queue: route.queue, topic, once_ms: 0 }, permits)
                }
            }
        };
        // A source that is kept off the warm path does not compete for it: its traffic would make a dominant source of
        // the one that the ban protects.
        if matches!(outlook.decision, Decision::Escalate(COLD_ONLY | WARM_BANNED)) {
            return outlook;
        }
        let sent = if let Decision::Send(_, sent) = outlook.decision { sent } else { 0 };
        let fairness = &route.terms.fairness;
        let counts = (u64::from(count), u64::from(sent));
        outlook.banned = live
            .window
            .note(fairness, &self.seed, source, counts, now_mono_ns, &mut self.room())
            .map(|dominance| (dominance, BanTerms::of(fairness)));
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
}

/// The number of the `count` commands that may go now: with a permit of the source's own limit and one of the route's,
/// where there are such limits.
fn permits(
    route: &Route,
    own: Option<&OwnTerms>,
    live: &mut Live,
    count: u32,
    now_mono_ns: i64,
    outlook: &mut Outlook,
) -> u32 {
    outlook.grant = GRANT_UNLIMITED;
    if let Some(own) = own.filter(|own| own.limited != Limited::No) {
        return permits_of_both(route, own, live, count, now_mono_ns, outlook);
    }
    if route.terms.limited == Limited::No {
        return count;
    }
    outlook.grant = GRANT_PREFETCHED;
    outlook.thirsty = !std::mem::replace(&mut live.purse.listed, true);
    let taken = live.purse.take(u64::from(count), now_mono_ns);
    if route.terms.limited == Limited::Watched {
        if taken < u64::from(count) {
            // The lane is reported as one: part of it went without.
            outlook.grant = GRANT_SHADOW;
        }
        live.purse.went_without(u64::from(count) - taken);
        return count;
    }
    // No more than `count`, which fits.
    taken as u32
}

/// As `permits` for a source with a limit of its own: a command goes with a permit of each, or not at all.
fn permits_of_both(
    route: &Route,
    own: &OwnTerms,
    live: &mut Live,
    count: u32,
    now_mono_ns: i64,
    outlook: &mut Outlook,
) -> u32 {
    outlook.grant = GRANT_PREFETCHED;
    let mut purse = own.purse();
    let mut most = u64::from(count);
    // What both have is known before either is asked: a permit that the other lacks would be spent for nothing.
    if own.limited == Limited::Yes {
        most = most.min(purse.left(now_mono_ns));
    }
    let wanted = most;
    if route.terms.limited == Limited::Yes {
        most = most.min(live.purse.left(now_mono_ns));
    }
    outlook.source_thirsty = !std::mem::replace(&mut purse.listed, true);
    spend(&mut purse, own.limited, u64::from(count), most, now_mono_ns, outlook);
    if route.terms.limited != Limited::No {
        outlook.thirsty = !std::mem::replace(&mut live.purse.listed, true);
        spend(&mut live.purse, route.terms.limited, wanted, most, now_mono_ns, outlook);
    }
    // No more than `count`, which fits.
    most as u32
}

/// Takes the permits of `most` commands, which are there unless the limit only watches.
fn spend(
    purse: &mut Purse,
    limited: Limited,
    wanted: u64,
    most: u64,
    now_mono_ns: i64,
    outlook: &mut Outlook,
) {
    let taken = purse.take_most(wanted, most, now_mono_ns);
    if limited == Limited::Watched && taken < most {
        // The lane is reported as one: part of it went without.
        outlook.grant = GRANT_SHADOW;
        purse.went_without(most - taken);
    }
}
