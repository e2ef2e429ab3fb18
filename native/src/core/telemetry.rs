//! Writes what became of a batch's commands as the columns of one TelemetryBlock.
//!
//! Gathers one small row per command and never a string twice; it must cost next to nothing on the warm path.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::wire::{put_bytes, put_number, put_varint, varint_len};

/// One command. `source`, `target` and `name` are numbers that `intern` gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Zeros where the command had no readable id.
    pub command_id: [u8; 16],
    /// 0 where unreadable.
    pub sent_unix_ns: i64,
    /// 0 where not admitted.
    pub admitted_unix_ns: i64,
    pub source: u32,
    pub target: u32,
    pub name: u32,
    /// The command's number in its batch, for a verdict that is known only later.
    pub index: u32,
    pub verdict: u8,
    /// 0 where not escalated.
    pub escalation: u8,
}

/// The rows of one batch with their strings.
#[derive(Debug)]
pub struct TelemetryBlock {
    service: &'static str,
    dictionary: Vec<Box<str>>,
    places: HashTable<u32>,
    /// Producers choose the strings: an unseeded hash would let one of them make every look-up slow.
    seed: RandomState,
    rows: Vec<Row>,
}

impl TelemetryBlock {
    pub fn new(service: &'static str, rows: usize) -> Self {
        let dictionary = vec![Box::from("")];
        let (places, seed) = (HashTable::new(), RandomState::default());
        Self { service, dictionary, places, seed, rows: Vec::with_capacity(rows) }
    }

    /// The number of `text` in this block's dictionary; 0 is the empty string.
    pub fn intern(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let (hash, dictionary) = (self.seed.hash_one(text), &self.dictionary);
        if let Some(place) = self.places.find(hash, |place| *dictionary[*place as usize] == *text) {
            return *place;
        }
        let place = self.dictionary.len() as u32;
        self.dictionary.push(Box::from(text));
        let (seed, dictionary) = (&self.seed, &self.dictionary);
        self.places.insert_unique(hash, place, |place| seed.hash_one(&*dictionary[*place as usize]));
        place
    }

    #[inline]
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Forgets the rows that another service will write.
    pub fn retain(&mut self, keep: impl FnMut(&Row) -> bool) {
        self.rows.retain(keep);
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Serialises the rows with the verdicts that they hold; empty when there are none.
    pub fn write(&self, settled_unix_ns: i64) -> Vec<u8> {
        self.write_as(settled_unix_ns, |row| row.verdict)
    }

    /// Serialises the rows with the verdicts that `verdict` gives; rows it gives 0 are not settled and left out.
    pub fn write_as(&self, settled_unix_ns: i64, verdict: impl Fn(&Row) -> u8) -> Vec<u8> {
        let codes: Vec<u8> = self.rows.iter().map(verdict).collect();
        if codes.contains(&0) {
            let settled: Vec<(Row, u8)> =
                self.rows.iter().copied().zip(codes).filter(|(_, code)| *code != 0).collect();
            let codes: Vec<u8> = settled.iter().map(|(_, code)| *code).collect();
            let rows: Vec<Row> = settled.into_iter().map(|(row, _)| row).collect();
            return self.columns(&rows, &codes, settled_unix_ns);
        }
        self.columns(&self.rows, &codes, settled_unix_ns)
    }

    fn columns(&self, rows: &[Row], codes: &[u8], settled_unix_ns: i64) -> Vec<u8> {
        if rows.is_empty() {
            return Vec::new();
        }
        let strings: usize = self.dictionary.iter().map(|text| text.len() + 6).sum();
        let mut out = Vec::with_capacity(96 + strings + rows.len() * (16 + 1 + 5 + 5 + 5 + 8 + 8 + 1));
        put_bytes(&mut out, 1, self.service.as_bytes());
        put_number(&mut out, 2, settled_unix_ns as u64);
        for text in &self.dictionary {
            put_bytes(&mut out, 3, text.as_bytes());
        }
        open_column(&mut out, 4, rows.len() * 16);
        for row in rows {
            out.extend_from_slice(&row.command_id);
        }
        put_bytes(&mut out, 5, codes);
        put_places(&mut out, 6, rows, |row| row.source);
        put_places(&mut out, 7, rows, |row| row.target);
        put_places(&mut out, 8, rows, |row| row.name);
        put_times(&mut out, 9, rows, |row| row.sent_unix_ns);
        put_times(&mut out, 10, rows, |row| row.admitted_unix_ns);
        open_column(&mut out, 11, rows.len());
        out.extend(rows.iter().map(|row| row.escalation));
        out
    }
}

fn open_column(out: &mut Vec<u8>, field: u32, length: usize) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, length as u64);
}

