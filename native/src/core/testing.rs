//! Frames for the unit tests of this crate.

use std::sync::Arc;

use super::directory::{Limited, Route, Terms};
use super::dispatch::{Dispatch, Rules};
use super::frames::Limits;
use super::ledger::write_header;
use super::phases::Profile;
use super::plan::Plan;
use super::wire::{put_bytes, put_number};

pub fn command(target: &str, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, b"00112233-4455-6677-8899-aabbccddeeff");
    put_bytes(&mut out, 2, b"2026-11-16T02:00:00Z");
    put_bytes(&mut out, 7, target.as_bytes());
    put_bytes(&mut out, 8, name.as_bytes());
    put_bytes(&mut out, 10, b"{}");
    out
}

pub fn run(source: &str, commands: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, source.as_bytes());
    put_bytes(&mut out, 2, b"hmac-v1");
    put_number(&mut out, 4, 1 << 60);
    for command in commands {
        put_bytes(&mut out, 5, command);
    }
    out
}

/// A Batch with batch_seq 9.
pub fn batch(runs: &[(&str, Vec<Vec<u8>>)]) -> Vec<u8> {
    let mut out = write_header(9, 5000);
    for (source, commands) in runs {
        put_bytes(&mut out, 3, &run(source, commands));
    }
    out
}

/// Every truncation, every byte set to some telling values, and a few thousand random damages.
pub fn mangled(frame: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let cut = (0..frame.len()).map(|end| frame[..end].to_vec());
    let set = (0..frame.len()).flat_map(move |at| {
        [0, 1, 0x7f, 0x80, 0xff].map(|value| {
            let mut damaged = frame.to_vec();
            damaged[at] = value;
            damaged
        })
    });
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let random = std::iter::repeat_with(move || {
        let mut damaged = frame.to_vec();
        for _ in 0..3 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = (state >> 8) as usize % damaged.len();
            damaged[at] = state as u8;
        }
        damaged
    });
    cut.chain(set).chain(random.take(5000))
}

/// A Fast that may send for each (source, target, name) to the topic `acme/<name>`, from just now on.
pub fn dispatch(allowed: &[(&str, &str, &str)]) -> Dispatch {
    let dispatch = Dispatch::new(Limits::MESH, Rules::default());
    for (source, target, name) in allowed {
        let topic = Arc::from(format!("acme/{name}"));
        dispatch.put_route(target, name, Route::new(0, topic, Profile::Low, false, Arc::default()));
        dispatch.allow(source, target, name, 1);
    }
    dispatch.renewed(0);
    dispatch
}

/// The escalation of a Batch by a Fast without entries: an ArbitrationBatch without its header.
pub fn escalated(frame: &[u8]) -> Vec<u8> {
    dispatch(&[]).plan(frame, 0).escalations.into_iter().flat_map(|escalation| escalation.body).collect()
}

/// To queue 2, topic `acme/bot`.
pub fn route(profile: Profile, strict: bool, terms: Terms) -> Route {
    Route::new(2, Arc::from("acme/bot"), profile, strict, Arc::new(terms))
}

/// A Fast that lets `acme/shop` say things to `bot`, read just now.
pub fn knowing(profile: Profile, strict: bool, terms: Terms) -> Dispatch {
    let dispatch = Dispatch::new(Limits::MESH, Rules::default());
    dispatch.put_route("bot", "say", route(profile, strict, terms));
    dispatch.allow("acme/shop", "bot", "say", 1);
    dispatch.renewed(0);
    dispatch
}

/// The same without limits.
pub fn known(profile: Profile, strict: bool) -> Dispatch {
    knowing(profile, strict, Terms::default())
}

/// The same with a limit.
pub fn limited() -> Dispatch {
    knowing(Profile::Low, false, Terms { limited: Limited::Yes, ..Terms::default() })
}

/// One of its counters.
pub fn counted(dispatch: &Dispatch, name: &str) -> u64 {
    dispatch.counters().into_iter().find(|(known, _)| known == name).map_or(0, |(_, count)| count)
}

/// A Batch of so many commands of `acme/shop`.
pub fn say(count: usize) -> Vec<u8> {
    batch(&[("acme/shop", vec![command("bot", "say"); count])])
}

/// Commands that go to queues.
pub fn sent(plan: &Plan) -> usize {
    plan.sends.iter().map(|send| send.count).sum()
}
