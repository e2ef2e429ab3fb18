//! Shield's decision about a batch: frame, schema, suspension, key, audience, window, HMAC, nonce; in that order.
//!
//! It must never let one bad command spoil its neighbours, look up a key under anything but the authenticated
//! source, or let bytes that no HMAC has vouched for into a table: until then only fixed counters move.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use hashbrown::HashMap;

use super::command::{self, Command};
use super::keys::KeySet;
use super::ledger::{Ledger, Part, Refusal};
use super::nonces::{Claim, Nonce, NonceSet};
use super::runs::{Caller, Passed, Runs};
use super::submission::{Frame, Limits};
use super::telemetry::{Row, TelemetryBlock, uuid_bytes};
use super::timestamp;
use super::verdict;
use super::wire::Malformed;

/// What is known about a source.
#[derive(Clone)]
struct Standing {
    keys: KeySet,
    suspended: bool,
}

impl Default for Standing {
    fn default() -> Self {
        Self { keys: KeySet::none(), suspended: false }
    }
}

/// What became of a batch at Shield.
pub struct Judged<'a> {
    pub ledger: Ledger,
    pub budget_ms: u32,
    pub accepted: usize,
    pub runs: Runs<'a>,
    /// 0, or why the frame as a whole was refused.
    pub frame_code: u8,
    /// One row per refused command.
    pub refused: TelemetryBlock,
}

