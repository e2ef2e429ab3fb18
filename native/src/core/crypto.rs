//! Ed25519, BLAKE3 and time-ordered ids; the primitives are the crates', the strictness is ours.
//!
//! It must never accept a signature that another strict verifier would refuse, keep a seed in memory, or
//! give out an id twice.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

/// A seed that is not 32 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSeed;

impl std::fmt::Display for BadSeed {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("An Ed25519 seed is 32 bytes long.")
    }
}

impl std::error::Error for BadSeed {}

/// Wipes itself when dropped, as does the copy of the seed it was made from.
fn signing_key(seed: &[u8]) -> Result<SigningKey, BadSeed> {
    let mut copy = Zeroizing::new([0u8; 32]);
    if seed.len() != copy.len() {
        return Err(BadSeed);
    }
    copy.copy_from_slice(seed);
    Ok(SigningKey::from_bytes(&copy))
}

/// The public key of a seed.
pub fn ed25519_public_key(seed: &[u8]) -> Result<[u8; 32], BadSeed> {
    Ok(signing_key(seed)?.verifying_key().to_bytes())
}

/// Signs `message` (RFC 8032, pure Ed25519).
pub fn ed25519_sign(seed: &[u8], message: &[u8]) -> Result<[u8; 64], BadSeed> {
    Ok(signing_key(seed)?.sign(message).to_bytes())
}

/// Signs every message with one key; the seed is expanded once.
pub fn ed25519_sign_batch<M: AsRef<[u8]>>(seed: &[u8], messages: &[M]) -> Result<Vec<[u8; 64]>, BadSeed> {
    let key = signing_key(seed)?;
    Ok(messages.iter().map(|message| key.sign(message.as_ref()).to_bytes()).collect())
}

/// True if no signature under this public key means anything: not 32 bytes, no point of the curve, not its only
/// encoding, or of small order.
pub fn ed25519_is_weak(public_key: &[u8]) -> bool {
    verifying_key(public_key).is_none()
}

/// True if `signature` is `public_key`'s on `message`; false for anything of a wrong length.
///
/// Small-order keys and points, S ≥ L and encodings that are not canonical are refused: each of them lets
/// one signature stand for several messages, or one message carry several valid signatures.
pub fn ed25519_verify(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let (Some(key), Ok(signature)) = (verifying_key(public_key), Signature::from_slice(signature)) else {
        return false;
    };
    key.verify_strict(message, &signature).is_ok()
}

fn verifying_key(bytes: &[u8]) -> Option<VerifyingKey> {
    let bytes = <&[u8; 32]>::try_from(bytes).ok()?;
    let key = VerifyingKey::from_bytes(bytes).ok()?;
    // Decompression takes y ≥ p as well, so that one key would have two names.
    (key.to_edwards().compress().as_bytes() == bytes && !key.is_weak()).then_some(key)
}

/// BLAKE3, 32 bytes.
pub fn blake3_digest(message: &[u8]) -> [u8; 32] {
    *blake3::hash(message).as_bytes()
}

/// BLAKE3 in lower-case hex.
pub fn blake3_hex(message: &[u8]) -> String {
    blake3::hash(message).to_hex().to_string()
}

const POOL_BYTES: usize = 2048;
const COUNTER_BITS: u32 = 42;

/// Makes UUIDs of version 7, each larger than the one before.
///
/// `rand_a` and the first 30 bits of `rand_b` are a counter that starts at a random value below half its
/// range in every millisecond; the last 32 bits are random in every id.
pub struct Uuid7Source {
    last_ms: u64,
    counter: u64,
    pool: [u8; POOL_BYTES],
    unused: usize,
}

impl Uuid7Source {
    pub const fn new() -> Self {
        Self { last_ms: 0, counter: 0, pool: [0; POOL_BYTES], unused: 0 }
    }

    /// Drops buffered randomness: a forked child would otherwise give out its parent's ids.
    pub fn forget_randomness(&mut self) {
        self.pool.fill(0);
        self.unused = 0;
    }

    /// The next id. A clock that stands still or steps back only makes the counter grow.
    pub fn next<E>(
        &mut self,
        unix_ms: u64,
        entropy: impl Fn(&mut [u8]) -> Result<(), E>,
    ) -> Result<[u8; 16], E> {
        let tail = u32::from_le_bytes(self.random(&entropy)?);
        // A counter that has run out borrows from the next millisecond.
        let spent = self.counter + 1 >= 1 << COUNTER_BITS;
        if unix_ms > self.last_ms || spent {
            let start = u64::from_le_bytes(self.random(&entropy)?) >> (64 - COUNTER_BITS + 1);
            self.last_ms = unix_ms.max(self.last_ms + u64::from(spent));
            self.counter = start;
        } else {
            self.counter += 1;
        }
        let high = (self.last_ms << 16) | 0x7000 | (self.counter >> 30);
        let low = (0b10 << 62) | ((self.counter & ((1 << 30) - 1)) << 32) | u64::from(tail);
        let mut id = [0; 16];
        let (first, second) = id.split_at_mut(8);
        first.copy_from_slice(&high.to_be_bytes());
        second.copy_from_slice(&low.to_be_bytes());
        Ok(id)
    }

