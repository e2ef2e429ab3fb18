//! Shield's decision about a batch: frame, schema, suspension, key, audience, window, HMAC, nonce; in that order.
//!
//! It must never let one bad command spoil its neighbours, look up a key under anything but the authenticated
//! source, or let bytes that no HMAC has vouched for into a table: until then only fixed counters move.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use std::hash::BuildHasher;

use hashbrown::HashMap;

use super::command::{self, Command};
use super::flood::FloodGate;
use super::frames::{self, Span};
use super::keys::KeySet;
use super::ledger::{Ledger, Part, Refusal};
use super::nonces::{Claim, Nonce, NonceSet};
use super::parsed_batch::ParsedBatch;
use super::runs::{Caller, Passed, Runs};
use super::sampled::Sampled;
use super::submission::{Frame, Limits};
use super::telemetry::{BY_VERDICT, Detail, Row, SKEW_NEAR_LIMIT, SKEW_SAMPLE, TelemetryBlock, uuid_bytes};
use super::timestamp;
use super::verdict;
use super::wire::Malformed;

/// Keys and state of a source.
#[derive(Clone)]
struct SourceState {
    keys: KeySet,
    suspended: bool,
}

impl Default for SourceState {
    fn default() -> Self {
        Self { keys: KeySet::none(), suspended: false }
    }
}

/// The judgement of a batch.
pub struct Judged {
    pub ledger: Ledger,
    pub budget_ms: u32,
    pub accepted: usize,
    /// To be written with the frame that was judged.
    pub runs: Runs,
    /// 0, or why the frame as a whole was refused.
    pub frame_code: u8,
    /// One row per refused command, and those about clock skew.
    pub rows: TelemetryBlock,
    /// Commands that were vouched for and whose trace is sampled.
    pub sampled: Sampled,
}

pub struct Admission {
    audience: Box<str>,
    window_ns: i64,
    /// From this skew on a producer is warned.
    near_limit_ns: u64,
    sampling: u64,
    limits: Limits,
    sources: RwLock<HashMap<Box<str>, SourceState, foldhash::fast::RandomState>>,
    nonces: Mutex<NonceSet>,
    /// The latest time that was ever given; time that steps back is not followed.
    latest_unix_ns: AtomicI64,
    floods: Mutex<FloodGate>,
    counts: [AtomicU64; COUNTED],
    accepted: AtomicU64,
    refused_frames: AtomicU64,
}

/// Verdicts are below this.
const COUNTED: usize = 128;

impl Admission {
    /// `None` when the audience is not one that a command could name.
    pub fn new(audience: &str, window_ms: u32, nonces: NonceSet, limits: Limits) -> Option<Self> {
        command::is_audience(audience.as_bytes()).then(|| Self {
            audience: audience.into(),
            window_ns: i64::from(window_ms) * 1_000_000,
            near_limit_ns: u64::from(window_ms) * 800_000,
            sampling: foldhash::fast::RandomState::default().hash_one(0u8) | 1,
            limits,
            sources: RwLock::default(),
            nonces: Mutex::new(nonces),
            latest_unix_ns: AtomicI64::new(i64::MIN),
            floods: Mutex::default(),
            counts: [const { AtomicU64::new(0) }; COUNTED],
            accepted: AtomicU64::new(0),
            refused_frames: AtomicU64::new(0),
        })
    }

    pub fn set_keyset(&self, source: &str, keys: KeySet) {
        self.change(source, |state| state.keys = keys.counting_on(&state.keys));
    }

    pub fn remove_keyset(&self, source: &str) {
        self.change(source, |state| state.keys = KeySet::none());
    }

    /// `<tenant>/*` stands for every source of the tenant, also one that gets its first key later.
    pub fn set_suspended(&self, source: &str, suspended: bool) {
        self.change(source, |state| state.suspended = suspended);
    }

    /// Commands let in per (source, key version) since the last call. Only what an HMAC vouched for is counted, in a
    /// counter of each key, so that no caller can make this grow.
    pub fn drain_usage(&self) -> Vec<(String, String, u64)> {
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        let mut usage = Vec::new();
        for (source, state) in sources.iter() {
            for (version, used) in state.keys.drain_usage() {
                usage.push((source.to_string(), version.to_owned(), used));
            }
        }
        usage
    }

