//! Parsing of a SendBatch into rows to store, and ranges of stored rows.
//!
//! Runs are re-tagged and never rewritten, so that what was stored is what is delivered.

use super::frames::{Command, FrameRefused, Header, Limits, Span, Walk, read_frame, read_run};
use super::ledger::{Ledger, Part};
use super::part_buffer::Pieces;
use super::reframer::Reframer;
use super::replay::put_columns;
use super::verdict::{MALFORMED, OVERSIZED};
use super::wire::{Malformed, put_varint};

/// `LeasedBatch.run`: stored runs are exactly these fields.
const LEASED_RUN: u32 = 5;

/// Commands that one entry holds, and so one row of the mailbox; only a run that is longer makes a longer one.
const ENTRY_COMMANDS: usize = 1000;

/// Commands for one topic.
#[derive(Debug, PartialEq, Eq)]
pub struct TopicRuns {
    pub topic: String,
    pub count: usize,
    /// Run messages as repeated field 5, of the frame that was opened.
    pub runs: Pieces,
    /// For a topic that stores each (source, id) once: a column per command, see `replay`. Otherwise empty.
    pub keys: Vec<u8>,
    /// Minimum time for which they are kept, whatever the topic's own window is.
    pub once_ms: u32,
}

impl TopicRuns {
    fn new(topic: &str, once_ms: u32) -> Self {
        Self { topic: topic.to_owned(), count: 0, runs: Pieces::default(), keys: Vec::new(), once_ms }
    }
}

/// An opened SendBatch.
#[derive(Debug)]
pub struct Sending {
    pub header: Header,
    pub frame_code: u8,
    pub topics: Vec<TopicRuns>,
}

impl Sending {
    /// Opens a frame; its ledger has one part per entry of `topics`. A topic that got much has several, each of
    /// whole runs. Keys are fingerprinted under `secret`.
    pub fn open(frame: &[u8], limits: &Limits, secret: &[u8; 32]) -> (Self, Ledger) {
        let mut topics = Vec::new();
        let mut count = 0;
        let (header, outcome) = read_frame(frame, limits, |entry| {
            let more = read_topic(frame, entry, limits.max_batch_commands - count, secret, &mut topics)?;
            count += more;
            Ok(())
        });
        if let Err(FrameRefused(frame_code)) = outcome {
            let ledger = Ledger::refused_frame(header.batch_seq, frame_code);
            return (Self { header, frame_code, topics: Vec::new() }, ledger);
        }
        let mut ledger = Ledger::new(header.batch_seq, count).tells_places();
        let mut first = 0;
        for topic in &topics {
            let count = topic.count as u32;
            ledger.add_part(Part::Range { first, count });
            first += count;
        }
        (Self { header, frame_code: 0, topics }, ledger)
    }
}

/// Adds the entries of one topic to `topics`; returns the number of their commands.
fn read_topic(
    frame: &[u8],
    entry: Span,
    most: usize,
    secret: &[u8; 32],
    topics: &mut Vec<TopicRuns>,
) -> Result<usize, FrameRefused> {
    let (mut topic, mut once, mut once_ms) = (None, false, 0);
    let mut total = 0;
    let mut runs: Vec<(Span, usize)> = Vec::new();
    let mut walk = Walk::new(frame, entry);
    while let Some(placed) = walk.next()? {
        match (placed.field.number, topic) {
            (1, None) => topic = Some(placed.field.text()?).filter(|topic| !topic.is_empty()),
            // The topic stands before the runs: nothing in the mesh writes it otherwise.
            (2, Some(_)) => {
                placed.field.bytes()?;
                let before = total;
                let (_, mut commands) = read_run(frame, placed.body)?;
                while commands.next()?.is_some() {
                    total += 1;
                    if total > most {
                        return Err(FrameRefused(OVERSIZED));
                    }
                }
                if total > before {
                    runs.push((placed.body, total - before));
                }
            }
            (3, Some(_)) if !once && placed.field.varint()? == 1 => once = true,
            (4, Some(_)) if once && once_ms == 0 => {
                once_ms = u32::try_from(placed.field.varint()?).map_err(|_| FrameRefused(MALFORMED))?;
            }
            _ => return Err(FrameRefused(MALFORMED)),
        }
    }
    let topic = topic.ok_or(FrameRefused(MALFORMED))?;
    let mut entry = TopicRuns::new(topic, once_ms);
    for (run, count) in runs {
        if entry.count > 0 && entry.count + count > ENTRY_COMMANDS {
            topics.push(std::mem::replace(&mut entry, TopicRuns::new(topic, once_ms)));
        }
        put_varint(entry.runs.own(), u64::from(LEASED_RUN) << 3 | 2);
        put_varint(entry.runs.own(), run.len() as u64);
        entry.runs.pass(run);
        entry.count += count;
        if once {
            put_columns(&mut entry.keys, secret, topic, frame, run)?;
        }
    }
    topics.push(entry);
    Ok(total)
}

/// The `run` fields for commands `first .. first + count` of stored runs. Asking for more than there is fails.
pub fn slice_runs(stored: &[u8], first: usize, count: usize) -> Result<Vec<u8>, Malformed> {
    let end = first.checked_add(count).ok_or(Malformed)?;
    let (chosen, found) = pick_runs(stored, |index| (first..end).contains(&index))?;
    if end > found { Err(Malformed) } else { Ok(chosen) }
}

