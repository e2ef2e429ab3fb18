//! The vectors in `tests/vectors/` that Python checks too: canonical JSON, Ed25519 and message hashes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // All of this file is test code.

use std::fs;

use _native::core::canonical::canonicalise;
use _native::core::crypto::{ed25519_public_key, ed25519_sign, ed25519_verify};
use _native::core::leased_batches::{Leased, frame_leased_batch};
use serde_json::Value;

fn vectors(file: &str, list: &str) -> Vec<Value> {
    let path = format!("{}/../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let vectors: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    vectors[list].as_array().unwrap().clone()
}

fn text<'v>(vector: &'v Value, field: &str) -> &'v str {
    vector[field].as_str().unwrap_or_else(|| panic!("no {field} in {vector}"))
}

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn hex(vector: &Value, field: &str) -> Vec<u8> {
    unhex(text(vector, field))
}

fn document(vector: &Value) -> Vec<u8> {
    match vector["input_hex"].as_str() {
        Some(digits) => unhex(digits),
        None => text(vector, "input").as_bytes().to_vec(),
    }
}

#[test]
fn documents_become_their_canonical_form() {
    for vector in vectors("canonical_json.json", "accepted") {
        let canonical = canonicalise(&document(&vector));
        let canonical = canonical.unwrap_or_else(|error| panic!("{}: {error}", vector["name"]));
        assert_eq!(String::from_utf8(canonical).unwrap(), text(&vector, "canonical"), "{}", vector["name"]);
    }
}

#[test]
fn documents_without_a_canonical_form_are_refused_in_one_sentence() {
    let refused = vectors("canonical_json.json", "refused");
    assert!(refused.len() >= 25);
    for vector in refused {
        let error = canonicalise(&document(&vector)).expect_err(text(&vector, "name")).to_string();
        assert!(error.contains(text(&vector, "says")), "{}: {error}", vector["name"]);
        assert!(error.ends_with('.') && error.len() < 160, "{}: {error}", vector["name"]);
    }
}

#[test]
fn a_refusal_never_repeats_the_document() {
    let secret = r#"{"token":"hunter2","token":"hunter2"}"#;
    assert!(!canonicalise(secret.as_bytes()).unwrap_err().to_string().contains("hunter2"));
    assert!(!canonicalise(br#"{"token":"hunter2" hunter2"#).unwrap_err().to_string().contains("hunter2"));
}

#[test]
fn published_signatures_are_made_and_accepted() {
    for vector in vectors("ed25519.json", "valid") {
        let (seed, message, key) =
            (hex(&vector, "seed"), hex(&vector, "message"), hex(&vector, "public_key"));
        assert_eq!(ed25519_public_key(&seed).unwrap().to_vec(), key, "{}", vector["name"]);
        let signature = ed25519_sign(&seed, &message).unwrap();
        assert_eq!(signature.to_vec(), hex(&vector, "signature"), "{}", vector["name"]);
        assert!(ed25519_verify(&key, &message, &signature), "{}", vector["name"]);
    }
}

#[test]
fn signatures_that_only_a_lax_verifier_accepts_are_refused() {
    for vector in vectors("ed25519.json", "refused") {
        let (key, message) = (hex(&vector, "public_key"), hex(&vector, "message"));
        assert!(!ed25519_verify(&key, &message, &hex(&vector, "signature")), "{}", vector["name"]);
    }
}

#[test]
fn a_seed_of_another_length_is_refused() {
    for length in [0, 31, 33, 64] {
        assert!(ed25519_public_key(&vec![1; length]).is_err());
        assert!(ed25519_sign(&vec![1; length], b"").is_err());
    }
}

#[test]
fn leased_messages_carry_the_published_hashes() {
    for vector in vectors("message_hashes.json", "messages") {
        let leased = Leased {
            topic: text(&vector, "topic"),
            batch_id: 1,
            first: 0,
            attempt: 1,
            stored_unix_ns: vector["stored_unix_ns"].as_i64().unwrap(),
            shard: 0,
        };
        let framed = frame_leased_batch(&leased, &hex(&vector, "runs_hex"));
        let hashes =
            [&[0x3a, 32], &hex(&vector, "payload_hash")[..], &[0x42, 32], &hex(&vector, "hash_chain")];
        assert!(framed.ends_with(&hashes.concat()), "{}", vector["title"]);
    }
}