    fn change(&self, source: &str, change: impl FnOnce(&mut SourceState)) {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let state = sources.entry(source.into()).or_default();
        change(state);
        if state.keys.is_empty() && !state.suspended {
            sources.remove(source);
        }
    }

    fn state_of(&self, source: &str) -> SourceState {
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        let mut state = sources.get(source).cloned().unwrap_or_default();
        let tenant = source.split_once('/').map_or("", |(tenant, _)| tenant);
        // Once per batch. No certificate has a service of that name, so no caller is this entry itself.
        state.suspended |= sources.get(format!("{tenant}/*").as_str()).is_some_and(|all| all.suspended);
        state
    }

    fn nonces(&self) -> MutexGuard<'_, NonceSet> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a serialised Submission.
    pub fn judge(&self, submission: &[u8], caller: Caller<'_>, now_unix_ns: i64) -> Judged {
        let mut frame = Frame::default();
        match frame.read(submission, &self.limits) {
            Ok(()) => self.judge_commands(&frame, caller, now_unix_ns),
            Err(code) => self.refuse_frame(&frame, code, caller, now_unix_ns),
        }
    }

    /// Judges one serialised Command as a batch of its own.
    pub fn judge_one(&self, command: &[u8], caller: Caller<'_>, now_unix_ns: i64, budget_ms: u32) -> Judged {
        let frame = Frame { batch_seq: 0, budget_ms, bytes: command, commands: vec![command] };
        if command.len() > self.limits.max_batch_bytes {
            return self.refuse_frame(&frame, verdict::OVERSIZED, caller, now_unix_ns);
        }
        self.judge_commands(&frame, caller, now_unix_ns)
    }

    fn refuse_frame(&self, frame: &Frame<'_>, code: u8, caller: Caller<'_>, now_unix_ns: i64) -> Judged {
        self.refused_frames.fetch_add(1, Ordering::Relaxed);
        let mut rows = TelemetryBlock::new("shield", 1);
        if self.floods().tell(caller.source, BY_VERDICT, code, now_unix_ns) {
            let (lane, run) = (rows.lane(caller.source, "", ""), rows.add_run("", 0));
            rows.push(Row { lane, run, verdict: code, ..Row::default() });
        }
        Judged {
            ledger: Ledger::refused_frame(frame.batch_seq, code),
            budget_ms: frame.budget_ms,
            accepted: 0,
            runs: Runs::none(),
            frame_code: code,
            rows,
            sampled: Sampled::default(),
        }
    }

    /// Counts of floods in seconds that are over, as blocks: one per second, with their rows.
    pub fn drain_floods(&self, now_unix_ns: i64) -> Vec<(usize, Vec<u8>)> {
        let counted = self.floods().drain(now_unix_ns);
        let seconds = counted.chunk_by(|left, right| left.second == right.second);
        seconds
            .map(|second| {
                let mut block = TelemetryBlock::new("shield", second.len());
                let run = block.add_run("", 0);
                for entry in second {
                    let lane = block.lane(&entry.source, "", "");
                    let row = Row { lane, run, kind: entry.kind, verdict: entry.verdict, ..Row::default() };
                    block.push_with(row, Detail { count: entry.count, ..Detail::default() });
                }
                let end = second.first().map_or(0, |entry| entry.second) * 1_000_000_000 + 999_999_999;
                (second.len(), block.write(end))
            })
            .collect()
    }

