//! The signed text of a command, and HMAC-SHA256 with its key work done once per key.
//!
//! It must never compare tags in a time that depends on them, truncate one, or leave key material in memory that was
//! given back. The two SHA-256 states below are as sensitive as the secret: they suffice to sign.

use std::fmt;

use hmac::digest::InvalidLength;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::command::{self, Command};
use super::submission::Limits;
use super::timestamp;
use super::wire::{bytes_field_len, put_bytes, put_varint};

pub const TAG_LEN: usize = 32;
const BLOCK: usize = 64;
const PREFIX: &[u8] = b"SNAVIO1\n";
const SUBMISSION_COMMAND: u32 = 3;

/// An HMAC-SHA256 key after its first two compressions; wiped when dropped (`zeroize` of hmac and sha2).
pub struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// HMAC itself takes any length; how short a secret may be is `keys`' decision.
    pub fn new(secret: &[u8]) -> Result<Self, InvalidLength> {
        Hmac::new_from_slice(secret).map(Self)
    }

    /// The tag of `message`.
    #[inline]
    pub fn tag(&self, message: &[u8]) -> [u8; TAG_LEN] {
        self.0.clone().chain_update(message).finalize().into_bytes().into()
    }

    /// True if the command's tag is right. `scratch` saves an allocation per command.
    #[inline]
    pub fn verifies(&self, command: &Command<'_>, scratch: &mut Vec<u8>) -> bool {
        write_signed_text(command, scratch);
        self.0.clone().chain_update(&*scratch).verify_slice(command.hmac).is_ok()
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(..)")
    }
}

/// The text that the tag covers. No field before the payload may hold a line feed, and the payload's length is written
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
    let hmac = &key.tag(scratch);
    write_command(&Command { hmac, ..command }, out);
    Ok(())
}

/// A command's fields by number; an empty one is left out.
#[inline]
fn fields<'a>(command: &Command<'a>) -> [&'a [u8]; 11] {
    [
        command.id,
        command.timestamp,
        command.kind,
        command.key_version,
        command.audience,
        command.hmac,
        command.target,
        command.name,
        command.content_type,
        command.payload,
        command.traceparent,
    ]
}

#[inline]
fn write_command(command: &Command<'_>, out: &mut Vec<u8>) {
    for (number, field) in (1..).zip(fields(command)) {
        if !field.is_empty() {
            put_bytes(out, number, field);
        }
    }
}

/// Bytes that `write_command` appends.
#[inline]
fn command_len(command: &Command<'_>) -> usize {
    let lengths = fields(command).map(<[u8]>::len);
    lengths.iter().filter(|length| **length > 0).map(|length| bytes_field_len(*length)).sum()
}

/// The fields that differ between commands that are signed together.
#[derive(Clone, Copy)]
pub struct Draft<'a> {
    pub id: &'a [u8],
    pub target: &'a [u8],
    pub name: &'a [u8],
    pub payload: &'a [u8],
}

/// Commands signed together, cut to the size of submissions.
pub struct Submissions {
    /// The count of commands, and their serialised `Submission.command` fields.
    pub chunks: Vec<(usize, Vec<u8>)>,
}

impl Submissions {
    /// Signs every draft at one time; the number of the first that Shield would refuse, with its code. `shared` has
    /// what all of them have in common.
    pub fn sign<'a>(
        key: &MacKey,
        shared: Command<'a>,
        drafts: impl Iterator<Item = Draft<'a>>,
        sent_unix_ns: i64,
        limits: &Limits,
    ) -> Result<Self, (usize, u8)> {
        let timestamp = timestamp::format(sent_unix_ns);
        let shared = Command { timestamp: &timestamp, kind: command::TYPE, hmac: &[0; TAG_LEN], ..shared };
        let mut chunks: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut scratch = Vec::new();
        let mut checked: Option<Draft<'_>> = None;
        for (number, draft) in drafts.enumerate() {
            let Draft { id, target, name, payload } = draft;
            let command = Command { id, target, name, payload, ..shared };
            // A batch mostly says one thing many times; what was found well-formed is not looked at again.
            let known = checked.is_some_and(|last| last.target == target && last.name == name);
            if !known || payload.len() > limits.max_payload_bytes || !command::is_uuid(id) {
                command.check(limits.max_payload_bytes).map_err(|code| (number, code))?;
                checked = Some(draft);
            }
            write_signed_text(&command, &mut scratch);
            let command = Command { hmac: &key.tag(&scratch), ..command };
            let length = command_len(&command);
            let full = |(count, body): &(usize, Vec<u8>)| {
                *count >= limits.max_batch_commands
                    || body.len() + bytes_field_len(length) > limits.max_batch_bytes
            };
            if chunks.last().is_none_or(full) {
                chunks.push((0, Vec::with_capacity(limits.max_batch_bytes.min(512 << 10))));
            }
            if let Some((count, body)) = chunks.last_mut() {
                *count += 1;
                put_varint(body, u64::from(SUBMISSION_COMMAND) << 3 | 2);
                put_varint(body, length as u64);
                write_command(&command, body);
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
    use super::*;

    #[test]
    fn one_wrong_bit_or_one_byte_more_or_less_does_not_verify() {
        let key = MacKey::new(&[7; 32]).unwrap();
        let draft = Command { payload: b"pay", ..Command::default() };
        let mut scratch = Vec::new();
        write_signed_text(&draft, &mut scratch);
        let tag = key.tag(&scratch);
        let mut verifies = |hmac: &[u8]| key.verifies(&Command { hmac, ..draft }, &mut scratch);
        assert!(verifies(&tag));
        for bit in 0..TAG_LEN * 8 {
            let mut other = tag;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!verifies(&other));
        }
        assert!(!verifies(&tag[..31]) && !verifies(&[&tag[..], &[0]].concat()) && !verifies(b""));
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
        assert_eq!(format!("{:?}", MacKey::new(b"a secret of the source").unwrap()), "MacKey(..)");
    }
}
