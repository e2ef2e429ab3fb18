//! A batch of runs laid open: every command with its place, its run and its *lane*.
//!
//! A lane is one (source, target, name, escalation reason). What Fast and Slow decide depends on nothing else,
//! so they decide once per lane and never once per command. Nothing here keeps a reference to the frame.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::frames::{Command, FrameRefused, Header, Limits, RunHead, Span, Walk, read_frame, read_run};
use super::ledger::Ledger;
use super::sampled::Sampled;
use super::telemetry::{Facts, Row, TelemetryBlock, uuid_bytes};
use super::timestamp;
use super::verdict::{MALFORMED, OVERSIZED};
use super::wire::{Fields, Malformed};

/// The lane of a command that does not parse.
pub const UNREADABLE: u32 = u32::MAX;

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Its `command` field, tag included.
    pub raw: Span,
    pub run: u32,
    pub lane: u32,
}

/// Commands that share everything a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    pub source: Span,
    pub target: Span,
    pub name: Span,
    /// Reason of the escalation; 0 in a batch from Shield.
    pub reason: u8,
    pub count: u32,
    /// Number of the block's lane that holds its facts.
    pub told: u32,
    /// Number of its first command.
    pub first: u32,
    /// Dictionary entries of source, target and name.
    pub places: [u32; 3],
}

impl Lane {
    #[inline]
    fn is(&self, frame: &[u8], key: (&[u8], &[u8], &[u8], u8)) -> bool {
        self.reason == key.3
            && self.name.of(frame) == key.2
            && self.target.of(frame) == key.1
            && self.source.of(frame) == key.0
    }
}

/// A frame laid open.
#[derive(Debug)]
pub struct ParsedBatch {
    pub header: Header,
    /// 0, or why the frame as a whole was refused; then there are no commands.
    pub frame_code: u8,
    pub runs: Vec<RunHead>,
    pub items: Vec<Item>,
    pub lanes: Vec<Lane>,
    /// One row per command, in order.
    pub block: TelemetryBlock,
    /// Commands that do not parse.
    pub unreadable: u32,
    /// Commands whose trace is sampled.
    pub sampled: Sampled,
    by_key: HashTable<u32>,
    seed: RandomState,
}

impl ParsedBatch {
    fn empty(service: &'static str, rows: usize) -> Self {
        Self {
            header: Header::default(),
            frame_code: 0,
            runs: Vec::new(),
            items: Vec::with_capacity(rows),
            lanes: Vec::new(),
            block: TelemetryBlock::new(service, rows),
            unreadable: 0,
            sampled: Sampled::default(),
            by_key: HashTable::new(),
            seed: RandomState::default(),
        }
    }

    /// Opens a Batch.
    pub fn open_batch(frame: &[u8], limits: &Limits, service: &'static str) -> Self {
        Self::open(frame, limits, service, |parsed, run| parsed.add_run(frame, run, 0, limits))
    }

    /// Opens an ArbitrationBatch.
    pub fn open_escalations(frame: &[u8], limits: &Limits, service: &'static str) -> Self {
        Self::open(frame, limits, service, |parsed, escalation| {
            let mut reason = None;
            let mut walk = Walk::new(frame, escalation);
            while let Some(placed) = walk.next()? {
                match (placed.field.number, reason) {
                    (1, None) => {
                        let number = u8::try_from(placed.field.varint()?).map_err(|_| Malformed)?;
                        reason = Some(number).filter(|number| *number != 0);
                    }
                    // The reason stands before the runs: nothing in the mesh writes it otherwise.
                    (2, Some(reason)) => {
                        placed.field.bytes()?;
                        parsed.add_run(frame, placed.body, reason, limits)?;
                    }
                    _ => return Err(FrameRefused(MALFORMED)),
                }
            }
            Ok(())
        })
    }

    fn open(
        frame: &[u8],
        limits: &Limits,
        service: &'static str,
        mut body: impl FnMut(&mut Self, Span) -> Result<(), FrameRefused>,
    ) -> Self {
        // A guess that is right for the usual command spares the growing; a wrong one costs little.
        let mut parsed = Self::empty(service, (frame.len() / 256).min(limits.max_batch_commands));
        let (header, outcome) = read_frame(frame, limits, |span| body(&mut parsed, span));
        if let Err(FrameRefused(code)) = outcome {
            parsed = Self::empty(service, 0);
            parsed.frame_code = code;
        }
        parsed.header = header;
        parsed
    }

    /// A ledger in which the commands that do not parse are decided.
    pub fn ledger(&self) -> Ledger {
        if self.frame_code != 0 {
            return Ledger::refused_frame(self.header.batch_seq, self.frame_code);
        }
        let mut ledger = Ledger::new(self.header.batch_seq, self.items.len());
        if self.unreadable > 0 {
            for (index, item) in self.items.iter().enumerate() {
                if item.lane == UNREADABLE {
                    ledger.refuse(index, MALFORMED);
                }
            }
        }
        ledger
    }

