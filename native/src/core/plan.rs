//! The plan of one batch: parts for queues, parts for Slow, and immediate answers.
//!
//! Decides once per lane. Every command ends in exactly one place, in the order in which it came.

use std::sync::Arc;

use super::deciding::{Decision, Key};
use super::directory::Directory;
use super::dispatch::{Dispatch, LimitKey};
use super::duplicates::Fingerprint;
use super::escalation::{CACHE_MISS, DEDUPE_REQUIRED, TOKEN_REQUIRED};
use super::fairness::{BanTerms, Dominance};
use super::ledger::{Ledger, Part, Refusal};
use super::parsed_batch::{Item, Lane, ParsedBatch};
use super::phases::Phase;
use super::reframer::{Reframer, Reframers, Send, write_escalations, write_sends};
use super::telemetry::{PHASE_EXPIRED, PHASE_FRESH, PHASE_STALE, TelemetryBlock};
use super::verdict::{DUPLICATE, ROUTE_MISSING};
use super::wire::Fields;

/// Commands of one source that Slow is to decide.
#[derive(Debug, PartialEq, Eq)]
pub struct Escalated {
    pub source: Box<str>,
    pub count: usize,
    /// Serialised `ArbitrationBatch.escalation` fields.
    pub body: Vec<u8>,
}

/// A source was banned from a route's warm path by this batch.
#[derive(Debug, PartialEq)]
pub struct WarmBan {
    pub source: Box<str>,
    pub target: Box<str>,
    pub name: Box<str>,
    pub dominance: Dominance,
    pub terms: BanTerms,
}

/// The lessons of the answers to this batch: see `Dispatch::learn`.
#[derive(Debug, Default)]
pub struct Lessons {
    pub planned_mono_ns: i64,
    /// Routes that are not known here, each with a command that asks for it.
    pub unknown: Vec<(u32, [Box<str>; 3])>,
    /// Commands of strict routes.
    pub strict: Vec<(u32, Fingerprint)>,
}

impl Lessons {
    pub fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.strict.is_empty()
    }
}

/// The plan of one batch.
#[derive(Debug)]
pub struct Plan {
    /// One part per send, then one per escalation.
    pub ledger: Ledger,
    pub budget_ms: u32,
    pub sends: Vec<Send>,
    pub escalations: Vec<Escalated>,
    /// Commands in all escalations.
    pub escalated: usize,
    pub frame_code: u8,
    pub stale_used: bool,
    /// Some route's permits were wanted for the first time since the last report.
    pub thirsty: bool,
    pub warm_bans: Vec<WarmBan>,
    pub lessons: Lessons,
    /// One row per command that this service settles.
    pub block: TelemetryBlock,
}

/// Which way a lane's commands go.
enum Way {
    /// So many to this reframer, the others to Slow.
    Send {
        reframer: usize,
        left: u32,
        rest: Slow,
    },
    Slow(Slow),
    /// As Slow, except duplicates.
    Strict(Slow),
    Refuse(u8),
}

/// A reframer for Slow, made with its first command.
struct Slow {
    reason: u8,
    reframer: Option<usize>,
}

impl Slow {
    fn because(reason: u8) -> Self {
        Self { reason, reframer: None }
    }
}

/// Reframers for Slow, by the number of their source and their reason.
type Cold = Reframers<(u32, u8)>;

struct Sorting<'a> {
    dispatch: &'a Dispatch,
    frame: &'a [u8],
    now_mono_ns: i64,
    sends: Reframers<super::reframer::Destination>,
    cold: Cold,
    refused: Vec<(u32, u8)>,
    explained: Vec<Refusal>,
    stale_used: bool,
    thirsty: Vec<LimitKey>,
    warm_bans: Vec<WarmBan>,
    lessons: Lessons,
    told: Vec<Told>,
}

/// The telemetry of a lane that is sent, or whose duplicates are answered here.
struct Told {
    lane: u32,
    /// None where nothing is sent.
    topic: Option<Arc<str>>,
    acl_version: u64,
    phase: u8,
    grant: u8,
}

