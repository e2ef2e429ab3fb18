//! Slow's side of an escalated batch: what there is to decide, and sending on what was approved.
//!
//! It approves nothing by itself: a command goes on only under a key that the caller named, and only while it is
//! undecided.

use super::duplicates::{Duplicates, Fingerprint, contents};
use super::frames::{Limits, Span};
use super::ledger::{Hint, Ledger};
use super::parsed_batch::{Item, Lane, ParsedBatch};
use super::reframer::{Destination, Reframers, Send, write_sends};
use super::telemetry::PHASE_FRESH;
use super::verdict::{DELIVERED, DUPLICATE, OUTCOME_UNKNOWN, UNDECIDED};
use super::wire::{Fields, Malformed};

/// The caller asked for something that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse(pub &'static str);

/// An opened ArbitrationBatch.
#[derive(Debug)]
pub struct Arbitration {
    frame: Vec<u8>,
    parsed: ParsedBatch,
    /// Commands by key: those of key k are `members[starts[k]..starts[k + 1]]`.
    members: Vec<u32>,
    starts: Vec<usize>,
    /// By key: whether it was sent on, and whether each of its ids shall be delivered once.
    sent: Vec<Option<bool>>,
}

/// A way for the commands of one key.
#[derive(Clone, Debug)]
pub struct Approval {
    pub key: usize,
    pub destination: Destination,
    /// A `GRANT_`: by what permit they go.
    pub grant: u8,
    /// Version of the right that the authority named.
    pub acl_version: u64,
}

/// One command of a strict route, as its claim names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub index: u32,
    pub id: [u8; 16],
    /// BLAKE3 of target, name and payload.
    pub contents: [u8; 32],
}

impl Arbitration {
    /// Opens a frame; commands that do not parse are decided in the ledger.
    pub fn open(frame: &[u8], limits: &Limits) -> (Self, Ledger) {
        let parsed = ParsedBatch::open_escalations(frame, limits, "slow");
        let ledger = parsed.ledger().tells_places();
        let mut starts = vec![0];
        let mut sum = 0;
        for lane in &parsed.lanes {
            sum += lane.count as usize;
            starts.push(sum);
        }
        let mut members = vec![0; sum];
        let mut next = starts.clone();
        for (index, item) in (0..).zip(&parsed.items) {
            if (item.lane as usize) < parsed.lanes.len() {
                let place = &mut next[item.lane as usize];
                members[*place] = index;
                *place += 1;
            }
        }
        let sent = vec![None; parsed.lanes.len()];
        let frame = if parsed.frame_code == 0 { frame.to_vec() } else { Vec::new() };
        (Self { frame, parsed, members, starts, sent }, ledger)
    }

