//! Writes what became of a batch's commands as the columns of one TelemetryBlock.
//!
//! Gathers one small row per command and never a string twice; it must cost next to nothing on the warm path.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};

use super::ledger::{Ledger, Refusal};
use super::wire::{Fields, Malformed, put_bytes, put_number, put_varint, varint_len};

/// The event of a row, where its verdict does not name it; the wire's EventKind.
pub const BY_VERDICT: u8 = 0;
pub const SKEW_NEAR_LIMIT: u8 = 1;
pub const SKEW_SAMPLE: u8 = 2;
pub const WARM_PATH_BAN: u8 = 3;

/// The age of the entries that a command relied on; the wire's CachePhase.
pub const PHASE_FRESH: u8 = 1;
pub const PHASE_STALE: u8 = 2;
pub const PHASE_EXPIRED: u8 = 3;

/// By which permit a command went; the wire's GrantKind.
pub const GRANT_UNLIMITED: u8 = 1;
pub const GRANT_PREFETCHED: u8 = 2;
pub const GRANT_ARBITRATED: u8 = 3;
pub const GRANT_SHADOW: u8 = 4;

/// One event. Everything that it shares with its neighbours stands in its lane and its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Zeros where the command had no readable id.
    pub command_id: [u8; 16],
    /// 0 where unreadable.
    pub sent_unix_ns: i64,
    /// The command's number in its batch, for a verdict that is known only later.
    pub index: u32,
    /// Number that `add_lane` or `lane` gave.
    pub lane: u32,
    /// Number that `add_run` gave.
    pub run: u32,
    /// 0 until it is known; a row whose verdict is known is written once.
    pub verdict: u8,
    /// `BY_VERDICT` waits for a verdict; other kinds are written with the first write.
    pub kind: u8,
    /// Another service decides and reports it, unless it is closed here meanwhile.
    pub away: bool,
}

/// The fields that the commands of one lane share, as far as this service knows them. Strings are dictionary entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub source: u32,
    pub target: u32,
    pub name: u32,
    /// The topic that they were sent to; 0 for none.
    pub topic: u32,
    /// Version of the ACL entry they relied on; 0 where none.
    pub acl_version: u64,
    /// Time since that entry was read from the authority.
    pub acl_age_ms: u32,
    /// 0 where not escalated.
    pub escalation: u8,
    /// A `PHASE_`; 0 where no entry was relied on.
    pub phase: u8,
    /// A `GRANT_`; 0 where nothing was sent.
    pub grant: u8,
}

/// The fields that the commands of one run share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Dictionary entry of the version under which they were verified; 0 where they were not.
    pub key_version: u32,
    /// 0 where they were not admitted.
    pub admitted_unix_ns: i64,
}

/// Details of few rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    /// Number of the row that it speaks of.
    pub row: u32,
    /// It speaks of every row with the same lane, verdict and kind.
    pub alike: bool,
    pub retry_after_ms: u32,
    pub throttle_until_unix_ns: i64,
    pub source_share: f64,
    pub competing_share: f64,
    pub dispatch_volume: u64,
    /// The number of commands that the row stands for; 0 says one.
    pub count: u64,
    pub detail: String,
}

/// The rows of one batch with their strings.
#[derive(Debug)]
pub struct TelemetryBlock {
    service: &'static str,
    dictionary: Vec<Box<str>>,
    places: HashTable<u32>,
    /// Producers choose the strings: an unseeded hash would let one of them make every look-up slow.
    seed: RandomState,
    lanes: Vec<Facts>,
    by_names: HashMap<[u32; 3], u32, RandomState>,
    runs: Vec<Passage>,
    rows: Vec<Row>,
    details: Vec<Detail>,
    /// The number of the ledger's remarks that are details already.
    remarked: usize,
}

