//! The published command vectors, which Python checks as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use _native::core::admission::Admission;
use _native::core::command::Command;
use _native::core::keys::{Key, KeySet};
use _native::core::nonces::{NonceSet, Share};
use _native::core::runs::Caller;
use _native::core::signing::{MacKey, write_signed_text};
use _native::core::submission::Limits;
use _native::core::verdict;
use serde_json::Value;

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/commands.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

fn bytes(value: &Value, name: &str) -> Vec<u8> {
    let digits = text(value, name);
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn code(vectors: &Value, command: &[u8], version: &str, secret: &[u8], max_payload_bytes: usize) -> u8 {
    let limits = Limits { max_batch_bytes: 1 << 20, max_batch_commands: 1000, max_payload_bytes };
    let window_ms = vectors["window_ms"].as_u64().unwrap() as u32;
    let shield = Admission::new(
        text(vectors, "audience"),
        window_ms,
        NonceSet::new(Share { total: 10, per_tenant: 10, reserve: 0 }),
        limits,
    )
    .unwrap();
    let source = text(vectors, "source");
    shield.set_keyset(source, KeySet::new(vec![Key::new(version, secret, 0, 0, false).unwrap()]).unwrap());
    let caller = Caller { source, cert_serial: "1" };
    let judged = shield.judge_one(command, caller, vectors["now_unix_ns"].as_i64().unwrap(), 0);
    judged.ledger.code(0)
}

#[test]
fn worked_commands_verify() {
    let vectors = vectors();
    let worked = vectors["worked"].as_array().unwrap();
    assert!(worked.len() >= 12);
    for vector in worked {
        let title = text(vector, "title");
        let (command, secret) = (bytes(vector, "command"), bytes(vector, "secret"));
        let parsed = Command::parse(&command).unwrap();
        let mut signed = Vec::new();
        write_signed_text(&parsed, &mut signed);
        assert_eq!(signed, bytes(vector, "signed_text"), "{title}");
        assert_eq!(MacKey::new(&secret).unwrap().tag(&signed)[..], bytes(vector, "tag")[..], "{title}");
        assert_eq!(parsed.hmac, bytes(vector, "tag"), "{title}");
        let version = text(&vector["fields"], "key_version");
        assert_eq!(code(&vectors, &command, version, &secret, 1 << 18), verdict::UNDECIDED, "{title}");
    }
}

#[test]
fn refused_commands_keep_their_codes() {
    let vectors = vectors();
    let secret = bytes(&vectors["worked"][0], "secret");
    let limit = vectors["refused_max_payload_bytes"].as_u64().unwrap() as usize;
    let refused = vectors["refused"].as_array().unwrap();
    assert!(refused.len() >= 30);
    for vector in refused {
        let got = code(&vectors, &bytes(vector, "command"), "hmac-v1", &secret, limit);
        assert_eq!(u64::from(got), vector["code"].as_u64().unwrap(), "{}", text(vector, "title"));
        assert_eq!(verdict::name(got), text(vector, "reason"));
    }
}
