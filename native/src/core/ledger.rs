//! The undecided commands of one batch, and the mapping of replies from the next hops back onto it.
//!
//! It decides each command once. A reply never changes a decision, speaks of commands outside its part,
//! or ends a batch in which something is still open, whatever numbers it carries.

use std::collections::{HashMap, HashSet};

use super::verdict::{DELIVERED, DUPLICATE, FAIRNESS_VIOLATION, RATE_LIMIT_EXCEEDED, UNDECIDED, is_refusal};
use super::wire::{
    Field, Fields, Malformed, Value, bytes_field_len, put_bytes, put_number, put_varint, varint_len,
};

/// Details of one command's refusal, beyond its code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refusal {
    pub index: u32,
    pub reason: u8,
    pub retry_after_ms: u32,
    pub throttle_until_unix_ns: i64,
    pub detail: String,
    pub shares: Shares,
}

/// A source's share of a route, and the share that others wanted; all 0 where fairness does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    pub source: f64,
    pub competing: f64,
    pub volume: u32,
}

/// The hint for every command that is refused for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hint<'a> {
    pub retry_after_ms: u32,
    pub throttle_until_unix_ns: i64,
    pub detail: &'a str,
    pub shares: Shares,
}

impl Refusal {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut refusal = Self::default();
        let mut fields = Fields::new(bytes);
        let mut last = 0;
        while let Some(field) = fields.next()? {
            ascend(&mut last, field.number)?;
            match field.number {
                1 => refusal.index = number(&field)?,
                2 => refusal.reason = number(&field)?,
                3 => refusal.retry_after_ms = number(&field)?,
                4 => refusal.throttle_until_unix_ns = field.varint()? as i64,
                5 => refusal.detail = field.text()?.to_owned(),
                6 => refusal.shares.source = share(&field)?,
                7 => refusal.shares.competing = share(&field)?,
                8 => refusal.shares.volume = number(&field)?,
                _ => return Err(Malformed),
            }
        }
        Ok(refusal)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.detail.len());
        put_number(&mut out, 1, u64::from(self.index));
        put_number(&mut out, 2, u64::from(self.reason));
        put_number(&mut out, 3, u64::from(self.retry_after_ms));
        put_number(&mut out, 4, self.throttle_until_unix_ns as u64);
        if !self.detail.is_empty() {
            put_bytes(&mut out, 5, self.detail.as_bytes());
        }
        put_share(&mut out, 6, self.shares.source);
        put_share(&mut out, 7, self.shares.competing);
        put_number(&mut out, 8, u64::from(self.shares.volume));
        out
    }
}

/// Fields in ascending order, each once: nothing in the mesh writes them otherwise, and a repeated field
/// would let two readers disagree.
fn ascend(last: &mut u32, number: u32) -> Result<(), Malformed> {
    if number <= *last {
        return Err(Malformed);
    }
    *last = number;
    Ok(())
}

fn number<T: TryFrom<u64>>(field: &Field<'_>) -> Result<T, Malformed> {
    T::try_from(field.varint()?).map_err(|_| Malformed)
}

/// A share is a number from 0 to 1; anything else, NaN included, is no share.
fn share(field: &Field<'_>) -> Result<f64, Malformed> {
    match field.value {
        Value::Fixed64(bits) => {
            Some(f64::from_bits(bits)).filter(|share| (0.0..=1.0).contains(share)).ok_or(Malformed)
        }
        _ => Err(Malformed),
    }
}

fn put_share(out: &mut Vec<u8>, field: u32, share: f64) {
    if share > 0.0 {
        put_varint(out, u64::from(field) << 3 | 1);
        out.extend_from_slice(&share.min(1.0).to_bits().to_le_bytes());
    }
}

/// A parsed Verdicts message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub batch_seq: u64,
    pub first: u32,
    pub codes: Vec<u8>,
    pub refusals: Vec<Refusal>,
    pub last: bool,
    pub is_hello: bool,
}

