//! The signed text of a command, and HMAC-SHA256 with its key work done once per key.
//!
//! It must never compare tags in a time that depends on them, truncate one, or leave key material in memory
//! that was given back. The two SHA-256 states below are as good as the secret: whoever has them can sign.

use std::fmt;

use sha2::block_api::compress256;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

use super::command::{self, Command};
use super::submission::Limits;
use super::timestamp;
use super::wire::{bytes_field_len, put_bytes};

pub const TAG_LEN: usize = 32;
const BLOCK: usize = 64;
const PREFIX: &[u8] = b"SNAVIO1\n";
const SUBMISSION_COMMAND: u32 = 3;
const SHA256_START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// An HMAC-SHA256 key after its first two compressions. Wiped when dropped.
pub struct MacKey {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl MacKey {
    pub fn new(secret: &[u8]) -> Self {
        let mut block = Zeroizing::new([0u8; BLOCK]);
        if secret.len() > BLOCK {
            let mut digest = Sha256::digest(secret);
            block[..TAG_LEN].copy_from_slice(&digest);
            digest.as_mut_slice().zeroize();
        } else {
            block[..secret.len()].copy_from_slice(secret);
        }
        let mut key = Self { inner: SHA256_START, outer: SHA256_START };
        block.iter_mut().for_each(|byte| *byte ^= 0x36);
        compress256(&mut key.inner, std::slice::from_ref(&*block));
        block.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        compress256(&mut key.outer, std::slice::from_ref(&*block));
        key
    }

    /// The tag of `message`, whose buffer is used up for the padding.
    #[inline]
    pub fn tag(&self, message: &mut Vec<u8>) -> [u8; TAG_LEN] {
        let bits = ((BLOCK + message.len()) as u64) << 3;
        let padded = (message.len() + 9).next_multiple_of(BLOCK);
        message.push(0x80);
        message.resize(padded - 8, 0);
        message.extend_from_slice(&bits.to_be_bytes());
        let mut state = self.inner;
        compress256(&mut state, message.as_chunks::<BLOCK>().0);

        let mut last = [0u8; BLOCK];
        put_state(&mut last, &state);
        last[TAG_LEN] = 0x80;
        last[BLOCK - 8..].copy_from_slice(&(((BLOCK + TAG_LEN) as u64) << 3).to_be_bytes());
        let mut state = self.outer;
        compress256(&mut state, std::slice::from_ref(&last));
        let mut tag = [0u8; TAG_LEN];
        put_state(&mut tag, &state);
        tag
    }

