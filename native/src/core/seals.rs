//! A check for every message of a stored row, so that one that was damaged does not take the others with it.
//!
//! The row's BLAKE3 says that all of it is what was stored; only when it does not are these looked at. They never
//! decide that a damaged row is good, only which of its messages can be told apart from the damage: place and check are
//! kept for each, so that a length that was hit does not hide what stands behind it. Sixty-four bits detect any
//! accident; against an attacker who writes to the disk neither they nor an unkeyed hash would help.

use super::frames::{Command, Span, Walk, read_run};
use super::wire::{Malformed, put_varint, varint_len};

/// `start: u32, length: u32, check: u64`, little-endian.
pub const SEAL: usize = 16;
const LEASED_RUN: u32 = 5;
const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xd1b5_4a32_d192_ed03;

/// A sum that changes with every bit of `bytes` and with their order. Stored on disk: never change it.
fn mix(seed: u64, bytes: &[u8]) -> u64 {
    let (mut left, mut right) = (seed ^ K0, seed.rotate_left(32) ^ K1);
    // Two sums beside each other: one multiplication does not wait for the other.
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        let [a, b, c, d] = words(block);
        left = step(left, a, b);
        right = step(right, c, d);
    }
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    let [a, b, c, d] = words(&last);
    left = step(left, a, b);
    right = step(right, c, d);
    fold(left ^ (bytes.len() as u64), right ^ K0).wrapping_add(left).rotate_left(29) ^ right
}

#[inline]
fn words(block: &[u8; 32]) -> [u64; 4] {
    let (words, _) = block.as_chunks::<8>();
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_le_bytes(*word)))
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline]
fn step(sum: u64, low: u64, high: u64) -> u64 {
    // Added again, so that a factor of zero does not swallow the other.
    fold(low ^ sum, high ^ K1).wrapping_add(low).rotate_left(23) ^ high
}

/// Input of a message's check beside its own bytes: the row's columns (`context`) and the head of its run.
fn head_sum(context: u64, head: &[u8]) -> u64 {
    mix(context, head)
}

fn check(head_sum: u64, number: u64, raw: &[u8]) -> u64 {
    mix(head_sum.wrapping_add(number.wrapping_mul(K1)), raw)
}

/// Head and raw bytes of one command.
type Piece<'a> = (&'a [u8], &'a [u8]);

/// A seal for each command of stored runs.
pub fn seal_runs(runs: &[u8], context: &[u8]) -> Result<Vec<u8>, Malformed> {
    let context = mix(0, context);
    let mut out = Vec::with_capacity(runs.len() / 16);
    let mut number = 0;
    let mut last: Option<(*const u8, u64)> = None;
    walk_runs(runs, |head, raw| {
        // One head for all commands of its run: summed once.
        let sum = match last {
            Some((known, sum)) if std::ptr::eq(known, head.as_ptr()) => sum,
            _ => head_sum(context, head),
        };
        last = Some((head.as_ptr(), sum));
        let mut seal = [0; SEAL];
        seal[..4].copy_from_slice(&raw.start.to_le_bytes());
        seal[4..8].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        seal[8..].copy_from_slice(&check(sum, number, raw.of(runs)).to_le_bytes());
        out.extend_from_slice(&seal);
        number += 1;
    })?;
    Ok(out)
}

fn walk_runs<'a>(runs: &'a [u8], mut each: impl FnMut(&'a [u8], Span)) -> Result<(), Malformed> {
    let end = u32::try_from(runs.len()).map_err(|_| Malformed)?;
    let mut walk = Walk::new(runs, Span { start: 0, end });
    while let Some(placed) = walk.next()? {
        placed.field.bytes()?;
        let (head, mut commands) = read_run(runs, placed.body)?;
        while let Some(Command { raw, .. }) = commands.next()? {
            each(head.head.of(runs), raw);
        }
    }
    Ok(())
}

/// Runs in which every damaged message is an empty command, and which ones those are.
///
/// `body` is runs and seals, as far as they can be read.
pub fn salvage(body: &[u8], count: usize, context: &[u8]) -> (Vec<u8>, Vec<bool>) {
    let context = mix(0, context);
    let split = body.len().saturating_sub(count * SEAL);
    let (runs, seals) = body.split_at(split);
    let seals: Vec<(Span, u64)> = seals.chunks_exact(SEAL).map(read_seal).collect();
    // By walking, in case a place was hit; by the places, in case a length was.
    let mut walked: Vec<Piece<'_>> = Vec::with_capacity(count);
    let _ = walk_runs(runs, |head, raw| walked.push((head, raw.of(runs))));
    let placed = place_runs(runs, &seals);
    let holds = |number: usize, piece: &&Piece<'_>| {
        let seal = seals.get(number).map(|seal| seal.1);
        !piece.1.is_empty() && Some(check(head_sum(context, piece.0), number as u64, piece.1)) == seal
    };
    let found = (0..count).map(|number| {
        let walked = walked.get(number).filter(|piece| holds(number, piece));
        walked
            .or_else(|| placed.get(number).and_then(Option::as_ref).filter(|piece| holds(number, piece)))
            .copied()
    });
    let found: Vec<Option<Piece<'_>>> = found.collect();
    let damaged = found.iter().map(Option::is_none).collect();
    (write(&found), damaged)
}