    fn floods(&self) -> MutexGuard<'_, FloodGate> {
        self.floods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge_commands(&self, frame: &Frame<'_>, caller: Caller<'_>, now_unix_ns: i64) -> Judged {
        let now_unix_ns = self.latest_unix_ns.fetch_max(now_unix_ns, Ordering::AcqRel).max(now_unix_ns);
        let state = self.state_of(caller.source);
        let count = frame.commands.len();
        let mut refusals = Refusals::new(frame, caller, &self.floods, now_unix_ns);
        let mut passed: Vec<Passed> = Vec::with_capacity(count);
        let mut nonces: Vec<Nonce> = Vec::with_capacity(count);
        let mut scratch = Vec::new();
        let mut skewed: Vec<(usize, u8)> = Vec::new();
        let mut sampled = Sampled::default();
        for (index, bytes) in frame.commands.iter().enumerate() {
            match self.vouch(bytes, &state, now_unix_ns, &mut scratch) {
                Ok((key, nonce)) => {
                    sampled.look(index as u32, bytes);
                    if let Some(kind) = self.skew_to_tell(&nonce, now_unix_ns) {
                        skewed.push((index, kind));
                    }
                    let place = Span::within(frame.bytes, bytes);
                    passed.push(Passed { place, index: index as u32, key: key as u32 });
                    nonces.push(nonce);
                }
                Err(Fault { code, skew_ms }) => {
                    refusals.refuse(index, code);
                    match code {
                        verdict::WRONG_AUDIENCE => {
                            refusals.explain(index, code, 0, || self.audience.to_string())
                        }
                        verdict::TIMESTAMP_OUTSIDE_WINDOW => {
                            refusals.explain(index, code, 0, || describe_skew(skew_ms));
                        }
                        _ => {}
                    }
                }
            }
        }
        if !passed.is_empty() {
            self.claim(&mut passed, &nonces, &mut refusals, now_unix_ns);
        }
        self.count(&refusals.ledger, passed.len());
        for (index, kind) in skewed {
            if refusals.ledger.code(index) == verdict::UNDECIDED {
                refusals.tell_skew(index, kind, now_unix_ns);
            }
        }
        for run in passed.chunk_by(|left, right| left.key == right.key) {
            if let Some(key) = run.first().and_then(|first| state.keys.get(first.key as usize)) {
                key.note_use(run.len() as u64);
            }
        }
        let part: Vec<u32> = passed.iter().map(|command| command.index).collect();
        refusals.ledger.add_part(Part::of(part));
        Judged {
            budget_ms: frame.budget_ms,
            accepted: passed.len(),
            runs: Runs::new(passed, &state.keys, caller, now_unix_ns),
            frame_code: verdict::UNDECIDED,
            ledger: refusals.ledger,
            rows: refusals.rows,
            sampled,
        }
    }

    /// Everything that can be said about a command without remembering it.
    #[inline]
    fn vouch(
        &self,
        bytes: &[u8],
        state: &SourceState,
        now_unix_ns: i64,
        scratch: &mut Vec<u8>,
    ) -> Result<(usize, Nonce), Fault> {
        let command = Command::parse(bytes).map_err(|Malformed| verdict::MALFORMED)?;
        let sent_unix_ns = command.check(self.limits.max_payload_bytes)?;
        if state.suspended {
            return Err(verdict::SUSPENDED.into());
        }
        let position = state.keys.find(&command, sent_unix_ns)?;
        if command.audience != self.audience.as_bytes() {
            return Err(verdict::WRONG_AUDIENCE.into());
        }
        // Before the HMAC: a stale command must not cost a hash, nor tell by its code whether it was well signed.
        if sent_unix_ns.abs_diff(now_unix_ns) > self.window_ns as u64 {
            let skew_ms = sent_unix_ns.saturating_sub(now_unix_ns) / 1_000_000;
            return Err(Fault { code: verdict::TIMESTAMP_OUTSIDE_WINDOW, skew_ms });
        }
        let key = state.keys.get(position).ok_or(verdict::UNKNOWN_KEY_VERSION)?;
        if !key.mac.verifies(&command, scratch) {
            return Err(verdict::HMAC_MISMATCH.into());
        }
        let until_unix_ns = sent_unix_ns.saturating_add(self.window_ns);
        let nonce = Nonce::new(command.hmac, until_unix_ns).ok_or(verdict::INVALID_HMAC)?;
        Ok((position, nonce))
    }

