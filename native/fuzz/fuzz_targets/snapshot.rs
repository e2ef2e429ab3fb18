//! Whatever bytes lie where a snapshot's parts should be, they are parts or an error: no panic, no endless
//! allocation, and what is refused changes nothing.
#![no_main]

use _native::core::dispatch::{Dispatch, RoutePhases};
use _native::core::frames::Limits;
use _native::core::records::Tables;
use _native::core::snapshot::suspended;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let dispatch = Dispatch::new(Limits::MESH, RoutePhases { fresh_ns: 1, stale_ns: 2 });
    let (routes, acl) = input.split_at(input.len() / 2);
    if dispatch.load_snapshot(routes, acl, 0).is_err() {
        let held = dispatch.counters().into_iter().filter(|(name, _)| name == "routes" || name == "acls");
        assert_eq!(held.map(|(_, count)| count).sum::<u64>(), 0);
    }
    let _ = suspended(input);
    for kind in ["route", "acl", "suspension"] {
        let _ = Tables::default().add(kind, input);
    }
});
