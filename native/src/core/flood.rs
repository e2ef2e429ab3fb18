//! Bounds the telemetry of a source's bad commands: some are reported one by one, the rest are counted.
//!
//! It must never lose a count, and a forger at full speed must not make it grow: per source and second it holds a
//! handful of numbers, and no more sources than its bound.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Reported one by one, per source, group and second.
const TOLD_PER_SECOND: u32 = 100;
/// Beyond that, one in so many is reported as a sample …
const ONE_IN: u32 = 100;
/// … and no more than this many per second.
const SAMPLES_PER_SECOND: u32 = 10;
/// Sources have certificates, so an attacker cannot fill this; beyond it they are counted without a name.
const MAX_SOURCES: usize = 65_536;
/// Closed seconds that wait to be drained; beyond it, a second lasts longer.
const MAX_CLOSED: usize = 65_536;

/// Events of one kind that a source caused in one second, beyond those with a row of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    pub source: Box<str>,
    pub second: i64,
    pub kind: u8,
    pub verdict: u8,
    pub count: u64,
}

#[derive(Debug, Default)]
struct Tally {
    second: i64,
    told: [u32; 2],
    beyond: u32,
    samples: u32,
    /// (kind, verdict, count); as many as there are reasons.
    counts: Vec<(u8, u8, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct FloodGate {
    tallies: HashMap<String, Tally, RandomState>,
    closed: Vec<Counted>,
}

impl FloodGate {
    /// True if this event gets a row of its own; otherwise it is counted here.
    pub fn tell(&mut self, source: &str, kind: u8, verdict: u8, now_unix_ns: i64) -> bool {
        let second = now_unix_ns.div_euclid(1_000_000_000);
        let known = self.tallies.len() < MAX_SOURCES || self.tallies.contains_key(source);
        let source = if known { source } else { "" };
        let tally = self.tallies.entry_ref(source).or_default();
        if tally.second != second && (tally.counts.is_empty() || self.closed.len() < MAX_CLOSED) {
            close(&mut self.closed, source, std::mem::take(tally));
            tally.second = second;
        }
        let told = &mut tally.told[usize::from(kind != 0)];
        if *told < TOLD_PER_SECOND {
            *told += 1;
            return true;
        }
        tally.beyond += 1;
        if tally.samples < SAMPLES_PER_SECOND && tally.beyond.is_multiple_of(ONE_IN) {
            tally.samples += 1;
            return true;
        }
        match tally.counts.iter_mut().find(|(known, code, _)| (*known, *code) == (kind, verdict)) {
            Some((_, _, count)) => *count += 1,
            None => tally.counts.push((kind, verdict, 1)),
        }
        false
    }

    /// The counts of seconds that are over, oldest first.
    pub fn drain(&mut self, now_unix_ns: i64) -> Vec<Counted> {
        let second = now_unix_ns.div_euclid(1_000_000_000);
        let mut closed = std::mem::take(&mut self.closed);
        self.tallies.retain(|source, tally| {
            let open = tally.second >= second;
            if !open {
                close(&mut closed, source, std::mem::take(tally));
            }
            open
        });
        closed.sort_by_key(|counted| counted.second);
        closed
    }
}

fn close(closed: &mut Vec<Counted>, source: &str, tally: Tally) {
    let second = tally.second;
    closed.extend(tally.counts.into_iter().map(|(kind, verdict, count)| Counted {
        source: source.into(),
        second,
        kind,
        verdict,
        count,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_flood_is_told_up_to_a_rate_and_counted_beyond_it() {
        let mut gate = FloodGate::default();
        let told = (0..100_000).filter(|_| gate.tell("acme/shop", 0, 38, 5 * SECOND)).count();
        assert_eq!(told, 110);
        assert!(gate.drain(5 * SECOND + 999_999_999).is_empty());
        let [counted] = gate.drain(6 * SECOND).try_into().unwrap();
        assert_eq!((counted.second, counted.verdict, counted.count), (5, 38, 100_000 - 110));
        assert!(gate.tallies.is_empty());
        assert!(gate.drain(9 * SECOND).is_empty());
    }

    #[test]
    fn nothing_is_lost_over_seconds_reasons_and_sources() {
        let mut gate = FloodGate::default();
        let (mut told, mut counted) = (0, 0);
        for step in 0..30_000i64 {
            let source = ["a/a", "b/b"][step as usize % 2];
            told += u64::from(gate.tell(source, 0, 16 + (step % 3) as u8, step / 7500 * SECOND));
        }
        for entry in gate.drain(i64::MAX) {
            counted += entry.count;
        }
        assert_eq!(told + counted, 30_000);
    }

    #[test]
    fn skew_does_not_use_up_what_is_told_of_invalid_commands() {
        let mut gate = FloodGate::default();
        assert_eq!((0..200).filter(|_| gate.tell("a/a", 1, 0, 0)).count(), 101);
        assert!(gate.tell("a/a", 0, 38, 0));
    }

    #[test]
    fn too_many_sources_are_counted_as_nobody() {
        let mut gate = FloodGate::default();
        for number in 0..MAX_SOURCES + 500 {
            gate.tell(&format!("t/{number}"), 0, 38, 0);
        }
        assert_eq!(gate.tallies.len(), MAX_SOURCES + 1);
        assert!(gate.drain(SECOND).iter().all(|counted| counted.source.is_empty()));
    }
}
