//! The keys of stored messages, for as long as the replay window of their topic lasts.
//!
//! Never forgets a live key: when it is full it refuses, because an eviction would let a command be stored twice. Never
//! lets one tenant fill it, nor drops a key early because a clock was set.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use super::frames::{Command, Span, Walk, read_run};
use super::verdict::{CONFLICT, DELIVERED, DUPLICATE, SATURATED};
use super::wire::{Fields, Malformed};

/// Bytes that stand for one keyed message: key, payload, owner.
pub const COLUMN: usize = 32;
/// Messages of one stored batch are numbered below this.
const MESSAGES_PER_BATCH: u64 = 1024;
/// Keys lie in many tables, so that what must be moved at once when one grows stays small.
const TABLES: usize = 1024;
/// Expiry is counted in these, always rounded up.
const TICK_NS: i64 = 62_500_000;
/// Keys that are given back in one call: a second's worth must not hold up the batch that finds it over.
const GIVEN_BACK_AT_ONCE: usize = 8192;

/// Fingerprints of keyed messages under a secret of the store: a sender cannot aim at a place in the tables, and two
/// keys of 128 bits do not collide.
pub struct Fingerprints<'a> {
    secret: &'a [u8; 32],
    scope: Vec<u8>,
    scope_len: usize,
    contents: Vec<u8>,
    owner: [u8; 8],
}

impl<'a> Fingerprints<'a> {
    /// Keys of `scope` (a source, or a tenant) in one topic. What they take up counts for the tenant.
    pub fn new(secret: &'a [u8; 32], topic: &str, scope: &str) -> Self {
        let mut prefix = Vec::with_capacity(topic.len() + scope.len() + 96);
        for text in [topic, scope] {
            prefix.extend_from_slice(&(text.len() as u32).to_le_bytes());
            prefix.extend_from_slice(text.as_bytes());
        }
        let tenant = scope.split('/').next().unwrap_or_default();
        let owner = head(&blake3::keyed_hash(secret, tenant.as_bytes()));
        Self { secret, scope_len: prefix.len(), scope: prefix, contents: Vec::new(), owner }
    }

    /// Appends the column of one message. What it is called belongs to its contents: another command under the same
    /// id, answered as a duplicate, would be lost without a word.
    pub fn put(&mut self, out: &mut Vec<u8>, key: &[u8], name: &[u8], payload: &[u8]) {
        self.scope.truncate(self.scope_len);
        self.scope.extend_from_slice(key);
        out.extend_from_slice(&head::<16>(&blake3::keyed_hash(self.secret, &self.scope)));
        self.contents.clear();
        self.contents.extend_from_slice(&(name.len() as u32).to_le_bytes());
        self.contents.extend_from_slice(name);
        self.contents.extend_from_slice(payload);
        out.extend_from_slice(&head::<8>(&blake3::keyed_hash(self.secret, &self.contents)));
        out.extend_from_slice(&self.owner);
    }
}

fn head<const N: usize>(hash: &blake3::Hash) -> [u8; N] {
    std::array::from_fn(|at| hash.as_bytes()[at])
}

/// The columns of every command of `run` for a topic: its key is source and id.
pub fn put_columns(
    out: &mut Vec<u8>,
    secret: &[u8; 32],
    topic: &str,
    frame: &[u8],
    run: Span,
) -> Result<(), Malformed> {
    let (head, mut commands) = read_run(frame, run)?;
    let source = std::str::from_utf8(head.source.of(frame)).map_err(|_| Malformed)?;
    let mut fingerprints = Fingerprints::new(secret, topic, source);
    while let Some(Command { body, .. }) = commands.next()? {
        let [id, name, payload] = identity(body.of(frame))?;
        fingerprints.put(out, id, name, payload);
    }
    Ok(())
}

/// Id, name and payload of a command.
fn identity(command: &[u8]) -> Result<[&[u8]; 3], Malformed> {
    let mut fields = Fields::new(command);
    let (mut id, mut name, mut payload) = (None, None, None);
    while let Some(field) = fields.next()? {
        let slot = match field.number {
            1 => &mut id,
            8 => &mut name,
            10 => &mut payload,
            _ => continue,
        };
        // Shield refuses repeated fields; here they would let two parsers see two ids.
        if slot.replace(field.bytes()?).is_some() {
            return Err(Malformed);
        }
    }
    // Without an id all of a source's commands would be one.
    let id = id.filter(|id| !id.is_empty()).ok_or(Malformed)?;
    Ok([id, name.unwrap_or_default(), payload.unwrap_or_default()])
}

