//! The directory's records as the tables of a snapshot.
//!
//! Never takes a record whose checksum does not fit: rot in the store would be signed and spread.

use std::fmt;

use blake2::digest::consts::U8;
use blake2::{Blake2b, Digest};
use serde::Deserialize;

use super::directory::EVERY_TEXT;
use super::snapshot::{Kind, Table, Unreadable};

/// The directory's DispatchMode.
const COLD_ONLY: u8 = 2;

/// Error of records that cannot become a snapshot; `record` is a position in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadRecord {
    Kind,
    Line { record: usize },
    Checksum { record: usize },
    Value { record: usize },
}

impl fmt::Display for BadRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => write!(out, "a snapshot has no records of this kind"),
            Self::Line { record } => write!(out, "record {record} is not in the form of a record"),
            Self::Checksum { record } => write!(out, "record {record} is damaged"),
            Self::Value { record } => write!(out, "record {record} says what no snapshot can hold"),
        }
    }
}

impl std::error::Error for BadRecord {}

#[derive(Deserialize)]
struct Route<'a> {
    target: &'a str,
    name: &'a str,
    topic: &'a str,
    queue_kind: u8,
    profile: u8,
    dedupe_mode: u8,
    #[serde(default)]
    expected_drain_seconds: u32,
    #[serde(default)]
    expires_unix_ns: u64,
    limit: Option<Limit>,
    #[serde(default)]
    fairness: Fairness,
    /// 2 is cold-only.
    #[serde(default)]
    dispatch_mode: u8,
}

#[derive(Deserialize)]
struct Limit {
    #[serde(default)]
    shadow: bool,
}

/// Absent fields have the defaults of the directory's Fairness.
#[derive(Deserialize)]
#[serde(default)]
struct Fairness {
    window_seconds: u32,
    dominant_share: f64,
    competing_share: f64,
    competitors: u32,
    minimum_volume: u32,
    ban_seconds: u32,
}

impl Default for Fairness {
    fn default() -> Self {
        let fairness = super::fairness::Fairness::default();
        let seconds = |ns: i64| (ns / 1_000_000_000) as u32;
        Self {
            window_seconds: seconds(fairness.window_ns),
            dominant_share: fairness.dominant_share,
            competing_share: fairness.competing_share,
            competitors: fairness.competitors,
            minimum_volume: fairness.minimum_volume,
            ban_seconds: seconds(fairness.ban_ns),
        }
    }
}

#[derive(Deserialize)]
struct Acl<'a> {
    source: &'a str,
    target: &'a str,
    name: &'a str,
    /// In place of the route's.
    profile: Option<u8>,
    #[serde(default)]
    expires_unix_ns: u64,
}

#[derive(Deserialize)]
struct SourceQuota<'a> {
    source: &'a str,
    target: &'a str,
    name: &'a str,
    /// Otherwise it counts only while the source is banned, which is Slow's business.
    #[serde(default)]
    always: bool,
    #[serde(default)]
    shadow: bool,
}

#[derive(Deserialize)]
struct Suspension<'a> {
    source: &'a str,
}

#[derive(Deserialize)]
struct Ban<'a> {
    list: u8,
    source: &'a str,
    target: &'a str,
    name: &'a str,
    until_unix_ns: u64,
}

/// A snapshot that is being gathered.
#[derive(Debug)]
pub struct Tables {
    routes: Table,
    acl: Table,
    suspensions: Table,
    bans: Table,
    terms: Table,
}

impl Default for Tables {
    fn default() -> Self {
        let [routes, acl, suspensions, bans, terms] =
            [Kind::Routes, Kind::Acl, Kind::Suspensions, Kind::Bans, Kind::Terms].map(Table::new);
        Self { routes, acl, suspensions, bans, terms }
    }
}

