//! What a consumer can hold a message against: the hash of its payload, and a chain value over what never changes.
//!
//! Neither may contain what changes from one delivery to the next, or the same message would fail its own check.

use super::command::is_uuid;
use super::crypto::uuid_text;
use super::timestamp;

/// The parts of a message that its chain value covers.
pub struct Envelope<'a> {
    pub topic: &'a str,
    pub stored_unix_ns: i64,
    pub idem_key: &'a str,
    /// In any order.
    pub attrs: &'a [(&'a str, &'a str)],
    pub payload: &'a [u8],
}

/// (payload hash, chain value).
///
/// The chain value is BLAKE3 over topic, time (as text), idem_key, payload hash and attributes by name, each with its
/// length as eight bytes, little-endian, before it.
pub fn seal(envelope: &Envelope<'_>) -> (blake3::Hash, blake3::Hash) {
    let payload_hash = blake3::hash(envelope.payload);
    let time = timestamp::format(envelope.stored_unix_ns);
    let mut attrs = envelope.attrs.to_vec();
    attrs.sort_unstable();
    let mut text = Vec::with_capacity(256);
    let mut put = |part: &[u8]| {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    };
    for part in [envelope.topic.as_bytes(), &time, envelope.idem_key.as_bytes(), payload_hash.as_bytes()] {
        put(part);
    }
    for (name, value) in attrs {
        put(name.as_bytes());
        put(value.as_bytes());
    }
    (payload_hash, blake3::hash(&text))
}

/// A UUID of version 7 that stays with a message: its id if that is one, else made of its time and number.
pub fn correlation(id: &str, topic: &str, msg_id: u64, stored_unix_ns: i64) -> String {
    if is_uuid(id.as_bytes()) && id.as_bytes().get(14) == Some(&b'7') {
        return id.to_owned();
    }
    let hash = blake3::hash(&[topic.as_bytes(), b"\n", &msg_id.to_le_bytes()].concat());
    let mut uuid: [u8; 16] = std::array::from_fn(|at| hash.as_bytes()[at]);
    let millis = (stored_unix_ns.max(0) / 1_000_000) as u64;
    uuid[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    uuid[6] = uuid[6] & 0x0f | 0x70;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid_text(&uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(topic: &str, time: i64, key: &str, attrs: &[(&str, &str)], payload: &[u8]) -> blake3::Hash {
        seal(&Envelope { topic, stored_unix_ns: time, idem_key: key, attrs, payload }).1
    }

    #[test]
    fn every_part_counts_and_no_byte_moves_between_parts() {
        let base = sealed("a/b", 1, "k", &[("x", "y"), ("z", "")], b"p");
        assert_eq!(base, sealed("a/b", 1, "k", &[("z", ""), ("x", "y")], b"p"));
        for other in [
            sealed("a/bk", 1, "", &[("x", "y"), ("z", "")], b"p"),
            sealed("a/b", 2, "k", &[("x", "y"), ("z", "")], b"p"),
            sealed("a/b", 1, "k", &[("xy", ""), ("z", "")], b"p"),
            sealed("a/b", 1, "k", &[("x", "y")], b"p"),
            sealed("a/b", 1, "k", &[("x", "y"), ("z", "")], b"q"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn correlation_is_a_version_seven_id_and_stays() {
        let own = "0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";
        assert_eq!(correlation(own, "a/b", 1, 5), own);
        let made = correlation("0193a1b2-c3d4-4e5f-8a9b-0c1d2e3f4a5b", "a/b", 7, 1_700_000_000_000_000_000);
        assert!(made.starts_with("018bcfe5-6800-7") && is_uuid(made.as_bytes()), "{made}");
        assert_eq!(made, correlation("", "a/b", 7, 1_700_000_000_000_000_000));
        assert_ne!(made, correlation("", "a/b", 8, 1_700_000_000_000_000_000));
    }
}
