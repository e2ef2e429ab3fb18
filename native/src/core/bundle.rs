//! Writes chosen commands of a frame on as new runs.
//!
//! A command's bytes are copied, never re-encoded, and never leave the run that says who sent them.

use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::frames::{RunHead, Span};
use super::freight::Pieces;
use super::ledger::{Ledger, Part};
use super::wire::{bytes_field_len, put_bytes, put_number, put_varint, varint_len};

/// Commands chosen from a frame's runs, in order, on their way into new runs.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The commands' numbers in the incoming batch.
    pub indices: Vec<u32>,
    runs: Vec<Stretch>,
    pieces: Vec<Span>,
}

/// Pieces that follow each other and belong to one incoming run.
#[derive(Debug)]
struct Stretch {
    run: u32,
    first_piece: u32,
    bytes: u32,
}

impl Bundle {
    /// Adds a command: its number, its run, and its `command` field in the frame.
    #[inline]
    pub fn add(&mut self, index: u32, run: u32, raw: Span) {
        self.indices.push(index);
        match self.runs.last_mut() {
            Some(stretch) if stretch.run == run => stretch.bytes += raw.len() as u32,
            _ => {
                let first_piece = self.pieces.len() as u32;
                self.runs.push(Stretch { run, first_piece, bytes: raw.len() as u32 });
                self.pieces.push(raw);
                return;
            }
        }
        match self.pieces.last_mut() {
            // Neighbours are copied together: a whole run in one go when all of it has one destination.
            Some(piece) if piece.end == raw.start => piece.end = raw.end,
            _ => self.pieces.push(raw),
        }
    }

    fn body_len(&self, stretch: &Stretch, heads: &[RunHead]) -> usize {
        heads.get(stretch.run as usize).map_or(0, |run| run.head.len()) + stretch.bytes as usize
    }

    /// Bytes that `put` appends; for fields numbered up to 15.
    pub fn len(&self, heads: &[RunHead]) -> usize {
        self.runs.iter().map(|stretch| bytes_field_len(self.body_len(stretch, heads))).sum()
    }

    /// Appends the runs as `field`.
    pub fn put(&self, out: &mut Pieces, field: u32, heads: &[RunHead]) {
        let ends = self.runs.iter().skip(1).map(|next| next.first_piece as usize);
        for (stretch, end) in self.runs.iter().zip(ends.chain([self.pieces.len()])) {
            put_varint(out.own(), u64::from(field) << 3 | 2);
            put_varint(out.own(), self.body_len(stretch, heads) as u64);
            let mut pieces = self.pieces[stretch.first_piece as usize..end].iter().copied();
            if let Some(run) = heads.get(stretch.run as usize) {
                // A run that goes on from its beginning is one stretch with its head.
                match pieces.next() {
                    Some(first) if first.start == run.head.end => {
                        out.pass(Span { start: run.head.start, end: first.end });
                    }
                    first => {
                        out.pass(run.head);
                        first.into_iter().for_each(|first| out.pass(first));
                    }
                }
            }
            pieces.for_each(|piece| out.pass(piece));
        }
    }
}

/// Bundles by what they share, in order of first appearance.
#[derive(Debug)]
pub struct Bundles<K> {
    pub bundles: Vec<(K, Bundle)>,
    by_key: HashMap<K, usize, RandomState>,
}

impl<K> Default for Bundles<K> {
    fn default() -> Self {
        Self { bundles: Vec::new(), by_key: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> Bundles<K> {
    /// The number of the bundle for `key`, made if there is none yet.
    pub fn place(&mut self, key: K) -> usize {
        if let Some(at) = self.by_key.get(&key) {
            return *at;
        }
        let at = self.bundles.len();
        self.bundles.push((key.clone(), Bundle::default()));
        self.by_key.insert(key, at);
        at
    }
}

/// Where a bundle goes: which TargetQueue, and which topic of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    pub queue: u32,
    pub topic: Arc<str>,
    /// Each id is stored once for so long, later ones are answered as duplicates: `TopicRuns.once`. 0 for no such
    /// promise.
    pub once_ms: u32,
}

/// What goes to one queue.
#[derive(Debug, PartialEq, Eq)]
pub struct Send {
    pub queue: u32,
    /// `SendBatch.topic` fields, of the frame that the bundles are of.
    pub topics: Pieces,
    pub count: usize,
}

/// Writes bundles as one `Send` per queue, in order of first appearance, and adds each as a part to `ledger`.
pub fn write_sends(heads: &[RunHead], bundles: Vec<(Destination, Bundle)>, ledger: &mut Ledger) -> Vec<Send> {
    let mut queues: Vec<(u32, Vec<(Destination, Bundle)>)> = Vec::new();
    for (destination, bundle) in bundles {
        if bundle.indices.is_empty() {
            continue;
        }
        match queues.iter_mut().find(|(queue, _)| *queue == destination.queue) {
            Some((_, topics)) => topics.push((destination, bundle)),
            None => queues.push((destination.queue, vec![(destination, bundle)])),
        }
    }
    queues.into_iter().map(|(queue, topics)| write_send(heads, queue, topics, ledger)).collect()
}

fn write_send(
    heads: &[RunHead],
    queue: u32,
    topics: Vec<(Destination, Bundle)>,
    ledger: &mut Ledger,
) -> Send {
    let bodies: Vec<usize> = topics
        .iter()
        .map(|(destination, bundle)| {
            bytes_field_len(destination.topic.len()) + bundle.len(heads) + once_len(destination.once_ms)
        })
        .collect();
    let mut out = Pieces::default();
    let mut indices = Vec::new();
    for ((destination, bundle), body) in topics.into_iter().zip(bodies) {
        let own = out.own();
        put_varint(own, 3 << 3 | 2);
        put_varint(own, body as u64);
        put_bytes(own, 1, destination.topic.as_bytes());
        bundle.put(&mut out, 2, heads);
        put_number(out.own(), 3, u64::from(destination.once_ms > 0));
        put_number(out.own(), 4, u64::from(destination.once_ms));
        if indices.is_empty() {
            indices = bundle.indices;
        } else {
            indices.extend_from_slice(&bundle.indices);
        }
    }
    let count = indices.len();
    ledger.add_part(Part::of(indices));
    Send { queue, topics: out, count }
}

/// Bytes of `once` and `once_ms`, which are not written when they say nothing.
fn once_len(once_ms: u32) -> usize {
    if once_ms == 0 { 0 } else { 3 + varint_len(u64::from(once_ms)) }
}

/// Writes bundles as `ArbitrationBatch.escalation` fields, one per reason.
pub fn write_escalations(heads: &[RunHead], bundles: &[(u8, Bundle)]) -> Pieces {
    let body = |(reason, bundle): &(u8, Bundle)| 1 + varint_len(u64::from(*reason)) + bundle.len(heads);
    let mut out = Pieces::default();
    for entry in bundles {
        let own = out.own();
        put_varint(own, 3 << 3 | 2);
        put_varint(own, body(entry) as u64);
        put_varint(own, 1 << 3);
        put_varint(own, u64::from(entry.0));
        entry.1.put(&mut out, 2, heads);
    }
    out
}
