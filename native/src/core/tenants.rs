//! Cuts the pages of journals by tenant: the events that a tenant may read, as canonical JSON by source and family.
//!
//! It must never lose an event in silence: beyond a tenant's rate events are counted, with one command of them as a
//! sample. It reads nothing but its input, so the same pages always become the same events.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::canonical::write_text;
use super::columns::{Columns, NULL_NUMBER, NULL_PLACE, Rare, Texts, Tombstones, event_name};
use super::page::{Shape, Told, blocks};
use super::telemetry::{BY_VERDICT, SKEW_NEAR_LIMIT, SKEW_SAMPLE, WARM_PATH_BAN};
use super::timestamp;
use super::verdict::{self, DELIVERED, DUPLICATE, MALFORMED, TIMESTAMP_OUTSIDE_WINDOW};
use super::wire::Malformed;

const SECOND_NS: i64 = 1_000_000_000;
/// The largest integer that every reader of JSON takes exactly.
const MAX_INTEGER: i64 = (1 << 53) - 1;

/// Bounds of what is told one by one, and of one part.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Delivered and duplicate commands of one tenant and second.
    pub told: u32,
    /// Everything else of one tenant and second; apart, so that a flood of successes hides no refusal.
    pub troubles: u32,
    pub part_events: u64,
    pub part_bytes: usize,
}

/// Events of one source and family, a JSON array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub source: String,
    pub family: &'static str,
    pub events: u64,
    pub body: Vec<u8>,
}

/// A rare event with the position of its page.
#[derive(Debug)]
pub struct Seldom {
    pub page: usize,
    pub event: Rare,
}

/// Commands of one source that met the same refusal, or bans of it; for alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub source: String,
    pub event: &'static str,
    /// Empty for bans.
    pub reason: &'static str,
    pub count: u64,
    /// Settlement of the latest.
    pub at_unix_ns: i64,
    /// Of the first one.
    pub target: String,
    pub name: String,
    pub sample: [u8; 16],
}

type GroupKey = (String, &'static str);
/// Source, target, name, kind, verdict, second.
type CountKey = (String, String, String, u8, u8, i64);

/// See the module.
#[derive(Debug)]
pub struct Cutter {
    limits: Limits,
    places: HashMap<GroupKey, usize, RandomState>,
    /// The open part of each group, in the order of their first events.
    open: Vec<Part>,
    closed: Vec<Part>,
    /// What is left of the rate, by tenant, second and class.
    left: HashMap<(String, i64, bool), u32, RandomState>,
    counts: HashMap<CountKey, (u64, [u8; 16]), RandomState>,
    troubles: HashMap<(String, u8, u8), Trouble, RandomState>,
    pub rare: Vec<Seldom>,
    /// Tenants that a page speaks of, by position of the page.
    pub spoken: Vec<(usize, String)>,
    /// Commands that were counted instead of told.
    pub counted: u64,
    /// Rows without a readable source, which belong to no tenant.
    pub nobodys: u64,
}

/// The tenant of `<tenant>/<service>`; none of anything else.
fn tenant_of(source: &str) -> Option<&str> {
    let (tenant, service) = source.split_once('/')?;
    (!tenant.is_empty() && !service.is_empty()).then_some(tenant)
}

fn family(kind: u8) -> &'static str {
    match kind {
        SKEW_NEAR_LIMIT | SKEW_SAMPLE => "telemetry",
        WARM_PATH_BAN => "fairness",
        _ => "command",
    }
}

/// True for events of the catalogue; others are a newer writer's.
fn known(kind: u8, code: u8) -> bool {
    matches!((kind, code), (SKEW_NEAR_LIMIT | SKEW_SAMPLE | WARM_PATH_BAN, _))
        || kind == BY_VERDICT && (code == DELIVERED || code == DUPLICATE || code >= MALFORMED)
}

