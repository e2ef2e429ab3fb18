//! A part of a snapshot: a table of strings and columns of numbers, compressed as one block.
//!
//! Readers verify signature and hash before these bytes get here; still nothing in here trusts them. A bad
//! part is an error, never a panic, and a claimed length never allocates more than the bytes could hold.
//!
//! ```text
//! magic 8 | format 2 | kind 1 | codec 1 | rows 4 | version 8 | epoch 8 | strings 4 | zero 4 | body length 8
//! body, LZ4: string lengths (u16) | strings | columns
//! ```
//!
//! Little endian. A number of a column is spread over planes, lowest bytes first, so that the zeros of small
//! numbers stand together and vanish in the compression.

use std::fmt;

use super::intern::Interner;

pub const MAGIC: [u8; 8] = *b"SNAVSNAP";
pub const FORMAT: u16 = 2;
const LZ4: u8 = 1;
const HEADER: usize = 48;
const MAX_ROWS: u32 = 1 << 24;
const MAX_STRINGS: u32 = 1 << 24;
const MAX_STRING: u16 = 512;
const MAX_BODY: u64 = 1 << 29;
/// LZ4 cannot say more than this with one byte.
const MAX_EXPANSION: u64 = 255;

/// The kind of the rows of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// target, name, topic, queue kind, profile, dedupe mode, drain seconds, end (unix ns; 0 lasts),
    /// flags (1 limited, 2 the limit only watches, 4 cold-only); of fairness: window seconds, dominant share and
    /// competing share (bits of a double), competitors, minimum volume, ban seconds
    Routes,
    /// source, target, name, version
    Acl,
    /// source
    Suspensions,
    /// source, target, name (`*` both for every route), list, end (unix ns; 0 lasts)
    Bans,
    /// source, target, name, profile (0 is the route's), end (unix ns; 0 lasts), flags (1 limited, 2 the limit only
    /// watches). A row is of a right, with a profile or an end of its own, or of the source's own limit.
    Terms,
}

impl Kind {
    fn from_wire(number: u8) -> Option<Self> {
        [Self::Routes, Self::Acl, Self::Suspensions, Self::Bans, Self::Terms]
            .into_iter()
            .find(|kind| kind.number() == number)
    }

    const fn number(self) -> u8 {
        match self {
            Self::Routes => 1,
            Self::Acl => 2,
            Self::Suspensions => 3,
            Self::Bans => 4,
            Self::Terms => 5,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::Acl => "acl",
            Self::Suspensions => "suspensions",
            Self::Bans => "bans",
            Self::Terms => "terms",
        }
    }

    /// Bytes of each column's numbers, in order.
    const fn widths(self) -> &'static [usize] {
        match self {
            Self::Routes => &[4, 4, 4, 1, 1, 1, 4, 8, 1, 4, 8, 8, 4, 4, 4],
            Self::Acl => &[4, 4, 4, 8],
            Self::Suspensions => &[4],
            Self::Bans => &[4, 4, 4, 1, 8],
            Self::Terms => &[4, 4, 4, 1, 8, 1],
        }
    }

    fn row_bytes(self) -> u64 {
        self.widths().iter().map(|width| *width as u64).sum()
    }
}

/// Error of bytes that are not a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    Header,
    Format,
    Kind,
    Bounds,
    Body,
    Text,
    Row,
    Duplicate,
    Mixed,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Header => "no part of a snapshot begins like this",
            Self::Format => "the part is of a format that this program does not know",
            Self::Kind => "the part holds something else than it should",
            Self::Bounds => "the part claims more than it can hold",
            Self::Body => "the part's body cannot be unpacked",
            Self::Text => "a string of the part is not a name",
            Self::Row => "a row of the part says something impossible",
            Self::Duplicate => "two rows of the part have the same key",
            Self::Mixed => "the parts belong to different snapshots",
        })
    }
}

impl std::error::Error for Unreadable {}

/// The header of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub rows: u32,
    pub version: u64,
    pub epoch: u64,
    strings: u32,
    body_bytes: u64,
}

