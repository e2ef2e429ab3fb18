//! Accepted commands as the `run` fields of a Batch, byte for byte as their producer sent them.
//!
//! It must never put commands of two key versions into one run: the run says under which all were verified.

use super::frames::Span;
use super::keys::KeySet;
use super::part_buffer::put;
use super::wire::{bytes_field_len, put_bytes, put_number, put_varint, varint_len};

/// The sender of a batch, as the certificate says.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub source: &'a str,
    pub cert_serial: &'a str,
}

/// A command that its HMAC vouches for.
#[derive(Debug)]
pub(super) struct Passed {
    /// Its place in the frame.
    pub place: Span,
    /// Number of the command in its batch.
    pub index: u32,
    /// Position of its key in the key set.
    pub key: u32,
}

const RUN: u32 = 3;
const COMMAND: u32 = 5;

/// Runs that are measured and not yet written, so that they can be written straight to where they are wanted: a
/// second buffer of half a megabyte per batch costs more in fresh pages than its copying.
#[derive(Debug)]
pub struct Runs {
    passed: Vec<Passed>,
    /// Everything of a run but its commands, and how many those are.
    heads: Vec<(Vec<u8>, usize)>,
    len: usize,
}

impl Runs {
    pub(super) fn none() -> Self {
        Self { passed: Vec::new(), heads: Vec::new(), len: 0 }
    }

    pub(super) fn new(passed: Vec<Passed>, keys: &KeySet, caller: Caller<'_>, admitted_unix_ns: i64) -> Self {
        let mut heads = Vec::new();
        let mut len = 0;
        for run in passed.chunk_by(|left, right| left.key == right.key) {
            let key = run.first().and_then(|first| keys.get(first.key as usize));
            let version = key.map_or("", |key| &*key.version);
            let mut body =
                Vec::with_capacity(64 + caller.source.len() + version.len() + caller.cert_serial.len());
            for (field, text) in [(1, caller.source), (2, version), (3, caller.cert_serial)] {
                if !text.is_empty() {
                    put_bytes(&mut body, field, text.as_bytes());
                }
            }
            put_number(&mut body, 4, admitted_unix_ns as u64);
            let commands: usize = run.iter().map(|passed| bytes_field_len(passed.place.len())).sum();
            let mut head = Vec::with_capacity(body.len() + 1 + varint_len(u64::MAX));
            put_varint(&mut head, u64::from(RUN) << 3 | 2);
            put_varint(&mut head, (body.len() + commands) as u64);
            head.extend_from_slice(&body);
            len += head.len() + commands;
            heads.push((head, run.len()));
        }
        Self { passed, heads, len }
    }

    /// Bytes that `write` needs.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `out`, which has room for exactly `len` bytes; `frame` is what the commands came in.
    pub fn write(&self, frame: &[u8], mut out: &mut [u8]) {
        let mut passed = self.passed.iter();
        for (head, count) in &self.heads {
            out = put(out, head);
            for command in passed.by_ref().take(*count) {
                let length = command.place.len() as u64;
                let mut start = [0; 11];
                start[0] = (COMMAND << 3 | 2) as u8;
                let used = 1 + varint_len(length);
                for (place, byte) in start[1..used].iter_mut().enumerate() {
                    let more = if place + 2 < used { 0x80 } else { 0 };
                    *byte = (length >> (7 * place)) as u8 & 0x7f | more;
                }
                out = put(out, &start[..used]);
                out = put(out, command.place.of(frame));
            }
        }
    }

    pub fn to_vec(&self, frame: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.write(frame, &mut out);
        out
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::keys::Key;
    use super::super::wire::Fields;
    use super::*;

    #[test]
    fn commands_of_every_length_come_back_in_runs_by_key() {
        let keys = ["v1", "v2"].map(|version| Key::new(version, &[7; 32], 0, 0, false).unwrap());
        let keys = KeySet::new(keys.into()).unwrap();
        let body = vec![9u8; 3 << 20];
        let lengths = [0usize, 1, 127, 128, 129, 16_383, 16_384, 16_385, (2 << 20) - 1, 2 << 20, 3 << 20];
        let commands: Vec<(u32, &[u8])> =
            lengths.iter().map(|length| (u32::from(length % 2 == 1), &body[..*length])).collect();
        let place = |bytes: &[u8]| Span::within(&body, bytes);
        let passed =
            commands.iter().map(|(key, bytes)| Passed { place: place(bytes), index: 0, key: *key }).collect();
        let caller = Caller { source: "acme/billing", cert_serial: "0a" };
        let written = Runs::new(passed, &keys, caller, 5).to_vec(&body);

        let mut found: Vec<(u32, &[u8])> = Vec::new();
        let mut batch = Fields::new(&written);
        while let Some(run) = batch.next().unwrap() {
            assert_eq!(run.number, RUN);
            let mut key = 0;
            let mut fields = Fields::new(run.bytes().unwrap());
            while let Some(field) = fields.next().unwrap() {
                match field.number {
                    1 => assert_eq!(field.text(), Ok("acme/billing")),
                    2 => key = u32::from(field.text() == Ok("v2")),
                    3 => assert_eq!(field.text(), Ok("0a")),
                    4 => assert_eq!(field.varint(), Ok(5)),
                    _ => found.push((key, field.bytes().unwrap())),
                }
            }
        }
        assert!(found == commands);
    }
}