impl Tables {
    /// Takes lines `<checksum, 16 hex digits> <version> <JSON>`; returns how many.
    pub fn add(&mut self, kind: &str, lines: &[u8]) -> Result<usize, BadRecord> {
        let mut record = 0;
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Line { checksum, version_text, version, value } =
                fields(line).ok_or(BadRecord::Line { record })?;
            let damaged = BadRecord::Checksum { record };
            let bad = |_| BadRecord::Value { record };
            match kind {
                "route" => {
                    let route: Route<'_> = json(value).ok_or(BadRecord::Value { record })?;
                    require(
                        digest(kind, &[route.target, route.name], version_text, value) == checksum,
                        damaged,
                    )?;
                    put_route(&mut self.routes, &route).map_err(bad)?;
                }
                "acl" => {
                    let acl: Acl<'_> = json(value).ok_or(BadRecord::Value { record })?;
                    require(
                        digest(kind, &[acl.source, acl.target, acl.name], version_text, value) == checksum,
                        damaged,
                    )?;
                    put_acl(&mut self.acl, &mut self.terms, &acl, version).map_err(bad)?;
                }
                "source_quota" => {
                    let quota: SourceQuota<'_> = json(value).ok_or(BadRecord::Value { record })?;
                    let key = [quota.source, quota.target, quota.name];
                    require(digest(kind, &key, version_text, value) == checksum, damaged)?;
                    if quota.always {
                        let flags = if quota.shadow { 0b011 } else { 0b001 };
                        put_terms(&mut self.terms, key, [0, 0, flags]).map_err(bad)?;
                    }
                }
                "suspension" => {
                    let suspension: Suspension<'_> = json(value).ok_or(BadRecord::Value { record })?;
                    require(digest(kind, &[suspension.source], version_text, value) == checksum, damaged)?;
                    let source = self.suspensions.string(suspension.source).map_err(bad)?;
                    self.suspensions.row(&[source]).map_err(bad)?;
                }
                "ban" => {
                    let ban: Ban<'_> = json(value).ok_or(BadRecord::Value { record })?;
                    let list = match ban.list {
                        1 => "warm_ban",
                        2 => "cold_only",
                        3 => "frozen",
                        _ => return Err(BadRecord::Value { record }),
                    };
                    let key = [ban.source, list, ban.target, ban.name];
                    require(digest(kind, &key, version_text, value) == checksum, damaged)?;
                    put_ban(&mut self.bans, &ban).map_err(bad)?;
                }
                _ => return Err(BadRecord::Kind),
            }
            record += 1;
        }
        Ok(record)
    }

    /// Routes, ACL, suspensions, bans and terms as parts of one snapshot.
    pub fn write(&self, version: u64, epoch: u64) -> Result<[Vec<u8>; 5], Unreadable> {
        Ok([
            self.routes.write(version, epoch)?,
            self.acl.write(version, epoch)?,
            self.suspensions.write(version, epoch)?,
            self.bans.write(version, epoch)?,
            self.terms.write(version, epoch)?,
        ])
    }
}

fn put_route(table: &mut Table, route: &Route<'_>) -> Result<(), Unreadable> {
    let [target, name, topic] =
        [table.string(route.target)?, table.string(route.name)?, table.string(route.topic)?];
    let [kind, profile, dedupe] = [route.queue_kind, route.profile, route.dedupe_mode].map(u64::from);
    let drain = u64::from(route.expected_drain_seconds);
    let limited = match &route.limit {
        None => 0,
        Some(Limit { shadow: false }) => 0b001,
        Some(Limit { shadow: true }) => 0b011,
    };
    let flags = limited | if route.dispatch_mode == COLD_ONLY { 0b100 } else { 0 };
    let fairness = &route.fairness;
    table.row(&[
        target,
        name,
        topic,
        kind,
        profile,
        dedupe,
        drain,
        route.expires_unix_ns,
        flags,
        u64::from(fairness.window_seconds),
        fairness.dominant_share.to_bits(),
        fairness.competing_share.to_bits(),
        u64::from(fairness.competitors),
        u64::from(fairness.minimum_volume),
        u64::from(fairness.ban_seconds),
    ])
}

fn put_ban(table: &mut Table, ban: &Ban<'_>) -> Result<(), Unreadable> {
    let every = |text: &str| if text.is_empty() { EVERY_TEXT.to_owned() } else { text.to_owned() };
    let [source, target, name] = [ban.source, ban.target, ban.name].map(every);
    let key = [table.string(&source)?, table.string(&target)?, table.string(&name)?];
    table.row(&[key[0], key[1], key[2], u64::from(ban.list), ban.until_unix_ns])
}

fn put_acl(table: &mut Table, terms: &mut Table, acl: &Acl<'_>, version: u64) -> Result<(), Unreadable> {
    let key = [table.string(acl.source)?, table.string(acl.target)?, table.string(acl.name)?];
    if acl.profile.is_some() || acl.expires_unix_ns != 0 {
        let profile = u64::from(acl.profile.unwrap_or(0));
        put_terms(terms, [acl.source, acl.target, acl.name], [profile, acl.expires_unix_ns, 0])?;
    }
    table.row(&[key[0], key[1], key[2], version])
}

