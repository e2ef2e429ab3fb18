//! Counts commands by route, by source and by outcome, from the telemetry of the service that decided them.
//!
//! Bounded however many names strangers send: only a route that something was sent to makes a row, and of one tenant's
//! only so many. It never takes a row away: a counter that vanishes would be read as a fall.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;

use super::telemetry::BY_VERDICT;
use super::wire::{Fields, Malformed};

/// The rows of all, and of one tenant.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub rows: usize,
    pub per_tenant: usize,
}

/// Commands by outcome; few outcomes ever happen in one place.
#[derive(Clone, Debug, Default)]
struct Outcomes(Vec<(u8, u64)>);

impl Outcomes {
    fn add(&mut self, outcome: u8, commands: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, count)) => *count += commands,
            None => self.0.push((outcome, commands)),
        }
    }
}

/// Rows by name, and one for everything else.
#[derive(Debug)]
struct Table {
    bound: Bound,
    rows: HashMap<Box<str>, Outcomes, RandomState>,
    by_tenant: HashMap<Box<str>, usize, RandomState>,
    other: Outcomes,
    folded: u64,
}

impl Table {
    fn new(bound: Bound) -> Self {
        Self {
            bound,
            rows: HashMap::default(),
            by_tenant: HashMap::default(),
            other: Outcomes::default(),
            folded: 0,
        }
    }

    /// `maker` is the tenant that a new row would count for; None where there may be none.
    fn add(&mut self, name: &str, maker: Option<&str>, outcome: u8, commands: u64) {
        if let Some(row) = self.rows.get_mut(name) {
            row.add(outcome, commands);
            return;
        }
        if let Some(tenant) = maker
            && self.makes(tenant)
        {
            let mut row = Outcomes::default();
            row.add(outcome, commands);
            self.rows.insert(Box::from(name), row);
            return;
        }
        self.other.add(outcome, commands);
        self.folded += commands;
    }

    fn makes(&mut self, tenant: &str) -> bool {
        if self.rows.len() >= self.bound.rows {
            return false;
        }
        match self.by_tenant.entry(Box::from(tenant)) {
            Entry::Occupied(mut held) => {
                let room = *held.get() < self.bound.per_tenant;
                *held.get_mut() += usize::from(room);
                room
            }
            Entry::Vacant(none) => {
                none.insert(1);
                self.bound.per_tenant > 0
            }
        }
    }
}

/// Names, outcome, commands.
pub type Counted = (String, u8, u64);

#[derive(Debug)]
pub struct Volume {
    routes: Table,
    sources: Table,
    all: Outcomes,
    /// Between a target and a name, which both have no line breaks.
    key: String,
}

/// The strings of a lane, as numbers of the block's dictionary.
#[derive(Clone, Copy, Default)]
struct Lane {
    source: usize,
    target: usize,
    name: usize,
    topic: usize,
}

impl Volume {
    pub fn new(routes: Bound, sources: Bound) -> Self {
        Self {
            routes: Table::new(routes),
            sources: Table::new(sources),
            all: Outcomes::default(),
            key: String::new(),
        }
    }

    /// Counts the commands of a serialised TelemetryBlock; rows that are events and no commands are left out.
    pub fn add(&mut self, block: &[u8]) -> Result<(), Malformed> {
        let (mut dictionary, mut lanes, mut stands_for) = (Vec::new(), Vec::new(), Vec::new());
        let (mut verdicts, mut kinds, mut places): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        let mut fields = Fields::new(block);
        while let Some(field) = fields.next()? {
            match field.number {
                3 => dictionary.push(field.text()?),
                5 => verdicts = field.bytes()?,
                12 => kinds = field.bytes()?,
                13 => places = field.bytes()?,
                15 => lanes.push(lane(field.bytes()?)?),
                17 => {
                    if let Some(found) = count(field.bytes()?)? {
                        stands_for.push(found);
                    }
                }
                _ => {}
            }
        }
        stands_for.sort_unstable();
        let (mut sums, mut run) = (HashMap::<(usize, u8), u64, RandomState>::default(), ((0, 0), 0));
        let mut at = 0;
        for (row, outcome) in verdicts.iter().enumerate() {
            let place = varint(places, &mut at)?;
            if kinds.get(row).is_some_and(|kind| *kind != BY_VERDICT) || *outcome == 0 {
                continue;
            }
            let commands = match stands_for.binary_search_by_key(&row, |(row, _)| *row) {
                Ok(found) => stands_for[found].1,
                Err(_) => 1,
            };
            if run.0 == (place, *outcome) {
                run.1 += commands;
            } else {
                *sums.entry(run.0).or_default() += run.1;
                run = ((place, *outcome), commands);
            }
        }
        *sums.entry(run.0).or_default() += run.1;
        let text = |place: usize| dictionary.get(place).copied().unwrap_or_default();
        for ((place, outcome), commands) in sums {
            if commands > 0 {
                let lane = lanes.get(place).copied().unwrap_or_default();
                let (topic, source) = (text(lane.topic), text(lane.source));
                self.count((text(lane.target), text(lane.name)), topic, source, outcome, commands);
            }
        }
        Ok(())
    }