/// The columns of stored runs, as `put_columns` made them.
pub fn columns_of(secret: &[u8; 32], topic: &str, stored: &[u8]) -> Result<Vec<u8>, Malformed> {
    let end = u32::try_from(stored.len()).map_err(|_| Malformed)?;
    let mut walk = Walk::new(stored, Span { start: 0, end });
    let mut out = Vec::new();
    while let Some(placed) = walk.next()? {
        placed.field.bytes()?;
        put_columns(&mut out, secret, topic, stored, placed.body)?;
    }
    Ok(out)
}

type Key = [u8; 16];

#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    payload: [u8; 8],
    msg_id: u64,
    at_ns: i64,
    /// The tick after which it is forgotten.
    until: u32,
    owner: u32,
}

#[derive(Default)]
struct Owner {
    live: usize,
}

/// Place of the first message with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Its id, and when it was stored.
    Stored(u64, i64),
    /// In the same call: batch, and position among its new messages.
    Here(u32, u32),
}

/// Findings of `sift` about one batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    /// A verdict per message; DELIVERED is what is new.
    pub codes: Vec<u8>,
    pub fresh: usize,
    /// The columns of what is new.
    pub columns: Vec<u8>,
    /// For duplicates and conflicts, in order of the messages.
    pub firsts: Vec<(u32, First)>,
}

/// Columns that `sift` is asked about, of one batch.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub columns: &'a [u8],
    /// Little-endian, four bytes a message: twice the number of its group, and 1 more where duplicates refuse the
    /// group. Of a group nothing is new if anything of it is refused. Empty where every message is for itself.
    pub groups: &'a [u8],
    /// The send that it belongs to, whose batches stand together; groups are numbered within it.
    pub send: u32,
}

impl<'a> Asked<'a> {
    pub fn ungrouped(columns: &'a [u8]) -> Self {
        Self { columns, groups: &[], send: 0 }
    }

    fn group(&self, index: usize) -> u32 {
        let bytes = self.groups.get(index * 4..index * 4 + 4);
        bytes.and_then(|four| four.try_into().ok()).map_or(u32::MAX, u32::from_le_bytes)
    }
}

/// What one call of `sift` has let in so far.
#[derive(Default)]
struct LetIn {
    here: HashMap<Key, (u32, u32, [u8; 8]), FixedState>,
    by_owner: HashMap<[u8; 8], usize, FixedState>,
    count: usize,
}

/// In place of a key: the message has none, and is new whatever is known.
const KEYLESS: Key = [0; 16];

/// The keys of a store. Times are nanoseconds of one clock that never steps back.
pub struct ReplayWindow {
    capacity: usize,
    share_per_owner: usize,
    base_ns: Option<i64>,
    now_ns: i64,
    live: usize,
    tables: Vec<HashTable<Entry>>,
    by_tick: BTreeMap<u32, Vec<Key>>,
    owners: HashMap<[u8; 8], u32, FixedState>,
    rows: Vec<([u8; 8], Owner)>,
    free: Vec<u32>,
}

