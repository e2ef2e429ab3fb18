//! Accepted commands as the `run` fields of a Batch, byte for byte as their producer sent them.
//!
//! It must never put commands of two key versions into one run: the run says under which all were verified.

use super::admission::Passed;
use super::keys::KeySet;
use super::wire::{bytes_field_len, put_bytes, put_number, put_varint, varint_len};

/// Who sent a batch, as the certificate says.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub source: &'a str,
    pub cert_serial: &'a str,
}

const RUN: u32 = 3;
const COMMAND: u32 = 5;

/// One allocation of the right size; empty when nothing passed.
pub(super) fn write_runs(
    commands: &[&[u8]],
    passed: &[Passed],
    keys: &KeySet,
    caller: Caller<'_>,
    admitted_unix_ns: i64,
) -> Vec<u8> {
    let runs = || passed.chunk_by(|left, right| left.key == right.key);
    let version = |run: &[Passed]| {
        let key = run.first().and_then(|first| keys.get(first.key as usize));
        key.map_or("", |key| &*key.version)
    };
    let command = |passed: &Passed| commands.get(passed.index as usize).copied().unwrap_or_default();
    let run_len = |run: &[Passed]| -> usize {
        let commands: usize = run.iter().map(|passed| bytes_field_len(command(passed).len())).sum();
        text_len(caller.source)
            + text_len(version(run))
            + text_len(caller.cert_serial)
            + number_len(admitted_unix_ns as u64)
            + commands
    };
    let lengths: Vec<usize> = runs().map(run_len).collect();
    let mut out = Vec::with_capacity(lengths.iter().map(|length| bytes_field_len(*length)).sum());
    for (run, length) in runs().zip(&lengths) {
        put_varint(&mut out, u64::from(RUN) << 3 | 2);
        put_varint(&mut out, *length as u64);
        for (field, text) in [(1, caller.source), (2, version(run)), (3, caller.cert_serial)] {
            if !text.is_empty() {
                put_bytes(&mut out, field, text.as_bytes());
            }
        }
        put_number(&mut out, 4, admitted_unix_ns as u64);
        for passed in run {
            put_bytes(&mut out, COMMAND, command(passed));
        }
    }
    out
}

/// proto3 leaves empty text out.
fn text_len(text: &str) -> usize {
    if text.is_empty() { 0 } else { bytes_field_len(text.len()) }
}

fn number_len(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_len(number) }
}