    /// One system call fills the pool for hundreds of ids. Bytes are used once.
    fn random<const N: usize, E>(
        &mut self,
        entropy: &impl Fn(&mut [u8]) -> Result<(), E>,
    ) -> Result<[u8; N], E> {
        if self.unused < N {
            self.unused = 0;
            entropy(&mut self.pool)?;
            self.unused = POOL_BYTES;
        }
        let mut taken = [0; N];
        let start = POOL_BYTES - self.unused;
        if let Some(bytes) = self.pool.get(start..start + N) {
            taken.copy_from_slice(bytes);
        }
        self.unused -= N;
        Ok(taken)
    }
}

impl Default for Uuid7Source {
    fn default() -> Self {
        Self::new()
    }
}

static IDS: Mutex<Uuid7Source> = Mutex::new(Uuid7Source::new());

/// A new id, larger than every id this process has made before.
pub fn uuid7() -> Result<[u8; 16], getrandom::Error> {
    let mut ids = IDS.lock().unwrap_or_else(PoisonError::into_inner);
    // Read under the lock, so that threads cannot bring their readings in another order.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ids.next(since_epoch.as_millis() as u64, getrandom::fill)
}

/// `count` new ids, each larger than the one before, for little more than the price of one.
pub fn uuid7s(count: usize) -> Result<Vec<[u8; 16]>, getrandom::Error> {
    let mut ids = IDS.lock().unwrap_or_else(PoisonError::into_inner);
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    (0..count).map(|_| ids.next(unix_ms, getrandom::fill)).collect()
}

/// To be called in a child right after a fork.
pub fn forget_uuid7_randomness() {
    IDS.lock().unwrap_or_else(PoisonError::into_inner).forget_randomness();
}

/// The lower-case text of an id, 36 characters.
pub fn uuid_text(id: &[u8; 16]) -> String {
    uuid_characters(id).iter().copied().map(char::from).collect()
}

/// The same as bytes.
#[inline]
pub fn uuid_characters(id: &[u8; 16]) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
    let mut text = [b'-'; 36];
    for (byte, place) in id.iter().zip(PLACES) {
        text[place] = DIGITS[usize::from(byte >> 4)];
        text[place + 1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_large_order_is_refused_under_its_second_name() {
        // y = 3 and y = 3 + p are the same point to the curve library.
        let mut name = [0; 32];
        name[0] = 3;
        let mut second_name = [0xff; 32];
        (second_name[0], second_name[31]) = (0xf0, 0x7f);
        assert!(verifying_key(&name).is_some());
        assert!(VerifyingKey::from_bytes(&second_name).is_ok());
        assert!(verifying_key(&second_name).is_none());
    }

    #[test]
    fn keys_of_small_order_are_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        for key in [identity, [0; 32]] {
            assert!(VerifyingKey::from_bytes(&key).is_ok());
            assert!(verifying_key(&key).is_none());
        }
    }

    #[test]
    fn a_batch_is_signed_as_each_message_would_be() {
        let messages: [&[u8]; 3] = [b"", b"one", b"another"];
        let signed = ed25519_sign_batch(&[7; 32], &messages).unwrap();
        for (message, signature) in messages.iter().zip(signed) {
            assert_eq!(ed25519_sign(&[7; 32], message).unwrap(), signature);
        }
        assert_eq!(ed25519_sign_batch(&[7; 31], &messages), Err(BadSeed));
    }

    #[test]
    fn weak_keys_are_told_from_good_ones() {
        assert!(!ed25519_is_weak(&ed25519_public_key(&[7; 32]).unwrap()));
        assert!(ed25519_is_weak(&[0; 32]) && ed25519_is_weak(&[7; 31]) && ed25519_is_weak(b""));
    }

    fn zeros(pool: &mut [u8]) -> Result<(), ()> {
        pool.fill(0);
        Ok(())
    }

    fn ones(pool: &mut [u8]) -> Result<(), ()> {
        pool.fill(0xff);
        Ok(())
    }

    #[test]
    fn an_id_carries_its_millisecond_version_and_variant() {
        let id = Uuid7Source::new().next(0x0123_4567_89ab, ones).unwrap();
        assert_eq!(uuid_text(&id), "01234567-89ab-77ff-bfff-ffffffffffff");
    }

    #[test]
    fn ids_grow_while_the_clock_stands_still_or_steps_back() {
        let mut ids = Uuid7Source::new();
        let mut last = ids.next(1_000, ones).unwrap();
        for unix_ms in [1_000, 1_000, 999, 0, 1_000, 1_001, 5] {
            let id = ids.next(unix_ms, zeros).unwrap();
            assert!(id > last);
            last = id;
        }
    }

    #[test]
    fn a_spent_counter_moves_on_to_the_next_millisecond() {
        let mut ids = Uuid7Source::new();
        let first = ids.next(1_000, zeros).unwrap();
        ids.counter = (1 << COUNTER_BITS) - 1;
        let second = ids.next(1_000, zeros).unwrap();
        assert!(second > first);
        assert_eq!(ids.last_ms, 1_001);
    }

    #[test]
    fn randomness_that_is_refused_gives_no_id_and_is_asked_for_again() {
        let mut ids = Uuid7Source::new();
        assert_eq!(ids.next(1, |_: &mut [u8]| Err("none")), Err("none"));
        assert!(ids.next(1, zeros).is_ok());
    }

    #[test]
    fn a_child_does_not_use_its_parents_randomness() {
        let mut ids = Uuid7Source::new();
        ids.next(1, zeros).unwrap();
        ids.forget_randomness();
        assert_eq!(ids.next(1, |_: &mut [u8]| Err("asked")), Err("asked"));
    }

    #[test]
    fn blake3_of_nothing_is_the_published_value() {
        assert_eq!(blake3_hex(b""), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    }
}