    /// The frame that the sends are of.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    pub fn budget_ms(&self) -> u32 {
        self.parsed.header.budget_ms
    }

    pub fn frame_code(&self) -> u8 {
        self.parsed.frame_code
    }

    /// Distinct (source, target, name, reason), in order of first appearance.
    pub fn keys(&self) -> Vec<(&str, &str, &str, u8)> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        let key = |lane: &Lane| {
            let [source, target, name] =
                [lane.source, lane.target, lane.name].map(|span| text(span.of(&self.frame)));
            (source, target, name, lane.reason)
        };
        self.parsed.lanes.iter().map(key).collect()
    }

    /// The number of undecided commands of each key.
    pub fn undecided(&self, ledger: &Ledger) -> Vec<u32> {
        let open = |key| self.open_members(key, ledger).count() as u32;
        (0..self.parsed.lanes.len()).map(open).collect()
    }

    /// Refuses the undecided commands of a key but for the first `spare` of them.
    pub fn refuse(
        &self,
        ledger: &mut Ledger,
        key: usize,
        spare: usize,
        code: u8,
        hint: &Hint<'_>,
    ) -> Result<Vec<u8>, Misuse> {
        self.check(key)?;
        let open: Vec<u32> = self.open_members(key, ledger).skip(spare).collect();
        Ok(ledger.close_indices(open.into_iter(), code, hint))
    }

    /// Decides some commands by their numbers in the batch; those decided before stay as they are.
    pub fn decide(&self, ledger: &mut Ledger, indices: &[u32], code: u8, hint: &Hint<'_>) -> Vec<u8> {
        ledger.close_indices(indices.iter().copied(), code, hint)
    }

    /// Answers those commands of a key that are known to be delivered.
    pub fn settle_known(
        &self,
        ledger: &mut Ledger,
        key: usize,
        known: &Duplicates,
        now_mono_ns: i64,
    ) -> Result<Vec<u8>, Misuse> {
        self.check(key)?;
        if known.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<(u32, String)> = self
            .open_members(key, ledger)
            .filter_map(|index| {
                Some((index, known.knows(&self.fingerprint(index)?, now_mono_ns)?.to_owned()))
            })
            .collect();
        Ok(ledger.close_duplicates(found))
    }

    /// Decides commands as duplicates, each with a word on its first one.
    pub fn settle_duplicates(&self, ledger: &mut Ledger, found: Vec<(u32, String)>) -> Vec<u8> {
        ledger.close_duplicates(found)
    }

    /// Remembers the deliveries under strict keys. Duplicates of another instance's delivery are not remembered: the
    /// time of that delivery is not known here.
    pub fn remember(&self, ledger: &Ledger, known: &mut Duplicates, until_mono_ns: i64, now_mono_ns: i64) {
        let places = ledger.places();
        for (key, once) in self.sent.iter().enumerate() {
            if *once != Some(true) {
                continue;
            }
            for index in &self.members[self.starts[key]..self.starts[key + 1]] {
                if ledger.code(*index as usize) == DELIVERED
                    && let Some(command) = self.fingerprint(*index)
                {
                    let first = places.get(index).copied().unwrap_or_default();
                    known.remember(&command, first, until_mono_ns, now_mono_ns);
                }
            }
        }
    }

    /// The undecided commands of a key, as claims name them. One without a readable id is left out.
    pub fn claims(&self, ledger: &Ledger, key: usize) -> Result<Vec<Claim>, Misuse> {
        self.check(key)?;
        Ok(self.open_members(key, ledger).filter_map(|index| self.claim(index)).collect())
    }

    /// The number of commands of a key that were delivered by us, or may have been.
    pub fn spent(&self, ledger: &Ledger, key: usize) -> Result<usize, Misuse> {
        self.check(key)?;
        let codes = self.members[self.starts[key]..self.starts[key + 1]].iter();
        Ok(codes
            .filter(|index| matches!(ledger.code(**index as usize), DELIVERED | OUTCOME_UNKNOWN | UNDECIDED))
            .count())
    }

    /// The number of commands of a key, and of those that were delivered before.
    pub fn duplicates(&self, ledger: &Ledger, key: usize) -> Result<(usize, usize), Misuse> {
        self.check(key)?;
        let members = &self.members[self.starts[key]..self.starts[key + 1]];
        let found = members.iter().filter(|index| ledger.code(**index as usize) == DUPLICATE).count();
        Ok((members.len(), found))
    }

    /// Sends on the undecided commands of the approved keys; each key at most once.
    pub fn dispatch(&mut self, ledger: &mut Ledger, approved: &[Approval]) -> Result<Vec<Send>, Misuse> {
        let mut order: Vec<&Approval> = approved.iter().collect();
        order.sort_by_key(|approval| approval.key);
        if order.windows(2).any(|pair| pair[0].key == pair[1].key) {
            return Err(Misuse("a key is approved twice"));
        }
        for approval in &order {
            match self.sent.get(approval.key) {
                None => return Err(Misuse("no such key")),
                Some(Some(_)) => return Err(Misuse("dispatched before")),
                Some(None) => {}
            }
        }
        let mut reframers = Reframers::default();
        let mut ways = vec![None; self.parsed.lanes.len()];
        for approval in order {
            self.sent[approval.key] = Some(approval.destination.once_ms > 0);
            ways[approval.key] = Some(reframers.place(approval.destination.clone()));
            let (told, block) = (self.parsed.lanes[approval.key].told, &mut self.parsed.block);
            let topic = block.intern(&approval.destination.topic);
            if let Some(facts) = block.facts(told) {
                // The ACL was read for this very decision.
                (facts.topic, facts.phase, facts.grant) = (topic, PHASE_FRESH, approval.grant);
                facts.acl_version = approval.acl_version;
            }
        }
        for (index, item) in (0..).zip(&self.parsed.items) {
            if let Some(Some(at)) = ways.get(item.lane as usize)
                && ledger.code(index as usize) == UNDECIDED
            {
                reframers.reframers[*at].1.add(index, item.run, item.raw);
            }
        }
        Ok(write_sends(&self.parsed, reframers.reframers, ledger))
    }

    /// A TelemetryBlock with one row per command that was decided since the last call.
    pub fn telemetry(&mut self, ledger: &Ledger, settled_unix_ns: i64) -> Vec<u8> {
        self.parsed.block.settle(settled_unix_ns, ledger)
    }

    fn check(&self, key: usize) -> Result<(), Misuse> {
        if key < self.parsed.lanes.len() { Ok(()) } else { Err(Misuse("no such key")) }
    }

    /// The undecided commands of a key, in order.
    fn open_members<'a>(&'a self, key: usize, ledger: &'a Ledger) -> impl Iterator<Item = u32> + 'a {
        let members = &self.members[self.starts[key]..self.starts[key + 1]];
        members.iter().copied().filter(|index| ledger.code(*index as usize) == UNDECIDED)
    }

    fn fingerprint(&self, index: u32) -> Option<Fingerprint> {
        let (id, [source, target, name, payload]) = self.identity(index)?;
        Some(Fingerprint::of(source, &id, target, name, payload))
    }

    fn claim(&self, index: u32) -> Option<Claim> {
        let (id, [_, target, name, payload]) = self.identity(index)?;
        Some(Claim { index, id, contents: contents(target, name, payload) })
    }

    /// Id, and source, target, name and payload.
    fn identity(&self, index: u32) -> Option<([u8; 16], [&[u8]; 4])> {
        let item = self.parsed.items.get(index as usize)?;
        let lane = self.parsed.lanes.get(item.lane as usize)?;
        let (id, payload) = self.id_and_payload(item)?;
        let [source, target, name] = [lane.source, lane.target, lane.name].map(|span| span.of(&self.frame));
        Some((id, [source, target, name, payload]))
    }

    fn id_and_payload(&self, item: &Item) -> Option<([u8; 16], &[u8])> {
        let command = command_body(&self.frame, item.raw).ok()?;
        let (mut id, mut payload) = (None, &[][..]);
        let mut fields = Fields::new(command);
        while let Ok(Some(field)) = fields.next() {
            match field.number {
                1 => id = super::telemetry::uuid_bytes(field.bytes().ok()?),
                10 => payload = field.bytes().ok()?,
                _ => {}
            }
        }
        Some((id?, payload))
    }
}