fn put_places(out: &mut Vec<u8>, field: u32, rows: &[Row], place: impl Fn(&Row) -> u32) {
    open_column(out, field, rows.iter().map(|row| varint_len(u64::from(place(row)))).sum());
    for row in rows {
        put_varint(out, u64::from(place(row)));
    }
}

fn put_times(out: &mut Vec<u8>, field: u32, rows: &[Row], time: impl Fn(&Row) -> i64) {
    open_column(out, field, rows.len() * 8);
    for row in rows {
        out.extend_from_slice(&time(row).to_le_bytes());
    }
}

/// The bytes of a UUID in lower-case text form.
#[inline]
pub fn uuid_bytes(text: &[u8]) -> Option<[u8; 16]> {
    // Where each byte's two digits stand; the dashes are at 8, 13, 18 and 23.
    const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
    let text: &[u8; 36] = text.try_into().ok()?;
    if text[8] != b'-' || text[13] != b'-' || text[18] != b'-' || text[23] != b'-' {
        return None;
    }
    let mut bytes = [0; 16];
    let mut worst = 0;
    for (byte, place) in bytes.iter_mut().zip(PLACES) {
        let (high, low) = (DIGITS[text[place] as usize], DIGITS[text[place + 1] as usize]);
        worst |= high | low;
        *byte = high << 4 | (low & 15);
    }
    (worst < 16).then_some(bytes)
}

/// Value of a lower-case hex digit; 255 for anything else.
static DIGITS: [u8; 256] = {
    let mut digits = [255; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

#[cfg(test)]
mod tests {
    use super::super::wire::Fields;
    use super::*;

    #[test]
    fn strings_are_interned_once() {
        let mut block = TelemetryBlock::new("fast", 2);
        assert_eq!(block.intern(""), 0);
        let first = block.intern("acme/billing");
        assert_eq!((block.intern("discord-bot"), block.intern("acme/billing"), first), (2, 1, 1));
    }

    #[test]
    fn unsettled_rows_are_left_out() {
        let mut block = TelemetryBlock::new("fast", 3);
        for index in 0..3 {
            block.push(Row { index, sent_unix_ns: i64::from(index), ..Row::default() });
        }
        let written = block.write_as(5, |row| if row.index == 1 { 0 } else { 1 });
        let mut fields = Fields::new(&written);
        let mut lengths = Vec::new();
        while let Some(field) = fields.next().unwrap() {
            if field.number > 3 {
                lengths.push((field.number, field.bytes().unwrap().len()));
            }
        }
        assert_eq!(lengths, [(4, 32), (5, 2), (6, 2), (7, 2), (8, 2), (9, 16), (10, 16), (11, 2)]);
        assert!(block.write_as(5, |_| 0).is_empty());
        assert!(TelemetryBlock::new("fast", 0).write(5).is_empty());
    }

    #[test]
    fn uuid_text_becomes_its_bytes() {
        let bytes = uuid_bytes(b"00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(bytes[..3], [0, 0x11, 0x22]);
        assert_eq!(bytes[13..], [0xdd, 0xee, 0xff]);
        for bad in
            [&b""[..], b"00112233-4455-6677-8899-AABBCCDDEEFF", b"0011223304455-6677-8899-aabbccddeeff"]
        {
            assert_eq!(uuid_bytes(bad), None);
        }
    }
}
