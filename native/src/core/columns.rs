//! Lays the blocks of a journal out as the archive's columns, ready to be written as Parquet.
//!
//! It touches every row once and no string twice, and never guesses: what a block does not say is null.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::escalation::REASONS;
use super::page::{Seldom, Shape, Told, blocks};
use super::telemetry::{SKEW_NEAR_LIMIT, SKEW_SAMPLE, WARM_PATH_BAN};
use super::verdict::{
    self, CONFLICT, DELIVERED, DUPLICATE, MALFORMED, RATE_LIMIT_EXCEEDED, TIMESTAMP_OUTSIDE_WINDOW,
};
use super::wire::Malformed;

pub(super) const NULL_PLACE: i32 = -1;
pub(super) const NULL_NUMBER: i64 = i64::MIN;

/// A column of strings that repeat.
#[derive(Debug, Default)]
pub struct Texts {
    pub dictionary: Vec<String>,
    places: HashMap<String, i32, RandomState>,
    /// -1 is null.
    pub rows: Vec<i32>,
}

impl Texts {
    /// The place of `text`; that of null for an empty one.
    fn place(&mut self, text: &str) -> i32 {
        if text.is_empty() {
            return NULL_PLACE;
        }
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.dictionary.len() as i32;
        self.dictionary.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// One column; nulls are marked by a value that no row has.
#[derive(Debug)]
pub enum Column<'a> {
    Text(&'a Texts),
    /// `i64::MIN` is null.
    Number(&'a [i64]),
    /// NaN is null.
    Fraction(&'a [f64]),
    /// 16 bytes each; all zeros is null.
    Id(&'a [u8]),
}

/// A right that was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tombstone {
    version: u64,
    revoked_unix_ns: i64,
}

/// Rights that were taken away lately, by source, target and name.
#[derive(Debug, Default)]
pub struct Tombstones {
    by_right: HashMap<[Box<str>; 3], Vec<Tombstone>, RandomState>,
}

impl Tombstones {
    pub fn add(&mut self, source: &str, target: &str, name: &str, version: u64, revoked_unix_ns: i64) {
        let tombstones = self.by_right.entry([source, target, name].map(Box::from)).or_default();
        if !tombstones.iter().any(|tombstone| tombstone.version == version) {
            tombstones.push(Tombstone { version, revoked_unix_ns });
        }
    }

    /// Forgets what was taken away before `unix_ns`.
    pub fn forget(&mut self, unix_ns: i64) {
        self.by_right.retain(|_, tombstones| {
            tombstones.retain(|tombstone| tombstone.revoked_unix_ns >= unix_ns);
            !tombstones.is_empty()
        });
    }

    pub fn len(&self) -> usize {
        self.by_right.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.by_right.is_empty()
    }

    /// Time at which the right of entry `acl_version` was revoked, if that was before `settled_unix_ns`.
    fn revoked(&self, right: [&str; 3], acl_version: u64, settled_unix_ns: i64) -> Option<i64> {
        // Version 0 is a right that was read for the very command.
        if acl_version == 0 || self.by_right.is_empty() {
            return None;
        }
        let tombstones = self.by_right.get(&right.map(Box::<str>::from))?;
        let first = tombstones
            .iter()
            .filter(|tombstone| tombstone.version > acl_version)
            .min_by_key(|tombstone| tombstone.version)?;
        (first.revoked_unix_ns < settled_unix_ns).then_some(first.revoked_unix_ns)
    }
}

/// Commands of one lane that went by a right after it was taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    pub source: String,
    pub target: String,
    pub name: String,
    pub revoked_unix_ns: i64,
    pub settled_unix_ns: i64,
    pub count: u64,
}

/// An event that is no row, with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rare {
    pub seq: i64,
    pub at_unix_ns: i64,
    pub name: String,
    pub fields: Vec<u8>,
}

/// The columns so far.
#[derive(Debug, Default)]
pub struct Columns {
    pub(super) event: Texts,
    pub(super) seq: Vec<i64>,
    pub(super) at: Vec<i64>,
    pub(super) count: Vec<i64>,
    pub(super) command_id: Vec<u8>,
    pub(super) source: Texts,
    pub(super) target: Texts,
    pub(super) command_name: Texts,
    pub(super) timestamp: Vec<i64>,
    pub(super) received_at: Vec<i64>,
    pub(super) path: Texts,
    pub(super) verdict: Vec<i64>,
    pub(super) reason: Texts,
    pub(super) latency_ms: Vec<f64>,
    pub(super) retry_after_ms: Vec<i64>,
    pub(super) throttle_until: Vec<i64>,
    pub(super) dedupe_mode: Texts,
    pub(super) source_share: Vec<f64>,
    pub(super) competing_share: Vec<f64>,
    pub(super) dispatch_volume: Vec<i64>,
    pub(super) skew_seconds: Vec<f64>,
    pub(super) key_version: Texts,
    pub(super) escalation: Texts,
    pub(super) cache_phase: Texts,
    pub(super) acl_version: Vec<i64>,
    pub(super) acl_age_ms: Vec<i64>,
    pub(super) grant: Texts,
    pub(super) topic: Texts,
    pub(super) detail: Texts,
    pub late: Vec<Late>,
    pub rare: Vec<Rare>,
}

const PHASES: [&str; 4] = ["", "fresh", "stale", "expired"];
const GRANTS: [&str; 5] = ["", "unlimited", "prefetched", "arbitrated", "shadow"];

/// A lane with its words in the columns' dictionaries.
struct LaneWords {
    source: i32,
    target: i32,
    name: i32,
    topic: i32,
    escalation: i32,
    phase: i32,
    grant: i32,
    acl_version: i64,
    acl_age_ms: i64,
}

impl Columns {
    pub fn len(&self) -> usize {
        self.seq.len()
    }

    pub fn is_empty(&self) -> bool {
        self.seq.is_empty()
    }

    /// Adds the blocks of a page's body, whose events are numbered from `first_seq` on.
    pub fn add(&mut self, body: &[u8], first_seq: i64, tombstones: &Tombstones) -> Result<(), Malformed> {
        let mut seq = first_seq;
        for block in blocks(body)? {
            let shape = Shape::of(block.body)?;
            self.add_rows(&shape, seq, tombstones);
            seq += shape.verdict.len() as i64;
            for (number, Seldom { at_unix_ns, name, fields }) in (seq..).zip(&shape.seldom) {
                let (name, fields) = ((*name).to_owned(), fields.to_vec());
                self.rare.push(Rare { seq: number, at_unix_ns: *at_unix_ns, name, fields });
            }
            seq += shape.seldom.len() as i64;
        }
        Ok(())
    }

    pub(super) fn add_rows(&mut self, shape: &Shape<'_>, first_seq: i64, tombstones: &Tombstones) {
        let (start, rows) = (self.len(), shape.verdict.len());
        if rows == 0 {
            return;
        }
        let lanes: Vec<LaneWords> = shape.lanes.iter().map(|lane| self.words(shape, lane)).collect();
        let lane = |row: usize| &lanes[shape.lane[row] as usize];
        let every = 0..rows;
        self.seq.extend(first_seq..first_seq + rows as i64);
        self.at.resize(start + rows, micros(shape.settled_unix_ns));
        self.count.resize(start + rows, 1);
        self.command_id.extend_from_slice(shape.command_id);
        self.source.rows.extend(every.clone().map(|row| lane(row).source));
        self.target.rows.extend(every.clone().map(|row| lane(row).target));
        self.command_name.rows.extend(every.clone().map(|row| lane(row).name));
        self.topic.rows.extend(every.clone().map(|row| lane(row).topic));
        self.escalation.rows.extend(every.clone().map(|row| lane(row).escalation));
        self.cache_phase.rows.extend(every.clone().map(|row| lane(row).phase));
        self.grant.rows.extend(every.clone().map(|row| lane(row).grant));
        self.acl_version.extend(every.clone().map(|row| lane(row).acl_version));
        self.acl_age_ms.extend(every.map(|row| lane(row).acl_age_ms));
        let versions: Vec<i32> =
            shape.runs.iter().map(|run| self.key_version.place(shape.word(u64::from(run.0)))).collect();
        self.key_version.rows.extend(shape.run.iter().map(|run| versions[*run as usize]));
        let sent =
            shape.sent.chunks_exact(8).map(|raw| i64::from_le_bytes(raw.try_into().unwrap_or_default()));
        self.timestamp.extend(sent.map(|sent| if sent == 0 { NULL_NUMBER } else { micros(sent) }));
        self.add_outcomes(shape);
        self.add_times(shape);
        self.retry_after_ms.resize(start + rows, NULL_NUMBER);
        self.throttle_until.resize(start + rows, NULL_NUMBER);
        self.source_share.resize(start + rows, f64::NAN);
        self.competing_share.resize(start + rows, f64::NAN);
        self.dispatch_volume.resize(start + rows, NULL_NUMBER);
        self.detail.rows.resize(start + rows, NULL_PLACE);
        for told in &shape.details {
            self.add_detail(shape, start, told);
        }
        self.join(shape, tombstones);
    }

    fn words(&mut self, shape: &Shape<'_>, lane: &[u64; 10]) -> LaneWords {
        let word = |place: u64| shape.word(place);
        let named =
            |names: &[&'static str], number: u64| names.get(number as usize).copied().unwrap_or("other");
        LaneWords {
            source: self.source.place(word(lane[1])),
            target: self.target.place(word(lane[2])),
            name: self.command_name.place(word(lane[3])),
            topic: self.topic.place(word(lane[4])),
            acl_age_ms: if lane[8] == 0 { NULL_NUMBER } else { lane[5] as i64 },
            acl_version: if lane[6] == 0 { NULL_NUMBER } else { lane[6] as i64 },
            escalation: self.escalation.place(if lane[7] == 0 { "" } else { named(&REASONS, lane[7]) }),
            phase: self.cache_phase.place(named(&PHASES, lane[8])),
            grant: self.grant.place(named(&GRANTS, lane[9])),
        }
    }

    /// The columns of verdict and kind.
    fn add_outcomes(&mut self, shape: &Shape<'_>) {
        let way = match shape.service {
            "fast" | "slow" => self.path.place(shape.service),
            _ => NULL_PLACE,
        };
        let of_an_id = |code: &u8| matches!(*code, DUPLICATE | CONFLICT);
        let strict =
            if shape.verdict.iter().any(of_an_id) { self.dedupe_mode.place("strict") } else { NULL_PLACE };
        // Most rows of a block say the same.
        let mut last = (u8::MAX, u8::MAX);
        let (mut event, mut reason) = (NULL_PLACE, NULL_PLACE);
        for (row, code) in shape.verdict.iter().enumerate() {
            let kind = shape.kind.get(row).copied().unwrap_or_default();
            if (kind, *code) != last {
                last = (kind, *code);
                event = self.event.place(event_name(kind, *code));
                let told = kind == 0 && *code >= MALFORMED;
                reason = self.reason.place(if told { verdict::name(*code) } else { "" });
            }
            self.event.rows.push(event);
            self.reason.rows.push(reason);
            self.verdict.push(if kind == 0 { i64::from(*code) } else { NULL_NUMBER });
            self.path.rows.push(if kind == 0 { way } else { NULL_PLACE });
            self.dedupe_mode.rows.push(if of_an_id(code) { strict } else { NULL_PLACE });
        }
    }

    /// The columns that follow from the times of sending, admission and settling.
    fn add_times(&mut self, shape: &Shape<'_>) {
        let start = self.received_at.len();
        for (row, run) in shape.run.iter().enumerate() {
            let admitted = shape.runs[*run as usize].1;
            let skewed = matches!(shape.kind.get(row), Some(&SKEW_NEAR_LIMIT | &SKEW_SAMPLE));
            // Refused for its clock: it was never admitted, and was judged as it came in.
            let late = !skewed && shape.verdict.get(row) == Some(&TIMESTAMP_OUTSIDE_WINDOW);
            let received = if late && admitted == 0 { shape.settled_unix_ns } else { admitted };
            let (sent, at) = (self.timestamp[start + row], micros(received));
            // The skew is known only where both times are; a counted flood has neither.
            let known = received != 0 && !(late && sent == NULL_NUMBER);
            self.received_at.push(if known { at } else { NULL_NUMBER });
            self.skew_seconds.push(if (skewed || late) && known && sent != NULL_NUMBER {
                at.saturating_sub(sent) as f64 / 1e6
            } else {
                f64::NAN
            });
            self.latency_ms.push(if admitted == 0 || skewed {
                f64::NAN
            } else {
                (micros(shape.settled_unix_ns) - at).max(0) as f64 / 1e3
            });
        }
    }

    fn add_detail(&mut self, shape: &Shape<'_>, start: usize, told: &Told<'_>) {
        let first = told.row as usize;
        let kind = |row: usize| shape.kind.get(row).copied().unwrap_or_default();
        let like = |row: usize| {
            (shape.lane[row], shape.verdict[row], kind(row))
                == (shape.lane[first], shape.verdict[first], kind(first))
        };
        let place = self.detail.place(told.detail);
        let last = if told.alike { shape.verdict.len() } else { first + 1 };
        for row in (first..last).filter(|row| !told.alike || like(*row)) {
            let at = start + row;
            let throttled = shape.verdict[row] == RATE_LIMIT_EXCEEDED || kind(row) == WARM_PATH_BAN;
            if told.retry_after_ms != 0 || throttled {
                self.retry_after_ms[at] = i64::from(told.retry_after_ms);
            }
            if told.throttle_until_unix_ns != 0 {
                self.throttle_until[at] = micros(told.throttle_until_unix_ns);
            }
            if told.source_share != 0.0 || told.competing_share != 0.0 || kind(row) == WARM_PATH_BAN {
                self.source_share[at] = told.source_share;
                self.competing_share[at] = told.competing_share;
            }
            if told.dispatch_volume != 0 {
                self.dispatch_volume[at] = told.dispatch_volume as i64;
            }
            if told.count != 0 {
                self.count[at] = told.count as i64;
            }
            if place != NULL_PLACE {
                self.detail.rows[at] = place;
            }
        }
    }

    /// Finds the lanes of the block whose right had been taken away when it was settled.
    fn join(&mut self, shape: &Shape<'_>, tombstones: &Tombstones) {
        if tombstones.is_empty() {
            return;
        }
        for (number, lane) in (0u32..).zip(&shape.lanes) {
            let right = [lane[1], lane[2], lane[3]].map(|place| shape.word(place));
            let Some(revoked) = tombstones.revoked(right, lane[6], shape.settled_unix_ns) else { continue };
            let delivered = shape.lane.iter().zip(shape.verdict);
            let count = delivered.filter(|(of, code)| **of == number && **code == DELIVERED).count() as u64;
            if count > 0 {
                let [source, target, name] = right.map(str::to_owned);
                let settled_unix_ns = shape.settled_unix_ns;
                self.late.push(Late {
                    source,
                    target,
                    name,
                    revoked_unix_ns: revoked,
                    settled_unix_ns,
                    count,
                });
            }
        }
    }

    /// Every column by its name in the archive, in the archive's units.
    pub fn told(&self) -> Vec<(&'static str, Column<'_>)> {
        vec![
            ("event", Column::Text(&self.event)),
            ("seq", Column::Number(&self.seq)),
            ("at", Column::Number(&self.at)),
            ("count", Column::Number(&self.count)),
            ("command_id", Column::Id(&self.command_id)),
            ("source", Column::Text(&self.source)),
            ("target", Column::Text(&self.target)),
            ("command_name", Column::Text(&self.command_name)),
            ("timestamp", Column::Number(&self.timestamp)),
            ("received_at", Column::Number(&self.received_at)),
            ("path", Column::Text(&self.path)),
            ("verdict", Column::Number(&self.verdict)),
            ("reason", Column::Text(&self.reason)),
            ("dispatch_latency_ms", Column::Fraction(&self.latency_ms)),
            ("retry_after_ms", Column::Number(&self.retry_after_ms)),
            ("throttle_until", Column::Number(&self.throttle_until)),
            ("dedupe_mode", Column::Text(&self.dedupe_mode)),
            ("source_share", Column::Fraction(&self.source_share)),
            ("competing_share", Column::Fraction(&self.competing_share)),
            ("dispatch_volume", Column::Number(&self.dispatch_volume)),
            ("skew_seconds", Column::Fraction(&self.skew_seconds)),
            ("key_version", Column::Text(&self.key_version)),
            ("escalation", Column::Text(&self.escalation)),
            ("cache_phase", Column::Text(&self.cache_phase)),
            ("acl_version", Column::Number(&self.acl_version)),
            ("acl_age_ms", Column::Number(&self.acl_age_ms)),
            ("grant", Column::Text(&self.grant)),
            ("topic", Column::Text(&self.topic)),
            ("detail", Column::Text(&self.detail)),
        ]
    }
}

impl Column<'_> {
    /// Little-endian values, and a bit per row that is not null; no bits when none is, and no bytes when all are.
    pub fn buffers(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self {
            Self::Text(texts) => numbers(&texts.rows, |row| *row == NULL_PLACE, |row| row.to_le_bytes()),
            Self::Number(rows) => numbers(rows, |row| *row == NULL_NUMBER, |row| row.to_le_bytes()),
            Self::Fraction(rows) => numbers(rows, |row| row.is_nan(), |row| row.to_le_bytes()),
            Self::Id(bytes) => {
                let rows: Vec<&[u8; 16]> = bytes.as_chunks::<16>().0.iter().collect();
                numbers(&rows, |row| **row == [0; 16], |row| **row)
            }
        }
    }
}

fn numbers<T, const N: usize>(
    rows: &[T],
    null: impl Fn(&T) -> bool,
    bytes: impl Fn(&T) -> [u8; N],
) -> (Vec<u8>, Option<Vec<u8>>) {
    let nulls = rows.iter().filter(|row| null(row)).count();
    if nulls == rows.len() {
        return (Vec::new(), None);
    }
    let mut values = Vec::with_capacity(rows.len() * N);
    for row in rows {
        values.extend_from_slice(&bytes(row));
    }
    if nulls == 0 {
        return (values, None);
    }
    let mut bits = vec![0u8; rows.len().div_ceil(8)];
    for (at, _) in rows.iter().enumerate().filter(|(_, row)| !null(row)) {
        bits[at / 8] |= 1 << (at % 8);
    }
    (values, Some(bits))
}

fn micros(unix_ns: i64) -> i64 {
    unix_ns.div_euclid(1000)
}

pub(super) fn event_name(kind: u8, code: u8) -> &'static str {
    match (kind, code) {
        (SKEW_NEAR_LIMIT, _) => "snavio.telemetry.skew_near_limit",
        (SKEW_SAMPLE, _) => "snavio.telemetry.skew_sample",
        (WARM_PATH_BAN, _) => "snavio.fairness.warm-path-ban",
        (0, DELIVERED) => "snavio.command.delivered",
        (0, DUPLICATE) => "snavio.command.duplicate",
        (0, CONFLICT) => "snavio.command.conflict",
        (0, MALFORMED..64) => "snavio.command.invalid",
        (0, 64..) => "snavio.command.failed",
        // A newer writer's; kept for newer readers.
        _ => "snavio.telemetry.unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::BLOCK;
    use super::super::telemetry::{Detail, Facts, Row, TelemetryBlock};
    use super::super::wire::put_bytes;
    use super::*;

    fn body(version: u64) -> Vec<u8> {
        let mut block = TelemetryBlock::new("fast", 4);
        let [source, target, name, topic] =
            ["acme/shop", "bot", "say", "acme/bot"].map(|text| block.intern(text));
        let facts = Facts {
            source,
            target,
            name,
            topic,
            phase: 2,
            acl_version: version,
            acl_age_ms: 40,
            grant: 1,
            escalation: 0,
        };
        let lane = block.add_lane(facts);
        let run = block.add_run("hmac-v1", 2_000_000_000);
        for (at, verdict) in (1u8..).zip([1, 1, 64, 2]) {
            let row = Row {
                command_id: [at; 16],
                sent_unix_ns: 1_000_000_000,
                lane,
                run,
                verdict,
                ..Row::default()
            };
            block.push(row);
        }
        block.explain_lane(lane, 64, Detail { retry_after_ms: 7, ..Detail::default() });
        let mut body = Vec::new();
        put_bytes(&mut body, BLOCK, &block.write(3_000_000_000));
        body
    }

    fn texts(columns: &Columns, name: &str) -> Vec<String> {
        let told = columns.told();
        let Some((_, Column::Text(texts))) = told.iter().find(|(known, _)| *known == name) else { panic!() };
        texts.rows.iter().map(|at| texts.dictionary.get(*at as usize).cloned().unwrap_or_default()).collect()
    }

    #[test]
    fn rows_become_events_with_their_fields() {
        let mut columns = Columns::default();
        columns.add(&body(5), 11, &Tombstones::default()).unwrap();
        columns.add(&body(5), 15, &Tombstones::default()).unwrap();
        assert_eq!(columns.seq, (11..19).collect::<Vec<i64>>());
        assert_eq!(
            texts(&columns, "event")[..4],
            ["delivered", "delivered", "failed", "duplicate"].map(|name| format!("snavio.command.{name}"))
        );
        assert_eq!(texts(&columns, "reason")[..4], ["", "", "rate-limit-exceeded", ""]);
        assert_eq!(texts(&columns, "dedupe_mode")[..4], ["", "", "", "strict"]);
        assert_eq!(texts(&columns, "cache_phase")[..2], ["stale", "stale"]);
        assert_eq!(columns.retry_after_ms[..4], [NULL_NUMBER, NULL_NUMBER, 7, NULL_NUMBER]);
        assert_eq!(
            (columns.latency_ms[0], columns.at[0], columns.timestamp[0]),
            (1000.0, 3_000_000, 1_000_000)
        );
        assert_eq!(columns.source.dictionary, ["acme/shop"]);
        assert!(columns.late.is_empty());
    }

    #[test]
    fn a_right_taken_away_before_the_dispatch_is_found() {
        let revoked = |version, acl_version, at| {
            let mut tombstones = Tombstones::default();
            tombstones.add("acme/shop", "bot", "say", version, at);
            let mut columns = Columns::default();
            columns.add(&body(acl_version), 1, &tombstones).unwrap();
            columns.late.first().map(|late| late.count)
        };
        assert_eq!(revoked(9, 5, 2_500_000_000), Some(2));
        assert_eq!(revoked(9, 5, 3_000_000_000), None);
        // Granted again since, or read for this very command.
        assert_eq!(revoked(9, 10, 2_500_000_000), None);
        assert_eq!(revoked(9, 0, 2_500_000_000), None);
    }

    #[test]
    fn nulls_are_bits() {
        let (values, bits) = Column::Number(&[1, NULL_NUMBER, 3]).buffers();
        assert_eq!((values.len(), bits), (24, Some(vec![0b101])));
        assert_eq!(Column::Number(&[NULL_NUMBER]).buffers(), (Vec::new(), None));
        assert_eq!(Column::Fraction(&[0.5]).buffers(), (0.5f64.to_le_bytes().to_vec(), None));
    }
}
