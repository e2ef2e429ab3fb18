//! The HMAC keys of one source, with the times between which each may sign.
//!
//! It must never answer for another source: a key set is found under the authenticated source, and only then
//! is a version looked up in it. It keeps no secret, only the wiped-on-drop state made from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::command::{self, Command};
use super::signing::MacKey;
use super::verdict;

/// A shorter secret is a mistake of configuration; with an empty one anyone could sign.
pub const SHORTEST_SECRET: usize = 16;

/// One version of a source's key.
#[derive(Debug)]
pub struct Key {
    pub version: Box<str>,
    pub mac: MacKey,
    not_before_unix_ns: i64,
    not_after_unix_ns: i64,
    revoked: bool,
    /// Commands admitted under it since the last `drain_usage`; shared with the key that replaces it.
    used: Arc<AtomicU64>,
}

/// Reason for which a key was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    Version,
    Secret,
    Repeated,
}

impl BadKey {
    pub fn reason(self) -> &'static str {
        match self {
            Self::Version => "key version: not [a-z0-9][a-z0-9.-]{0,63}",
            Self::Secret => "secret: shorter than 16 bytes",
            Self::Repeated => "key version: given twice",
        }
    }
}

impl Key {
    /// `not_after_unix_ns` of 0 means for ever.
    pub fn new(
        version: &str,
        secret: &[u8],
        not_before_unix_ns: i64,
        not_after_unix_ns: i64,
        revoked: bool,
    ) -> Result<Self, BadKey> {
        if !command::is_key_version(version.as_bytes()) {
            return Err(BadKey::Version);
        }
        if secret.len() < SHORTEST_SECRET {
            return Err(BadKey::Secret);
        }
        Ok(Self {
            version: version.into(),
            mac: MacKey::new(secret).map_err(|_| BadKey::Secret)?,
            not_before_unix_ns,
            not_after_unix_ns,
            revoked,
            used: Arc::default(),
        })
    }

    pub fn note_use(&self, commands: u64) {
        self.used.fetch_add(commands, Ordering::Relaxed);
    }

    #[inline]
    fn valid_at(&self, unix_ns: i64) -> bool {
        self.not_before_unix_ns <= unix_ns
            && (self.not_after_unix_ns == 0 || unix_ns < self.not_after_unix_ns)
    }
}

/// All versions of one source's key; cheap to hold while a batch is judged.
#[derive(Clone, Debug)]
pub struct KeySet(Arc<[Key]>);

impl KeySet {
    pub fn new(keys: Vec<Key>) -> Result<Self, BadKey> {
        for (position, key) in keys.iter().enumerate() {
            if keys[..position].iter().any(|other| other.version == key.version) {
                return Err(BadKey::Repeated);
            }
        }
        Ok(Self(keys.into()))
    }

    /// This set with the counts of `before`: no use is lost when a key set is replaced while a batch is judged under
    /// it, or before `drain_usage`.
    pub fn counting_on(self, before: &Self) -> Self {
        let mut keys = self.0;
        // A set that was just made has no other owner.
        for key in Arc::get_mut(&mut keys).into_iter().flatten() {
            if let Some(same) = before.0.iter().find(|other| other.version == key.version) {
                key.used = Arc::clone(&same.used);
            }
        }
        Self(keys)
    }

    /// Versions used since the last call, with how often.
    pub fn drain_usage(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().filter_map(|key| {
            let used = key.used.swap(0, Ordering::Relaxed);
            (used > 0).then_some((&*key.version, used))
        })
    }

    pub fn none() -> Self {
        Self(Arc::new([]))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn get(&self, position: usize) -> Option<&Key> {
        self.0.get(position)
    }

    /// The position of the key that may have signed `command`. Revocation is judged before validity and knows no
    /// time: a thief who holds the secret chooses the timestamp.
    #[inline]
    pub fn find(&self, command: &Command<'_>, sent_unix_ns: i64) -> Result<usize, u8> {
        let position = self
            .0
            .iter()
            .position(|key| key.version.as_bytes() == command.key_version)
            .ok_or(verdict::UNKNOWN_KEY_VERSION)?;
        let key = &self.0[position];
        if key.revoked {
            return Err(verdict::KEY_REVOKED);
        }
        if !key.valid_at(sent_unix_ns) {
            return Err(verdict::KEY_EXPIRED);
        }
        Ok(position)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(version: &str, not_before: i64, not_after: i64, revoked: bool) -> Key {
        Key::new(version, b"0123456789abcdef", not_before, not_after, revoked).unwrap()
    }

    fn naming(version: &[u8]) -> Command<'_> {
        Command { key_version: version, ..Command::default() }
    }

    #[test]
    fn validity_starts_inclusive_and_ends_exclusive() {
        let keys = KeySet::new(vec![key("v1", 10, 20, false)]).unwrap();
        for (sent, want) in
            [(9, Err(verdict::KEY_EXPIRED)), (10, Ok(0)), (19, Ok(0)), (20, Err(verdict::KEY_EXPIRED))]
        {
            assert_eq!(keys.find(&naming(b"v1"), sent), want);
        }
    }

    #[test]
    fn revocation_comes_before_expiry_and_unknown_before_both() {
        let keys = KeySet::new(vec![key("v1", 10, 20, true), key("v2", 10, 0, false)]).unwrap();
        assert_eq!(keys.find(&naming(b"v1"), 30), Err(verdict::KEY_REVOKED));
        assert_eq!(keys.find(&naming(b"v2"), i64::MAX), Ok(1));
        assert_eq!(keys.find(&naming(b"v3"), 15), Err(verdict::UNKNOWN_KEY_VERSION));
    }

    #[test]
    fn mistakes_are_refused() {
        assert_eq!(Key::new("V1", &[1; 32], 0, 0, false).unwrap_err(), BadKey::Version);
        assert_eq!(Key::new("v1", b"", 0, 0, false).unwrap_err(), BadKey::Secret);
        let twice = vec![key("v1", 0, 0, false), key("v1", 0, 0, false)];
        assert_eq!(KeySet::new(twice).unwrap_err(), BadKey::Repeated);
    }

    #[test]
    fn use_is_told_once_and_survives_a_replacement() {
        let before = KeySet::new(vec![key("v1", 0, 0, false), key("v2", 0, 0, false)]).unwrap();
        before.get(0).unwrap().note_use(3);
        let after = KeySet::new(vec![key("v1", 0, 9, false), key("v3", 0, 0, false)]).unwrap();
        let after = after.counting_on(&before);
        before.get(0).unwrap().note_use(2);
        assert_eq!(after.drain_usage().collect::<Vec<_>>(), [("v1", 5)]);
        assert_eq!(after.drain_usage().count(), 0);
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", key("v1", 0, 0, false));
        assert!(shown.contains("MacKey(..)") && !shown.contains("01234"));
    }
}