pub struct Admission {
    audience: Box<str>,
    window_ns: i64,
    limits: Limits,
    standings: RwLock<HashMap<Box<str>, Standing, foldhash::fast::RandomState>>,
    nonces: Mutex<NonceSet>,
    /// The latest time that was ever given; time that steps back is not followed.
    latest_unix_ns: AtomicI64,
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
            limits,
            standings: RwLock::default(),
            nonces: Mutex::new(nonces),
            latest_unix_ns: AtomicI64::new(i64::MIN),
            counts: [const { AtomicU64::new(0) }; COUNTED],
            accepted: AtomicU64::new(0),
            refused_frames: AtomicU64::new(0),
        })
    }

    pub fn set_keyset(&self, source: &str, keys: KeySet) {
        self.change(source, |standing| standing.keys = keys.counting_on(&standing.keys));
    }

    pub fn remove_keyset(&self, source: &str) {
        self.change(source, |standing| standing.keys = KeySet::none());
    }

    pub fn set_suspended(&self, source: &str, suspended: bool) {
        self.change(source, |standing| standing.suspended = suspended);
    }

    /// Commands let in per (source, key version) since the last call. Only what an HMAC vouched for is counted,
    /// in a counter that each key brings along, so nobody can make this grow.
    pub fn drain_usage(&self) -> Vec<(String, String, u64)> {
        let standings = self.standings.read().unwrap_or_else(PoisonError::into_inner);
        let mut usage = Vec::new();
        for (source, standing) in standings.iter() {
            for (version, used) in standing.keys.drain_usage() {
                usage.push((source.to_string(), version.to_owned(), used));
            }
        }
        usage
    }

    fn change(&self, source: &str, change: impl FnOnce(&mut Standing)) {
        let mut standings = self.standings.write().unwrap_or_else(PoisonError::into_inner);
        let standing = standings.entry(source.into()).or_default();
        change(standing);
        if standing.keys.is_empty() && !standing.suspended {
            standings.remove(source);
        }
    }

    fn standing(&self, source: &str) -> Standing {
        let standings = self.standings.read().unwrap_or_else(PoisonError::into_inner);
        standings.get(source).cloned().unwrap_or_default()
    }

    fn nonces(&self) -> MutexGuard<'_, NonceSet> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a serialised Submission.
    pub fn judge<'a>(&self, submission: &'a [u8], caller: Caller<'_>, now_unix_ns: i64) -> Judged<'a> {
        let mut frame = Frame::default();
        match frame.read(submission, &self.limits) {
            Ok(()) => self.judge_commands(&frame, caller, now_unix_ns),
            Err(code) => self.refuse_frame(&frame, code),
        }
    }

    /// Judges one serialised Command as a batch of its own.
    pub fn judge_one<'a>(
        &self,
        command: &'a [u8],
        caller: Caller<'_>,
        now_unix_ns: i64,
        budget_ms: u32,
    ) -> Judged<'a> {
        let frame = Frame { batch_seq: 0, budget_ms, commands: vec![command] };
        if command.len() > self.limits.max_batch_bytes {
            return self.refuse_frame(&frame, verdict::OVERSIZED);
        }
        self.judge_commands(&frame, caller, now_unix_ns)
    }

    fn refuse_frame<'a>(&self, frame: &Frame<'a>, code: u8) -> Judged<'a> {
        self.refused_frames.fetch_add(1, Ordering::Relaxed);
        Judged {
            ledger: Ledger::refused_frame(frame.batch_seq, code),
            budget_ms: frame.budget_ms,
            accepted: 0,
            runs: Runs::none(),
            frame_code: code,
            refused: TelemetryBlock::new("shield", 0),
        }
    }

    fn judge_commands<'a>(&self, frame: &Frame<'a>, caller: Caller<'_>, now_unix_ns: i64) -> Judged<'a> {
        let now_unix_ns = self.latest_unix_ns.fetch_max(now_unix_ns, Ordering::AcqRel).max(now_unix_ns);
        let standing = self.standing(caller.source);
        let count = frame.commands.len();
        let mut bench = Bench::new(frame, caller);
        let mut passed: Vec<Passed<'a>> = Vec::with_capacity(count);
        let mut nonces: Vec<Nonce> = Vec::with_capacity(count);
        let mut scratch = Vec::new();
        for (index, bytes) in frame.commands.iter().enumerate() {
            match self.vouch(bytes, &standing, now_unix_ns, &mut scratch) {
                Ok((key, nonce)) => {
                    passed.push(Passed { bytes, index: index as u32, key: key as u32 });
                    nonces.push(nonce);
                }
                Err(Fault { code, skew_ms }) => {
                    bench.refuse(index, code);
                    match code {
                        verdict::WRONG_AUDIENCE => {
                            bench.explain(index, code, 0, || self.audience.to_string())
                        }
                        verdict::TIMESTAMP_OUTSIDE_WINDOW => {
                            bench.explain(index, code, 0, || describe_skew(skew_ms));
                        }
                        _ => {}
                    }
                }
            }
        }
        if !passed.is_empty() {
            self.claim(&mut passed, &nonces, &mut bench, now_unix_ns);
        }
        self.count(&bench.ledger, passed.len());
        for run in passed.chunk_by(|left, right| left.key == right.key) {
            if let Some(key) = run.first().and_then(|first| standing.keys.get(first.key as usize)) {
                key.note_use(run.len() as u64);
            }
        }
        let part: Vec<u32> = passed.iter().map(|command| command.index).collect();
        bench.ledger.add_part(Part::of(part));
        Judged {
            budget_ms: frame.budget_ms,
            accepted: passed.len(),
            runs: Runs::new(passed, &standing.keys, caller, now_unix_ns),
            frame_code: verdict::UNDECIDED,
            ledger: bench.ledger,
            refused: bench.rows,
        }
    }

    /// Everything that can be said about a command without remembering it.
    #[inline]
    fn vouch(
        &self,
        bytes: &[u8],
        standing: &Standing,
        now_unix_ns: i64,
        scratch: &mut Vec<u8>,
    ) -> Result<(usize, Nonce), Fault> {
        let command = Command::parse(bytes).map_err(|Malformed| verdict::MALFORMED)?;
        let sent_unix_ns = command.check(self.limits.max_payload_bytes)?;
        if standing.suspended {
            return Err(verdict::SUSPENDED.into());
        }
        let position = standing.keys.find(&command, sent_unix_ns)?;
        if command.audience != self.audience.as_bytes() {
            return Err(verdict::WRONG_AUDIENCE.into());
        }
        // Before the HMAC: a stale command must not cost a hash, nor tell by its code whether it was well signed.
        if sent_unix_ns.abs_diff(now_unix_ns) > self.window_ns as u64 {
            let skew_ms = sent_unix_ns.saturating_sub(now_unix_ns) / 1_000_000;
            return Err(Fault { code: verdict::TIMESTAMP_OUTSIDE_WINDOW, skew_ms });
        }
        let key = standing.keys.get(position).ok_or(verdict::UNKNOWN_KEY_VERSION)?;
        if !key.mac.verifies(&command, scratch) {
            return Err(verdict::HMAC_MISMATCH.into());
        }
        let until_unix_ns = sent_unix_ns.saturating_add(self.window_ns);
        let nonce = Nonce::new(command.hmac, until_unix_ns).ok_or(verdict::INVALID_HMAC)?;
        Ok((position, nonce))
    }

    /// Lets every command through once; what was seen before leaves `passed`.
    fn claim(
        &self,
        passed: &mut Vec<Passed<'_>>,
        nonces: &[Nonce],
        bench: &mut Bench<'_, '_>,
        now_unix_ns: i64,
    ) {
        let mut refused: Vec<(usize, u8)> = Vec::new();
        let room_in_ms = {
            let mut table = self.nonces();
            table.claim_all(bench.caller.source, nonces, now_unix_ns, |position, claim| {
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
            bench.refuse(index, *code);
            if *code == verdict::SATURATED {
                bench.explain(index, *code, room_in_ms, || "the nonce table is full".to_owned());
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

/// Why a command was not let in.
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

/// Where the refused of one batch are written down.
struct Bench<'a, 'f> {
    frame: &'f Frame<'a>,
    caller: Caller<'f>,
    ledger: Ledger,
    rows: TelemetryBlock,
    explained: u128,
}

impl<'a, 'f> Bench<'a, 'f> {
    fn new(frame: &'f Frame<'a>, caller: Caller<'f>) -> Self {
        let ledger = Ledger::new(frame.batch_seq, frame.commands.len());
        Self { frame, caller, ledger, rows: TelemetryBlock::new("shield", 0), explained: 0 }
    }

    /// Off the warm path, so it reads the command again instead of carrying every command's fields along.
    #[cold]
    fn refuse(&mut self, index: usize, code: u8) {
        self.ledger.refuse(index, code);
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
            source: self.rows.intern(self.caller.source),
            target: self.rows.intern(target),
            name: self.rows.intern(name),
            index: index as u32,
            verdict: code,
            ..Row::default()
        };
        self.rows.push(row);
    }

    /// Says more about the first command with this code; a thousand equal sentences would help nobody.
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