impl Reply {
    pub fn read(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reply = Self::default();
        let mut fields = Fields::new(frame);
        let mut last = 0;
        while let Some(field) = fields.next()? {
            if !(field.number == 5 && last == 5) {
                ascend(&mut last, field.number)?;
            }
            match field.number {
                1 => {
                    field.bytes()?;
                    reply.is_hello = true;
                }
                2 => reply.batch_seq = field.varint()?,
                3 => reply.first = number(&field)?,
                4 => reply.codes = field.bytes()?.to_vec(),
                5 => reply.refusals.push(Refusal::read(field.bytes()?)?),
                6 => reply.last = number::<u8>(&field)? != 0,
                _ => return Err(Malformed),
            }
        }
        Ok(reply)
    }
}

/// Serialises a Verdicts message.
pub fn write_verdicts(batch_seq: u64, first: u32, codes: &[u8], refusals: &[Refusal], last: bool) -> Vec<u8> {
    let details: Vec<Vec<u8>> = refusals.iter().map(Refusal::encode).collect();
    let size: usize = details.iter().map(|detail| bytes_field_len(detail.len())).sum();
    let mut out = Vec::with_capacity(24 + bytes_field_len(codes.len()) + size);
    put_number(&mut out, 2, batch_seq);
    put_number(&mut out, 3, u64::from(first));
    if !codes.is_empty() {
        put_bytes(&mut out, 4, codes);
    }
    for detail in &details {
        put_bytes(&mut out, 5, detail);
    }
    put_number(&mut out, 6, u64::from(last));
    out
}

/// Field 2 (`header`) of every batch message.
pub fn write_header(batch_seq: u64, budget_ms: u32) -> Vec<u8> {
    let mut body = Vec::with_capacity(varint_len(batch_seq) + varint_len(u64::from(budget_ms)) + 2);
    put_number(&mut body, 1, batch_seq);
    put_number(&mut body, 2, u64::from(budget_ms));
    let mut out = Vec::with_capacity(bytes_field_len(body.len()));
    put_varint(&mut out, 2 << 3 | 2);
    put_varint(&mut out, body.len() as u64);
    out.extend_from_slice(&body);
    out
}

/// A subset of a batch's commands that went on together: position in the part → index in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Commands that follow each other; a whole homogeneous batch needs no map.
    Range {
        first: u32,
        count: u32,
    },
    Map(Vec<u32>),
}

impl Part {
    /// Keeps `indices` only when they are not simply consecutive.
    pub fn of(indices: Vec<u32>) -> Self {
        let first = indices.first().copied().unwrap_or(0);
        if indices.iter().zip(first..).all(|(index, expected)| *index == expected) {
            return Self::Range { first, count: indices.len() as u32 };
        }
        Self::Map(indices)
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Range { count, .. } => *count as usize,
            Self::Map(indices) => indices.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn index(&self, position: usize) -> Option<u32> {
        match self {
            Self::Range { first, count } => {
                let position = u32::try_from(position).ok().filter(|position| position < count)?;
                first.checked_add(position)
            }
            Self::Map(indices) => indices.get(position).copied(),
        }
    }
}

/// The state of one batch.
#[derive(Debug)]
pub struct Ledger {
    batch_seq: u64,
    codes: Vec<u8>,
    open: usize,
    parts: Vec<Part>,
    /// Commands that were refused before any hop, in order, and what there is to say about some of them.
    refused: Vec<u32>,
    explained: Vec<Refusal>,
    /// Nothing was let in: there are no commands to speak of, only this reason.
    frame_code: u8,
    /// Per command, whether it was decided here and not by a hop; empty while none was.
    here: Vec<bool>,
    /// Remarks on refused commands, each for itself and its like.
    remarks: Vec<Refusal>,
    /// Where delivered commands of strict routes are, as a hop told it.
    places: Vec<(u32, String)>,
    /// Whether the answers go to a service that remembers them. A producer's are for duplicates alone: it would take
    /// the place of one command for that of its like.
    tells_places: bool,
}

/// A batch is refused for a handful of reasons; a hop that gives a thousand is not quoted.
const MAX_REMARKS: usize = 64;

impl Ledger {
    pub fn new(batch_seq: u64, count: usize) -> Self {
        Self {
            batch_seq,
            codes: vec![UNDECIDED; count],
            open: count,
            parts: Vec::new(),
            refused: Vec::new(),
            explained: Vec::new(),
            frame_code: UNDECIDED,
            here: Vec::new(),
            remarks: Vec::new(),
            places: Vec::new(),
            tells_places: false,
        }
    }

