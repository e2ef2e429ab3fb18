//! Reads a page of a journal and checks every block in it, without taking the columns apart.
//!
//! It must never let a block through that `columns` could not read: what is durable must be exportable.

use super::wire::{Field, Fields, Malformed};

/// The field of a JournalPage that holds a block.
pub const BLOCK: u32 = 4;

/// One block of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The field as it stands in the page, tag included.
    pub raw: &'a [u8],
    pub body: &'a [u8],
    /// The number of events that it holds.
    pub events: usize,
}

/// A page laid open.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page<'a> {
    pub instance: &'a str,
    pub epoch: u64,
    pub first_seq: u64,
    pub blocks: Vec<Block<'a>>,
    /// (epoch, last number) of lives that have ended.
    pub ended: Vec<(u64, u64)>,
}

impl<'a> Page<'a> {
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut page = Self::default();
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next()? {
            match field.number {
                1 => page.instance = field.text()?,
                2 => page.epoch = field.varint()?,
                3 => page.first_seq = field.varint()?,
                BLOCK => page.blocks.push(block(&field)?),
                6 => page.ended.push(ended(field.bytes()?)?),
                _ => return Err(Malformed),
            }
        }
        Ok(page)
    }
}

/// The blocks of a page's body: its `block` fields alone, as they stand in the page.
pub fn blocks(body: &[u8]) -> Result<Vec<Block<'_>>, Malformed> {
    let mut fields = Fields::new(body);
    let mut found = Vec::new();
    while let Some(field) = fields.next()? {
        if field.number != BLOCK {
            return Err(Malformed);
        }
        found.push(block(&field)?);
    }
    Ok(found)
}

fn block<'a>(field: &Field<'a>) -> Result<Block<'a>, Malformed> {
    let body = field.bytes()?;
    Ok(Block { raw: field.raw, body, events: Shape::of(body)?.events()? })
}

fn ended(bytes: &[u8]) -> Result<(u64, u64), Malformed> {
    let (mut epoch, mut last) = (0, 0);
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => epoch = field.varint()?,
            2 => last = field.varint()?,
            _ => return Err(Malformed),
        }
    }
    Ok((epoch, last))
}

/// A block taken apart into its columns, all of one length, with every number in its range.
#[derive(Debug, Default)]
pub struct Shape<'a> {
    pub service: &'a str,
    pub settled_unix_ns: i64,
    pub dictionary: Vec<&'a str>,
    pub command_id: &'a [u8],
    pub verdict: &'a [u8],
    pub sent: &'a [u8],
    pub kind: &'a [u8],
    pub lane: Vec<u32>,
    pub run: Vec<u32>,
    pub lanes: Vec<[u64; 10]>,
    pub runs: Vec<(u32, i64)>,
    pub details: Vec<Told<'a>>,
    pub seldom: Vec<Seldom<'a>>,
}

/// A Detail as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told<'a> {
    pub row: u32,
    pub alike: bool,
    pub retry_after_ms: u32,
    pub throttle_until_unix_ns: i64,
    pub source_share: f64,
    pub competing_share: f64,
    pub dispatch_volume: u64,
    pub count: u64,
    pub detail: &'a str,
}

/// An Event as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seldom<'a> {
    pub at_unix_ns: i64,
    pub name: &'a str,
    pub fields: &'a [u8],
}

impl<'a> Shape<'a> {
    pub fn of(block: &'a [u8]) -> Result<Self, Malformed> {
        let mut shape = Self::default();
        let mut fields = Fields::new(block);
        while let Some(field) = fields.next()? {
            match field.number {
                1 => shape.service = field.text()?,
                2 => shape.settled_unix_ns = field.varint()? as i64,
                3 => shape.dictionary.push(field.text()?),
                4 => shape.command_id = field.bytes()?,
                5 => shape.verdict = field.bytes()?,
                9 => shape.sent = field.bytes()?,
                12 => shape.kind = field.bytes()?,
                13 => shape.lane = numbers(field.bytes()?)?,
                14 => shape.run = numbers(field.bytes()?)?,
                15 => shape.lanes.push(lane(field.bytes()?)?),
                16 => {
                    let numbers = all::<3>(field.bytes()?)?;
                    shape.runs.push((u32::try_from(numbers[1]).map_err(|_| Malformed)?, numbers[2] as i64));
                }
                17 => shape.details.push(told(field.bytes()?)?),
                18 => shape.seldom.push(seldom(field.bytes()?)?),
                // A newer writer's; its rows are as good as before.
                _ => {}
            }
        }
        shape.fits().then_some(shape).ok_or(Malformed)
    }

