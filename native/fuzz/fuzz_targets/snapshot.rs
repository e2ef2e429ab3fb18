//! Whatever bytes lie where a snapshot's parts should be, they are parts or an error: no panic, no endless
//! allocation, and what is refused changes nothing.
#![no_main]

use _native::core::directory::Now;
use _native::core::dispatch::{Dispatch, Rules};
use _native::core::frames::Limits;
use _native::core::records::Tables;
use _native::core::snapshot::suspended;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (routes, rest) = input.split_at(input.len() / 3);
    let (acl, bans) = rest.split_at(rest.len() / 2);
    let now = Now { unix_ns: 1_790_000_000_000_000_000, mono_ns: 1 };
    for bans in [None, Some(bans)] {
        let dispatch = Dispatch::new(Limits::MESH, Rules::default());
        if dispatch.load_snapshot(routes, acl, bans, bans, now).is_err() {
            let told = dispatch.counters();
            let held = told.iter().filter(|(name, _)| ["routes", "acls", "bans"].contains(&name.as_str()));
            assert_eq!(held.map(|(_, count)| count).sum::<u64>(), 0);
        }
    }
    let _ = suspended(input);
    for kind in ["route", "acl", "suspension", "source_quota"] {
        let _ = Tables::default().add(kind, input);
    }
});
