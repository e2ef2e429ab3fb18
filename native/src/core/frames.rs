//! Reads the frames that carry runs of commands.
//!
//! Only what says who sent what is looked at; a run that does not say it is refused with its whole frame.

use super::verdict::{MALFORMED, OVERSIZED};
use super::wire::{Field, Fields, Malformed, Value};

/// Refusal of a whole frame: a Verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRefused(pub u8);

impl From<Malformed> for FrameRefused {
    fn from(_: Malformed) -> Self {
        Self(MALFORMED)
    }
}

/// The bounds that a frame is held to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_batch_bytes: usize,
    pub max_batch_commands: usize,
}

impl Limits {
    /// Between services: batches coalesce, and a producer's full batch of 1 MiB also carries a head per run and topic,
    /// at the worst one for each command.
    pub const MESH: Self = Self { max_batch_bytes: (1 << 20) + (32 << 10), max_batch_commands: 4000 };
    /// For what this process wrote itself.
    pub const UNBOUNDED: Self = Self { max_batch_bytes: usize::MAX, max_batch_commands: usize::MAX };
}

/// A stretch of a frame; unlike a slice it can be kept without the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// The place of `part` in `frame`, which contains it; the frame's reader keeps it under 4 GiB.
    #[inline]
    pub fn within(frame: &[u8], part: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize) as u32;
        Self { start, end: start.wrapping_add(part.len() as u32) }
    }

    #[inline]
    pub fn of<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }
}

/// A field walk that knows where in the frame it is.
pub struct Walk<'a> {
    fields: Fields<'a>,
    at: u32,
}

/// A field with its place in the frame; `body` is empty for numbers.
pub struct Placed<'a> {
    pub field: Field<'a>,
    pub raw: Span,
    pub body: Span,
}

impl<'a> Walk<'a> {
    /// Walks `span` of `frame`, which its reader holds under 4 GiB.
    pub fn new(frame: &'a [u8], span: Span) -> Self {
        Self { fields: Fields::new(span.of(frame)), at: span.start }
    }

    #[inline]
    pub fn next(&mut self) -> Result<Option<Placed<'a>>, Malformed> {
        let Some(field) = self.fields.next()? else { return Ok(None) };
        let raw = Span { start: self.at, end: self.at + field.raw.len() as u32 };
        self.at = raw.end;
        let length = if let Value::Bytes(body) = field.value { body.len() as u32 } else { 0 };
        Ok(Some(Placed { field, raw, body: Span { start: raw.end - length, end: raw.end } }))
    }
}

/// The header of every batch; zeros when it carried none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub batch_seq: u64,
    pub budget_ms: u32,
}

impl Header {
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut header = Self::default();
        let mut fields = Fields::new(bytes);
        let mut last = 0;
        while let Some(field) = fields.next()? {
            if field.number <= last {
                return Err(Malformed);
            }
            last = field.number;
            match field.number {
                1 => header.batch_seq = field.varint()?,
                2 => header.budget_ms = u32::try_from(field.varint()?).map_err(|_| Malformed)?,
                _ => return Err(Malformed),
            }
        }
        Ok(header)
    }
}

/// Walks Batch, ArbitrationBatch or SendBatch: calls `body` with every field 3.
///
/// The header comes back even with a refusal, as far as it could be read, so that the refusal can be answered.
pub fn read_frame(
    frame: &[u8],
    limits: &Limits,
    body: impl FnMut(Span) -> Result<(), FrameRefused>,
) -> (Header, Result<(), FrameRefused>) {
    let mut header = None;
    let outcome = walk_frame(frame, limits, &mut header, body);
    (header.unwrap_or_default(), outcome)
}

fn walk_frame(
    frame: &[u8],
    limits: &Limits,
    header: &mut Option<Header>,
    mut body: impl FnMut(Span) -> Result<(), FrameRefused>,
) -> Result<(), FrameRefused> {
    let end = u32::try_from(frame.len()).map_err(|_| FrameRefused(OVERSIZED))?;
    let oversized = frame.len() > limits.max_batch_bytes;
    let mut walk = Walk::new(frame, Span { start: 0, end });
    while let Some(placed) = walk.next()? {
        match placed.field.number {
            2 if header.is_none() => *header = Some(Header::read(placed.field.bytes()?)?),
            _ if oversized => break,
            3 => {
                placed.field.bytes()?;
                body(placed.body)?;
            }
            _ => return Err(FrameRefused(MALFORMED)),
        }
    }
    if oversized { Err(FrameRefused(OVERSIZED)) } else { Ok(()) }
}

/// The source of a run, and the bytes that name it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunHead {
    /// Everything before the first command.
    pub head: Span,
    pub source: Span,
    pub key_version: Span,
    pub admitted_unix_ns: i64,
}

/// The commands of one run, in order.
pub struct Commands<'a> {
    walk: Walk<'a>,
    first: Option<Command>,
}

/// One `command` field of a run: with its tag, and without.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub raw: Span,
    pub body: Span,
}

/// Reads a run's head and prepares to read its commands.
///
/// The head must stand before the commands, in order and each field once, so that it can be copied as it is.
/// A run without a source is refused: its commands could not be attributed.
pub fn read_run(frame: &[u8], run: Span) -> Result<(RunHead, Commands<'_>), Malformed> {
    let mut head = RunHead { head: Span { start: run.start, end: run.start }, ..RunHead::default() };
    let mut commands = Commands { walk: Walk::new(frame, run), first: None };
    let mut last = 0;
    while let Some(Placed { field, raw, body }) = commands.walk.next()? {
        if field.number <= last {
            return Err(Malformed);
        }
        last = field.number;
        match field.number {
            1 => {
                field.text()?;
                head.source = body;
            }
            2 => {
                field.text()?;
                head.key_version = body;
            }
            3 => {
                field.text()?;
            }
            4 => head.admitted_unix_ns = field.varint()? as i64,
            5 => {
                field.bytes()?;
                commands.first = Some(Command { raw, body });
                break;
            }
            _ => return Err(Malformed),
        }
        head.head.end = raw.end;
    }
    if head.source.is_empty() {
        return Err(Malformed);
    }
    Ok((head, commands))
}

impl Commands<'_> {
    #[inline]
    pub fn next(&mut self) -> Result<Option<Command>, Malformed> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(Placed { field, raw, body }) = self.walk.next()? else { return Ok(None) };
        if field.number != 5 {
            return Err(Malformed);
        }
        field.bytes()?;
        Ok(Some(Command { raw, body }))
    }
}