    fn fits(&self) -> bool {
        let rows = self.verdict.len();
        let words = self.dictionary.len() as u64;
        self.command_id.len() == rows * 16
            && self.sent.len() == rows * 8
            && (self.kind.is_empty() || self.kind.len() == rows)
            && self.lane.len() == rows
            && self.run.len() == rows
            && self.lane.iter().all(|lane| (*lane as usize) < self.lanes.len())
            && self.run.iter().all(|run| (*run as usize) < self.runs.len())
            && self.lanes.iter().all(|lane| lane[1..5].iter().all(|word| *word < words.max(1)))
            && self.runs.iter().all(|run| u64::from(run.0) < words.max(1))
            && self.details.iter().all(|detail| (detail.row as usize) < rows)
            && (words > 0 || rows == 0)
    }

    /// Rows and seldom events together.
    pub fn events(&self) -> Result<usize, Malformed> {
        Ok(self.verdict.len() + self.seldom.len())
    }

    pub fn word(&self, place: u64) -> &'a str {
        self.dictionary.get(place as usize).copied().unwrap_or_default()
    }
}

fn numbers(bytes: &[u8]) -> Result<Vec<u32>, Malformed> {
    // Nearly always below 128, one byte each.
    let mut found = Vec::with_capacity(bytes.len());
    let (mut number, mut shift) = (0u64, 0);
    for byte in bytes {
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            found.push(u32::try_from(number).map_err(|_| Malformed)?);
            (number, shift) = (0, 0);
        } else {
            shift += 7;
            if shift > 28 {
                return Err(Malformed);
            }
        }
    }
    if shift == 0 { Ok(found) } else { Err(Malformed) }
}

/// Fields 1 to N - 1 of a message of numbers, each in the place of its number.
fn all<const N: usize>(bytes: &[u8]) -> Result<[u64; N], Malformed> {
    let mut found = [0; N];
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next()? {
        if let Some(place) = found.get_mut(field.number as usize) {
            *place = field.varint()?;
        }
    }
    Ok(found)
}

fn lane(bytes: &[u8]) -> Result<[u64; 10], Malformed> {
    all::<10>(bytes)
}

fn told(bytes: &[u8]) -> Result<Told<'_>, Malformed> {
    let mut told = Told::default();
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => told.row = u32::try_from(field.varint()?).map_err(|_| Malformed)?,
            2 => told.alike = field.varint()? != 0,
            3 => told.retry_after_ms = u32::try_from(field.varint()?).map_err(|_| Malformed)?,
            4 => told.throttle_until_unix_ns = field.varint()? as i64,
            5 => told.source_share = field.double()?,
            6 => told.competing_share = field.double()?,
            7 => told.dispatch_volume = field.varint()?,
            8 => told.count = field.varint()?,
            9 => told.detail = field.text()?,
            _ => {}
        }
    }
    Ok(told)
}

fn seldom(bytes: &[u8]) -> Result<Seldom<'_>, Malformed> {
    let mut found = Seldom::default();
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => found.at_unix_ns = field.varint()? as i64,
            2 => found.name = field.text()?,
            3 => found.fields = field.bytes()?,
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::telemetry::{Detail, Row, TelemetryBlock};
    use super::super::testing::mangled;
    use super::super::wire::{put_bytes, put_number};
    use super::*;

    fn page() -> Vec<u8> {
        let mut block = TelemetryBlock::new("fast", 2);
        let (lane, run) = (block.lane("acme/shop", "bot", "say"), block.add_run("hmac-v1", 7));
        block.push(Row { lane, run, verdict: 1, ..Row::default() });
        block.push_with(
            Row { lane, run, verdict: 64, ..Row::default() },
            Detail { retry_after_ms: 9, source_share: 0.5, ..Detail::default() },
        );
        let mut page = Vec::new();
        put_bytes(&mut page, 1, b"fast-0");
        put_number(&mut page, 2, 77);
        put_number(&mut page, 3, 11);
        put_bytes(&mut page, BLOCK, &block.write(5));
        page
    }

    #[test]
    fn a_page_tells_what_is_in_it() {
        let bytes = page();
        let page = Page::read(&bytes).unwrap();
        assert_eq!((page.instance, page.epoch, page.first_seq), ("fast-0", 77, 11));
        assert_eq!(page.blocks.iter().map(|block| block.events).collect::<Vec<_>>(), [2]);
        let shape = Shape::of(page.blocks[0].body).unwrap();
        assert_eq!((shape.service, shape.settled_unix_ns, shape.verdict), ("fast", 5, &[1, 64][..]));
        assert_eq!((shape.details[0].row, shape.details[0].source_share), (1, 0.5));
        assert_eq!(blocks(page.blocks[0].raw).unwrap(), page.blocks);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for damaged in mangled(&page()) {
            if let Ok(page) = Page::read(&damaged) {
                for block in page.blocks {
                    assert!(Shape::of(block.body).is_ok());
                }
            }
        }
    }
}