    /// For a service that answers another one of the mesh, which remembers where commands are.
    pub fn tells_places(self) -> Self {
        Self { tells_places: true, ..self }
    }

    /// For a frame that was refused as a whole: its `opening` is final and carries `code` in a Refusal.
    pub fn refused_frame(batch_seq: u64, code: u8) -> Self {
        Self { frame_code: code, ..Self::new(batch_seq, 0) }
    }

    /// Decides a command before any hop has seen it.
    #[inline]
    pub fn refuse(&mut self, index: usize, code: u8) {
        if code == UNDECIDED {
            return;
        }
        if let Some(state) = self.codes.get_mut(index).filter(|state| **state == UNDECIDED) {
            *state = code;
            self.open -= 1;
            self.refused.push(index as u32);
        }
    }

    /// Adds the details in `opening` to a command that `refuse` decided; `reason` is filled in.
    pub fn explain(&mut self, refusal: Refusal) {
        self.remark(refusal.clone());
        self.explained.push(refusal);
    }

    /// Adds the next part; parts are numbered from 0.
    pub fn add_part(&mut self, part: Part) {
        self.parts.push(part);
    }

    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    pub fn batch_seq(&self) -> u64 {
        self.batch_seq
    }

    pub fn count(&self) -> usize {
        self.codes.len()
    }

    pub fn done(&self) -> bool {
        self.open == 0
    }

    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// True if the command was closed here, so that no other service reports its outcome.
    #[inline]
    pub fn closed_here(&self, index: usize) -> bool {
        self.here.get(index).copied().unwrap_or(false)
    }

    /// True if any command was closed here.
    pub fn any_closed_here(&self) -> bool {
        !self.here.is_empty()
    }

    /// Remarks on refused commands; each holds for those that are like the one it names.
    pub fn remarks(&self) -> &[Refusal] {
        &self.remarks
    }

    /// The command that stands at a position of a part.
    pub fn index_in(&self, part: usize, position: usize) -> Option<u32> {
        self.parts.get(part)?.index(position)
    }

    /// The decision about one command; `UNDECIDED` for an index outside the batch.
    #[inline]
    pub fn code(&self, index: usize) -> u8 {
        self.codes.get(index).copied().unwrap_or(UNDECIDED)
    }

    /// Verdicts for what was refused before any hop; empty when nothing was.
    ///
    /// A batch without commands is answered here, finally: no hop will.
    pub fn opening(&self) -> Vec<u8> {
        if self.frame_code != UNDECIDED {
            let refusal = Refusal { reason: self.frame_code, ..Refusal::default() };
            return write_verdicts(self.batch_seq, 0, &[], &[refusal], true);
        }
        if self.codes.is_empty() {
            return write_verdicts(self.batch_seq, 0, &[], &[], true);
        }
        let last = self.refused.len() == self.codes.len();
        self.answer(&self.refused, self.explained.clone(), last)
    }

