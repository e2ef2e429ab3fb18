//! Writes chosen commands of a frame on as new runs.
//!
//! A command's bytes are copied, never re-encoded, and never leave the run that says who sent them.

use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::frames::{Limits, RunHead, Span};
use super::ledger::{Ledger, Part};
use super::parsed_batch::{Item, ParsedBatch};
use super::part_buffer::Pieces;
use super::wire::{bytes_field_len, put_bytes, put_number, put_varint, varint_len};

/// The limit of one part, so that the next hop reads it: a frame, without its header. A client sends a part whole.
pub const PART_BYTES: usize = Limits::MESH.max_batch_bytes - 64;

/// Commands chosen from a frame's runs, in order, on their way into new runs.
#[derive(Debug, Default)]
pub struct Reframer {
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

impl Reframer {
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

    /// The same commands in order, in pieces of at most `most` bytes; only a longer command has a longer one.
    fn cut(self, items: &[Item], heads: &[RunHead], most: usize) -> Vec<Self> {
        let mut reframers = Vec::new();
        let (mut reframer, mut size) = (Self::default(), 0);
        for index in self.indices {
            let Some(item) = items.get(index as usize) else { continue };
            let head = heads.get(item.run as usize).map_or(0, |run| run.head.len());
            // As if each had a run of its own: never less than it will be.
            let more = bytes_field_len(head + item.raw.len());
            if size > 0 && size + more > most {
                reframers.push(std::mem::take(&mut reframer));
                size = 0;
            }
            size += more;
            reframer.add(index, item.run, item.raw);
        }
        reframers.push(reframer);
        reframers
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

/// Reframers by key, in order of first appearance.
#[derive(Debug)]
pub struct Reframers<K> {
    pub reframers: Vec<(K, Reframer)>,
    by_key: HashMap<K, usize, RandomState>,
}

impl<K> Default for Reframers<K> {
    fn default() -> Self {
        Self { reframers: Vec::new(), by_key: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> Reframers<K> {
    /// The number of the reframer for `key`, made if there is none yet.
    pub fn place(&mut self, key: K) -> usize {
        if let Some(at) = self.by_key.get(&key) {
            return *at;
        }
        let at = self.reframers.len();
        self.reframers.push((key.clone(), Reframer::default()));
        self.by_key.insert(key, at);
        at
    }
}

/// Destination of a reframer: the number of a TargetQueue, and a topic of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    pub queue: u32,
    pub topic: Arc<str>,
    /// Each id is stored once for so long, later ones are answered as duplicates: `TopicRuns.once`. 0 for no such
    /// promise.
    pub once_ms: u32,
}

/// A part for one queue.
#[derive(Debug, PartialEq, Eq)]
pub struct Send {
    pub queue: u32,
    /// `SendBatch.topic` fields, of the frame that the reframers are of.
    pub topics: Pieces,
    pub count: usize,
}

/// A reframer with its key, and the length of the entry's body that it becomes.
type Entry<K> = (K, Reframer, usize);

/// Puts reframers together that travel as one part, in order; a part that the next hop could not read is not made.
///
/// A head is written once per run and destination, so what leaves can be several times what came in. `own` tells the
/// bytes of an entry's body beside its runs.
fn parts<K: Clone>(
    parsed: &ParsedBatch,
    reframers: Vec<(K, Reframer)>,
    own: impl Fn(&K) -> usize,
) -> Vec<Vec<Entry<K>>> {
    let mut parts: Vec<Vec<Entry<K>>> = Vec::new();
    let mut size = 0;
    let mut add = |key: K, reframer: Reframer, body: usize| {
        let more = bytes_field_len(body);
        match parts.last_mut() {
            Some(part) if size + more <= PART_BYTES => {
                size += more;
                part.push((key, reframer, body));
            }
            _ => {
                size = more;
                parts.push(vec![(key, reframer, body)]);
            }
        }
    };
    for (key, reframer) in reframers {
        let (beside, heads) = (own(&key), &parsed.runs);
        let body = beside + reframer.len(heads);
        if bytes_field_len(body) <= PART_BYTES {
            add(key, reframer, body);
            continue;
        }
        let most = PART_BYTES.saturating_sub(bytes_field_len(beside));
        for reframer in reframer.cut(&parsed.items, heads, most) {
            let body = beside + reframer.len(heads);
            add(key.clone(), reframer, body);
        }
    }
    parts
}

/// Writes reframers as `Send`s, the queues in order of first appearance, and adds each as a part to `ledger`.
///
/// One per queue, unless that would be more than `PART_BYTES`.
pub fn write_sends(
    parsed: &ParsedBatch,
    reframers: Vec<(Destination, Reframer)>,
    ledger: &mut Ledger,
) -> Vec<Send> {
    let mut queues: Vec<(u32, Vec<(Destination, Reframer)>)> = Vec::new();
    for (destination, reframer) in reframers {
        if reframer.indices.is_empty() {
            continue;
        }
        match queues.iter_mut().find(|(queue, _)| *queue == destination.queue) {
            Some((_, topics)) => topics.push((destination, reframer)),
            None => queues.push((destination.queue, vec![(destination, reframer)])),
        }
    }
    let own =
        |destination: &Destination| bytes_field_len(destination.topic.len()) + once_len(destination.once_ms);
    let mut sends = Vec::new();
    for (queue, topics) in queues {
        for part in parts(parsed, topics, own) {
            sends.push(write_send(&parsed.runs, queue, part, ledger));
        }
    }
    sends
}

fn write_send(heads: &[RunHead], queue: u32, topics: Vec<Entry<Destination>>, ledger: &mut Ledger) -> Send {
    let mut out = Pieces::default();
    let mut indices = Vec::new();
    for (destination, reframer, body) in topics {
        let own = out.own();
        put_varint(own, 3 << 3 | 2);
        put_varint(own, body as u64);
        put_bytes(own, 1, destination.topic.as_bytes());
        reframer.put(&mut out, 2, heads);
        put_number(out.own(), 3, u64::from(destination.once_ms > 0));
        put_number(out.own(), 4, u64::from(destination.once_ms));
        if indices.is_empty() {
            indices = reframer.indices;
        } else {
            indices.extend_from_slice(&reframer.indices);
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

/// Writes reframers as `ArbitrationBatch.escalation` fields, one per reason; with the commands' numbers.
///
/// In one piece, unless that would be more than `PART_BYTES`.
pub fn write_escalations(parsed: &ParsedBatch, reframers: Vec<(u8, Reframer)>) -> Vec<(Pieces, Vec<u32>)> {
    let write = |part: Vec<Entry<u8>>| {
        let (mut out, mut indices) = (Pieces::default(), Vec::new());
        for (reason, reframer, body) in part {
            let own = out.own();
            put_varint(own, 3 << 3 | 2);
            put_varint(own, body as u64);
            put_varint(own, 1 << 3);
            put_varint(own, u64::from(reason));
            reframer.put(&mut out, 2, &parsed.runs);
            indices.extend(reframer.indices);
        }
        (out, indices)
    };
    let own = |reason: &u8| 1 + varint_len(u64::from(*reason));
    parts(parsed, reframers, own).into_iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::super::arbitration::{Approval, Arbitration};
    use super::super::directory::Route;
    use super::super::dispatch::Dispatch;
    use super::super::ledger::{Reply, write_header};
    use super::super::phases::Profile;
    use super::super::sending::Sending;
    use super::super::testing::{batch, command, dispatch};
    use super::super::verdict::DELIVERED;
    use super::*;

    /// As a client sends it.
    fn framed(part: &[u8]) -> Vec<u8> {
        [write_header(u64::MAX, u32::MAX), part.to_vec()].concat()
    }

    /// A command each to so many targets, all of one source whose name is as long as names may be.
    fn scattered(targets: usize) -> (String, Vec<String>, Vec<u8>) {
        let source = format!("{}/{}", "a".repeat(63), "s".repeat(63));
        let targets: Vec<String> = (0..targets).map(|number| format!("{number:0>128}")).collect();
        let commands = targets.iter().map(|target| command(target, "say")).collect();
        let frame = batch(&[(source.as_str(), commands)]);
        (source, targets, frame)
    }

    fn topic(target: &str) -> Arc<str> {
        Arc::from(format!("{}/{target}", "o".repeat(63)))
    }

    fn fast(source: &str, targets: &[String]) -> Dispatch {
        let fast = dispatch(&[]);
        for target in targets {
            let route = Route::new(0, topic(target), Profile::Low, false, Arc::default());
            fast.put_route(target, "say", route);
            fast.allow(source, target, "say", 1);
        }
        fast
    }

    /// Every part is read by the mailbox, and its answers reach the commands that are in it.
    fn assert_readable(sends: &[Send], frame: &[u8], ledger: &mut Ledger) {
        for (part, send) in sends.iter().enumerate() {
            let framed = framed(&send.topics.to_vec(frame));
            let (sending, theirs) = Sending::open(&framed, &Limits::MESH, &[0; 32]);
            assert_eq!((sending.frame_code, theirs.count()), (0, send.count));
            ledger.merge(part, 0, &Reply { codes: vec![DELIVERED; send.count], ..Reply::default() });
        }
        assert!(ledger.codes().iter().all(|code| *code == DELIVERED));
    }

    #[test]
    fn a_frame_whose_heads_and_topics_outgrow_the_next_hop_leaves_in_several_parts() {
        let (source, targets, frame) = scattered(4000);
        assert!(frame.len() < 1 << 20);
        let mut plan = fast(&source, &targets).plan(&frame, 0);
        assert!(plan.sends.len() > 1);
        assert_readable(&plan.sends, &frame, &mut plan.ledger);
    }

    #[test]
    fn what_slow_approves_leaves_in_several_parts_too() {
        let (source, targets, frame) = scattered(4000);
        let fast = fast(&source, &targets);
        fast.set_cold_only(true);
        let escalated: Vec<u8> =
            fast.plan(&frame, 0).escalations.into_iter().flat_map(|escalation| escalation.body).collect();
        let (mut arbitration, mut ledger) = Arbitration::open(&escalated, &Limits::MESH);
        let approve = |(key, target): (usize, &String)| {
            let destination = Destination { queue: 0, topic: topic(target), once_ms: 300_000 };
            Approval { key, destination, grant: 1, acl_version: 1 }
        };
        let approved: Vec<_> = targets.iter().enumerate().map(approve).collect();
        let sends = arbitration.dispatch(&mut ledger, &approved).unwrap();
        assert!(sends.len() > 1);
        assert_readable(&sends, &escalated, &mut ledger);
    }

    #[test]
    fn one_topic_alone_is_cut_between_commands_when_it_fills_a_frame() {
        let mut large = command("bot", "say");
        put_bytes(&mut large, 11, &vec![b'x'; 100 << 10]);
        let mut runs = vec![("acme/shop", vec![large.clone(); 5]), ("acme/shop", vec![large; 5])];
        let mut frame = batch(&runs);
        // To the last byte of what a frame may have: the topic's name is too much for it.
        let room = Limits::MESH.max_batch_bytes - frame.len();
        put_bytes(&mut runs[1].1[0], 9, &vec![b'y'; room - 4]);
        frame = batch(&runs);
        assert!(frame.len() <= Limits::MESH.max_batch_bytes && frame.len() > PART_BYTES);
        let mut plan = dispatch(&[("acme/shop", "bot", "say")]).plan(&frame, 0);
        assert_eq!(plan.sends.iter().map(|send| send.count).sum::<usize>(), 10);
        assert_eq!(plan.sends.len(), 2);
        assert_readable(&plan.sends, &frame, &mut plan.ledger);
        let plan = dispatch(&[]).plan(&frame, 0);
        assert_eq!(plan.escalations.len(), 2);
        for escalation in plan.escalations {
            let framed = framed(&escalation.body);
            let (theirs, ledger) = Arbitration::open(&framed, &Limits::MESH);
            assert_eq!((theirs.frame_code(), ledger.count()), (0, escalation.count));
        }
    }
}