/// The bytes at the places that the seals name.
fn place_runs<'a>(runs: &'a [u8], seals: &[(Span, u64)]) -> Vec<Option<Piece<'a>>> {
    let mut pieces = Vec::with_capacity(seals.len());
    let mut before = 0;
    for run in seals.chunk_by(|left, right| left.0.end == right.0.start) {
        let head = head_of(runs, before, run);
        pieces.extend(run.iter().map(|(span, _)| head.map(|head| (head, span.of(runs)))));
        before = run.last().map_or(0, |last| last.0.end);
    }
    pieces
}

fn write(found: &[Option<Piece<'_>>]) -> Vec<u8> {
    // Two bytes that are a command without fields, so that the numbers of the others stay what they are.
    let lost: Piece<'_> = (&[0x0a, 1, b'?'], &[0x2a, 0]);
    let pieces: Vec<Piece<'_>> = found.iter().map(|piece| piece.unwrap_or(lost)).collect();
    let mut out = Vec::new();
    for run in pieces.chunk_by(|left, right| left.0 == right.0) {
        let head = run.first().map_or(lost.0, |first| first.0);
        let length = head.len() + run.iter().map(|piece| piece.1.len()).sum::<usize>();
        put_varint(&mut out, u64::from(LEASED_RUN) << 3 | 2);
        put_varint(&mut out, length as u64);
        out.extend_from_slice(head);
        run.iter().for_each(|piece| out.extend_from_slice(piece.1));
    }
    out
}

fn read_seal(seal: &[u8]) -> (Span, u64) {
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| seal[at + byte]));
    let start = number(0);
    let stored = u64::from_le_bytes(std::array::from_fn(|byte| seal[8 + byte]));
    (Span { start, end: start.saturating_add(number(4)) }, stored)
}

/// The head of a run: what stands between the end of the run before it and its first command, without tag and length.
/// Its begin is counted back from its first command, because the length itself may be damaged.
fn head_of<'a>(runs: &'a [u8], before: u32, run: &[(Span, u64)]) -> Option<&'a [u8]> {
    let (first, last) = (run.first()?.0, run.last()?.0);
    let commands = last.end.checked_sub(first.start)? as usize;
    let gap = first.start.checked_sub(before)? as usize;
    (1..=5).find_map(|length| {
        let head = gap.checked_sub(1 + length)?;
        let fits = head > 0 && varint_len((head + commands) as u64) == length;
        fits.then(|| runs.get(first.start as usize - head..first.start as usize))?
    })
}

#[cfg(test)]
mod tests {
    use super::super::sending::slice_runs;
    use super::super::testing::{command, mangled, run};
    use super::super::wire::put_bytes;
    use super::*;

    const CONTEXT: &[u8] = b"acme/bot\n17";

    fn row() -> (Vec<u8>, Vec<u8>) {
        let mut runs = Vec::new();
        let long: Vec<Vec<u8>> =
            ["say", "go", "stop", "wait"].iter().map(|name| command("bot", name)).collect();
        for source in ["acme/a", "acme/b"] {
            put_bytes(&mut runs, 5, &run(source, &long));
        }
        put_bytes(&mut runs, 5, &run("acme/c", &long[..1]));
        let seals = seal_runs(&runs, CONTEXT).unwrap();
        (runs, seals)
    }

    #[test]
    fn what_is_whole_comes_back_as_it_was() {
        let (runs, seals) = row();
        assert_eq!(seals.len(), 9 * SEAL);
        let (back, damaged) = salvage(&[runs.clone(), seals].concat(), 9, CONTEXT);
        assert_eq!((back, damaged), (runs, vec![false; 9]));
    }

    #[test]
    fn another_topic_or_time_checks_nothing() {
        let (runs, seals) = row();
        let (_, damaged) = salvage(&[runs, seals].concat(), 9, b"acme/bot\n18");
        assert_eq!(damaged, vec![true; 9]);
    }

    #[test]
    fn every_flipped_bit_costs_at_most_its_run_and_never_passes() {
        let (runs, seals) = row();
        let body = [runs.clone(), seals].concat();
        let whole: Vec<Vec<u8>> = (0..9).map(|at| slice_runs(&runs, at, 1).unwrap()).collect();
        for bit in 0..body.len() * 8 {
            let mut flipped = body.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (back, damaged) = salvage(&flipped, 9, CONTEXT);
            for (number, _) in damaged.iter().enumerate().filter(|(_, bad)| !**bad) {
                assert_eq!(slice_runs(&back, number, 1).as_ref(), Ok(&whole[number]), "bit {bit}");
            }
            let lost = damaged.iter().filter(|bad| **bad).count();
            // A head is of its whole run; everything else concerns one message, or none.
            assert!(lost <= 4, "bit {bit}: {lost} lost");
            assert!(lost <= 1 || bit / 8 < runs.len(), "bit {bit} of a seal: {lost} lost");
        }
    }

    #[test]
    fn a_flip_in_a_payload_costs_one_message() {
        let (runs, seals) = row();
        let at = runs.len() - 1;
        let mut body = [runs, seals].concat();
        body[at] ^= 1;
        let (_, damaged) = salvage(&body, 9, CONTEXT);
        assert_eq!(damaged.iter().position(|bad| *bad), Some(8));
        assert_eq!(damaged.iter().filter(|bad| **bad).count(), 1);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let (runs, seals) = row();
        for body in mangled(&[runs, seals].concat()) {
            for count in [0, 9, 20] {
                let (back, damaged) = salvage(&body, count, CONTEXT);
                assert_eq!(damaged.len(), count);
                assert!(count == 0 || slice_runs(&back, count - 1, 1).is_ok());
            }
        }
    }
}