    /// Takes what `reply` decides about a part that starts at `offset` of the batch it answers.
    pub fn merge(&mut self, part: usize, offset: u64, reply: &Reply) -> Vec<u8> {
        let Some(part) = self.parts.get(part) else { return Vec::new() };
        let first = u64::from(reply.first);
        let (Ok(start), Ok(skip)) =
            (usize::try_from(first.saturating_sub(offset)), usize::try_from(offset.saturating_sub(first)))
        else {
            return Vec::new();
        };
        let codes = reply.codes.get(skip..).unwrap_or_default();
        let room = part.len().saturating_sub(start).min(codes.len());
        let mut decided = Vec::with_capacity(room);
        for (position, code) in (start..).zip(&codes[..room]) {
            if *code != UNDECIDED {
                decide(&mut self.codes, &mut decided, part.index(position), *code);
            }
        }
        let refusals: Vec<Refusal> = reply
            .refusals
            .iter()
            .filter_map(|refusal| {
                let position = usize::try_from(u64::from(refusal.index).checked_sub(offset)?).ok()?;
                Some(Refusal { index: part.index(position)?, ..refusal.clone() })
            })
            .collect();
        for refusal in &refusals {
            self.remark(refusal.clone());
            if refusal.reason == DELIVERED && self.code(refusal.index as usize) == DELIVERED {
                self.places.push((refusal.index, refusal.detail.clone()));
            }
        }
        self.settle(&decided, refusals)
    }

    /// The places of delivered commands by their numbers, as far as they were told.
    pub fn places(&self) -> HashMap<u32, &str> {
        self.places.iter().map(|(index, place)| (*index, place.as_str())).collect()
    }

    /// Decides everything undecided as `code`.
    pub fn close(&mut self, code: u8, retry_after_ms: u32, detail: &str) -> Vec<u8> {
        let mut decided = Vec::with_capacity(self.open);
        for index in 0..self.codes.len() {
            decide(&mut self.codes, &mut decided, Some(index as u32), code);
        }
        self.settle_with_hint(&decided, code, &Hint { retry_after_ms, detail, ..Hint::default() })
    }

    /// Decides what is undecided as `codes` say, one per command of the batch; 0 says nothing. Each refusal among them
    /// is explained once, for the first command that it is decided about.
    ///
    /// `place` has a sentence about where a command is, or its first one if it is a duplicate; it may be empty.
    pub fn decide_each(
        &mut self,
        codes: &[u8],
        explain: impl Fn(u8) -> Refusal,
        place: impl Fn(u32) -> String,
    ) -> Vec<u8> {
        let mut decided = Vec::with_capacity(self.open);
        let mut refusals: Vec<Refusal> = Vec::new();
        let mut explained = [false; 256];
        for (index, code) in (0u32..).zip(codes) {
            let before = decided.len();
            decide(&mut self.codes, &mut decided, Some(index), *code);
            if decided.len() > before && is_refusal(*code) && !explained[usize::from(*code)] {
                explained[usize::from(*code)] = true;
                refusals.push(Refusal { index, ..explain(*code) });
            } else if decided.len() > before && matches!(*code, DELIVERED | DUPLICATE) {
                let detail = place(index);
                if !detail.is_empty() {
                    refusals.push(Refusal { index, detail, ..Refusal::default() });
                }
            }
        }
        self.settle(&decided, refusals)
    }

    /// Decides commands as duplicates; each comes with the place of its first one.
    pub fn close_duplicates(&mut self, found: Vec<(u32, String)>) -> Vec<u8> {
        let mut decided = Vec::with_capacity(found.len());
        for (index, _) in &found {
            decide(&mut self.codes, &mut decided, Some(*index), DUPLICATE);
        }
        self.note_here(&decided);
        let refusals = found
            .into_iter()
            .map(|(index, detail)| Refusal { index, detail, ..Refusal::default() })
            .collect();
        self.settle(&decided, refusals)
    }

