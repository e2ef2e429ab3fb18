//! What the mailbox must store of a SendBatch, and stretches of what it stored.
//!
//! Runs are re-tagged and never rewritten, so that what was stored is what is delivered.

use super::bundle::Bundle;
use super::frames::{Command, FrameRefused, Header, Limits, Span, Walk, read_frame, read_run};
use super::ledger::{Ledger, Part};
use super::verdict::{MALFORMED, OVERSIZED};
use super::wire::{Malformed, bytes_field_len, put_bytes};

/// `Parcel.run`: stored runs are exactly these fields.
const PARCEL_RUN: u32 = 5;

/// Commands for one topic.
#[derive(Debug, PartialEq, Eq)]
pub struct TopicRuns {
    pub topic: String,
    pub count: usize,
    /// Run messages as repeated field 5.
    pub runs: Vec<u8>,
}

/// An opened SendBatch.
#[derive(Debug)]
pub struct Sending {
    pub header: Header,
    pub frame_code: u8,
    pub topics: Vec<TopicRuns>,
}

impl Sending {
    /// Opens a frame; its ledger has one part per topic entry.
    pub fn open(frame: &[u8], limits: &Limits) -> (Self, Ledger) {
        let mut topics = Vec::new();
        let mut count = 0;
        let (header, outcome) = read_frame(frame, limits, |entry| {
            let topic = read_topic(frame, entry, limits.max_batch_commands - count)?;
            count += topic.count;
            topics.push(topic);
            Ok(())
        });
        if let Err(FrameRefused(frame_code)) = outcome {
            let ledger = Ledger::refused_frame(header.batch_seq, frame_code);
            return (Self { header, frame_code, topics: Vec::new() }, ledger);
        }
        let mut ledger = Ledger::new(header.batch_seq, count);
        let mut first = 0;
        for topic in &topics {
            let count = topic.count as u32;
            ledger.add_part(Part::Range { first, count });
            first += count;
        }
        (Self { header, frame_code: 0, topics }, ledger)
    }
}

fn read_topic(frame: &[u8], entry: Span, most: usize) -> Result<TopicRuns, FrameRefused> {
    let mut topic = None;
    let mut count = 0;
    let mut runs = Vec::new();
    let mut walk = Walk::new(frame, entry);
    while let Some(placed) = walk.next()? {
        match (placed.field.number, &topic) {
            (1, None) => topic = Some(placed.field.text()?).filter(|topic| !topic.is_empty()),
            // The topic stands before the runs: nothing in the mesh writes it otherwise.
            (2, Some(_)) => {
                placed.field.bytes()?;
                let before = count;
                let (_, mut commands) = read_run(frame, placed.body)?;
                while commands.next()?.is_some() {
                    count += 1;
                    if count > most {
                        return Err(FrameRefused(OVERSIZED));
                    }
                }
                if count > before {
                    runs.push(placed.body);
                }
            }
            _ => return Err(FrameRefused(MALFORMED)),
        }
    }
    let topic = topic.ok_or(FrameRefused(MALFORMED))?.to_owned();
    let mut out = Vec::with_capacity(runs.iter().map(|run| bytes_field_len(run.len())).sum());
    for run in runs {
        put_bytes(&mut out, PARCEL_RUN, run.of(frame));
    }
    Ok(TopicRuns { topic, count, runs: out })
}

/// The `run` fields for commands `first .. first + count` of stored runs. Asking for more than there is fails.
pub fn slice_runs(stored: &[u8], first: usize, count: usize) -> Result<Vec<u8>, Malformed> {
    let end = first.checked_add(count).ok_or(Malformed)?;
    let mut walk =
        Walk::new(stored, Span { start: 0, end: u32::try_from(stored.len()).map_err(|_| Malformed)? });
    let (mut heads, mut bundle) = (Vec::new(), Bundle::default());
    let mut index = 0;
    while let Some(placed) = walk.next()? {
        if placed.field.number != PARCEL_RUN {
            return Err(Malformed);
        }
        placed.field.bytes()?;
        let (head, mut commands) = read_run(stored, placed.body)?;
        let run = heads.len() as u32;
        heads.push(head);
        while let Some(Command { raw, .. }) = commands.next()? {
            if (first..end).contains(&index) {
                bundle.add(index as u32, run, raw);
            }
            index += 1;
        }
    }
    if end > index {
        return Err(Malformed);
    }
    let mut out = Vec::with_capacity(bundle.len(&heads));
    bundle.write(&mut out, PARCEL_RUN, stored, &heads);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::dispatch::{Dispatch, Profile, Route, RoutePhases};
    use super::super::testing::{batch, command, mangled};
    use super::*;

    fn send_batch() -> Vec<u8> {
        let dispatch = Dispatch::new(Limits::MESH, RoutePhases { fresh_ns: 1, stale_ns: 2 });
        for name in ["say", "go"] {
            let topic = Arc::from(format!("acme/{name}"));
            dispatch.put_route("bot", name, Route { queue: 0, topic, profile: Profile::Low, strict: false });
            dispatch.allow("acme/shop", "bot", name, 1);
        }
        dispatch.renewed(0);
        let commands = vec![command("bot", "say"), command("bot", "go"), command("bot", "say")];
        let frame = batch(&[("acme/shop", commands), ("acme/shop", vec![command("bot", "say")])]);
        let plan = dispatch.plan(&frame, 0);
        plan.sends.into_iter().next().unwrap().topics
    }

    #[test]
    fn topics_and_slices_hold_their_commands() {
        let (sending, ledger) = Sending::open(&send_batch(), &Limits::MESH);
        let told: Vec<_> = sending.topics.iter().map(|topic| (topic.topic.as_str(), topic.count)).collect();
        assert_eq!(told, [("acme/say", 3), ("acme/go", 1)]);
        assert_eq!((ledger.count(), ledger.parts()), (4, 2));
        let runs = &sending.topics[0].runs;
        assert_eq!(slice_runs(runs, 0, 3).as_ref(), Ok(runs));
        let [head, tail] = [slice_runs(runs, 0, 2).unwrap(), slice_runs(runs, 2, 1).unwrap()];
        assert_eq!([head, tail].concat(), *runs);
        assert_eq!(slice_runs(runs, 1, 0), Ok(Vec::new()));
        assert_eq!(slice_runs(runs, 1, 3), Err(Malformed));
        assert_eq!(slice_runs(runs, usize::MAX, 1), Err(Malformed));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&send_batch()) {
            let (sending, ledger) = Sending::open(&frame, &Limits::MESH);
            assert_eq!(sending.topics.iter().map(|topic| topic.count).sum::<usize>(), ledger.count());
            for topic in &sending.topics {
                assert_eq!(slice_runs(&topic.runs, 0, topic.count).as_ref(), Ok(&topic.runs));
            }
        }
        let (sending, _) = Sending::open(&send_batch(), &Limits::MESH);
        for runs in mangled(&sending.topics[0].runs) {
            let _ = slice_runs(&runs, 1, 1);
        }
    }
}