    fn count(&mut self, route: (&str, &str), topic: &str, source: &str, outcome: u8, commands: u64) {
        self.all.add(outcome, commands);
        self.key.clear();
        self.key.push_str(route.0);
        self.key.push('\n');
        self.key.push_str(route.1);
        // Nobody is sent to a topic but by a route, and its tenant is the route's owner. A name that is merely asked
        // for makes no row: a stranger could ask for a hundred thousand of them.
        let owner = (!topic.is_empty()).then(|| topic.split('/').next().unwrap_or_default());
        self.routes.add(&self.key, owner, outcome, commands);
        // A certificate says who it is.
        let tenant = (!source.is_empty()).then(|| source.split('/').next().unwrap_or_default());
        self.sources.add(source, tenant, outcome, commands);
    }

    /// Commands by target and name; the last rows, with empty names, are the other ones.
    pub fn routes(&self) -> Vec<(String, String, u8, u64)> {
        let row = |(name, outcome, count): Counted| {
            let (target, command) = name.split_once('\n').unwrap_or_default();
            (target.to_owned(), command.to_owned(), outcome, count)
        };
        told(&self.routes).into_iter().map(row).collect()
    }

    /// Commands by source; the last rows, with an empty name, are the other ones.
    pub fn sources(&self) -> Vec<Counted> {
        told(&self.sources)
    }

    /// Commands by outcome.
    pub fn outcomes(&self) -> Vec<(u8, u64)> {
        self.all.0.clone()
    }

    /// Commands among the other routes, and among the other sources.
    pub fn folded(&self) -> (u64, u64) {
        (self.routes.folded, self.sources.folded)
    }
}

fn told(table: &Table) -> Vec<Counted> {
    let rows = table.rows.iter().map(|(name, outcomes)| (&**name, outcomes));
    rows.chain(std::iter::once(("", &table.other)))
        .flat_map(|(name, outcomes)| {
            outcomes.0.iter().map(move |(code, count)| (name.to_owned(), *code, *count))
        })
        .collect()
}

fn lane(body: &[u8]) -> Result<Lane, Malformed> {
    let (mut found, mut fields) = (Lane::default(), Fields::new(body));
    while let Some(field) = fields.next()? {
        let place = match field.number {
            1 => &mut found.source,
            2 => &mut found.target,
            3 => &mut found.name,
            4 => &mut found.topic,
            _ => continue,
        };
        *place = usize::try_from(field.varint()?).map_err(|_| Malformed)?;
    }
    Ok(found)
}

/// The row of a detail and the commands that it stands for, if it says so.
fn count(body: &[u8]) -> Result<Option<(usize, u64)>, Malformed> {
    let (mut row, mut commands, mut fields) = (0, 0, Fields::new(body));
    while let Some(field) = fields.next()? {
        match field.number {
            1 => row = usize::try_from(field.varint()?).map_err(|_| Malformed)?,
            8 => commands = field.varint()?,
            _ => {}
        }
    }
    Ok((commands > 0).then_some((row, commands)))
}

/// The next number of a packed column; 0 behind its end, as the wire leaves out a column of zeros.
#[inline]
fn varint(column: &[u8], at: &mut usize) -> Result<usize, Malformed> {
    let (mut number, mut shift) = (0usize, 0);
    while let Some(byte) = column.get(*at) {
        *at += 1;
        number |= usize::from(byte & 0x7f).checked_shl(shift).ok_or(Malformed)?;
        if *byte < 0x80 {
            return Ok(number);
        }
        shift += 7;
    }
    if shift > 0 { Err(Malformed) } else { Ok(0) }
}

#[cfg(test)]
mod tests {
    use super::super::telemetry::{Detail, Row, SKEW_SAMPLE, TelemetryBlock};
    use super::super::verdict::{ACL_DENY, DELIVERED, ROUTE_MISSING};
    use super::*;