/// The bytes of the one `command` field that `raw` spans.
fn command_body(frame: &[u8], raw: Span) -> Result<&[u8], Malformed> {
    Fields::new(raw.of(frame)).next()?.ok_or(Malformed)?.bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::ledger::Reply;
    use super::super::testing::{batch, command, escalated, mangled};
    use super::super::verdict::{ACL_DENY, MALFORMED, RATE_LIMIT_EXCEEDED};
    use super::*;

    fn escalations() -> Vec<u8> {
        let frame = batch(&[
            ("acme/shop", vec![command("bot", "say"), vec![0xff], command("bot", "go")]),
            ("globex/shop", vec![command("bot", "say"), command("bot", "say")]),
        ]);
        escalated(&frame)
    }

    fn to_bot(key: usize, once: bool) -> Approval {
        let (topic, once_ms) = (Arc::from("acme/bot"), if once { 300_000 } else { 0 });
        Approval { key, destination: Destination { queue: 0, topic, once_ms }, grant: 1, acl_version: 7 }
    }

    #[test]
    fn the_first_of_a_key_pass_and_the_rest_are_refused_with_the_same_hint_each() {
        let (arbitration, mut ledger) = Arbitration::open(&escalations(), &Limits::MESH);
        let hint = Hint { retry_after_ms: 5, throttle_until_unix_ns: 7, detail: "x", ..Hint::default() };
        let answer = arbitration.refuse(&mut ledger, 2, 1, RATE_LIMIT_EXCEEDED, &hint).unwrap();
        let told = Reply::read(&answer).unwrap().refusals;
        assert_eq!(told.iter().map(|refusal| refusal.throttle_until_unix_ns).collect::<Vec<_>>(), [7]);
        assert_eq!(arbitration.undecided(&ledger), [1, 1, 1]);
        assert_eq!(arbitration.spent(&ledger, 2), Ok(1));
        assert_eq!(
            arbitration.refuse(&mut ledger, 3, 0, ACL_DENY, &Hint::default()),
            Err(Misuse("no such key"))
        );
    }

    #[test]
    fn what_was_delivered_once_is_known_the_next_time() {
        let (mut arbitration, mut ledger) = Arbitration::open(&escalations(), &Limits::MESH);
        let mut known = Duplicates::new(10);
        arbitration.dispatch(&mut ledger, &[to_bot(0, true), to_bot(1, false)]).unwrap();
        ledger.merge(0, 0, &Reply { codes: vec![DELIVERED; 2], ..Reply::default() });
        arbitration.remember(&ledger, &mut known, 100, 0);
        assert_eq!(known.len(), 1);
        let (again, mut ledger) = Arbitration::open(&escalations(), &Limits::MESH);
        again.settle_known(&mut ledger, 0, &known, 99).unwrap();
        again.settle_known(&mut ledger, 2, &known, 99).unwrap();
        assert_eq!(ledger.codes(), [DUPLICATE, 0, 0, 0]);
    }

    #[test]
    fn only_approved_and_undecided_commands_go_on() {
        let (mut arbitration, mut ledger) = Arbitration::open(&escalations(), &Limits::MESH);
        let names: Vec<_> = arbitration.keys().iter().map(|key| (key.0, key.2)).collect();
        assert_eq!(names, [("acme/shop", "say"), ("acme/shop", "go"), ("globex/shop", "say")]);
        assert!(arbitration.refuse(&mut ledger, 0, 0, ACL_DENY, &Hint::default()).is_ok());
        let sends = arbitration.dispatch(&mut ledger, &[to_bot(2, false), to_bot(0, false)]).unwrap();
        assert_eq!(sends.iter().map(|send| send.count).collect::<Vec<_>>(), [2]);
        assert_eq!(arbitration.dispatch(&mut ledger, &[to_bot(2, false)]), Err(Misuse("dispatched before")));
        assert_eq!(ledger.codes(), [ACL_DENY, 0, 0, 0]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&escalations()) {
            let (mut arbitration, mut ledger) = Arbitration::open(&frame, &Limits::MESH);
            let keys = arbitration.keys().len();
            let approved: Vec<_> = (0..keys).map(|key| to_bot(key, key % 2 == 0)).collect();
            let claims: usize = (0..keys).map(|key| arbitration.claims(&ledger, key).unwrap().len()).sum();
            assert!(claims <= ledger.count());
            let sent: usize =
                arbitration.dispatch(&mut ledger, &approved).unwrap().iter().map(|send| send.count).sum();
            let refused = ledger.codes().iter().filter(|code| **code == MALFORMED).count();
            assert_eq!(sent + refused, ledger.count());
        }
    }
}