impl ReplayWindow {
    pub fn new(capacity: usize, share_per_owner: usize) -> Self {
        Self {
            capacity,
            share_per_owner,
            base_ns: None,
            now_ns: i64::MIN,
            live: 0,
            tables: std::iter::repeat_with(HashTable::new).take(TABLES).collect(),
            by_tick: BTreeMap::new(),
            owners: HashMap::default(),
            rows: Vec::new(),
            free: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.live
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Says of every message of `batches` whether it is new. Nothing is remembered yet; of two messages with one key
    /// in the same call, the second is a duplicate of the first. While `closed`, nothing new is let in.
    pub fn sift(&mut self, batches: &[Asked<'_>], now_ns: i64, closed: bool) -> Vec<Sifted> {
        self.pass(now_ns);
        let wanted: usize = batches.iter().map(|one| one.columns.len() / COLUMN).sum();
        // Expired keys may still take up room; when room is needed, all of them are dropped.
        while self.live + wanted > self.capacity && self.give_back(usize::MAX) > 0 {}
        let mut let_in = LetIn::default();
        let mut sifted: Vec<Sifted> = batches
            .iter()
            .map(|one| Sifted { codes: vec![0; one.columns.len() / COLUMN], ..Sifted::default() })
            .collect();
        let mut first = 0;
        for send in batches.chunk_by(|one, next| one.send == next.send) {
            let end = first + send.len();
            if send.iter().all(|one| one.groups.is_empty()) {
                for batch in first..end {
                    for index in 0..sifted[batch].codes.len() {
                        self.judge(batches, &mut sifted, &mut let_in, (batch, index), closed);
                    }
                }
            } else {
                self.judge_groups(batches, &mut sifted, &mut let_in, first..end, closed);
            }
            first = end;
        }
        finish(batches, &mut sifted);
        sifted
    }

    /// Judges the batches of one send, group by group: a group sees what earlier ones have left, and leaves nothing if
    /// any of it is refused.
    fn judge_groups(
        &self,
        batches: &[Asked<'_>],
        sifted: &mut [Sifted],
        let_in: &mut LetIn,
        send: std::ops::Range<usize>,
        closed: bool,
    ) {
        let mut items: Vec<(u32, usize, usize)> = send
            .flat_map(|batch| (0..batches[batch].columns.len() / COLUMN).map(move |index| (batch, index)))
            .map(|(batch, index)| (batches[batch].group(index), batch, index))
            .collect();
        items.sort_by_key(|(group, ..)| *group);
        for group in items.chunk_by(|one, next| one.0 == next.0) {
            let refuse_duplicates = group[0].0 & 1 == 1;
            let mut refused = false;
            for &(_, batch, index) in group {
                let code = self.judge(batches, sifted, let_in, (batch, index), closed);
                refused |= code != DELIVERED && (code != DUPLICATE || refuse_duplicates);
            }
            if !refused {
                continue;
            }
            for &(_, batch, index) in group {
                let code = &mut sifted[batch].codes[index];
                if *code != DELIVERED {
                    continue;
                }
                *code = 0;
                let (key, _, owner) = split(column(batches, batch, index));
                if key != KEYLESS && let_in.here.remove(&key).is_some() {
                    let_in.count -= 1;
                    *let_in.by_owner.entry(owner).or_default() -= 1;
                }
            }
        }
    }

    /// Judges one message by what is known and by what this call has let in.
    fn judge(
        &self,
        batches: &[Asked<'_>],
        sifted: &mut [Sifted],
        let_in: &mut LetIn,
        (batch, index): (usize, usize),
        closed: bool,
    ) -> u8 {
        let (key, payload, owner) = split(column(batches, batch, index));
        let found = &mut sifted[batch];
        let known = match self.find(&key) {
            _ if key == KEYLESS => None,
            Some(entry) => Some((First::Stored(entry.msg_id, entry.at_ns), entry.payload)),
            None => let_in.here.get(&key).map(|(batch, at, held)| (First::Here(*batch, *at), *held)),
        };
        let code = match known {
            Some((first, held)) => {
                found.firsts.push((index as u32, first));
                if held == payload { DUPLICATE } else { CONFLICT }
            }
            None if key == KEYLESS => DELIVERED,
            None => {
                let own = let_in.by_owner.entry(owner).or_default();
                if closed
                    || self.live + let_in.count >= self.capacity
                    || self.held_by(&owner) + *own >= self.share_per_owner
                {
                    SATURATED
                } else {
                    *own += 1;
                    let_in.count += 1;
                    let_in.here.insert(key, (batch as u32, index as u32, payload));
                    DELIVERED
                }
            }
        };
        found.codes[index] = code;
        code
    }

    /// The first message with a key, while it is known.
    pub fn first(&self, column: &[u8], now_ns: i64) -> Option<(u64, i64)> {
        let key = split(column.get(..COLUMN)?).0;
        let end = |until: u32| self.base_ns.unwrap_or(0).saturating_add(i64::from(until) * TICK_NS);
        self.find(&key).filter(|held| end(held.until) >= now_ns).map(|held| (held.msg_id, held.at_ns))
    }

    /// Remembers messages 0, 1, … of a stored batch for `window_ns` from `at_ns` on.
    ///
    /// Neither capacity nor shares are looked at: what is stored must be known.
    pub fn remember(&mut self, columns: &[u8], batch_id: u64, at_ns: i64, window_ns: i64) {
        let base = *self.base_ns.get_or_insert(at_ns);
        let span = at_ns.saturating_add(window_ns).saturating_sub(base).max(0);
        let until = u32::try_from(span / TICK_NS + i64::from(span % TICK_NS > 0)).unwrap_or(u32::MAX);
        let mut keys = Vec::with_capacity(columns.len() / COLUMN);
        let mut last: Option<([u8; 8], u32)> = None;
        for (number, column) in (0u64..).zip(columns.chunks_exact(COLUMN)) {
            let (key, payload, owner) = split(column);
            if key == KEYLESS {
                continue;
            }
            let owner = match last {
                Some((name, known)) if name == owner => known,
                _ => self.owner(owner),
            };
            last = Some((self.rows[owner as usize].0, owner));
            let msg_id = batch_id.wrapping_mul(MESSAGES_PER_BATCH).wrapping_add(number);
            self.put(Entry { key, payload, msg_id, at_ns, until, owner });
            keys.push(key);
        }
        if !keys.is_empty() {
            self.by_tick.entry(until).or_default().append(&mut keys);
        }
    }

    fn put(&mut self, entry: Entry) {
        let (table, hash) = place(&entry.key);
        let table = &mut self.tables[table];
        match table.find_mut(hash, |held| held.key == entry.key) {
            // Over, and not yet given back.
            Some(held) => {
                let before = std::mem::replace(held, entry);
                self.settle(before.owner, 1);
                self.live -= 1;
            }
            None => {
                table.insert_unique(hash, entry, |held| place(&held.key).1);
            }
        }
        self.live += 1;
        self.rows[entry.owner as usize].1.live += 1;
    }

    fn find(&self, key: &Key) -> Option<&Entry> {
        let (table, hash) = place(key);
        self.tables[table].find(hash, |held| held.key == *key).filter(|held| !self.over(held.until))
    }

    fn over(&self, until: u32) -> bool {
        let end = self.base_ns.unwrap_or(0).saturating_add(i64::from(until) * TICK_NS);
        end < self.now_ns
    }

    /// Moves time on; a clock that steps back is not followed.
    fn pass(&mut self, now_ns: i64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.give_back(GIVEN_BACK_AT_ONCE);
    }

    /// Gives back up to `most` keys whose time is over; how many it was.
    fn give_back(&mut self, most: usize) -> usize {
        let mut gone = 0;
        while gone < most {
            let Some(oldest) = self.by_tick.first_entry().map(|entry| *entry.key()) else { break };
            if !self.over(oldest) {
                break;
            }
            let Some(mut keys) = self.by_tick.remove(&oldest) else { break };
            let rest = keys.len().saturating_sub(most - gone);
            for key in keys.drain(rest..) {
                gone += 1;
                let (table, hash) = place(&key);
                let found =
                    self.tables[table].find_entry(hash, |held| held.key == key && held.until == oldest);
                if let Ok(found) = found {
                    let (entry, _) = found.remove();
                    self.live -= 1;
                    self.settle(entry.owner, 1);
                }
            }
            if !keys.is_empty() {
                self.by_tick.insert(oldest, keys);
            }
        }
        if self.live == 0 {
            // An idle store holds no memory for the keys of its busiest hour.
            self.tables.iter_mut().for_each(|table| *table = HashTable::new());
        }
        gone
    }

    fn held_by(&self, owner: &[u8; 8]) -> usize {
        self.owners.get(owner).map_or(0, |number| self.rows[*number as usize].1.live)
    }

    fn owner(&mut self, name: [u8; 8]) -> u32 {
        if let Some(number) = self.owners.get(&name) {
            return *number;
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.rows[number as usize] = (name, Owner::default());
                number
            }
            None => {
                self.rows.push((name, Owner::default()));
                (self.rows.len() - 1) as u32
            }
        };
        self.owners.insert(name, number);
        number
    }

    fn settle(&mut self, number: u32, gone: usize) {
        let (name, owner) = &mut self.rows[number as usize];
        owner.live -= gone;
        if owner.live == 0 {
            self.owners.remove(name);
            self.free.push(number);
        }
    }

    /// Milliseconds until the oldest keys are given back; 0 when nothing is held.
    pub fn room_in_ms(&self) -> u32 {
        let Some((until, _)) = self.by_tick.first_key_value() else { return 0 };
        let end = self.base_ns.unwrap_or(0).saturating_add(i64::from(*until) * TICK_NS);
        u32::try_from(end.saturating_sub(self.now_ns).max(0) / 1_000_000 + 1).unwrap_or(u32::MAX)
    }
}

/// The column of one message.
fn column<'a>(batches: &[Asked<'a>], batch: usize, index: usize) -> &'a [u8] {
    &batches[batch].columns[index * COLUMN..(index + 1) * COLUMN]
}

/// What is new of each batch, and where the first ones stand among what is new; those that are not new after all are
/// left out.
fn finish(batches: &[Asked<'_>], sifted: &mut [Sifted]) {
    let mut ranks: Vec<Vec<u32>> = Vec::with_capacity(sifted.len());
    for (batch, found) in sifted.iter_mut().enumerate() {
        let mut rank = Vec::with_capacity(found.codes.len());
        found.columns.reserve_exact(found.codes.len() * COLUMN);
        for index in 0..found.codes.len() {
            rank.push(found.fresh as u32);
            if found.codes[index] == DELIVERED {
                found.fresh += 1;
                found.columns.extend_from_slice(column(batches, batch, index));
            }
        }
        ranks.push(rank);
    }
    let new: Vec<Vec<bool>> =
        sifted.iter().map(|found| found.codes.iter().map(|code| *code == DELIVERED).collect()).collect();
    for found in sifted {
        found.firsts.retain_mut(|(_, first)| match first {
            First::Stored(..) => true,
            First::Here(batch, at) => {
                let (batch, index) = (*batch as usize, *at as usize);
                *at = ranks[batch][index];
                new[batch][index]
            }
        });
        found.firsts.sort_by_key(|(index, _)| *index);
    }
}

/// Table and hash within it. Keys are uniform and secret, so their bytes do.
#[inline]
fn place(key: &Key) -> (usize, u64) {
    let table = usize::from(u16::from_le_bytes([key[0], key[1]])) % TABLES;
    let [.., a, b, c, d, e, f, g, h] = *key;
    (table, u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

#[inline]
fn split(column: &[u8]) -> (Key, [u8; 8], [u8; 8]) {
    (
        std::array::from_fn(|at| column[at]),
        std::array::from_fn(|at| column[16 + at]),
        std::array::from_fn(|at| column[24 + at]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;
    const SECRET: [u8; 32] = [7; 32];

    fn column(scope: &str, key: &str, payload: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Fingerprints::new(&SECRET, "acme/bot", scope).put(&mut out, key.as_bytes(), &[], payload.as_bytes());
        out
    }

    fn codes(window: &mut ReplayWindow, columns: &[u8], now: i64) -> Vec<u8> {
        window.sift(&[Asked::ungrouped(columns)], now, false).remove(0).codes
    }

    #[test]
    fn second_and_third_are_duplicates_of_the_first_and_another_payload_conflicts() {
        let mut window = ReplayWindow::new(10, 10);
        let [first, other] = [column("a/b", "1", "x"), column("a/b", "1", "y")];
        assert_eq!(codes(&mut window, &first, 0), [DELIVERED]);
        assert_eq!(codes(&mut window, &first, 0), [DELIVERED], "nothing is remembered before it is stored");
        window.remember(&first, 5, 0, 300 * S);
        for now in [0, 299 * S, 300 * S] {
            let found = window.sift(&[&first, &other].map(|one| Asked::ungrouped(one)), now, false);
            assert_eq!((found[0].codes[0], found[1].codes[0]), (DUPLICATE, CONFLICT));
            assert_eq!(found[0].firsts, [(0, First::Stored(5 * 1024, 0))]);
            assert!(found[0].columns.is_empty() && found[0].fresh == 0);
        }
        assert_eq!(codes(&mut window, &first, 300 * S + TICK_NS + 1), [DELIVERED]);
        assert_eq!(window.len(), 0);
    }

    #[test]
    fn keys_of_two_sources_do_not_meet() {
        assert_ne!(column("a/b", "1", "x")[..16], column("a/c", "1", "x")[..16]);
        assert_ne!(column("a/b", "c1", "x")[..16], column("a/bc", "1", "x")[..16]);
        assert_eq!(column("a/b", "1", "x")[24..], column("a/c", "2", "y")[24..], "they share an owner");
    }

    #[test]
    fn duplicates_within_one_call_point_to_the_first() {
        let mut window = ReplayWindow::new(10, 10);
        let [a, b, c] = ["1", "2", "3"].map(|key| column("a/b", key, "x"));
        let first = [a.clone(), b.clone(), a.clone()].concat();
        let second = [c, b, column("a/b", "1", "other")].concat();
        let found = window.sift(&[&first, &second].map(|one| Asked::ungrouped(one)), 0, false);
        assert_eq!(found[0].codes, [DELIVERED, DELIVERED, DUPLICATE]);
        assert_eq!(found[0].firsts, [(2, First::Here(0, 0))]);
        assert_eq!(found[1].codes, [DELIVERED, DUPLICATE, CONFLICT]);
        assert_eq!(found[1].firsts, [(1, First::Here(0, 1)), (2, First::Here(0, 0))]);
        assert_eq!((found[0].fresh, found[1].fresh, found[1].columns.len()), (2, 1, COLUMN));
    }

    #[test]
    fn a_full_table_refuses_and_evicts_nothing() {
        let mut window = ReplayWindow::new(3, 3);
        let all: Vec<u8> = (0..5).flat_map(|key| column("a/b", &key.to_string(), "x")).collect();
        let found = window.sift(&[Asked::ungrouped(&all)], 0, false).remove(0);
        assert_eq!(found.codes, [DELIVERED, DELIVERED, DELIVERED, SATURATED, SATURATED]);
        window.remember(&found.columns, 1, 0, 10 * S);
        assert_eq!(codes(&mut window, &all, 10 * S), [DUPLICATE, DUPLICATE, DUPLICATE, SATURATED, SATURATED]);
        assert!(window.room_in_ms() >= 1);
        assert_eq!(
            codes(&mut window, &all, 11 * S)[3..],
            [SATURATED, SATURATED],
            "capacity counts what is new"
        );
        assert_eq!(codes(&mut window, &all[3 * COLUMN..], 11 * S), [DELIVERED, DELIVERED]);
        assert_eq!(
            window.sift(&[Asked::ungrouped(&all[3 * COLUMN..])], 11 * S, true)[0].codes,
            [SATURATED, SATURATED]
        );
    }

    #[test]
    fn one_tenant_cannot_take_the_share_of_another() {
        let mut window = ReplayWindow::new(10, 2);
        let columns: Vec<u8> = [("a/b", "1"), ("a/c", "2"), ("a/d", "3"), ("z/b", "4")]
            .iter()
            .flat_map(|(s, k)| column(s, k, "x"))
            .collect();
        let found = window.sift(&[Asked::ungrouped(&columns)], 0, false).remove(0);
        assert_eq!(found.codes, [DELIVERED, DELIVERED, SATURATED, DELIVERED]);
        window.remember(&found.columns, 1, 0, 10 * S);
        assert_eq!(codes(&mut window, &column("a/e", "9", "x"), S), [SATURATED]);
        assert_eq!(codes(&mut window, &column("a/e", "9", "x"), 11 * S), [DELIVERED]);
        assert_eq!(window.owners.len(), 0);
    }

    #[test]
    fn a_key_that_is_over_and_comes_again_lives_its_new_time() {
        let mut window = ReplayWindow::new(10, 10);
        let key = column("a/b", "1", "x");
        window.remember(&key, 1, 0, S);
        // Not passed in between: the old one still lies there.
        window.now_ns = 2 * S;
        window.remember(&key, 2, 2 * S, 10 * S);
        assert_eq!(window.len(), 1);
        let found = window.sift(&[Asked::ungrouped(&key)], 9 * S, false).remove(0);
        assert_eq!((found.codes[0], found.firsts[0].1), (DUPLICATE, First::Stored(2048, 2 * S)));
        assert_eq!(window.len(), 1);
    }

    #[test]
    fn time_that_steps_back_gives_nothing_back_and_a_second_of_keys_goes_bit_by_bit() {
        let mut window = ReplayWindow::new(100_000, 100_000);
        let many: Vec<u8> = (0..20_000u32).flat_map(|key| column("a/b", &key.to_string(), "x")).collect();
        window.remember(&many, 1, 0, S);
        let probe = column("a/b", "fresh", "x");
        assert_eq!(codes(&mut window, &probe, 5 * S), [DELIVERED]);
        assert_eq!(window.len(), 20_000 - GIVEN_BACK_AT_ONCE);
        assert_eq!(codes(&mut window, &many[..COLUMN], 0), [DELIVERED]);
        codes(&mut window, &probe, 5 * S);
        assert_eq!((window.len(), window.by_tick.len()), (0, 0));
    }

    fn groups(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn of_a_group_all_is_new_or_nothing_and_what_it_would_have_left_is_not_known() {
        let mut window = ReplayWindow::new(100, 100);
        window.remember(&column("a/b", "old", "x"), 7, 0, 300 * S);
        let keyless = vec![0; COLUMN];
        let [old, other, one, two] = [("old", "x"), ("old", "other"), ("one", "x"), ("two", "x")]
            .map(|(key, x)| column("a/b", key, x));
        // Group 0 is new in both batches; 1 has a conflict in the second; 2 has the key that 1 would have left; 3
        // knows its key from before and refuses that; 4 does not mind.
        let first = [one.clone(), two.clone(), two.clone(), keyless.clone(), old.clone()].concat();
        let second = [keyless.clone(), other, column("a/b", "three", "x"), old.clone(), keyless].concat();
        let numbers = groups(&[0, 2, 4, 3 << 1 | 1, 4 << 1]);
        let asked = [&first, &second].map(|columns| Asked { columns, groups: &numbers, send: 1 });
        let found = window.sift(&asked, S, false);
        assert_eq!(found[0].codes, [DELIVERED, 0, DELIVERED, 0, DUPLICATE]);
        assert_eq!(found[1].codes, [DELIVERED, CONFLICT, DELIVERED, DUPLICATE, DELIVERED]);
        assert_eq!((found[0].fresh, found[1].fresh), (2, 3));
        assert_eq!(found[0].columns, [one, two].concat());
        assert_eq!(found[1].firsts, [(1, First::Stored(7 * 1024, 0)), (3, First::Stored(7 * 1024, 0))]);
        window.remember(&found[1].columns, 8, S, 300 * S);
        assert_eq!(window.len(), 2, "what has no key is not remembered");
        assert_eq!(codes(&mut window, &column("a/b", "three", "x"), S), [DUPLICATE]);
        let third = Asked::ungrouped(&old);
        assert_eq!(window.sift(&[third], S, false)[0].firsts, [(0, First::Stored(7 * 1024, 0))]);
    }

    #[test]
    fn a_later_group_of_the_call_is_a_duplicate_of_an_earlier_one_that_stands() {
        let mut window = ReplayWindow::new(100, 100);
        let key = column("a/b", "1", "x");
        let columns = [key.clone(), key.clone(), column("a/b", "2", "x")].concat();
        let asked = |numbers: &[u32]| groups(numbers);
        let refusing = asked(&[1, 3, 3]);
        let found = window.sift(&[Asked { columns: &columns, groups: &refusing, send: 1 }], 0, false);
        assert_eq!(found[0].codes, [DELIVERED, DUPLICATE, 0]);
        assert_eq!(found[0].firsts, [(1, First::Here(0, 0))]);
        // Of a group that refuses itself, there is no first one.
        let itself = asked(&[1, 1, 2]);
        let found = window.sift(&[Asked { columns: &columns, groups: &itself, send: 1 }], 0, false);
        assert_eq!((&found[0].codes[..], found[0].firsts.len()), (&[0, DUPLICATE, DELIVERED][..], 0));
    }

    #[test]
    fn columns_of_stored_runs_are_those_of_the_frame() {
        use super::super::testing::{command, run};
        use super::super::wire::put_bytes;
        let one = run("acme/shop", &[command("bot", "say"), command("bot", "say"), command("bot", "go")]);
        let mut stored = Vec::new();
        put_bytes(&mut stored, 5, &one);
        let mut direct = Vec::new();
        put_columns(&mut direct, &SECRET, "acme/bot", &one, Span { start: 0, end: one.len() as u32 })
            .unwrap();
        assert_eq!(columns_of(&SECRET, "acme/bot", &stored).unwrap(), direct);
        let [first, same, other] = [0, 1, 2].map(|at| &direct[at * COLUMN..(at + 1) * COLUMN]);
        assert_eq!(direct.len(), 3 * COLUMN);
        assert_eq!(first, same, "the same id, name and payload");
        assert_eq!(first[..16], other[..16], "the same id");
        assert_ne!(first[16..24], other[16..24], "another command is no duplicate");
    }
}