fn put_terms(table: &mut Table, key: [&str; 3], numbers: [u64; 3]) -> Result<(), Unreadable> {
    let key = [table.string(key[0])?, table.string(key[1])?, table.string(key[2])?];
    table.row(&[key[0], key[1], key[2], numbers[0], numbers[1], numbers[2]])
}

fn require(holds: bool, otherwise: BadRecord) -> Result<(), BadRecord> {
    if holds { Ok(()) } else { Err(otherwise) }
}

struct Line<'a> {
    checksum: [u8; 8],
    /// As the store spelled it: the checksum is over these digits.
    version_text: &'a str,
    version: u64,
    value: &'a [u8],
}

fn fields(line: &[u8]) -> Option<Line<'_>> {
    let (hex, rest) = line.split_at_checked(16)?;
    let rest = rest.strip_prefix(b" ")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let version_text = std::str::from_utf8(rest.get(..space)?).ok()?;
    let mut checksum = [0; 8];
    for (byte, pair) in checksum.iter_mut().zip(hex.chunks_exact(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(Line { checksum, version_text, version: version_text.parse().ok()?, value: rest.get(space + 1..)? })
}

fn json<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

/// The store's checksum of a record: pieces with their lengths, BLAKE2b of 8 bytes.
fn digest(kind: &str, key: &[&str], version: &str, value: &[u8]) -> [u8; 8] {
    let mut digest = Blake2b::<U8>::new();
    let length = |bytes: usize| (bytes as u32).to_be_bytes();
    digest.update(length(kind.len()));
    digest.update(kind);
    digest.update(length(key.iter().map(|text| text.len() + 1).sum::<usize>().saturating_sub(1)));
    for (at, text) in key.iter().enumerate() {
        if at > 0 {
            digest.update(b"\n");
        }
        digest.update(text);
    }
    digest.update(length(version.len()));
    digest.update(version);
    digest.update(length(value.len()));
    digest.update(value);
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{Part, suspended};
    use super::*;

    fn line(kind: &str, key: &[&str], version: u64, value: &str) -> String {
        let hex: String = digest(kind, key, &version.to_string(), value.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        format!("{hex} {version} {value}\n")
    }

    #[test]
    fn records_become_rows() {
        let mut tables = Tables::default();
        let route = r#"{"dedupe_mode":1,"name":"say","profile":3,"queue_kind":1,"target":"bot","topic":"a/bot","x":[1]}"#;
        assert_eq!(tables.add("route", line("route", &["bot", "say"], 3, route).as_bytes()), Ok(1));
        let acl = r#"{"name":"say","source":"a/b","target":"bot"}"#;
        assert_eq!(tables.add("acl", line("acl", &["a/b", "bot", "say"], 9, acl).as_bytes()), Ok(1));
        let gone = line("suspension", &["a/c"], 1, r#"{"reason":"x y","source":"a/c"}"#);
        assert_eq!(tables.add("suspension", gone.as_bytes()), Ok(1));
        let value =
            r#"{"evidence":"","list":2,"name":"","reason":"","source":"a/d","target":"","until_unix_ns":0}"#;
        let cold = line("ban", &["a/d", "cold_only", "", ""], 2, value);
        assert_eq!(tables.add("ban", cold.as_bytes()), Ok(1));
        let [routes, acl, suspensions, bans, _] = tables.write(9, 1).unwrap();
        let part = Part::open(&bans, Kind::Bans).unwrap();
        assert_eq!(
            (part.text(part.id(0, 0)), part.text(part.id(2, 0)), part.number(3, 0)),
            (Ok("a/d"), Ok("*"), 2)
        );
        let part = Part::open(&routes, Kind::Routes).unwrap();
        assert_eq!((part.text(part.id(2, 0)), part.number(4, 0)), (Ok("a/bot"), 3));
        assert_eq!(Part::open(&acl, Kind::Acl).unwrap().number(3, 0), 9);
        assert_eq!(suspended(&suspensions), Ok(vec!["a/c".to_owned()]));
    }

    #[test]
    fn a_damaged_record_is_refused_wherever_it_is_damaged() {
        let good = line("acl", &["a/b", "bot", "say"], 9, r#"{"name":"say","source":"a/b","target":"bot"}"#);
        let value_at = good.find('{').unwrap();
        for at in (0..16).chain([17]).chain(value_at..good.len() - 1) {
            let mut bytes = good.clone().into_bytes();
            bytes[at] ^= 1;
            let result = Tables::default().add("acl", &bytes);
            assert!(result.is_err(), "{at}: {result:?}");
        }
        assert_eq!(Tables::default().add("tenant", b"x"), Err(BadRecord::Line { record: 0 }));
    }
}
