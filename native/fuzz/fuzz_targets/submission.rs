//! Whatever bytes a producer sends, Shield answers: no panic, one code per command, accepted bytes untouched,
//! and the same bytes again are never let in a second time.
#![no_main]

use _native::core::admission::Admission;
use _native::core::keys::{Key, KeySet};
use _native::core::nonces::{NonceSet, Share};
use _native::core::runs::Caller;
use _native::core::submission::Limits;
use _native::core::verdict;
use _native::core::wire::Fields;
use libfuzzer_sys::fuzz_target;

const NOW: i64 = 1_790_000_000_000_000_000;
const SOURCE: &str = "acme/billing";

fn admission() -> Option<Admission> {
    let limits = Limits { max_batch_bytes: 1 << 16, max_batch_commands: 50, max_payload_bytes: 1 << 12 };
    let nonces = NonceSet::new(Share { total: 40, per_tenant: 40, reserve: 0 });
    let shield = Admission::new("shield-0:01", 60_000, nonces, limits)?;
    let secret: Vec<u8> = (0..32).collect();
    let key = Key::new("hmac-v1", &secret, 0, 0, false).ok()?;
    shield.set_keyset(SOURCE, KeySet::new(vec![key]).ok()?);
    Some(shield)
}

/// The commands of every run.
fn forwarded(runs: &[u8]) -> Vec<&[u8]> {
    let mut commands = Vec::new();
    let mut batch = Fields::new(runs);
    while let Some(run) = batch.next().expect("runs are fields") {
        assert_eq!(run.number, 3);
        let mut fields = Fields::new(run.bytes().expect("a run is a message"));
        while let Some(field) = fields.next().expect("a run holds fields") {
            if field.number == 5 {
                commands.push(field.bytes().expect("a command is bytes"));
            }
        }
    }
    commands
}

fuzz_target!(|submission: &[u8]| {
    let shield = admission().expect("a fixed configuration");
    let caller = Caller { source: SOURCE, cert_serial: "0a1b" };
    let first = shield.judge(submission, caller, NOW);
    let codes = first.ledger.codes();
    let open = codes.iter().filter(|code| **code == verdict::UNDECIDED).count();
    assert_eq!(open, first.accepted);
    assert!(first.frame_code == 0 || codes.is_empty());

    let runs = first.runs.to_vec(submission);
    let commands = forwarded(&runs);
    assert_eq!(commands.len(), first.accepted);
    for command in &commands {
        assert!(submission.windows(command.len()).any(|window| window == *command));
        let again = shield.judge_one(command, caller, NOW, 0);
        assert_eq!(again.ledger.codes(), [verdict::REPLAYED]);
    }
    assert_eq!(shield.judge(submission, caller, NOW).accepted, 0);
    // The same bytes as a command of their own take another way through the parser.
    let alone = shield.judge_one(submission, caller, NOW, 0);
    assert_eq!(alone.ledger.codes().len(), usize::from(alone.frame_code == 0));
});