impl Cutter {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            places: HashMap::default(),
            open: Vec::new(),
            closed: Vec::new(),
            left: HashMap::default(),
            counts: HashMap::default(),
            troubles: HashMap::default(),
            rare: Vec::new(),
            spoken: Vec::new(),
            counted: 0,
            nobodys: 0,
        }
    }

    /// Adds the events of a page's body.
    pub fn add(&mut self, page: usize, body: &[u8]) -> Result<(), Malformed> {
        let shapes: Vec<Shape<'_>> =
            blocks(body)?.iter().map(|block| Shape::of(block.body)).collect::<Result<_, _>>()?;
        for shape in &shapes {
            self.add_rows(page, shape);
            for seldom in &shape.seldom {
                let (name, fields) = (seldom.name.to_owned(), seldom.fields.to_vec());
                let event = Rare { seq: 0, at_unix_ns: seldom.at_unix_ns, name, fields };
                self.rare.push(Seldom { page, event });
            }
        }
        Ok(())
    }

    /// The parts; those of one source and family are in order.
    pub fn parts(mut self) -> (Vec<Part>, Self) {
        let mut counts: Vec<_> = std::mem::take(&mut self.counts).into_iter().collect();
        counts.sort_unstable();
        let mut event = Vec::new();
        for ((source, target, name, kind, code, second), (count, sample)) in counts {
            self.counted += count;
            event.clear();
            let mut members = Members::new(&mut event);
            members.time("at", second.saturating_mul(1_000_000));
            members.text("command.name", &name);
            members.integer("count", count.min(MAX_INTEGER as u64) as i64);
            members.text("event", event_name(kind, code));
            if kind == BY_VERDICT && code >= MALFORMED {
                members.text("reason", verdict::name(code));
            }
            members.id("sample", &sample);
            members.text("source", &source);
            members.text("target", &target);
            members.end();
            self.push(&source, family(kind), &event);
        }
        let mut parts = std::mem::take(&mut self.closed);
        parts.extend(std::mem::take(&mut self.open).into_iter().filter_map(sealed));
        (parts, self)
    }

    /// Troubles by source, event and reason: every one of them, also those that were counted and not told.
    pub fn troubles(&mut self) -> Vec<Trouble> {
        let mut found: Vec<_> = std::mem::take(&mut self.troubles).into_iter().collect();
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        found.into_iter().map(|(_, trouble)| trouble).collect()
    }

    fn add_troubles(&mut self, shape: &Shape<'_>, found: HashMap<(u32, u8, u8), (u64, usize), RandomState>) {
        for ((lane, kind, code), (count, row)) in found {
            let words = shape.lanes[lane as usize];
            let source = shape.word(words[1]).to_owned();
            let trouble = self.troubles.entry((source.clone(), kind, code)).or_insert_with(|| Trouble {
                source,
                event: event_name(kind, code),
                reason: if kind == BY_VERDICT { verdict::name(code) } else { "" },
                count: 0,
                at_unix_ns: shape.settled_unix_ns,
                target: shape.word(words[2]).to_owned(),
                name: shape.word(words[3]).to_owned(),
                sample: shape.command_id.as_chunks::<16>().0.get(row).copied().unwrap_or_default(),
            });
            trouble.count = trouble.count.saturating_add(count).min(MAX_INTEGER as u64);
            trouble.at_unix_ns = trouble.at_unix_ns.max(shape.settled_unix_ns);
        }
    }

    fn add_rows(&mut self, page: usize, shape: &Shape<'_>) {
        let second = shape.settled_unix_ns.div_euclid(SECOND_NS);
        let tenants: Vec<Option<&str>> =
            shape.lanes.iter().map(|lane| tenant_of(shape.word(lane[1]))).collect();
        for tenant in tenants.iter().flatten() {
            let new = !self.spoken.iter().rev().take_while(|(of, _)| *of == page).any(|(_, is)| is == tenant);
            if new {
                self.spoken.push((page, (*tenant).to_owned()));
            }
        }
        let mut told = Vec::new();
        // Most rows of a block say the same of the same lane: the budget is looked up once for all of them.
        let mut budgets: HashMap<(u32, bool), u32, RandomState> = HashMap::default();
        let mut beyond: HashMap<(u32, u8, u8), (u64, usize), RandomState> = HashMap::default();
        let mut troubles: HashMap<(u32, u8, u8), (u64, usize), RandomState> = HashMap::default();
        let counts: HashMap<u32, u64, RandomState> = shape
            .details
            .iter()
            .filter(|detail| detail.count > 1)
            .map(|detail| (detail.row, detail.count))
            .collect();
        for (row, (lane, code)) in shape.lane.iter().zip(shape.verdict).enumerate() {
            let kind = shape.kind.get(row).copied().unwrap_or_default();
            let Some(tenant) = tenants.get(*lane as usize).copied().flatten() else {
                self.nobodys += 1;
                continue;
            };
            if !known(kind, *code) {
                continue;
            }
            let plain = kind == BY_VERDICT && (*code == DELIVERED || *code == DUPLICATE);
            if !plain && matches!(kind, BY_VERDICT | WARM_PATH_BAN) {
                // A ban has no verdict of its own.
                let code = if kind == BY_VERDICT { *code } else { 0 };
                let stands_for = counts.get(&(row as u32)).copied().unwrap_or(1);
                troubles.entry((*lane, kind, code)).or_insert((0, row)).0 += stands_for;
            }
            let left = budgets.entry((*lane, plain)).or_insert_with(|| {
                let all = if plain { self.limits.told } else { self.limits.troubles };
                *self.left.entry((tenant.to_owned(), second, plain)).or_insert(all)
            });
            // Lanes of one tenant share its budget, so the shared one is what counts.
            if *left > 0 {
                let shared = self.left.entry((tenant.to_owned(), second, plain)).or_insert(0);
                *left = *shared;
                if *shared > 0 {
                    *shared -= 1;
                    *left -= 1;
                    told.push(row);
                    continue;
                }
            }
            let stands_for = counts.get(&(row as u32)).copied().unwrap_or(1);
            beyond.entry((*lane, kind, *code)).or_insert((0, row)).0 += stands_for;
        }
        for ((lane, kind, code), (count, row)) in beyond {
            let words = shape.lanes[lane as usize];
            let [source, target, name] = [words[1], words[2], words[3]].map(|at| shape.word(at).to_owned());
            let sample = shape.command_id.as_chunks::<16>().0.get(row).copied().unwrap_or_default();
            self.counts.entry((source, target, name, kind, code, second)).or_insert((0, sample)).0 += count;
        }
        self.add_troubles(shape, troubles);
        self.tell(shape, &told);
    }

    /// Writes the rows one by one.
    fn tell(&mut self, shape: &Shape<'_>, rows: &[usize]) {
        if rows.is_empty() {
            return;
        }
        let few = Few::of(shape, rows);
        let mut columns = Columns::default();
        columns.add_rows(&few.shape(shape), 1, &Tombstones::default());
        let mut event = Vec::with_capacity(512);
        for (row, was) in rows.iter().enumerate() {
            let (kind, code) = (shape.kind.get(*was).copied().unwrap_or_default(), shape.verdict[*was]);
            event.clear();
            write_row(&columns, row, kind, code, &mut event);
            let source = text(&columns.source, row).to_owned();
            self.push(&source, family(kind), &event);
        }
    }

    fn push(&mut self, source: &str, family: &'static str, event: &[u8]) {
        let places = &mut self.places;
        let open = &mut self.open;
        let place = *places.entry((source.to_owned(), family)).or_insert_with(|| {
            open.push(Part { source: source.to_owned(), family, events: 0, body: Vec::new() });
            open.len() - 1
        });
        let part = &mut open[place];
        let full = part.events >= self.limits.part_events
            || part.events > 0 && part.body.len() + event.len() + 2 > self.limits.part_bytes;
        if full {
            let fresh = Part { source: source.to_owned(), family, events: 0, body: Vec::new() };
            self.closed.extend(sealed(std::mem::replace(part, fresh)));
        }
        part.body.push(if part.events == 0 { b'[' } else { b',' });
        part.body.extend_from_slice(event);
        part.events += 1;
    }
}