    /// The event of a command's skew, which its HMAC vouches for: near the limit, or one in a hundred.
    #[inline]
    fn skew_to_tell(&self, nonce: &Nonce, now_unix_ns: i64) -> Option<u8> {
        let skew_ns = nonce.until_unix_ns().saturating_sub(self.window_ns).abs_diff(now_unix_ns);
        if skew_ns >= self.near_limit_ns {
            return Some(SKEW_NEAR_LIMIT);
        }
        // By a secret multiplier: a sender who knows its tags must not choose which are looked at.
        (nonce.spread(self.sampling) < u64::MAX / 100).then_some(SKEW_SAMPLE)
    }

    /// Lets every command through once; what was seen before leaves `passed`.
    fn claim(
        &self,
        passed: &mut Vec<Passed>,
        nonces: &[Nonce],
        refusals: &mut Refusals<'_, '_>,
        now_unix_ns: i64,
    ) {
        let mut refused: Vec<(usize, u8)> = Vec::new();
        let room_in_ms = {
            let mut table = self.nonces();
            table.claim_all(refusals.caller.source, nonces, now_unix_ns, |position, claim| {
                let code = match claim {
                    Claim::Fresh => return,
                    Claim::Replayed => verdict::REPLAYED,
                    Claim::Saturated => verdict::SATURATED,
                    // Another thread's clock was ahead of ours and has closed the window over it meanwhile.
                    Claim::Expired => verdict::TIMESTAMP_OUTSIDE_WINDOW,
                };
                refused.push((position, code));
            });
            table.room_in_ms()
        };
        if refused.is_empty() {
            return;
        }
        for (position, code) in &refused {
            let index = passed[*position].index as usize;
            refusals.refuse(index, *code);
            if *code == verdict::SATURATED {
                refusals.explain(index, *code, room_in_ms, || "the nonce table is full".to_owned());
            }
        }
        let mut gone = refused.iter().map(|(position, _)| *position).peekable();
        let mut position = 0;
        passed.retain(|_| {
            let keep = gone.next_if_eq(&position).is_none();
            position += 1;
            keep
        });
    }