    /// Decides what is undecided among positions `first .. first + count` of one part.
    pub fn close_part(
        &mut self,
        part: usize,
        first: usize,
        count: usize,
        code: u8,
        retry_after_ms: u32,
        detail: &str,
    ) -> Vec<u8> {
        let Some(part) = self.parts.get(part) else { return Vec::new() };
        let mut decided = Vec::new();
        for position in first..first.saturating_add(count).min(part.len()) {
            decide(&mut self.codes, &mut decided, part.index(position), code);
        }
        self.settle_with_hint(&decided, code, &Hint { retry_after_ms, detail, ..Hint::default() })
    }

    /// Decides what is undecided among `indices`.
    pub fn close_indices(
        &mut self,
        indices: impl Iterator<Item = u32>,
        code: u8,
        hint: &Hint<'_>,
    ) -> Vec<u8> {
        let mut decided = Vec::new();
        for index in indices {
            decide(&mut self.codes, &mut decided, Some(index), code);
        }
        self.settle_with_hint(&decided, code, hint)
    }

    fn remark(&mut self, refusal: Refusal) {
        // The place of one command is not that of its like.
        if matches!(refusal.reason, DELIVERED | DUPLICATE) {
            return;
        }
        if self.remarks.len() < MAX_REMARKS && (refusal.retry_after_ms != 0 || !refusal.detail.is_empty()) {
            self.remarks.push(refusal);
        }
    }

    fn note_here(&mut self, decided: &[u32]) {
        if !decided.is_empty() {
            self.here.resize(self.codes.len(), false);
            for index in decided {
                self.here[*index as usize] = true;
            }
        }
    }

    fn settle_with_hint(&mut self, decided: &[u32], code: u8, hint: &Hint<'_>) -> Vec<u8> {
        self.note_here(decided);
        let told = match code {
            // A producer that is to wait must know it of each command: its batch may be cut apart on the way back.
            RATE_LIMIT_EXCEEDED | FAIRNESS_VIOLATION => decided.len(),
            _ if is_refusal(code) => 1,
            _ => 0,
        };
        let refusals: Vec<Refusal> = decided
            .iter()
            .take(told)
            .map(|index| Refusal {
                index: *index,
                reason: code,
                retry_after_ms: hint.retry_after_ms,
                throttle_until_unix_ns: hint.throttle_until_unix_ns,
                detail: hint.detail.to_owned(),
                shares: hint.shares,
            })
            .collect();
        // The first stands for all: a thousand equal details must not take the room of another lane.
        if let Some(refusal) = refusals.first() {
            self.remark(refusal.clone());
        }
        self.settle(decided, refusals)
    }

    fn settle(&mut self, decided: &[u32], refusals: Vec<Refusal>) -> Vec<u8> {
        self.open -= decided.len();
        self.answer(decided, refusals, self.open == 0)
    }

