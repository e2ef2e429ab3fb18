//! Whatever bytes stand where a frame of the mesh, a tenant's messages or a stored row should be, they are that or an
//! error: no panic, every message of a frame in one part of it, and rows that can be cut wherever they are leased.
#![no_main]

use _native::core::dispatch::{Dispatch, Rules};
use _native::core::frames::Limits;
use _native::core::leased_batches::read_leased_batches;
use _native::core::ledger::Reply;
use _native::core::new_messages::{Sender, read_new_messages};
use _native::core::page::Page;
use _native::core::seals::{SEAL, salvage, seal_runs};
use _native::core::sending::{Sending, slice_runs};
use libfuzzer_sys::fuzz_target;

const SECRET: [u8; 32] = [7; 32];
const SHARDS: u32 = 4;

fn new_messages(request: &[u8]) {
    let sender = Sender {
        topic: "acme/own/mail",
        source: "acme/billing",
        cert_serial: "0a1b",
        scope: "acme",
        now_unix_ns: 1_790_000_000_000_000_000,
    };
    let Ok(rows) = read_new_messages(request, &sender, &SECRET, SHARDS) else { return };
    let mut indices: Vec<u32> = rows.iter().flat_map(|row| row.indices.iter().copied()).collect();
    indices.sort_unstable();
    assert!(indices.iter().copied().eq(0..indices.len() as u32), "each message stands in one row");
    for row in &rows {
        assert!(row.shard < SHARDS);
        stored(&row.runs, row.indices.len());
    }
}

/// What was taken in can be sealed, cut and told from damage.
fn stored(runs: &[u8], count: usize) {
    let seals = seal_runs(runs, b"context").expect("what was taken in can be sealed");
    assert_eq!(seals.len(), count * SEAL);
    for at in 0..count {
        slice_runs(runs, at, 1).expect("what was taken in can be cut");
    }
    let body = [runs, &seals].concat();
    assert!(salvage(&body, count, b"context").1.iter().all(|damaged| !damaged));
}

fuzz_target!(|input: &[u8]| {
    new_messages(input);
    let (sending, ledger) = Sending::open(input, &Limits::MESH, &SECRET);
    if sending.frame_code == 0 {
        assert_eq!(sending.topics.iter().map(|topic| topic.count).sum::<usize>(), ledger.count());
        for topic in sending.topics.iter().filter(|topic| topic.count > 0) {
            stored(&topic.runs.to_vec(input), topic.count);
        }
    }
    let _ = Dispatch::new(Limits::MESH, Rules::default()).plan(input, 1);
    let _ = Reply::read(input);
    let _ = Page::read(input);
    let _ = read_leased_batches(input, Some("acme/bot"));
});