fn sealed(mut part: Part) -> Option<Part> {
    if part.events == 0 {
        return None;
    }
    part.body.push(b']');
    Some(part)
}

/// Chosen rows of a block, with columns of their own.
struct Few<'a> {
    command_id: Vec<u8>,
    verdict: Vec<u8>,
    sent: Vec<u8>,
    kind: Vec<u8>,
    lane: Vec<u32>,
    run: Vec<u32>,
    details: Vec<Told<'a>>,
}

impl<'a> Few<'a> {
    fn of(shape: &Shape<'a>, rows: &[usize]) -> Self {
        let mut few = Self {
            command_id: Vec::with_capacity(rows.len() * 16),
            verdict: rows.iter().map(|row| shape.verdict[*row]).collect(),
            sent: Vec::with_capacity(rows.len() * 8),
            kind: rows.iter().map(|row| shape.kind.get(*row).copied().unwrap_or_default()).collect(),
            lane: rows.iter().map(|row| shape.lane[*row]).collect(),
            run: rows.iter().map(|row| shape.run[*row]).collect(),
            details: Vec::new(),
        };
        for row in rows {
            few.command_id.extend_from_slice(&shape.command_id[row * 16..row * 16 + 16]);
            few.sent.extend_from_slice(&shape.sent[row * 8..row * 8 + 8]);
        }
        let kind = |row: usize| shape.kind.get(row).copied().unwrap_or_default();
        for told in &shape.details {
            let first = told.row as usize;
            // A detail of many rows is about those like its first one, which need not be among the chosen.
            let place = rows.iter().position(|row| {
                *row == first
                    || told.alike
                        && (shape.lane[*row], shape.verdict[*row], kind(*row))
                            == (shape.lane[first], shape.verdict[first], kind(first))
            });
            if let Some(place) = place {
                few.details.push(Told { row: place as u32, ..*told });
            }
        }
        few
    }