impl TelemetryBlock {
    pub fn new(service: &'static str, rows: usize) -> Self {
        Self {
            service,
            dictionary: vec![Box::from("")],
            places: HashTable::new(),
            seed: RandomState::default(),
            lanes: Vec::new(),
            by_names: HashMap::default(),
            runs: Vec::new(),
            rows: Vec::with_capacity(rows),
            details: Vec::new(),
            remarked: 0,
        }
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

    /// Adds a lane; its number.
    pub fn add_lane(&mut self, facts: Facts) -> u32 {
        self.lanes.push(facts);
        self.lanes.len() as u32 - 1
    }

    /// The lane of these names, made if there is none yet; for callers who keep no lanes of their own.
    pub fn lane(&mut self, source: &str, target: &str, name: &str) -> u32 {
        let [source, target, name] = [source, target, name].map(|text| self.intern(text));
        if let Some(lane) = self.by_names.get(&[source, target, name]) {
            return *lane;
        }
        let lane = self.add_lane(Facts { source, target, name, ..Facts::default() });
        self.by_names.insert([source, target, name], lane);
        lane
    }

    /// The entry of a lane, to be filled in.
    pub fn facts(&mut self, lane: u32) -> Option<&mut Facts> {
        self.lanes.get_mut(lane as usize)
    }

    /// Adds a run; its number.
    pub fn add_run(&mut self, key_version: &str, admitted_unix_ns: i64) -> u32 {
        let key_version = self.intern(key_version);
        self.runs.push(Passage { key_version, admitted_unix_ns });
        self.runs.len() as u32 - 1
    }

    /// The text of a number that `intern` gave.
    pub fn text(&self, place: u32) -> &str {
        self.dictionary.get(place as usize).map_or("", |text| text)
    }

    /// The id in a row, by the order in which rows were pushed; zeros beyond them.
    pub fn id(&self, row: usize) -> [u8; 16] {
        self.rows.get(row).map_or([0; 16], |row| row.command_id)
    }

    #[inline]
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds a row with something to say about it alone.
    pub fn push_with(&mut self, row: Row, detail: Detail) {
        self.details.push(Detail { row: self.rows.len() as u32, ..detail });
        self.rows.push(row);
    }

    /// Says something about every row of a lane that has, or will have, this verdict.
    pub fn explain_lane(&mut self, lane: u32, verdict: u8, detail: Detail) {
        let fits =
            |row: &Row| row.lane == lane && row.kind == BY_VERDICT && [0, verdict].contains(&row.verdict);
        if let Some(row) = self.rows.iter().position(fits) {
            self.details.push(Detail { row: row as u32, alike: true, ..detail });
        }
    }

    /// Leaves rows to another service, which decides and reports them.
    pub fn leave(&mut self, leave: impl Fn(&Row) -> bool) {
        for row in &mut self.rows {
            row.away |= leave(row);
        }
    }

    /// Gives rows the numbers of a ledger that counts otherwise; rows without one are forgotten.
    pub fn number(&mut self, index: impl Fn(u32) -> Option<u32>) {
        self.rows.retain_mut(|row| index(row.index).map(|index| row.index = index).is_some());
    }

    /// Number of rows that this service reports, as far as it is known.
    pub fn len(&self) -> usize {
        self.rows.iter().filter(|row| !row.away).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Serialises what the ledger has decided since the last call; empty when that is nothing.
    pub fn settle(&mut self, settled_unix_ns: i64, ledger: &Ledger) -> Vec<u8> {
        let first = std::mem::take(&mut self.remarked);
        for refusal in ledger.remarks().get(first..).unwrap_or_default() {
            self.remark(refusal);
        }
        self.remarked = ledger.remarks().len();
        let mut rows = std::mem::take(&mut self.rows);
        let whole = self.details.is_empty()
            && rows
                .iter()
                .all(|row| row.kind == BY_VERDICT && !row.away && ledger.code(row.index as usize) != 0);
        if whole {
            for row in &mut rows {
                row.verdict = ledger.code(row.index as usize);
            }
            return self.columns(&rows, &[], settled_unix_ns);
        }
        let mut settled = Vec::with_capacity(rows.len());
        let (mut told, mut open) = (vec![u32::MAX; rows.len()], vec![u32::MAX; rows.len()]);
        for (at, mut row) in rows.into_iter().enumerate() {
            let index = row.index as usize;
            if row.kind == BY_VERDICT {
                row.verdict = ledger.code(index);
                if row.verdict == 0 {
                    open[at] = self.rows.len() as u32;
                    self.rows.push(row);
                    continue;
                }
                if row.away && !ledger.closed_here(index) {
                    continue;
                }
            }
            told[at] = settled.len() as u32;
            settled.push(row);
        }
        let details = std::mem::take(&mut self.details);
        let moved = |detail: &Detail, places: &[u32]| {
            let row = *places.get(detail.row as usize)?;
            (row != u32::MAX).then(|| Detail { row, ..detail.clone() })
        };
        let now: Vec<Detail> = details.iter().filter_map(|detail| moved(detail, &told)).collect();
        self.details = details.iter().filter_map(|detail| moved(detail, &open)).collect();
        self.columns(&settled, &now, settled_unix_ns)
    }

    /// A remark of the ledger, as a detail of its row and of those like it.
    fn remark(&mut self, refusal: &Refusal) {
        let of = |row: &Row| row.index == refusal.index && row.kind == BY_VERDICT;
        if let Some(row) = self.rows.iter().position(of) {
            self.details.push(Detail {
                row: row as u32,
                alike: true,
                retry_after_ms: refusal.retry_after_ms,
                throttle_until_unix_ns: refusal.throttle_until_unix_ns,
                source_share: refusal.shares.source,
                competing_share: refusal.shares.competing,
                dispatch_volume: u64::from(refusal.shares.volume),
                count: 0,
                detail: refusal.detail.clone(),
            });
        }
    }

    /// Serialises the rows with the verdicts that they hold; empty when there are none.
    pub fn write(&self, settled_unix_ns: i64) -> Vec<u8> {
        self.columns(&self.rows, &self.details, settled_unix_ns)
    }

    fn columns(&self, rows: &[Row], details: &[Detail], settled_unix_ns: i64) -> Vec<u8> {
        if rows.is_empty() {
            return Vec::new();
        }
        let strings: usize = self.dictionary.iter().map(|text| text.len() + 6).sum();
        let shared = self.lanes.len() * 40 + self.runs.len() * 20 + details.len() * 64;
        let mut out = Vec::with_capacity(96 + strings + shared + rows.len() * (16 + 1 + 8 + 3 + 1));
        put_bytes(&mut out, 1, self.service.as_bytes());
        put_number(&mut out, 2, settled_unix_ns as u64);
        for text in &self.dictionary {
            put_bytes(&mut out, 3, text.as_bytes());
        }
        open_column(&mut out, 4, rows.len() * 16);
        for row in rows {
            out.extend_from_slice(&row.command_id);
        }
        open_column(&mut out, 5, rows.len());
        out.extend(rows.iter().map(|row| row.verdict));
        open_column(&mut out, 9, rows.len() * 8);
        for row in rows {
            out.extend_from_slice(&row.sent_unix_ns.to_le_bytes());
        }
        if rows.iter().any(|row| row.kind != BY_VERDICT) {
            open_column(&mut out, 12, rows.len());
            out.extend(rows.iter().map(|row| row.kind));
        }
        put_places(&mut out, 13, rows, |row| row.lane);
        put_places(&mut out, 14, rows, |row| row.run);
        let mut body = Vec::with_capacity(64);
        for facts in &self.lanes {
            body.clear();
            facts.write(&mut body);
            put_bytes(&mut out, 15, &body);
        }
        for run in &self.runs {
            body.clear();
            put_number(&mut body, 1, u64::from(run.key_version));
            put_number(&mut body, 2, run.admitted_unix_ns as u64);
            put_bytes(&mut out, 16, &body);
        }
        for detail in details {
            body.clear();
            detail.write(&mut body);
            put_bytes(&mut out, 17, &body);
        }
        out
    }
}

impl Facts {
    fn write(&self, out: &mut Vec<u8>) {
        let small = [self.source, self.target, self.name, self.topic, self.acl_age_ms];
        for (field, number) in (1..).zip(small) {
            put_number(out, field, u64::from(number));
        }
        put_number(out, 6, self.acl_version);
        for (field, number) in (7..).zip([self.escalation, self.phase, self.grant]) {
            put_number(out, field, u64::from(number));
        }
    }
}

impl Detail {
    fn write(&self, out: &mut Vec<u8>) {
        put_number(out, 1, u64::from(self.row));
        put_number(out, 2, u64::from(self.alike));
        put_number(out, 3, u64::from(self.retry_after_ms));
        put_number(out, 4, self.throttle_until_unix_ns as u64);
        put_share(out, 5, self.source_share);
        put_share(out, 6, self.competing_share);
        put_number(out, 7, self.dispatch_volume);
        put_number(out, 8, self.count);
        if !self.detail.is_empty() {
            put_bytes(out, 9, self.detail.as_bytes());
        }
    }
}

/// The number of rows in a serialised block.
pub fn rows_of(block: &[u8]) -> Result<usize, Malformed> {
    let mut fields = Fields::new(block);
    while let Some(field) = fields.next()? {
        if field.number == 5 {
            return Ok(field.bytes()?.len());
        }
    }
    Ok(0)
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

fn put_share(out: &mut Vec<u8>, field: u32, share: f64) {
    if share != 0.0 {
        put_varint(out, u64::from(field) << 3 | 1);
        out.extend_from_slice(&share.to_le_bytes());
    }
}

/// The bytes of a UUID in lower-case text form.
#[inline]
pub fn uuid_bytes(text: &[u8]) -> Option<[u8; 16]> {
    // Positions of each byte's two digits; the dashes are at 8, 13, 18 and 23.
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
    use super::super::ledger::{Hint, Part, Reply, Shares};
    use super::super::verdict::{FAIRNESS_VIOLATION, RATE_LIMIT_EXCEEDED};
    use super::*;

    #[test]
    fn strings_are_interned_once() {
        let mut block = TelemetryBlock::new("fast", 2);
        assert_eq!(block.intern(""), 0);
        let first = block.intern("acme/billing");
        assert_eq!((block.intern("discord-bot"), block.intern("acme/billing"), first), (2, 1, 1));
    }

    fn ledger(codes: &[u8]) -> Ledger {
        let mut ledger = Ledger::new(1, codes.len());
        ledger.add_part(Part::Range { first: 0, count: codes.len() as u32 });
        ledger.merge(0, 0, &Reply { codes: codes.to_vec(), ..Reply::default() });
        ledger
    }

    /// (field, length) of every column, and the first field of every detail.
    fn told(written: &[u8]) -> (Vec<(u32, usize)>, Vec<u32>) {
        let (mut columns, mut details) = (Vec::new(), Vec::new());
        let mut fields = Fields::new(written);
        while let Some(field) = fields.next().unwrap() {
            match field.number {
                4..15 => columns.push((field.number, field.bytes().unwrap().len())),
                17 => details.push(Fields::new(field.bytes().unwrap()).next().unwrap().unwrap().number),
                _ => {}
            }
        }
        (columns, details)
    }

    fn rows(block: &mut TelemetryBlock, count: u32) {
        let lane = block.lane("acme/shop", "bot", "say");
        for index in 0..count {
            block.push(Row { index, lane, sent_unix_ns: i64::from(index), ..Row::default() });
        }
    }

    #[test]
    fn rows_are_written_once_each_when_they_are_settled() {
        let mut block = TelemetryBlock::new("fast", 3);
        rows(&mut block, 3);
        let written = block.settle(5, &ledger(&[1, 0, 1]));
        assert_eq!(told(&written).0, [(4, 32), (5, 2), (9, 16), (13, 2), (14, 2)]);
        assert_eq!(rows_of(&written), Ok(2));
        assert!(block.settle(5, &ledger(&[1, 0, 1])).is_empty());
        assert_eq!(rows_of(&block.settle(5, &ledger(&[1, 1, 1]))), Ok(1));
        assert!(block.settle(5, &ledger(&[1, 1, 1])).is_empty());
        assert!(TelemetryBlock::new("fast", 0).write(5).is_empty());
    }

    #[test]
    fn rows_left_to_another_service_are_written_only_when_closed_here() {
        let mut block = TelemetryBlock::new("fast", 3);
        rows(&mut block, 3);
        block.leave(|row| row.index > 0);
        let mut ledger = ledger(&[1, 1, 0]);
        assert_eq!(rows_of(&block.settle(5, &ledger)), Ok(1));
        ledger.close(69, 250, "gone");
        let written = block.settle(6, &ledger);
        assert_eq!((rows_of(&written), told(&written).1.len()), (Ok(1), 1));
    }

    #[test]
    fn what_a_ledger_explains_is_told_of_all_that_are_alike() {
        let mut block = TelemetryBlock::new("fast", 2);
        rows(&mut block, 2);
        let mut ledger = Ledger::new(1, 2);
        ledger.refuse(0, 64);
        ledger.refuse(1, 64);
        ledger.explain(Refusal { retry_after_ms: 9, ..Refusal::default() });
        let written = block.settle(5, &ledger);
        // `row` is 0 and left out; `alike` comes first.
        assert_eq!((rows_of(&written), told(&written).1), (Ok(2), vec![2]));
        assert!(block.settle(5, &ledger).is_empty());
    }

    #[test]
    fn a_refusal_for_unfairness_keeps_its_shares_however_many_were_refused_before() {
        let mut block = TelemetryBlock::new("slow", 101);
        let lanes = [block.lane("acme/shop", "bot", "say"), block.lane("acme/flood", "bot", "say")];
        for index in 0..101 {
            block.push(Row { index, lane: lanes[usize::from(index == 100)], ..Row::default() });
        }
        let mut ledger = Ledger::new(1, 101);
        ledger.close_indices(0..100, RATE_LIMIT_EXCEEDED, &Hint { retry_after_ms: 9, ..Hint::default() });
        let shares = Shares { source: 0.9, competing: 0.4, volume: 70 };
        let hint = Hint { retry_after_ms: 5, shares, ..Hint::default() };
        ledger.close_indices(100..101, FAIRNESS_VIOLATION, &hint);
        for refusal in ledger.remarks() {
            block.remark(refusal);
        }
        let [limited, unfair] = &block.details[..] else { panic!("one detail for each lane") };
        assert_eq!((limited.row, limited.alike, limited.retry_after_ms), (0, true, 9));
        assert_eq!((unfair.row, unfair.source_share, unfair.competing_share), (100, 0.9, 0.4));
        assert_eq!(unfair.dispatch_volume, 70);
    }

    #[test]
    fn details_follow_their_rows_and_other_kinds_need_no_verdict() {
        let mut block = TelemetryBlock::new("fast", 3);
        rows(&mut block, 1);
        block.push_with(
            Row { kind: WARM_PATH_BAN, ..Row::default() },
            Detail { source_share: 0.9, ..Detail::default() },
        );
        block.explain_lane(0, 64, Detail { retry_after_ms: 5, ..Detail::default() });
        // Zeros are left out, so the first field tells that the row became the first.
        assert_eq!(told(&block.settle(5, &ledger(&[0]))).1, [5]);
        assert_eq!(told(&block.settle(5, &ledger(&[64]))).1, [2]);
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