    fn count(&self, ledger: &Ledger, accepted: usize) {
        self.accepted.fetch_add(accepted as u64, Ordering::Relaxed);
        if accepted < ledger.count() {
            for code in ledger.codes().iter().filter(|code| **code != verdict::UNDECIDED) {
                if let Some(count) = self.counts.get(usize::from(*code)) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Live nonces by tenant.
    pub fn nonce_holders(&self) -> Vec<(String, usize)> {
        self.nonces().holders()
    }

    /// Commands per outcome since start; every verdict that Shield can give is there, even at zero.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters: Vec<(&'static str, u64)> = verdict::NAMES
            .iter()
            .filter(|(code, _)| (verdict::MALFORMED..64).contains(code) || *code == verdict::SATURATED)
            .filter_map(|(code, name)| {
                Some((*name, self.counts.get(usize::from(*code))?.load(Ordering::Relaxed)))
            })
            .collect();
        counters.push(("accepted", self.accepted.load(Ordering::Relaxed)));
        counters.push(("frames_refused", self.refused_frames.load(Ordering::Relaxed)));
        counters.push(("nonces_live", self.nonces().len() as u64));
        counters
    }
}

/// Telemetry of admitted commands that were closed here, because the connection to Fast was full or broke: no other
/// service reports them.
///
/// `runs` are the serialised runs of part 0. Off the warm path, so they are parsed only now.
pub fn tell_closed(runs: &[u8], ledger: &Ledger, settled_unix_ns: i64) -> Vec<u8> {
    let mut parsed = ParsedBatch::open_batch(runs, &frames::Limits::UNBOUNDED, "shield");
    parsed.block.number(|position| ledger.index_in(0, position as usize));
    parsed.block.leave(|_| true);
    parsed.block.settle(settled_unix_ns, ledger)
}

/// Refusal of a command.
struct Fault {
    code: u8,
    skew_ms: i64,
}

impl From<u8> for Fault {
    fn from(code: u8) -> Self {
        Self { code, skew_ms: 0 }
    }
}

fn describe_skew(skew_ms: i64) -> String {
    let side = if skew_ms < 0 { "behind" } else { "ahead" };
    format!("{} ms {side}", skew_ms.unsigned_abs())
}

/// The refused commands of one batch, in ledger and telemetry.
struct Refusals<'a, 'f> {
    frame: &'f Frame<'a>,
    caller: Caller<'f>,
    ledger: Ledger,
    rows: TelemetryBlock,
    runs: [Option<u32>; 2],
    floods: &'f Mutex<FloodGate>,
    now_unix_ns: i64,
    explained: u128,
}

impl<'a, 'f> Refusals<'a, 'f> {
    fn new(frame: &'f Frame<'a>, caller: Caller<'f>, floods: &'f Mutex<FloodGate>, now_unix_ns: i64) -> Self {
        Self {
            frame,
            caller,
            ledger: Ledger::new(frame.batch_seq, frame.commands.len()),
            rows: TelemetryBlock::new("shield", 0),
            runs: [None; 2],
            floods,
            now_unix_ns,
            explained: 0,
        }
    }

    /// Off the warm path, so it reads the command again instead of carrying every command's fields along.
    #[cold]
    fn refuse(&mut self, index: usize, code: u8) {
        self.ledger.refuse(index, code);
        if !self.tells(BY_VERDICT, code) {
            return;
        }
        let bytes = self.frame.commands.get(index).copied().unwrap_or_default();
        let command = Command::parse(bytes).unwrap_or_default();
        let readable = |text: &'a [u8], good: bool| {
            if good { std::str::from_utf8(text).unwrap_or_default() } else { "" }
        };
        let target = readable(command.target, command::is_target(command.target));
        let name = readable(command.name, command::is_name(command.name));
        let row = Row {
            command_id: uuid_bytes(command.id).unwrap_or_default(),
            sent_unix_ns: timestamp::parse(command.timestamp).unwrap_or_default(),
            lane: self.rows.lane(self.caller.source, target, name),
            run: self.run(0),
            index: index as u32,
            verdict: code,
            ..Row::default()
        };
        self.rows.push(row);
    }

    /// Writes down how far a good command's clock is from ours.
    #[cold]
    fn tell_skew(&mut self, index: usize, kind: u8, received_unix_ns: i64) {
        // Samples are few as they are; a source whose clock is off warns with every command.
        if kind == SKEW_NEAR_LIMIT && !self.tells(kind, 0) {
            return;
        }
        let bytes = self.frame.commands.get(index).copied().unwrap_or_default();
        let command = Command::parse(bytes).unwrap_or_default();
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        let row = Row {
            command_id: uuid_bytes(command.id).unwrap_or_default(),
            sent_unix_ns: timestamp::parse(command.timestamp).unwrap_or_default(),
            lane: self.rows.lane(self.caller.source, text(command.target), text(command.name)),
            run: self.run(received_unix_ns),
            index: index as u32,
            kind,
            ..Row::default()
        };
        self.rows.push(row);
    }

    fn tells(&self, kind: u8, verdict: u8) -> bool {
        let mut floods = self.floods.lock().unwrap_or_else(PoisonError::into_inner);
        floods.tell(self.caller.source, kind, verdict, self.now_unix_ns)
    }

    /// The block's run for refused commands, or that for admitted ones.
    fn run(&mut self, admitted_unix_ns: i64) -> u32 {
        let known = &mut self.runs[usize::from(admitted_unix_ns != 0)];
        *known.get_or_insert_with(|| self.rows.add_run("", admitted_unix_ns))
    }

    /// Adds a detail to the first command with this code; the others would only repeat it.
    fn explain(&mut self, index: usize, code: u8, retry_after_ms: u32, detail: impl FnOnce() -> String) {
        let bit = 1u128 << (code & 127);
        if self.explained & bit == 0 {
            self.explained |= bit;
            self.ledger.explain(Refusal {
                index: index as u32,
                reason: code,
                retry_after_ms,
                detail: detail(),
                ..Refusal::default()
            });
        }
    }
}