    fn shape<'s>(&'s self, of: &Shape<'s>) -> Shape<'s> {
        Shape {
            service: of.service,
            settled_unix_ns: of.settled_unix_ns,
            dictionary: of.dictionary.clone(),
            command_id: &self.command_id,
            verdict: &self.verdict,
            sent: &self.sent,
            kind: &self.kind,
            lane: self.lane.clone(),
            run: self.run.clone(),
            lanes: of.lanes.clone(),
            runs: of.runs.clone(),
            details: self.details.clone(),
            seldom: Vec::new(),
        }
    }
}

fn text(texts: &Texts, row: usize) -> &str {
    match texts.rows.get(row) {
        Some(place) if *place != NULL_PLACE => {
            texts.dictionary.get(*place as usize).map_or("", String::as_str)
        }
        _ => "",
    }
}

/// One row as a JSON object with the catalogue's names, in the order of the canonical form.
fn write_row(columns: &Columns, row: usize, kind: u8, code: u8, out: &mut Vec<u8>) {
    let (command, ban) = (kind == BY_VERDICT, kind == WARM_PATH_BAN);
    let skew = matches!(kind, SKEW_NEAR_LIMIT | SKEW_SAMPLE);
    let failed = command && code >= 64;
    let clock = skew || command && code == TIMESTAMP_OUTSIDE_WINDOW;
    let mut members = Members::new(out);
    members.time("at", columns.at[row]);
    if command || ban {
        members.text("command.name", text(&columns.command_name, row));
    }
    if command || kind == SKEW_NEAR_LIMIT {
        members.id("command_id", columns.command_id.as_chunks::<16>().0.get(row).unwrap_or(&[0; 16]));
    }
    if failed || ban {
        members.fraction("competing_share", columns.competing_share[row]);
    }
    if columns.count[row] > 1 {
        members.integer("count", columns.count[row]);
    }
    if command && code == DUPLICATE {
        members.text("dedupe_mode", text(&columns.dedupe_mode, row));
    }
    if command && code == DELIVERED {
        members.fraction("dispatch_latency_ms", columns.latency_ms[row]);
    }
    if failed || ban {
        members.integer("dispatch_volume", columns.dispatch_volume[row]);
    }
    members.text("event", text(&columns.event, row));
    if command && code == DELIVERED {
        members.text("path", text(&columns.path, row));
    }
    if command {
        members.text("reason", text(&columns.reason, row));
    }
    if clock {
        members.time("received_at", columns.received_at[row]);
    }
    if failed || ban {
        members.integer("retry_after_ms", columns.retry_after_ms[row]);
    }
    if skew {
        members.time("sent_at", columns.timestamp[row]);
    }
    if clock {
        members.fraction("skew_seconds", columns.skew_seconds[row]);
    }
    members.text("source", text(&columns.source, row));
    if failed || ban {
        members.fraction("source_share", columns.source_share[row]);
    }
    if command || ban {
        members.text("target", text(&columns.target, row));
    }
    if failed || ban {
        members.time("throttle_until", columns.throttle_until[row]);
    }
    if command {
        members.time("timestamp", columns.timestamp[row]);
    }
    members.end();
}

/// Writes an object whose members come in the order of the canonical form; what is null is left out.
struct Members<'o> {
    out: &'o mut Vec<u8>,
    separator: u8,
}