    /// Verdicts about `decided`, with those of `refusals` that speak of them.
    fn answer(&self, decided: &[u32], mut refusals: Vec<Refusal>, last: bool) -> Vec<u8> {
        let (Some(low), Some(high)) = (decided.iter().min().copied(), decided.iter().max().copied()) else {
            return Vec::new();
        };
        let mut codes = vec![UNDECIDED; (high - low) as usize + 1];
        for index in decided {
            codes[(index - low) as usize] = self.code(*index as usize);
        }
        refusals.retain_mut(|refusal| {
            let place = refusal.index.checked_sub(low).and_then(|place| codes.get(place as usize));
            refusal.reason = place.copied().unwrap_or(UNDECIDED);
            match refusal.reason {
                DELIVERED => self.tells_places && !refusal.detail.is_empty(),
                DUPLICATE => true,
                reason => is_refusal(reason),
            }
        });
        self.tell_apart(low, &codes, &mut refusals);
        write_verdicts(self.batch_seq, low, &codes, &refusals, last)
    }
}

impl Ledger {
    /// A producer takes a remark for that of all later commands with the same verdict: where one duplicate has a place,
    /// each has a word of its own, if an empty one.
    fn tell_apart(&self, low: u32, codes: &[u8], refusals: &mut Vec<Refusal>) {
        let told: HashSet<u32> =
            refusals.iter().filter(|one| one.reason == DUPLICATE).map(|one| one.index).collect();
        if told.is_empty() {
            return;
        }
        let silent = (low..).zip(codes).filter(|(index, code)| **code == DUPLICATE && !told.contains(index));
        let silent: Vec<Refusal> =
            silent.map(|(index, code)| Refusal { index, reason: *code, ..Refusal::default() }).collect();
        refusals.extend(silent);
        refusals.sort_by_key(|one| one.index);
    }
}

#[inline]
fn decide(codes: &mut [u8], decided: &mut Vec<u32>, index: Option<u32>, code: u8) {
    if let Some(index) = index
        && code != UNDECIDED
        && let Some(state) = codes.get_mut(index as usize)
        && *state == UNDECIDED
    {
        *state = code;
        decided.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::*;
    use super::*;

    fn reply(first: u32, codes: &[u8]) -> Reply {
        Reply { first, codes: codes.to_vec(), ..Reply::default() }
    }

    fn read(frame: &[u8]) -> Reply {
        Reply::read(frame).unwrap()
    }

    fn nothing(_: u8) -> Refusal {
        Refusal::default()
    }

    /// Index, reason and detail of each remark.
    fn told(answer: &[u8]) -> Vec<(u32, u8, String)> {
        read(answer).refusals.into_iter().map(|one| (one.index, one.reason, one.detail)).collect()
    }

    #[test]
    fn where_a_command_is_goes_as_far_as_the_service_that_remembers_it() {
        let mut mailbox = Ledger::new(1, 3).tells_places();
        let answer = mailbox.decide_each(&[DELIVERED, DUPLICATE, DELIVERED], nothing, |index| {
            if index < 2 { format!("at {index}") } else { String::new() }
        });
        let both = [(0, DELIVERED, "at 0".to_owned()), (1, DUPLICATE, "at 1".to_owned())];
        assert_eq!(told(&answer), both);
        let mut slow = Ledger::new(2, 3).tells_places();
        slow.add_part(Part::of(vec![0, 1, 2]));
        assert_eq!(told(&slow.merge(0, 0, &read(&answer))), both);
        assert_eq!(slow.places(), HashMap::from([(0, "at 0")]));
        assert!(slow.remarks().is_empty(), "one command's place is no remark on its like");
        // A producer takes a remark for that of all later ones with the same verdict.
        let mut fast = Ledger::new(3, 3);
        fast.add_part(Part::of(vec![0, 1, 2]));
        assert_eq!(told(&fast.merge(0, 0, &read(&answer))), both[1..]);
        assert_eq!(fast.places(), HashMap::from([(0, "at 0")]));
    }

    #[test]
    fn a_duplicate_whose_first_is_not_known_gets_no_others_place() {
        let mut ledger = Ledger::new(1, 4);
        ledger.refuse(3, DUPLICATE);
        let answer = ledger.close_duplicates(vec![(0, "first".to_owned()), (1, String::new())]);
        assert_eq!(told(&answer), [(0, DUPLICATE, "first".to_owned()), (1, DUPLICATE, String::new())]);
        ledger.explain(Refusal {
            index: 2,
            reason: DUPLICATE,
            detail: "second".into(),
            ..Refusal::default()
        });
        ledger.refuse(2, DUPLICATE);
        let both = [(2, DUPLICATE, "second".to_owned()), (3, DUPLICATE, String::new())];
        assert_eq!(told(&ledger.opening()), both);
    }

    #[test]
    fn whole_batch_reply_is_final_and_lands_in_place() {
        let mut ledger = Ledger::new(7, 4);
        ledger.add_part(Part::of(vec![0, 1, 2, 3]));
        let answer = read(&ledger.merge(0, 0, &reply(0, &[DELIVERED; 4])));
        assert_eq!((answer.batch_seq, answer.first, answer.last), (7, 0, true));
        assert_eq!(answer.codes, [DELIVERED; 4]);
        assert!(ledger.done());
    }

    #[test]
    fn reply_is_translated_through_map_and_offset() {
        let mut ledger = Ledger::new(1, 6);
        ledger.add_part(Part::of(vec![4, 1, 5]));
        let mut partial = reply(9, &[DELIVERED, 0, ACL_DENY, DELIVERED]);
        partial.refusals.push(Refusal { index: 11, detail: "no".into(), ..Refusal::default() });
        partial.refusals.push(Refusal { index: 0, ..Refusal::default() });
        partial.refusals.push(Refusal { index: 400, ..Refusal::default() });
        let answer = read(&ledger.merge(0, 9, &partial));
        assert_eq!(
            (answer.first, answer.codes.as_slice(), answer.last),
            (4, &[DELIVERED, ACL_DENY][..], false)
        );
        let expected = Refusal { index: 5, reason: ACL_DENY, detail: "no".into(), ..Refusal::default() };
        assert_eq!(answer.refusals, [expected]);
        assert_eq!(ledger.codes(), [0, 0, 0, 0, DELIVERED, ACL_DENY]);
    }

    #[test]
    fn reply_that_starts_before_the_part_is_cut() {
        let mut ledger = Ledger::new(1, 2);
        ledger.add_part(Part::Range { first: 0, count: 2 });
        let answer =
            read(&ledger.merge(0, 3, &reply(1, &[SATURATED, SATURATED, DELIVERED, DUPLICATE, SATURATED])));
        assert_eq!(answer.codes, [DELIVERED, DUPLICATE]);
        assert!(answer.last);
    }

    #[test]
    fn second_decision_is_ignored() {
        let mut ledger = Ledger::new(1, 2);
        ledger.add_part(Part::Range { first: 0, count: 2 });
        assert!(!ledger.merge(0, 0, &reply(0, &[DELIVERED])).is_empty());
        assert!(ledger.merge(0, 0, &reply(0, &[SATURATED])).is_empty());
        let answer = read(&ledger.merge(0, 0, &reply(0, &[SATURATED, DELIVERED])));
        assert_eq!((answer.first, answer.codes.as_slice(), answer.last), (1, &[DELIVERED][..], true));
        assert!(ledger.close(OUTCOME_UNKNOWN, 0, "").is_empty());
    }

    #[test]
    fn numbers_out_of_range_are_ignored() {
        let mut ledger = Ledger::new(1, 2);
        ledger.add_part(Part::Map(vec![1, 90]));
        assert!(ledger.merge(3, 0, &reply(0, &[1])).is_empty());
        assert!(ledger.merge(0, u64::MAX, &reply(0, &[1])).is_empty());
        assert!(ledger.merge(0, 0, &reply(u32::MAX, &[1])).is_empty());
        assert_eq!(read(&ledger.merge(0, 0, &reply(0, &[1, 1, 1]))).codes, [1]);
        assert!(ledger.close_part(0, usize::MAX, usize::MAX, SATURATED, 0, "").is_empty());
        assert!(ledger.close_part(7, 0, 1, SATURATED, 0, "").is_empty());
        assert!(!ledger.done());
    }

    #[test]
    fn opening_speaks_of_early_refusals_only() {
        let mut ledger = Ledger::new(1, 4);
        assert!(ledger.opening().is_empty());
        ledger.refuse(3, WRONG_AUDIENCE);
        ledger.refuse(1, MALFORMED);
        ledger.refuse(1, OVERSIZED);
        ledger.refuse(99, OVERSIZED);
        ledger.explain(Refusal { index: 3, detail: "epoch-2".into(), ..Refusal::default() });
        ledger.add_part(Part::of(vec![0, 2]));
        let before = ledger.opening();
        ledger.merge(0, 0, &reply(0, &[DELIVERED, DELIVERED]));
        assert_eq!(ledger.opening(), before);
        let answer = read(&before);
        assert_eq!((answer.first, answer.last), (1, false));
        assert_eq!(answer.codes, [MALFORMED, 0, WRONG_AUDIENCE]);
        assert_eq!((answer.refusals[0].reason, answer.refusals[0].index), (WRONG_AUDIENCE, 3));
    }

    #[test]
    fn opening_is_final_when_nothing_goes_on() {
        let mut ledger = Ledger::new(1, 1);
        ledger.refuse(0, MALFORMED);
        assert!(read(&ledger.opening()).last);
        assert!(read(&Ledger::new(5, 0).opening()).last);
        let frame = read(&Ledger::refused_frame(5, OVERSIZED).opening());
        assert!(frame.last && frame.codes.is_empty() && frame.batch_seq == 5);
        assert_eq!(frame.refusals[0].reason, OVERSIZED);
    }

    #[test]
    fn close_hints_once() {
        let mut ledger = Ledger::new(1, 4);
        ledger.add_part(Part::of(vec![3, 2, 1]));
        let answer = read(&ledger.close_part(0, 0, 2, SATURATED, 250, "full"));
        assert_eq!((answer.first, answer.codes.as_slice(), answer.last), (2, &[SATURATED; 2][..], false));
        assert_eq!(answer.refusals.len(), 1);
        assert_eq!((answer.refusals[0].index, answer.refusals[0].retry_after_ms), (3, 250));
        let answer = read(&ledger.close(OUTCOME_UNKNOWN, 0, ""));
        assert_eq!((answer.codes.as_slice(), answer.last), (&[OUTCOME_UNKNOWN; 2][..], true));
    }

    #[test]
    fn each_command_is_decided_as_its_code_says() {
        let mut ledger = Ledger::new(1, 6);
        ledger.refuse(0, MALFORMED);
        let explain = |code| Refusal { retry_after_ms: u32::from(code), ..Refusal::default() };
        let answer = read(&ledger.decide_each(
            &[DELIVERED, DUPLICATE, SATURATED, 0, SATURATED, CONFLICT, 9],
            explain,
            |_| String::new(),
        ));
        assert_eq!((answer.first, answer.last), (1, false));
        assert_eq!(answer.codes, [DUPLICATE, SATURATED, 0, SATURATED, CONFLICT]);
        let told: Vec<_> =
            answer.refusals.iter().map(|one| (one.index, one.reason, one.retry_after_ms)).collect();
        assert_eq!(told, [(2, SATURATED, 70), (5, CONFLICT, 71)]);
        assert!(read(&ledger.decide_each(&[DELIVERED; 6], explain, |_| String::new())).last);
    }

    #[test]
    fn verdicts_survive_the_wire() {
        let refusal = Refusal {
            index: 3,
            reason: 70,
            retry_after_ms: 1,
            throttle_until_unix_ns: -5,
            detail: "d".into(),
            shares: Shares { source: 0.91, competing: 0.12, volume: 60 },
        };
        let answer = read(&write_verdicts(9, 2, &[0, 70], std::slice::from_ref(&refusal), true));
        let expected = Reply {
            batch_seq: 9,
            first: 2,
            codes: vec![0, 70],
            refusals: vec![refusal],
            last: true,
            is_hello: false,
        };
        assert_eq!(answer, expected);
        assert!(read(&[0x0a, 0]).is_hello);
    }

    #[test]
    fn strange_verdicts_are_malformed() {
        for frame in [
            &b"\x10"[..],
            b"\x10\x01\x10\x01",
            b"\x18\xff\xff\xff\xff\xff\x01",
            b"\x38\x01",
            b"\x22\x05\x01",
            b"\x2a\x02\x10\x01\x10\x01",
            b"\x2a\x03\x10\x80\x02",
        ] {
            assert_eq!(Reply::read(frame), Err(Malformed), "{frame:?}");
        }
    }
}
