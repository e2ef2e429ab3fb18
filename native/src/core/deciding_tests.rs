//! The order of the questions is part of the promise: what each of them does, and what comes before it.

use super::directory::{BanList, Limited, Terms};
use super::dispatch::{Dispatch, Rules};
use super::escalation::{COLD_ONLY, WARM_BANNED};
use super::frames::Limits;
use super::grants::{Grant, Need};
use super::ledger::Reply;
use super::phases::{Profile, SECOND_NS};
use super::testing::{batch, command, counted, knowing, known, limited, mangled, route, say, sent};
use super::verdict::{DELIVERED, DUPLICATE, MALFORMED, OVERSIZED, ROUTE_MISSING, SATURATED};

#[test]
fn ages_move_a_command_from_fresh_to_expired() {
    let frame = say(1);
    for (profile, fresh, stale) in
        [(Profile::Critical, 2, 4), (Profile::Moderate, 10, 20), (Profile::Low, 30, 90)]
    {
        let dispatch = known(profile, false);
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
    let mut plan = known(Profile::Low, false).plan(&say(50), 0);
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
    assert!(dispatch.grant("", "bot", "say", grant, 0));
    let mut plan = dispatch.plan(&say(10), 99);
    assert_eq!((sent(&plan), plan.escalated, plan.thirsty), (4, 6, false));
    let reply = Reply { codes: vec![DELIVERED; 4], ..Reply::default() };
    plan.ledger.merge(0, 0, &reply);
    assert_eq!(plan.ledger.codes(), [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
    let needs = dispatch.needs(99);
    assert_eq!(needs.len(), 1);
    assert_eq!(needs[0].1, Need { wanted: 20, debt: 0, left: 0 });
    assert!(dispatch.needs(99).is_empty());
    // Another lane, another life: a grant ends with its interval.
    assert!(dispatch.grant("", "bot", "say", grant, 99));
    assert_eq!(sent(&dispatch.plan(&say(10), 100)), 0);
    assert!(!dispatch.grant("", "bot", "say", grant, 100));
    assert!(!dispatch.grant("", "bot", "nothing", grant, 0));
}

#[test]
fn new_terms_lose_old_permits_and_the_end_gives_the_rest_back() {
    let dispatch = limited();
    let grant = Grant { permits: 4, ends_mono_ns: 100, interval: 7 };
    dispatch.grant("", "bot", "say", grant, 0);
    dispatch.put_route(
        "bot",
        "say",
        route(Profile::Low, false, Terms { limited: Limited::Yes, ..Terms::default() }),
    );
    assert_eq!(sent(&dispatch.plan(&say(1), 0)), 0);
    dispatch.grant("", "bot", "say", grant, 0);
    assert_eq!(dispatch.give_up(0), [(["", "bot", "say"].map(Box::from), grant)]);
    assert!(dispatch.give_up(0).is_empty());
}

#[test]
fn a_limit_that_only_watches_stops_nothing() {
    let dispatch = knowing(Profile::Low, false, Terms { limited: Limited::Watched, ..Terms::default() });
    assert_eq!(sent(&dispatch.plan(&say(10), 0)), 10);
    assert_eq!(dispatch.needs(0)[0].1, Need { wanted: 10, debt: 10, left: 0 });
}

#[test]
fn lists_send_to_slow_until_they_end() {
    let frame = say(1);
    let dispatch = known(Profile::Low, false);
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
    let dispatch = known(Profile::Low, true);
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
    let dispatch = known(Profile::Low, false);
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
    let dispatch = known(Profile::Low, false);
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
    let dispatch = known(Profile::Low, false);
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
fn frames_are_refused_with_their_number() {
    let frame = say(3);
    let limits = Limits { max_batch_bytes: frame.len(), max_batch_commands: 2 };
    let plan = Dispatch::new(limits, Rules::default()).plan(&frame, 0);
    assert_eq!((plan.frame_code, plan.ledger.batch_seq()), (OVERSIZED, 9));
    let limits = Limits { max_batch_bytes: frame.len() - 1, max_batch_commands: 3 };
    let plan = Dispatch::new(limits, Rules::default()).plan(&frame, 0);
    assert_eq!((plan.frame_code, plan.ledger.batch_seq()), (OVERSIZED, 9));
    assert_eq!(known(Profile::Low, false).plan(&frame[..frame.len() - 1], 0).frame_code, MALFORMED);
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
    dispatch.grant("", "bot", "say", Grant { permits: 1000, ends_mono_ns: 9, interval: 1 }, 0);
    for frame in mangled(&frame) {
        let plan = dispatch.plan(&frame, 0);
        let settled = plan.ledger.codes().iter().filter(|code| **code != 0).count();
        assert_eq!(settled + sent(&plan) + plan.escalated, plan.ledger.count());
        assert_eq!(plan.escalated, plan.escalations.iter().map(|each| each.count).sum::<usize>());
        assert_eq!(plan.block.len(), plan.ledger.count() - plan.escalated);
    }
}

#[test]
fn a_right_ends_by_itself_on_the_authoritys_clock_and_not_before_that_is_known() {
    let dispatch = known(Profile::Low, false);
    dispatch.allow_until("acme/shop", "bot", "say", 2, None, 1_000);
    // Loaded and never confirmed: it may have ended while nobody looked.
    assert_eq!(sent(&dispatch.plan(&say(1), 0)), 0);
    dispatch.heard_time(900, 0);
    assert_eq!(sent(&dispatch.plan(&say(1), 99)), 1);
    assert_eq!(sent(&dispatch.plan(&say(1), 100)), 0);
    assert_eq!(counted(&dispatch, "escalated.cache_miss"), 2);
    // A clock that is set back revives nothing.
    dispatch.heard_time(100, 100);
    assert_eq!(sent(&dispatch.plan(&say(1), 100)), 0);
    dispatch.allow_until("acme/shop", "bot", "say", 3, None, 2_000);
    assert_eq!(sent(&dispatch.plan(&say(1), 100)), 1);
    dispatch.allow("acme/shop", "bot", "say", 4);
    assert_eq!(sent(&dispatch.plan(&say(1), 5_000)), 1);
}

#[test]
fn a_right_may_be_stricter_or_looser_than_its_route() {
    let dispatch = known(Profile::Moderate, false);
    for (profile, stale) in [(Profile::Critical, 4), (Profile::Low, 90)] {
        dispatch.allow_until("acme/shop", "bot", "say", 2, Some(profile), 0);
        assert_eq!(sent(&dispatch.plan(&say(1), stale * SECOND_NS - 1)), 1);
        assert_eq!(sent(&dispatch.plan(&say(1), stale * SECOND_NS)), 0);
    }
    dispatch.allow_until("acme/shop", "bot", "say", 3, Some(Profile::Sync), 0);
    assert_eq!(sent(&dispatch.plan(&say(1), 0)), 0);
    assert_eq!(counted(&dispatch, "escalated.sync"), 1);
    dispatch.allow("acme/shop", "bot", "say", 4);
    assert_eq!(sent(&dispatch.plan(&say(1), 19 * SECOND_NS)), 1);
}

#[test]
fn a_source_with_a_limit_of_its_own_needs_a_permit_of_both() {
    let dispatch = limited();
    dispatch.limit_source("acme/shop", "bot", "say", Limited::Yes);
    let permits = |permits| Grant { permits, ends_mono_ns: 100, interval: 1 };
    dispatch.grant("", "bot", "say", permits(5), 0);
    assert_eq!(sent(&dispatch.plan(&say(10), 0)), 0);
    assert!(dispatch.grant("acme/shop", "bot", "say", permits(3), 0));
    assert!(!dispatch.grant("acme/rival", "bot", "say", permits(3), 0));
    assert!(!dispatch.grant("acme/shop", "bot", "say", permits(3), 100));
    assert_eq!(sent(&dispatch.plan(&say(10), 0)), 3);
    // What the source could not use of the route's is still there, for whoever comes next.
    let mut needs = dispatch.needs(0);
    needs.sort_by(|left, right| left.0.cmp(&right.0));
    let left: Vec<_> = needs.iter().map(|(key, need)| (&*key[0], need.wanted, need.left)).collect();
    assert_eq!(left, [("", 3, 2), ("acme/shop", 20, 0)]);
    assert!(dispatch.grant("acme/shop", "bot", "say", permits(3), 0));
    assert_eq!(sent(&dispatch.plan(&say(10), 0)), 2);
    assert_eq!(dispatch.give_up(0), [(["acme/shop", "bot", "say"].map(Box::from), permits(1))]);
    dispatch.limit_source("acme/shop", "bot", "say", Limited::No);
    assert!(!dispatch.grant("acme/shop", "bot", "say", permits(3), 0));
    dispatch.grant("", "bot", "say", permits(5), 0);
    assert_eq!(sent(&dispatch.plan(&say(10), 0)), 5);
}