    /// Whether the command's tag is right. `scratch` saves an allocation per command.
    #[inline]
    pub fn verifies(&self, command: &Command<'_>, scratch: &mut Vec<u8>) -> bool {
        write_signed_text(command, scratch);
        equal(&self.tag(scratch), command.hmac)
    }
}

/// All 32 bytes, in a time that does not depend on them; eight at a time, since byte by byte shows in profiles.
#[inline]
fn equal(tag: &[u8; TAG_LEN], given: &[u8]) -> bool {
    let (left, right) = (tag.as_chunks::<8>().0, given.as_chunks::<8>().0);
    let words = left.iter().zip(right).fold(Choice::from(1), |same, (left, right)| {
        same & u64::from_ne_bytes(*left).ct_eq(&u64::from_ne_bytes(*right))
    });
    given.len() == TAG_LEN && words.into()
}

fn put_state(out: &mut [u8], state: &[u32; 8]) {
    for (bytes, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
}

impl Drop for MacKey {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(..)")
    }
}

/// What the tag covers. No field before the payload may hold a line feed, and the payload's length is written
/// down, so that no byte can move from one field to another under the same signature.
#[inline]
pub fn write_signed_text(command: &Command<'_>, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(PREFIX);
    for field in [
        command.key_version,
        command.audience,
        command.id,
        command.timestamp,
        command.kind,
        command.target,
        command.name,
        command.content_type,
    ] {
        out.extend_from_slice(field);
        out.push(b'\n');
    }
    put_length(out, command.payload.len());
    out.push(b'\n');
    out.extend_from_slice(command.payload);
}

/// A serialised Command with its tag, or the code with which Shield would refuse it. Of `draft` the timestamp,
/// the type and the tag are filled in.
pub fn sign(
    key: &MacKey,
    draft: Command<'_>,
    sent_unix_ns: i64,
    max_payload_bytes: usize,
) -> Result<Vec<u8>, u8> {
    let timestamp = timestamp::format(sent_unix_ns);
    let mut scratch = Vec::with_capacity(draft.payload.len() + 4 * BLOCK);
    let mut out = Vec::with_capacity(draft.payload.len() + 5 * BLOCK);
    sign_into(key, draft, &timestamp, max_payload_bytes, &mut scratch, &mut out)?;
    Ok(out)
}

/// Appends what `sign` returns to `out`; on a refusal nothing is appended.
fn sign_into(
    key: &MacKey,
    draft: Command<'_>,
    timestamp: &[u8],
    max_payload_bytes: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), u8> {
    let command = Command { timestamp, kind: command::TYPE, hmac: &[0; TAG_LEN], ..draft };
    command.check(max_payload_bytes)?;
    write_signed_text(&command, scratch);
    let tag = key.tag(scratch);
    for (number, field) in (1..).zip([
        command.id,
        command.timestamp,
        command.kind,
        command.key_version,
        command.audience,
        &tag,
        command.target,
        command.name,
        command.content_type,
        command.payload,
        command.traceparent,
    ]) {
        if !field.is_empty() {
            put_bytes(out, number, field);
        }
    }
    Ok(())
}

/// Commands signed together, cut to the size of submissions.
pub struct Submissions {
    /// How many commands, and their serialised `Submission.command` fields.
    pub chunks: Vec<(usize, Vec<u8>)>,
}

impl Submissions {
    /// Signs every draft at one time; the number of the first that Shield would refuse, with its code.
    pub fn sign<'a>(
        key: &MacKey,
        drafts: impl Iterator<Item = Command<'a>>,
        sent_unix_ns: i64,
        limits: &Limits,
    ) -> Result<Self, (usize, u8)> {
        let timestamp = timestamp::format(sent_unix_ns);
        let mut chunks: Vec<(usize, Vec<u8>)> = Vec::new();
        let (mut scratch, mut one) = (Vec::new(), Vec::new());
        for (number, draft) in drafts.enumerate() {
            one.clear();
            sign_into(key, draft, &timestamp, limits.max_payload_bytes, &mut scratch, &mut one)
                .map_err(|code| (number, code))?;
            let length = bytes_field_len(one.len());
            let full = |(count, body): &(usize, Vec<u8>)| {
                *count >= limits.max_batch_commands || body.len() + length > limits.max_batch_bytes
            };
            if chunks.last().is_none_or(full) {
                chunks.push((0, Vec::with_capacity(limits.max_batch_bytes.min(512 << 10))));
            }
            if let Some((count, body)) = chunks.last_mut() {
                *count += 1;
                put_bytes(body, SUBMISSION_COMMAND, &one);
            }
        }
        Ok(Self { chunks })
    }
}

#[inline]
fn put_length(out: &mut Vec<u8>, mut length: usize) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (length % 10) as u8;
        length /= 10;
        if length == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};

    use super::*;

    #[test]
    fn tags_equal_the_reference_for_every_length_around_the_blocks() {
        let body: Vec<u8> = (0..400u32).map(|number| (number * 7 + 3) as u8).collect();
        for key_len in [0, 1, 31, 32, 63, 64, 65, 200] {
            let key = MacKey::new(&body[..key_len]);
            for length in 0..body.len() {
                let mut reference = Hmac::<Sha256>::new_from_slice(&body[..key_len]).unwrap();
                reference.update(&body[..length]);
                let mut message = body[..length].to_vec();
                assert_eq!(key.tag(&mut message)[..], reference.finalize().into_bytes()[..]);
            }
        }
    }

    #[test]
    fn one_wrong_bit_or_one_byte_more_or_less_is_not_equal() {
        let tag = [0x5a; TAG_LEN];
        assert!(equal(&tag, &tag));
        for bit in 0..TAG_LEN * 8 {
            let mut other = tag;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!equal(&tag, &other));
        }
        assert!(!equal(&tag, &tag[..31]) && !equal(&tag, &[0x5a; 33]) && !equal(&tag, b""));
    }

    #[test]
    fn lengths_are_decimal() {
        for length in [0, 9, 10, 262_144, usize::MAX] {
            let mut out = Vec::new();
            put_length(&mut out, length);
            assert_eq!(String::from_utf8(out).unwrap(), length.to_string());
        }
    }

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(format!("{:?}", MacKey::new(b"a secret of the source")), "MacKey(..)");
    }
}