impl Header {
    pub fn read(part: &[u8]) -> Result<Self, Unreadable> {
        let head = part.get(..HEADER).ok_or(Unreadable::Header)?;
        let number = |from: usize, width: usize| {
            head[from..from + width].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        if head[..8] != MAGIC {
            return Err(Unreadable::Header);
        }
        if number(8, 2) != u64::from(FORMAT) || head[11] != LZ4 || number(36, 4) != 0 {
            return Err(Unreadable::Format);
        }
        let header = Self {
            kind: Kind::from_wire(head[10]).ok_or(Unreadable::Kind)?,
            rows: number(12, 4) as u32,
            version: number(16, 8),
            epoch: number(24, 8),
            strings: number(32, 4) as u32,
            body_bytes: number(40, 8),
        };
        let packed = (part.len() - HEADER) as u64;
        let least = u64::from(header.strings) * 2 + u64::from(header.rows) * header.kind.row_bytes();
        let possible = header.rows <= MAX_ROWS
            && header.strings <= MAX_STRINGS
            && header.body_bytes <= MAX_BODY
            && header.body_bytes <= packed.saturating_mul(MAX_EXPANSION)
            && header.body_bytes >= least;
        if possible { Ok(header) } else { Err(Unreadable::Bounds) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[self.kind.number(), LZ4]);
        out.extend_from_slice(&self.rows.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.strings.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.body_bytes.to_le_bytes());
    }
}

/// A part, unpacked and with its lengths checked; its rows are not looked at yet.
#[derive(Debug)]
pub struct Part {
    pub header: Header,
    body: Vec<u8>,
    /// Offset of each string, and the end of the last one.
    starts: Vec<u32>,
    /// Offset of each column.
    columns: Vec<usize>,
}

impl Part {
    pub fn open(part: &[u8], kind: Kind) -> Result<Self, Unreadable> {
        let header = Header::read(part)?;
        if header.kind != kind {
            return Err(Unreadable::Kind);
        }
        let mut body = vec![0; header.body_bytes as usize];
        let packed = part.get(HEADER..).unwrap_or_default();
        match lz4_flex::block::decompress_into(packed, &mut body) {
            Ok(length) if length == body.len() => {}
            _ => return Err(Unreadable::Body),
        }
        let starts = strings(&body, header.strings as usize)?;
        let mut at = starts.last().map_or(0, |end| *end as usize);
        let mut columns = Vec::with_capacity(kind.widths().len());
        for width in kind.widths() {
            columns.push(at);
            at = at.saturating_add(width * header.rows as usize);
        }
        if at != body.len() {
            return Err(Unreadable::Bounds);
        }
        Ok(Self { header, body, starts, columns })
    }

    /// Distinct strings.
    pub fn strings(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The string with this number.
    pub fn text(&self, at: u32) -> Result<&str, Unreadable> {
        let at = at as usize;
        let (Some(from), Some(to)) = (self.starts.get(at), self.starts.get(at + 1)) else {
            return Err(Unreadable::Row);
        };
        let text = self.body.get(*from as usize..*to as usize).ok_or(Unreadable::Bounds)?;
        std::str::from_utf8(text).map_err(|_| Unreadable::Text)
    }

    /// The number in a row of a column; 0 beyond either, which cannot be asked for.
    #[inline]
    pub fn number(&self, column: usize, row: u32) -> u64 {
        let (Some(at), Some(width)) = (self.columns.get(column), self.header.kind.widths().get(column))
        else {
            return 0;
        };
        let (rows, row) = (self.header.rows as usize, row as usize);
        (0..*width).rev().fold(0, |sum, plane| {
            sum << 8 | u64::from(self.body.get(at + plane * rows + row).copied().unwrap_or(0))
        })
    }

    /// The numbers of a column from row `from` on, as many as `out` has room for; for those who read all of them.
    /// Plane by plane, which costs a fraction of as many calls of `number`.
    pub fn numbers(&self, column: usize, from: u32, out: &mut [u64]) {
        out.fill(0);
        let (Some(at), Some(width)) = (self.columns.get(column), self.header.kind.widths().get(column))
        else {
            return;
        };
        let rows = self.header.rows as usize;
        for plane in 0..*width {
            let plane_at = at + plane * rows;
            let bytes = self.body.get(plane_at + from as usize..plane_at + rows).unwrap_or_default();
            for (number, byte) in out.iter_mut().zip(bytes) {
                *number |= u64::from(*byte) << (8 * plane);
            }
        }
    }

    /// As `number`, for columns of string numbers.
    #[inline]
    pub fn id(&self, column: usize, row: u32) -> u32 {
        self.number(column, row) as u32
    }
}

/// Offsets of the strings of a body, and the end of the last one. Every string is checked to be a name.
fn strings(body: &[u8], count: usize) -> Result<Vec<u32>, Unreadable> {
    let (low, rest) = body.split_at_checked(count).ok_or(Unreadable::Bounds)?;
    let (high, text) = rest.split_at_checked(count).ok_or(Unreadable::Bounds)?;
    let mut starts = Vec::with_capacity(count + 1);
    let mut at = 2 * count;
    for (low, high) in low.iter().zip(high) {
        let length = u16::from_le_bytes([*low, *high]);
        if length == 0 || length > MAX_STRING {
            return Err(Unreadable::Text);
        }
        starts.push(at as u32);
        at += usize::from(length);
    }
    starts.push(at as u32);
    let text = text.get(..at - 2 * count).ok_or(Unreadable::Bounds)?;
    // Names have no spaces and no control characters, and all of them are ASCII.
    if text.iter().all(u8::is_ascii_graphic) { Ok(starts) } else { Err(Unreadable::Text) }
}

/// A part that is being written.
#[derive(Debug)]
pub struct Table {
    kind: Kind,
    strings: Interner,
    rows: u32,
    /// One per byte of a row.
    planes: Vec<Vec<u8>>,
}

impl Table {
    pub fn new(kind: Kind) -> Self {
        let planes = vec![Vec::new(); kind.row_bytes() as usize];
        Self { kind, strings: Interner::default(), rows: 0, planes }
    }

    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The number of a string; what readers would refuse as a name is refused here.
    pub fn string(&mut self, text: &str) -> Result<u64, Unreadable> {
        let length = text.len();
        if length == 0
            || length > usize::from(MAX_STRING)
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(Unreadable::Text);
        }
        Ok(u64::from(self.strings.hold(text)))
    }