    fn block(rows: &[(&str, &str, &str, u8, u64)]) -> Vec<u8> {
        let mut block = TelemetryBlock::new("fast", rows.len());
        for (index, (source, target, topic, verdict, stands_for)) in (0..).zip(rows) {
            let lane = block.lane(source, target, "notify");
            let topic = block.intern(topic);
            block.facts(lane).unwrap().topic = topic;
            let row = Row { index, lane, verdict: *verdict, ..Row::default() };
            if *stands_for == 1 {
                block.push(row);
            } else {
                block.push_with(row, Detail { count: *stands_for, ..Detail::default() });
            }
        }
        block.push(Row { verdict: DELIVERED, kind: SKEW_SAMPLE, ..Row::default() });
        block.write(1)
    }

    fn volume(rows: usize, per_tenant: usize) -> Volume {
        Volume::new(Bound { rows, per_tenant }, Bound { rows, per_tenant })
    }

    fn sorted<T: Ord>(mut rows: Vec<T>) -> Vec<T> {
        rows.sort();
        rows
    }

    #[test]
    fn commands_are_counted_by_route_source_and_outcome_and_events_are_not() {
        let mut volume = volume(10, 10);
        let rows = [
            ("acme/billing", "bot", "acme/bot", DELIVERED, 1),
            ("acme/billing", "bot", "acme/bot", DELIVERED, 1),
            ("acme/crm", "bot", "acme/bot", ACL_DENY, 40),
        ];
        volume.add(&block(&rows)).unwrap();
        volume.add(&block(&rows)).unwrap();
        let route = |outcome, count| ("bot".to_owned(), "notify".to_owned(), outcome, count);
        assert_eq!(sorted(volume.routes()), [route(DELIVERED, 4), route(ACL_DENY, 80)]);
        let sources = [("acme/billing".to_owned(), DELIVERED, 4), ("acme/crm".to_owned(), ACL_DENY, 80)];
        assert_eq!(sorted(volume.sources()), sources);
        assert_eq!(sorted(volume.outcomes()), [(DELIVERED, 4), (ACL_DENY, 80)]);
        assert_eq!(volume.folded(), (0, 0));
    }

    #[test]
    fn names_without_a_route_make_no_row_however_many() {
        let mut volume = volume(10, 10);
        for number in 0..10_000 {
            let target = format!("nobody-{number}");
            volume.add(&block(&[("acme/billing", &target, "", ROUTE_MISSING, 1)])).unwrap();
        }
        volume.add(&block(&[("acme/billing", "bot", "acme/bot", DELIVERED, 1)])).unwrap();
        volume.add(&block(&[("acme/billing", "bot", "", ACL_DENY, 1)])).unwrap();
        let row = |target: &str, command: &str, outcome, count| {
            (target.to_owned(), command.to_owned(), outcome, count)
        };
        let expected = [
            row("", "", ROUTE_MISSING, 10_000),
            row("bot", "notify", DELIVERED, 1),
            row("bot", "notify", ACL_DENY, 1),
        ];
        assert_eq!(sorted(volume.routes()), expected);
        assert_eq!(volume.folded(), (10_000, 0));
    }

    #[test]
    fn a_tenant_with_many_routes_leaves_room_for_another_and_no_row_is_taken_away() {
        let mut volume = volume(6, 4);
        for number in 0..100 {
            let target = format!("t{number}");
            volume.add(&block(&[("evil/one", &target, "evil/t", DELIVERED, 1)])).unwrap();
        }
        for _ in 0..3 {
            volume.add(&block(&[("acme/billing", "bot", "acme/bot", DELIVERED, 1)])).unwrap();
            volume.add(&block(&[("evil/one", "t0", "evil/t", DELIVERED, 1)])).unwrap();
        }
        let routes = volume.routes();
        assert_eq!(routes.len(), 6);
        assert!(routes.contains(&("bot".to_owned(), "notify".to_owned(), DELIVERED, 3)));
        assert!(routes.contains(&("t0".to_owned(), "notify".to_owned(), DELIVERED, 4)));
        assert!(routes.contains(&(String::new(), String::new(), DELIVERED, 96)));
    }

    #[test]
    fn what_is_no_block_is_refused_and_counts_nothing() {
        let mut volume = volume(10, 10);
        let whole = block(&[("acme/billing", "bot", "acme/bot", DELIVERED, 1)]);
        assert!(volume.add(&whole[..whole.len() - 1]).is_err());
        assert!(volume.routes().is_empty() && volume.outcomes().is_empty());
        assert!(volume.add(&[]).is_ok());
    }
}
