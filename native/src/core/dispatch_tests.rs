//! Tests of Fast's tables: snapshots in place of everything, and nothing left of forgotten entries.

use super::directory::{BanList, Limited, Now, Terms};
use super::dispatch::Dispatch;
use super::grants::Grant;
use super::phases::{Profile, SECOND_NS};
use super::snapshot;
use super::testing::{batch, command, counted, known, mangled, route, say, sent};

#[test]
fn forgotten_entries_leave_nothing_behind() {
    let dispatch = known(Profile::Low, false);
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
    dispatch.allow_until("acme/shop", "bot", "say", 3, Some(Profile::Sync), 9);
    dispatch.allow_until("acme/shop", "bot", "say", 4, None, 9);
    dispatch.limit_source("acme/shop", "bot", "say", Limited::Yes);
    dispatch.limit_source("acme/gone", "bot", "say", Limited::Yes);
    dispatch.deny("acme/shop", "bot", "say");
    dispatch.deny("acme/shop", "bot", "say");
    for source in ["acme/shop", "acme/gone", "acme/never"] {
        dispatch.limit_source(source, "bot", "say", Limited::No);
    }
    dispatch.drop_route("bot", "say");
    dispatch.drop_route("nobody", "say");
    assert!(dispatch.read().holds_no_strings());
    assert_eq!(counted(&dispatch, "counted_sources"), 0);
}

fn parts(version: u64, profile: u64) -> [Vec<u8>; 3] {
    use snapshot::{Kind, Table};
    let (mut routes, mut acl) = (Table::new(Kind::Routes), Table::new(Kind::Acl));
    for name in ["say", "sing"] {
        let key = [routes.string("bot"), routes.string(name), routes.string("acme/bot")].map(Result::unwrap);
        let end = if name == "sing" { 0 } else { 50 };
        let shares = [0.8f64.to_bits(), 0.1f64.to_bits()];
        let row = [key[0], key[1], key[2], 1, profile, 1, 300, end, 1, 30, shares[0], shares[1], 2, 50, 30];
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
    dispatch.load_snapshot(parts[0], parts[1], Some(parts[2]), None, Now { unix_ns, mono_ns: 1000 })
}

#[test]
fn a_snapshot_takes_the_place_of_everything_and_has_no_age_of_its_own() {
    let frame = batch(&[("acme/shop", vec![command("bot", "sing")])]);
    let dispatch = known(Profile::Low, false);
    dispatch.put_route("old", "say", route(Profile::Low, false, Terms::default()));
    let [routes, acl, bans] = parts(7, 3);
    assert_eq!(load(&dispatch, [&routes, &acl, &bans], 49), Ok(7));
    let told = ["routes", "acls", "bans"].map(|name| counted(&dispatch, name));
    assert_eq!(told, [2, 2, 1]);
    assert_eq!(dispatch.plan(&frame, 0).escalated, 1);
    dispatch.renewed(-SECOND_NS);
    // Its limit was loaded with it.
    assert_eq!(sent(&dispatch.plan(&frame, 0)), 0);
    dispatch.grant("", "bot", "sing", Grant { permits: 1, ends_mono_ns: 9, interval: 1 }, 0);
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
    let dispatch = known(Profile::Low, false);
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
    let dispatch = known(Profile::Low, false);
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