/// The `run` fields for the commands that `wanted` chooses by their number, and how many there are in all.
pub fn pick_runs(stored: &[u8], wanted: impl Fn(usize) -> bool) -> Result<(Vec<u8>, usize), Malformed> {
    let mut walk =
        Walk::new(stored, Span { start: 0, end: u32::try_from(stored.len()).map_err(|_| Malformed)? });
    let (mut heads, mut reframer) = (Vec::new(), Reframer::default());
    let mut index = 0;
    while let Some(placed) = walk.next()? {
        if placed.field.number != LEASED_RUN {
            return Err(Malformed);
        }
        placed.field.bytes()?;
        let (head, mut commands) = read_run(stored, placed.body)?;
        let run = heads.len() as u32;
        heads.push(head);
        while let Some(Command { raw, .. }) = commands.next()? {
            if wanted(index) {
                reframer.add(index as u32, run, raw);
            }
            index += 1;
        }
    }
    let mut out = Pieces::default();
    reframer.put(&mut out, LEASED_RUN, &heads);
    Ok((out.to_vec(stored), index))
}

#[cfg(test)]
mod tests {
    use super::super::replay::{COLUMN, columns_of};
    use super::super::testing::{batch, command, dispatch, mangled, run};
    use super::super::wire::{put_bytes, put_number};
    use super::*;

    fn send_batch() -> Vec<u8> {
        let dispatch = dispatch(&[("acme/shop", "bot", "say"), ("acme/shop", "bot", "go")]);
        let commands = vec![command("bot", "say"), command("bot", "go"), command("bot", "say")];
        let frame = batch(&[("acme/shop", commands), ("acme/shop", vec![command("bot", "say")])]);
        let plan = dispatch.plan(&frame, 0);
        plan.sends.into_iter().next().unwrap().topics.to_vec(&frame)
    }

    #[test]
    fn topics_and_slices_hold_their_commands() {
        let frame = send_batch();
        let (sending, ledger) = Sending::open(&frame, &Limits::MESH, &[0; 32]);
        let told: Vec<_> = sending.topics.iter().map(|topic| (topic.topic.as_str(), topic.count)).collect();
        assert_eq!(told, [("acme/say", 3), ("acme/go", 1)]);
        assert_eq!((ledger.count(), ledger.parts()), (4, 2));
        let runs = &sending.topics[0].runs.to_vec(&frame);
        assert_eq!(slice_runs(runs, 0, 3).as_ref(), Ok(runs));
        let [head, tail] = [slice_runs(runs, 0, 2).unwrap(), slice_runs(runs, 2, 1).unwrap()];
        assert_eq!([head, tail].concat(), *runs);
        assert_eq!(slice_runs(runs, 1, 0), Ok(Vec::new()));
        assert_eq!(slice_runs(runs, 1, 3), Err(Malformed));
        assert_eq!(slice_runs(runs, usize::MAX, 1), Err(Malformed));
    }

    #[test]
    fn two_full_batches_of_one_topic_are_two_entries() {
        let dispatch = dispatch(&[("acme/shop", "bot", "say")]);
        let run = |count: usize| ("acme/shop", vec![command("bot", "say"); count]);
        let frame = batch(&[run(600), run(400), run(1000), run(1)]);
        let sends = dispatch.plan(&frame, 0).sends;
        let frame = sends[0].topics.to_vec(&frame);
        let (sending, ledger) = Sending::open(&frame, &Limits::MESH, &[0; 32]);
        let counts: Vec<_> = sending.topics.iter().map(|entry| entry.count).collect();
        assert_eq!(counts, [1000, 1000, 1]);
        assert_eq!((ledger.count(), ledger.parts()), (2001, 3));
        for entry in &sending.topics {
            let runs = entry.runs.to_vec(&frame);
            assert_eq!(slice_runs(&runs, 0, entry.count), Ok(runs));
        }
    }

    #[test]
    fn every_entry_of_a_topic_that_stores_once_has_the_keys_of_its_own_commands() {
        let mut body = Vec::new();
        put_bytes(&mut body, 1, b"acme/say");
        for count in [600, 401] {
            put_bytes(&mut body, 2, &run("acme/shop", &vec![command("bot", "say"); count]));
        }
        put_number(&mut body, 3, 1);
        let mut frame = Vec::new();
        put_bytes(&mut frame, 3, &body);
        let (sending, _) = Sending::open(&frame, &Limits::MESH, &[7; 32]);
        assert_eq!(sending.topics.iter().map(|entry| entry.count).collect::<Vec<_>>(), [600, 401]);
        for entry in &sending.topics {
            let stored = entry.runs.to_vec(&frame);
            assert_eq!(entry.keys.len(), entry.count * COLUMN);
            assert_eq!(columns_of(&[7; 32], "acme/say", &stored).as_ref(), Ok(&entry.keys));
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&send_batch()) {
            let (sending, ledger) = Sending::open(&frame, &Limits::MESH, &[0; 32]);
            assert_eq!(sending.topics.iter().map(|topic| topic.count).sum::<usize>(), ledger.count());
            for topic in &sending.topics {
                let runs = topic.runs.to_vec(&frame);
                assert_eq!(slice_runs(&runs, 0, topic.count).as_ref(), Ok(&runs));
            }
        }
        let frame = send_batch();
        let (sending, _) = Sending::open(&frame, &Limits::MESH, &[0; 32]);
        for runs in mangled(&sending.topics[0].runs.to_vec(&frame)) {
            let _ = slice_runs(&runs, 1, 1);
        }
    }
}