impl Plan {
    pub(super) fn of(dispatch: &Dispatch, frame: &[u8], now_mono_ns: i64) -> Self {
        let mut parsed = ParsedBatch::open_batch(frame, &dispatch.limits, "fast");
        let mut sorting = Sorting {
            dispatch,
            frame,
            now_mono_ns,
            sends: Reframers::default(),
            cold: Reframers::default(),
            refused: Vec::new(),
            explained: Vec::new(),
            stale_used: false,
            thirsty: Vec::new(),
            warm_bans: Vec::new(),
            lessons: Lessons { planned_mono_ns: now_mono_ns, ..Lessons::default() },
            told: Vec::new(),
        };
        let (mut ways, age_ns): (Vec<Way>, i64) = {
            let directory = dispatch.read();
            let ways = parsed.lanes.iter().map(|lane| sorting.way(&directory, lane)).collect();
            (ways, directory.age_ns(now_mono_ns))
        };
        let acl_age_ms = u32::try_from(age_ns / 1_000_000).unwrap_or(u32::MAX);
        for Told { lane, topic, acl_version, phase, grant } in std::mem::take(&mut sorting.told) {
            let topic = topic.map_or(0, |topic| parsed.block.intern(&topic));
            if let Some(facts) = parsed.block.facts(lane) {
                (facts.topic, facts.acl_version, facts.acl_age_ms) = (topic, acl_version, acl_age_ms);
                (facts.phase, facts.grant) = (phase, grant);
            }
        }
        sorting.sort(&parsed, &mut ways);
        dispatch.counters.unreadable(u64::from(parsed.unreadable));

        let mut ledger = parsed.ledger();
        for (index, code) in &sorting.refused {
            ledger.refuse(*index as usize, *code);
        }
        sorting.explained.into_iter().for_each(|refusal| ledger.explain(refusal));
        let sends = write_sends(&parsed, sorting.sends.reframers, &mut ledger);
        let escalations = escalate(frame, &parsed, sorting.cold, &mut ledger);
        let escalated = escalations.iter().map(|escalation| escalation.0.count).sum();
        if escalated > 0 {
            // Slow settles these and writes their rows.
            let mut gone = vec![false; parsed.items.len()];
            escalations
                .iter()
                .flat_map(|(_, indices)| indices)
                .for_each(|index| gone[*index as usize] = true);
            parsed.block.leave(|row| gone.get(row.index as usize).copied().unwrap_or(false));
        }
        let thirsty = !sorting.thirsty.is_empty();
        if thirsty {
            dispatch.note_thirsty(sorting.thirsty);
        }
        Self {
            ledger,
            budget_ms: parsed.header.budget_ms,
            sends,
            escalations: escalations.into_iter().map(|(escalation, _)| escalation).collect(),
            escalated,
            frame_code: parsed.frame_code,
            stale_used: sorting.stale_used,
            thirsty,
            warm_bans: sorting.warm_bans,
            lessons: sorting.lessons,
            block: parsed.block,
        }
    }
}

impl Sorting<'_> {
    fn way(&mut self, directory: &Directory, lane: &Lane) -> Way {
        let text = |span: super::frames::Span| std::str::from_utf8(span.of(self.frame)).unwrap_or_default();
        let key = Key { source: text(lane.source), target: text(lane.target), name: text(lane.name) };
        let outlook = self.dispatch.decide(directory, key, lane.count, self.now_mono_ns);
        let (count, counters) = (u64::from(lane.count), &self.dispatch.counters);
        self.stale_used |= outlook.usage == Some(Phase::Stale);
        counters.used(&outlook, count);
        if outlook.thirsty {
            self.thirsty.push(["", key.target, key.name].map(Box::from));
        }
        if outlook.source_thirsty {
            self.thirsty.push([key.source, key.target, key.name].map(Box::from));
        }
        if let Some((dominance, terms)) = outlook.banned {
            let [source, target, name] = [key.source, key.target, key.name].map(Box::from);
            self.warm_bans.push(WarmBan { source, target, name, dominance, terms });
        }
        let told = Told {
            lane: lane.told,
            topic: None,
            acl_version: outlook.acl_version,
            phase: outlook.usage.map_or(0, told_phase),
            grant: outlook.grant,
        };
        match outlook.decision {
            Decision::Send(destination, left) => {
                counters.dispatched(u64::from(left));
                counters.escalated(TOKEN_REQUIRED, count.saturating_sub(u64::from(left)));
                self.told.push(Told { topic: Some(Arc::clone(&destination.topic)), ..told });
                let reframer = self.sends.place(destination);
                Way::Send { reframer, left, rest: Slow::because(TOKEN_REQUIRED) }
            }
            Decision::Escalate(reason) => {
                counters.escalated(reason, count);
                Way::Slow(Slow::because(reason))
            }
            Decision::EscalateUnknown => {
                counters.escalated(CACHE_MISS, count);
                let key = [key.source, key.target, key.name].map(Box::from);
                self.lessons.unknown.push((lane.first, key));
                Way::Slow(Slow::because(CACHE_MISS))
            }
            Decision::Strict => {
                self.told.push(told);
                Way::Strict(Slow::because(DEDUPE_REQUIRED))
            }
            Decision::Refuse { code, retry_after_ms, detail } => {
                if code == ROUTE_MISSING {
                    counters.route_missing(count);
                } else {
                    counters.unknown_saturated(count);
                }
                let detail = detail.to_owned();
                self.explained.push(Refusal {
                    index: lane.first,
                    retry_after_ms,
                    detail,
                    ..Refusal::default()
                });
                Way::Refuse(code)
            }
        }
    }

    /// Puts every command where its lane goes.
    fn sort(&mut self, parsed: &ParsedBatch, ways: &mut [Way]) {
        let strict = ways.iter().any(|way| matches!(way, Way::Strict(_)));
        let seen = strict.then(|| self.dispatch.duplicates());
        let (mut asked, mut known) = (0, 0);
        for (index, item) in (0..).zip(&parsed.items) {
            match ways.get_mut(item.lane as usize) {
                Some(Way::Send { reframer, left: left @ 1.., .. }) => {
                    *left -= 1;
                    self.sends.reframers[*reframer].1.add(index, item.run, item.raw);
                }
                Some(Way::Send { rest: slow, .. } | Way::Slow(slow)) => {
                    add(&mut self.cold, slow, parsed, index, item);
                }
                Some(Way::Strict(slow)) => {
                    asked += 1;
                    let command = fingerprint(self.frame, parsed, index, item);
                    let first = seen.as_ref().and_then(|seen| seen.knows(&command, self.now_mono_ns));
                    if let Some(first) = first {
                        known += 1;
                        self.refused.push((index, DUPLICATE));
                        let detail = first.to_owned();
                        self.explained.push(Refusal {
                            index,
                            reason: DUPLICATE,
                            detail,
                            ..Refusal::default()
                        });
                    } else {
                        self.lessons.strict.push((index, command));
                        add(&mut self.cold, slow, parsed, index, item);
                    }
                }
                Some(Way::Refuse(code)) => self.refused.push((index, *code)),
                None => {}
            }
        }
        self.dispatch.counters.strict(asked, known);
        self.dispatch.counters.escalated(DEDUPE_REQUIRED, asked - known);
    }
}

