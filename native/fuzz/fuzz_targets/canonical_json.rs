//! Whatever bytes come, the canonical form is refused or settled: no panic, and canonicalising it again
//! changes nothing.
#![no_main]

use _native::core::canonical::canonicalise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|document: &[u8]| {
    if let Ok(canonical) = canonicalise(document) {
        match canonicalise(&canonical) {
            Ok(again) => assert_eq!(again, canonical),
            Err(_) => panic!("the canonical form was refused"),
        }
    }
});