impl<'o> Members<'o> {
    fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out, separator: b'{' }
    }

    fn key(&mut self, key: &str) {
        self.out.push(self.separator);
        self.separator = b',';
        write_text(key, self.out);
        self.out.push(b':');
    }

    fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.key(key);
            write_text(value, self.out);
        }
    }

    fn integer(&mut self, key: &str, value: i64) {
        if value != NULL_NUMBER {
            self.key(key);
            self.out.extend_from_slice(value.clamp(-MAX_INTEGER, MAX_INTEGER).to_string().as_bytes());
        }
    }

    fn fraction(&mut self, key: &str, value: f64) {
        if value.is_finite() {
            self.key(key);
            self.out.extend_from_slice(ryu_js::Buffer::new().format_finite(value).as_bytes());
        }
    }

    fn time(&mut self, key: &str, micros: i64) {
        if micros != NULL_NUMBER {
            self.key(key);
            self.out.push(b'"');
            self.out.extend_from_slice(&timestamp::format(micros.saturating_mul(1000)));
            self.out.push(b'"');
        }
    }

    fn id(&mut self, key: &str, id: &[u8; 16]) {
        if *id == [0; 16] {
            return;
        }
        self.key(key);
        self.out.push(b'"');
        for (at, byte) in id.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                self.out.push(b'-');
            }
            for digit in [byte >> 4, byte & 15] {
                self.out.push(b"0123456789abcdef"[usize::from(digit)]);
            }
        }
        self.out.push(b'"');
    }

    fn end(self) {
        if self.separator == b'{' {
            self.out.push(b'{');
        }
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::super::canonical::canonicalise;
    use super::super::page::BLOCK;
    use super::super::telemetry::{Detail, Facts, Row, TelemetryBlock};
    use super::super::verdict::RATE_LIMIT_EXCEEDED;
    use super::super::wire::put_bytes;
    use super::*;

    const LIMITS: Limits = Limits { told: 1000, troubles: 1000, part_events: 1000, part_bytes: 1 << 20 };

    fn page(source: &str, name: &str, verdicts: &[u8], kind: u8) -> Vec<u8> {
        let mut block = TelemetryBlock::new("fast", verdicts.len());
        let [source, target, name] = [source, "bot", name].map(|text| block.intern(text));
        let lane = block.add_lane(Facts { source, target, name, grant: 1, ..Facts::default() });
        let run = block.add_run("hmac-v1", 2_000_000_000);
        for (at, verdict) in (1u8..).zip(verdicts) {
            let sent_unix_ns = 1_000_000_000;
            block.push(Row {
                command_id: [at; 16],
                sent_unix_ns,
                lane,
                run,
                verdict: *verdict,
                kind,
                ..Row::default()
            });
        }
        let shares =
            Detail { retry_after_ms: 7, source_share: 0.25, competing_share: 0.5, ..Detail::default() };
        block.explain_lane(lane, RATE_LIMIT_EXCEEDED, shares);
        let mut body = Vec::new();
        put_bytes(&mut body, BLOCK, &block.write(3_000_000_000));
        body
    }

    fn cut(limits: Limits, pages: &[Vec<u8>]) -> (Vec<Part>, Cutter) {
        let mut cutter = Cutter::new(limits);
        for (at, body) in pages.iter().enumerate() {
            cutter.add(at, body).unwrap();
        }
        cutter.parts()
    }

    fn told(part: &Part) -> Vec<serde_json::Value> {
        assert_eq!(canonicalise(&part.body).unwrap(), part.body);
        let found: Vec<serde_json::Value> = serde_json::from_slice(&part.body).unwrap();
        assert_eq!(found.len() as u64, part.events);
        found
    }

    #[test]
    fn events_are_told_by_source_and_family_in_their_canonical_form() {
        let pages = [
            page("acme/shop", "sa\u{1}y \"é\"", &[DELIVERED, RATE_LIMIT_EXCEEDED, DUPLICATE], 0),
            page("globex/till", "say", &[MALFORMED, DELIVERED], 0),
            page("acme/shop", "say", &[0], SKEW_SAMPLE),
            page("acme/shop", "say", &[0], WARM_PATH_BAN),
        ];
        let (parts, after) = cut(LIMITS, &pages);
        let groups: Vec<_> =
            parts.iter().map(|part| (part.source.as_str(), part.family, part.events)).collect();
        assert_eq!(
            groups,
            [
                ("acme/shop", "command", 3),
                ("globex/till", "command", 2),
                ("acme/shop", "telemetry", 1),
                ("acme/shop", "fairness", 1)
            ]
        );
        let events = told(&parts[0]);
        assert_eq!(events[0]["command.name"], "sa\u{1}y \"é\"");
        assert_eq!(events[0]["command_id"], "01010101-0101-0101-0101-010101010101");
        assert_eq!(events[0]["dispatch_latency_ms"], 1000.0);
        assert_eq!(events[0]["at"], "1970-01-01T00:00:03.000000000Z");
        assert_eq!(events[1]["reason"], "rate-limit-exceeded");
        assert_eq!((&events[1]["retry_after_ms"], &events[1]["source_share"]), (&7.into(), &0.25.into()));
        assert_eq!(events[2]["dedupe_mode"], "strict");
        assert!(events[0].get("reason").is_none() && events[0].get("source_share").is_none());
        assert_eq!(told(&parts[2])[0]["skew_seconds"], 1.0);
        told(&parts[3]);
        assert_eq!(
            after.spoken,
            [(0, "acme"), (1, "globex"), (2, "acme"), (3, "acme")].map(|(at, name)| (at, name.to_owned()))
        );
    }

    #[test]
    fn beyond_its_rate_a_tenant_gets_counts_with_a_sample_and_none_is_lost() {
        let limits = Limits { told: 3, troubles: 2, ..LIMITS };
        let verdicts = [[DELIVERED; 8].as_slice(), &[MALFORMED; 5]].concat();
        let (parts, after) =
            cut(limits, &[page("acme/shop", "say", &verdicts, 0), page("b/b", "say", &[DELIVERED], 0)]);
        let events: Vec<_> = parts.iter().filter(|part| part.source == "acme/shop").flat_map(told).collect();
        let sum = |name: &str, one: bool| -> u64 {
            let of =
                events.iter().filter(|event| event["event"] == name && event.get("count").is_none() == one);
            of.map(|event| event.get("count").map_or(1, |count| count.as_u64().unwrap())).sum()
        };
        assert_eq!((sum("snavio.command.delivered", true), sum("snavio.command.delivered", false)), (3, 5));
        assert_eq!((sum("snavio.command.invalid", true), sum("snavio.command.invalid", false)), (2, 3));
        assert_eq!(after.counted, 8);
        let counted = events.iter().find(|event| event.get("count").is_some()).unwrap();
        assert_eq!(counted["sample"], "04040404-0404-0404-0404-040404040404");
        // Another tenant's rate is its own.
        assert!(parts.iter().any(|part| part.source == "b/b" && part.events == 1));
    }

    #[test]
    fn a_part_ends_at_its_bounds() {
        let (parts, _) = cut(Limits { part_events: 2, ..LIMITS }, &[page("a/a", "say", &[DELIVERED; 5], 0)]);
        assert_eq!(parts.iter().map(|part| part.events).collect::<Vec<_>>(), [2, 2, 1]);
        let (parts, _) = cut(Limits { part_bytes: 600, ..LIMITS }, &[page("a/a", "say", &[DELIVERED; 5], 0)]);
        assert!(parts.len() > 1 && parts.iter().all(|part| part.body.len() <= 600));
        assert_eq!(parts.iter().flat_map(told).count(), 5);
    }

    #[test]
    fn troubles_are_counted_whole_whatever_is_told() {
        let limits = Limits { told: 1, troubles: 1, ..LIMITS };
        let verdicts = [[DELIVERED; 8].as_slice(), &[MALFORMED; 5], &[RATE_LIMIT_EXCEEDED]].concat();
        let pages = [
            page("acme/shop", "say", &verdicts, 0),
            page("acme/shop", "hum", &[MALFORMED; 2], 0),
            page("acme/shop", "say", &[0], WARM_PATH_BAN),
            page("nobody", "say", &[MALFORMED], 0),
        ];
        let (_, mut after) = cut(limits, &pages);
        let found: Vec<_> = after
            .troubles()
            .into_iter()
            .map(|each| (each.source, each.event, each.reason, each.count, each.name, each.sample[0]))
            .collect();
        let row = |event, reason, count, name: &str, sample| {
            ("acme/shop".to_owned(), event, reason, count, name.to_owned(), sample)
        };
        assert_eq!(
            found,
            [
                row("snavio.command.invalid", "malformed", 7, "say", 9),
                row("snavio.command.failed", "rate-limit-exceeded", 1, "say", 14),
                row("snavio.fairness.warm-path-ban", "", 1, "say", 1),
            ]
        );
        assert!(after.troubles().is_empty());
    }

    #[test]
    fn rows_of_nobody_reach_nobody() {
        let (parts, after) =
            cut(LIMITS, &[page("", "say", &[MALFORMED; 3], 0), page("acme", "say", &[MALFORMED], 0)]);
        assert!(parts.is_empty());
        assert_eq!(after.nobodys, 4);
    }
}