/// As in telemetry.
fn told_phase(phase: Phase) -> u8 {
    match phase {
        Phase::Fresh => PHASE_FRESH,
        Phase::Stale => PHASE_STALE,
        Phase::Expired => PHASE_EXPIRED,
    }
}

fn add(cold: &mut Cold, slow: &mut Slow, parsed: &ParsedBatch, index: u32, item: &Item) {
    let at = *slow.reframer.get_or_insert_with(|| {
        let source = parsed.lanes.get(item.lane as usize).map_or(0, |lane| lane.places[0]);
        cold.place((source, slow.reason))
    });
    cold.reframers[at].1.add(index, item.run, item.raw);
}

fn fingerprint(frame: &[u8], parsed: &ParsedBatch, index: u32, item: &Item) -> Fingerprint {
    let id = parsed.block.id(index as usize);
    let Some(lane) = parsed.lanes.get(item.lane as usize) else {
        return Fingerprint::of(&[], &id, &[], &[], &[]);
    };
    let [source, target, name] = [lane.source, lane.target, lane.name].map(|span| span.of(frame));
    Fingerprint::of(source, &id, target, name, payload(item.raw.of(frame)))
}

/// The payload of a `command` field that has been read before; empty where there is none.
fn payload(raw: &[u8]) -> &[u8] {
    let body = Fields::new(raw).next().ok().flatten().and_then(|field| field.bytes().ok());
    let mut fields = Fields::new(body.unwrap_or_default());
    while let Ok(Some(field)) = fields.next() {
        if field.number == 10 {
            return field.bytes().unwrap_or_default();
        }
    }
    &[]
}

/// Escalations by source, in order of first appearance, each a part of `ledger`; with the commands' numbers.
fn escalate(
    frame: &[u8],
    parsed: &ParsedBatch,
    cold: Cold,
    ledger: &mut Ledger,
) -> Vec<(Escalated, Vec<u32>)> {
    let mut by_source: Reframers<u32> = Reframers::default();
    let mut groups: Vec<Vec<(u8, Reframer)>> = Vec::new();
    for ((source, reason), reframer) in cold.reframers {
        let at = by_source.place(source);
        if at == groups.len() {
            groups.push(Vec::new());
        }
        groups[at].push((reason, reframer));
    }
    let mut escalations = Vec::new();
    for ((source, _), reframers) in by_source.reframers.into_iter().zip(groups) {
        for (pieces, indices) in write_escalations(parsed, reframers) {
            ledger.add_part(Part::of(indices.clone()));
            let source = Box::from(parsed.block.text(source));
            escalations
                .push((Escalated { source, count: indices.len(), body: pieces.to_vec(frame) }, indices));
        }
    }
    escalations
}
