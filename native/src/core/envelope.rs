//! Hashes that a consumer compares a message with: of its payload, and a chain value over what never changes.
//!
//! Neither may contain what changes from one delivery to the next, or the same message would fail its own check.

use super::command::is_uuid;
use super::crypto::uuid_text;
use super::leased_batches::Received;
use super::timestamp;

/// Computes chain values of messages that share topic and time.
///
/// A chain value is BLAKE3 over topic, time (as text), idem_key, payload hash and attributes by name, each with its
/// length as eight bytes, little-endian, before it.
pub struct ChainHasher {
    text: Vec<u8>,
    /// Length of what all of them share.
    shared: usize,
}

impl ChainHasher {
    pub fn new(topic: &str, stored_unix_ns: i64) -> Self {
        let mut hasher = Self { text: Vec::with_capacity(512), shared: 0 };
        hasher.put(topic.as_bytes());
        hasher.put(&timestamp::format(stored_unix_ns));
        hasher.shared = hasher.text.len();
        hasher
    }

    fn put(&mut self, part: &[u8]) {
        self.text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.text.extend_from_slice(part);
    }

    /// The chain value of a message whose attributes stand by name.
    pub fn chain<'a>(
        &mut self,
        idem_key: &[&str],
        payload_hash: &blake3::Hash,
        attrs: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> blake3::Hash {
        self.text.truncate(self.shared);
        let length: usize = idem_key.iter().map(|part| part.len()).sum();
        self.text.extend_from_slice(&(length as u64).to_le_bytes());
        idem_key.iter().for_each(|part| self.text.extend_from_slice(part.as_bytes()));
        self.put(payload_hash.as_bytes());
        for (name, value) in attrs {
            self.put(name.as_bytes());
            self.put(value.as_bytes());
        }
        blake3::hash(&self.text)
    }

    /// The chain value of a message as it is delivered; with what the mesh knows of it among its attributes. The idem_key of a command is `source#id`.
    pub fn chain_of(&mut self, message: &Received<'_>, payload_hash: &blake3::Hash) -> blake3::Hash {
        let own = [message.idem_key];
        let command = [message.source, "#", message.id];
        let idem_key: &[&str] = if message.name.is_empty() { &own } else { &command };
        let known = known_attributes(message).into_iter().filter(|(_, value)| !value.is_empty());
        if message.attrs.is_empty() {
            return self.chain(idem_key, payload_hash, known);
        }
        let mut attrs: Vec<_> = message.attrs.iter().copied().chain(known).collect();
        attrs.sort_unstable();
        self.chain(idem_key, payload_hash, attrs.into_iter())
    }
}

/// Attributes that the mesh knows of a message, by name; an empty one does not count.
fn known_attributes<'a>(message: &Received<'a>) -> [(&'a str, &'a str); 6] {
    let timestamp = if message.name.is_empty() { "" } else { message.timestamp };
    [
        ("content-type", message.content_type),
        ("snavio.name", message.name),
        ("snavio.source", message.source),
        ("snavio.target", message.target),
        ("snavio.timestamp", timestamp),
        ("traceparent", message.traceparent),
    ]
}

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
pub fn seal(envelope: &Envelope<'_>) -> (blake3::Hash, blake3::Hash) {
    let payload_hash = blake3::hash(envelope.payload);
    let mut attrs = envelope.attrs.to_vec();
    attrs.sort_unstable();
    let mut hasher = ChainHasher::new(envelope.topic, envelope.stored_unix_ns);
    (payload_hash, hasher.chain(&[envelope.idem_key], &payload_hash, attrs.into_iter()))
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