    /// One number per column.
    pub fn row(&mut self, numbers: &[u64]) -> Result<(), Unreadable> {
        if self.rows >= MAX_ROWS || self.strings.len() >= MAX_STRINGS as usize {
            return Err(Unreadable::Bounds);
        }
        let mut planes = self.planes.iter_mut();
        for (number, width) in numbers.iter().zip(self.kind.widths()) {
            for byte in number.to_le_bytes().into_iter().take(*width) {
                if let Some(plane) = planes.next() {
                    plane.push(byte);
                }
            }
        }
        self.rows += 1;
        Ok(())
    }

    pub fn write(&self, version: u64, epoch: u64) -> Result<Vec<u8>, Unreadable> {
        let mut body = Vec::new();
        let lengths = || self.strings.texts().map(|text| (text.len() as u16).to_le_bytes());
        body.extend(lengths().map(|length| length[0]));
        body.extend(lengths().map(|length| length[1]));
        self.strings.texts().for_each(|text| body.extend_from_slice(text.as_bytes()));
        self.planes.iter().for_each(|plane| body.extend_from_slice(plane));
        let header = Header {
            kind: self.kind,
            rows: self.rows,
            version,
            epoch,
            strings: self.strings.len() as u32,
            body_bytes: body.len() as u64,
        };
        if header.body_bytes > MAX_BODY {
            return Err(Unreadable::Bounds);
        }
        let mut out = Vec::with_capacity(HEADER + body.len() / 2);
        header.write(&mut out);
        out.extend_from_slice(&lz4_flex::block::compress(&body));
        Ok(out)
    }
}

/// Sources of a suspensions part.
pub fn suspended(part: &[u8]) -> Result<Vec<String>, Unreadable> {
    let part = Part::open(part, Kind::Suspensions)?;
    (0..part.header.rows).map(|row| part.text(part.id(0, row)).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::mangled;
    use super::*;

    fn acl(rows: u64) -> Vec<u8> {
        let mut table = Table::new(Kind::Acl);
        for row in 0..rows {
            let source = table.string(&format!("tenant/service-{}", row / 3)).unwrap();
            let (target, name) =
                (table.string("bot").unwrap(), table.string(&format!("say{}", row % 3)).unwrap());
            table.row(&[source, target, name, row << 33]).unwrap();
        }
        table.write(7, 1 << 62).unwrap()
    }

    #[test]
    fn a_part_says_what_was_written() {
        let written = acl(1000);
        let part = Part::open(&written, Kind::Acl).unwrap();
        assert_eq!((part.header.rows, part.header.version, part.header.epoch), (1000, 7, 1 << 62));
        for row in 0..1000 {
            assert_eq!(part.text(part.id(0, row)).unwrap(), format!("tenant/service-{}", row / 3));
            assert_eq!(part.text(part.id(2, row)).unwrap(), format!("say{}", row % 3));
            assert_eq!(part.number(3, row), u64::from(row) << 33);
        }
        for (column, from) in [(0, 0), (2, 990), (3, 500), (3, 1000), (4, 0)] {
            let mut read = [7; 24];
            part.numbers(column, from, &mut read);
            let one_by_one =
                (from..from + 24).map(|row| if row < 1000 { part.number(column, row) } else { 0 });
            assert!(one_by_one.eq(read), "column {column} from row {from}");
        }
        assert!(part.text(part.strings() as u32).is_err());
        assert_eq!(Part::open(&written, Kind::Routes).err(), Some(Unreadable::Kind));
    }

    #[test]
    fn an_empty_part_is_a_part() {
        let written = Table::new(Kind::Suspensions).write(0, 1).unwrap();
        assert_eq!(suspended(&written), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_name_is_not_written() {
        let mut table = Table::new(Kind::Suspensions);
        for text in ["", "a b", "a\nb", "é", &"x".repeat(513)] {
            assert_eq!(table.string(text), Err(Unreadable::Text));
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_allocate_without_end() {
        let written = acl(40);
        for damaged in mangled(&written) {
            if let Ok(part) = Part::open(&damaged, Kind::Acl) {
                for row in 0..part.header.rows {
                    let _ = (0..3).map(|column| part.text(part.id(column, row))).collect::<Vec<_>>();
                }
            }
        }
        let mut bomb = written.clone();
        bomb[40..48].copy_from_slice(&(MAX_BODY).to_le_bytes());
        assert_eq!(Part::open(&bomb, Kind::Acl).err(), Some(Unreadable::Bounds));
    }
}