    fn add_run(&mut self, frame: &[u8], run: Span, reason: u8, limits: &Limits) -> Result<(), FrameRefused> {
        let (head, mut commands) = read_run(frame, run)?;
        let number = self.runs.len() as u32;
        self.runs.push(head);
        let run = self.block.add_run(text(head.key_version.of(frame))?, head.admitted_unix_ns);
        let mut unread = None;
        while let Some(Command { raw, body }) = commands.next()? {
            if self.items.len() >= limits.max_batch_commands {
                return Err(FrameRefused(OVERSIZED));
            }
            let index = self.items.len() as u32;
            let mut row = Row { index, run, ..Row::default() };
            let lane = Essentials::read(frame, body)
                .and_then(|essentials| {
                    row.command_id = uuid_bytes(essentials.id).unwrap_or_default();
                    row.sent_unix_ns = timestamp::parse(essentials.timestamp).unwrap_or_default();
                    self.lane(frame, head.source, &essentials, reason)
                })
                .unwrap_or(UNREADABLE);
            if let Some(lane) = self.lanes.get_mut(lane as usize) {
                lane.count += 1;
                row.lane = lane.told;
            } else {
                self.unreadable += 1;
                row.lane = match unread {
                    Some(lane) => lane,
                    None => {
                        let source = self.intern(head.source.of(frame))?;
                        let facts = Facts { source, escalation: reason, ..Facts::default() };
                        *unread.insert(self.block.add_lane(facts))
                    }
                };
            }
            self.sampled.look(index, body.of(frame));
            self.block.push(row);
            self.items.push(Item { raw, run: number, lane });
        }
        Ok(())
    }

    /// The lane of a command, made if there is none yet.
    #[inline]
    fn lane(
        &mut self,
        frame: &[u8],
        source: Span,
        command: &Essentials,
        reason: u8,
    ) -> Result<u32, Malformed> {
        let key = (source.of(frame), command.target.of(frame), command.name.of(frame), reason);
        // Most batches say one thing a thousand times.
        if let Some(last) = self.items.last()
            && let Some(lane) = self.lanes.get(last.lane as usize)
            && lane.is(frame, key)
        {
            return Ok(last.lane);
        }
        let hash = self.seed.hash_one(key);
        let lanes = &self.lanes;
        if let Some(lane) = self.by_key.find(hash, |lane| lanes[*lane as usize].is(frame, key)) {
            return Ok(*lane);
        }
        if key.1.is_empty() || key.2.is_empty() {
            return Err(Malformed);
        }
        let places = [self.intern(key.0)?, self.intern(key.1)?, self.intern(key.2)?];
        let facts = Facts {
            source: places[0],
            target: places[1],
            name: places[2],
            escalation: reason,
            ..Facts::default()
        };
        let told = self.block.add_lane(facts);
        let lane = self.lanes.len() as u32;
        let Essentials { target, name, .. } = *command;
        let first = self.items.len() as u32;
        self.lanes.push(Lane { source, target, name, reason, count: 0, told, first, places });
        let (seed, lanes) = (&self.seed, &self.lanes);
        self.by_key.insert_unique(hash, lane, |lane| {
            let lane = &lanes[*lane as usize];
            seed.hash_one((lane.source.of(frame), lane.target.of(frame), lane.name.of(frame), lane.reason))
        });
        Ok(lane)
    }

    fn intern(&mut self, text: &[u8]) -> Result<u32, Malformed> {
        Ok(self.block.intern(self::text(text)?))
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

/// The fields of a command that the mesh behind Shield needs. Shield has checked the rest.
struct Essentials<'a> {
    id: &'a [u8],
    timestamp: &'a [u8],
    target: Span,
    name: Span,
}

impl<'a> Essentials<'a> {
    #[inline]
    fn read(frame: &'a [u8], command: Span) -> Result<Self, Malformed> {
        let mut found = Self { id: &[], timestamp: &[], target: Span::default(), name: Span::default() };
        let mut fields = Fields::new(command.of(frame));
        let (mut end, mut seen) = (command.start, 0u16);
        while let Some(field) = fields.next()? {
            let body = field.bytes()?;
            end += field.raw.len() as u32;
            // A field twice, or one that no signature covers: two readers could disagree about it.
            if field.number > 11 || seen & (1 << field.number) != 0 {
                return Err(Malformed);
            }
            seen |= 1 << field.number;
            match field.number {
                1 => found.id = body,
                2 => found.timestamp = body,
                7 => found.target = Span { start: end - body.len() as u32, end },
                8 => found.name = Span { start: end - body.len() as u32, end },
                _ => {}
            }
        }
        Ok(found)
    }
}
