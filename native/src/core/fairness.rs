//! Shares of one route's warm path by source, and the sources that take so much that others need protection.
//!
//! Counts only commands that passed the ACL, so that refused traffic cannot cause a ban. Holds a bounded number of
//! sources; an inexact count is in the source's favour, so that no source is banned on an estimate.

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Sources that one window counts one by one.
pub const SOURCES_PER_WINDOW: usize = 64;
/// Commands in a window from which on another source is a competitor: a probe that asks now and then is none.
pub const RIVAL_MINIMUM: u64 = 5;
/// Bans that one route holds; more than can be dominant one after another while a ban lasts, in practice.
const BANS_PER_ROUTE: usize = 64;

/// The route's parameters of fairness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fairness {
    pub window_ns: i64,
    /// Of the warm dispatches; above it a source dominates.
    pub dominant_share: f64,
    /// Of the offered commands; from there on the others count as competing.
    pub competing_share: f64,
    /// Or so many other sources.
    pub competitors: u32,
    /// Warm dispatches in the window below which no source dominates.
    pub minimum_volume: u32,
    pub ban_ns: i64,
}

impl Default for Fairness {
    fn default() -> Self {
        const SECOND_NS: i64 = 1_000_000_000;
        Self {
            window_ns: 30 * SECOND_NS,
            dominant_share: 0.8,
            competing_share: 0.1,
            competitors: 2,
            minimum_volume: 50,
            ban_ns: 30 * SECOND_NS,
        }
    }
}

/// The shares that caused a ban: of the warm dispatches, and of the offered commands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dominance {
    /// Its part of the window's warm dispatches.
    pub source_share: f64,
    /// The others' part of what was offered in the window.
    pub competing_share: f64,
    /// The window's warm dispatches.
    pub volume: u64,
}

#[derive(Debug)]
struct Count {
    source: Box<str>,
    /// Its offered commands, less at most what the window has shed.
    offered: u64,
    /// At most what was dispatched for it.
    dispatched: u64,
}

#[derive(Debug)]
struct Ban {
    source: Box<str>,
    until_mono_ns: i64,
}

/// For how long a source is banned, and how far apart bans of it have to be to be two offences: another Fast may
/// notice the same one as late as a window, or a ban, afterwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BanTerms {
    pub ban_ns: i64,
    pub window_ns: i64,
}

impl BanTerms {
    pub fn of(rules: &Fairness) -> Self {
        Self { ban_ns: rules.ban_ns, window_ns: rules.window_ns.max(rules.ban_ns) }
    }
}

/// One route's window, and its bans.
#[derive(Debug)]
pub struct Window {
    began_mono_ns: i64,
    offered: u64,
    dispatched: u64,
    /// The amount taken off every count to make room: no count is further below the truth.
    shed: u64,
    counts: HashTable<Count>,
    bans: Vec<Ban>,
}

impl Window {
    pub fn new(now_mono_ns: i64) -> Self {
        Self {
            began_mono_ns: now_mono_ns,
            offered: 0,
            dispatched: 0,
            shed: 0,
            counts: HashTable::new(),
            bans: Vec::new(),
        }
    }

    /// True while the source is kept off this route's warm path.
    #[inline]
    pub fn is_banned(&self, source: &str, now_mono_ns: i64) -> bool {
        self.bans.iter().any(|ban| now_mono_ns < ban.until_mono_ns && *ban.source == *source)
    }

    /// Counts what a source offered and how much of it was dispatched; bans the source if that made it dominant.
    ///
    /// `room` is how many more sources may be counted one by one, over all windows; it is updated.
    pub fn note(
        &mut self,
        rules: &Fairness,
        seed: &RandomState,
        source: &str,
        (offered, dispatched): (u64, u64),
        now_mono_ns: i64,
        room: &mut Room<'_>,
    ) -> Option<Dominance> {
        if self.offered == 0 || now_mono_ns.saturating_sub(self.began_mono_ns) >= rules.window_ns {
            self.begin(now_mono_ns, room);
        }
        self.offered += offered;
        self.dispatched += dispatched;
        let (mine, sent) = self.count(seed, source, offered, dispatched, room)?;
        if dispatched == 0 || self.dispatched < u64::from(rules.minimum_volume) {
            return None;
        }
        let [mine, sent, all_offered, all_sent] =
            [mine.min(self.offered), sent, self.offered, self.dispatched].map(|count| count as f64);
        let others = all_offered - mine;
        if sent <= rules.dominant_share * all_sent
            || !(others >= rules.competing_share * all_offered
                || self.rivals_of(source) >= rules.competitors as usize)
        {
            return None;
        }
        let found = Dominance {
            source_share: sent / all_sent,
            competing_share: others / all_offered,
            volume: self.dispatched,
        };
        self.ban(source, now_mono_ns.saturating_add(rules.ban_ns), now_mono_ns);
        // The window starts again: otherwise the first command after the ban would ban the source again.
        self.begin(now_mono_ns, room);
        Some(found)
    }

    /// Other sources that offered enough to compete. What was shed is not counted, in the source's favour. Asked only of
    /// a source that has most of the window, whose other sources are few.
    fn rivals_of(&self, source: &str) -> usize {
        self.counts.iter().filter(|count| count.offered >= RIVAL_MINIMUM && *count.source != *source).count()
    }

    /// Frees expired entries of this window.
    pub fn is_idle(&self, rules: &Fairness, now_mono_ns: i64) -> bool {
        now_mono_ns.saturating_sub(self.began_mono_ns) >= rules.window_ns
            && self.bans.iter().all(|ban| now_mono_ns >= ban.until_mono_ns)
    }

    /// Sources that are counted one by one.
    pub fn sources(&self) -> usize {
        self.counts.len()
    }

    fn begin(&mut self, now_mono_ns: i64, room: &mut Room<'_>) {
        room.give(self.counts.len());
        self.counts.clear();
        (self.began_mono_ns, self.offered, self.dispatched) = (now_mono_ns, 0, 0);
        self.shed = 0;
    }

    /// (at least what the source has offered, at most what was dispatched for it) in this window; None where nothing
    /// can be counted.
    fn count(
        &mut self,
        seed: &RandomState,
        source: &str,
        offered: u64,
        dispatched: u64,
        room: &mut Room<'_>,
    ) -> Option<(u64, u64)> {
        use std::hash::BuildHasher;
        let hash = seed.hash_one(source);
        if let Some(count) = self.counts.find_mut(hash, |count| *count.source == *source) {
            count.offered += offered;
            count.dispatched += dispatched;
            return Some((count.offered + self.shed, count.dispatched));
        }
        let mut left = offered;
        if self.counts.len() >= SOURCES_PER_WINDOW || !room.take() {
            if self.counts.is_empty() {
                return None;
            }
            left -= self.shed_for(offered, room);
            // All of it was shed, or the places that it freed went to another window meanwhile.
            if left == 0 || !room.take() {
                return Some((self.shed + left, dispatched));
            }
        }
        let count = Count { source: Box::from(source), offered: left, dispatched };
        self.counts.insert_unique(hash, count, |count| seed.hash_one(&*count.source));
        Some((left + self.shed, dispatched))
    }

    /// Takes as much off every count as frees a place, or as the newcomer has; how much that was.
    ///
    /// Many small ones free many places at once, so a crowd costs little; a large one stays.
    fn shed_for(&mut self, offered: u64, room: &mut Room<'_>) -> u64 {
        let least = self.counts.iter().map(|count| count.offered).min().unwrap_or(0);
        let shed = least.min(offered);
        let before = self.counts.len();
        self.counts.retain(|count| {
            count.offered -= shed;
            count.offered > 0
        });
        room.give(before - self.counts.len());
        self.shed += shed;
        shed
    }

    fn ban(&mut self, source: &str, until_mono_ns: i64, now_mono_ns: i64) {
        self.bans.retain(|ban| now_mono_ns < ban.until_mono_ns);
        if self.bans.len() >= BANS_PER_ROUTE {
            // The one that ends first: it has the least of its time left.
            let first = self.bans.iter().map(|ban| ban.until_mono_ns).min().unwrap_or(0);
            if let Some(at) = self.bans.iter().position(|ban| ban.until_mono_ns == first) {
                self.bans.swap_remove(at);
            }
        }
        self.bans.push(Ban { source: Box::from(source), until_mono_ns });
    }
}

/// The bound on sources that are counted one by one, over all windows.
pub struct Room<'a> {
    used: &'a std::sync::atomic::AtomicUsize,
    most: usize,
}

impl<'a> Room<'a> {
    pub fn new(used: &'a std::sync::atomic::AtomicUsize, most: usize) -> Self {
        Self { used, most }
    }

    fn take(&mut self) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        self.used.fetch_update(Relaxed, Relaxed, |used| (used < self.most).then_some(used + 1)).is_ok()
    }

    /// Gives back the places of sources that are counted no more.
    pub fn give(&mut self, places: usize) {
        use std::sync::atomic::Ordering::Relaxed;
        let _ = self.used.fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_sub(places)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const SECOND_NS: i64 = 1_000_000_000;

    struct Scene {
        window: Window,
        seed: RandomState,
        used: AtomicUsize,
        most: usize,
        rules: Fairness,
    }

    impl Scene {
        fn new(rules: Fairness) -> Self {
            Self {
                window: Window::new(0),
                seed: RandomState::default(),
                used: AtomicUsize::new(0),
                most: 1000,
                rules,
            }
        }

        fn note(&mut self, source: &str, offered: u64, dispatched: u64, now: i64) -> Option<Dominance> {
            let mut room = Room::new(&self.used, self.most);
            self.window.note(&self.rules, &self.seed, source, (offered, dispatched), now, &mut room)
        }
    }

    #[test]
    fn dominance_needs_share_contention_and_volume() {
        let mut scene = Scene::new(Fairness::default());
        // Alone: never.
        assert_eq!(scene.note("a/flood", 10_000, 10_000, 0), None);
        assert_eq!(scene.note("a/small", 1, 1, 0), None);
        assert_eq!(scene.note("a/flood", 1, 1, 0), None);
        // A second one: two probes are no competitors.
        assert_eq!(scene.note("a/other", 1, 1, 0), None);
        assert_eq!(scene.note("a/flood", 1, 1, 0), None);
        // Now they ask for enough to compete.
        assert_eq!(scene.note("a/small", 4, 4, 0), None);
        assert_eq!(scene.note("a/other", 4, 4, 0), None);
        let found = scene.note("a/flood", 1, 1, 0).unwrap();
        assert_eq!(found.volume, 10_013);
        assert!(found.source_share > 0.999 && found.competing_share < 0.001);
        assert!(scene.window.is_banned("a/flood", 30 * SECOND_NS - 1));
        assert!(!scene.window.is_banned("a/flood", 30 * SECOND_NS));
        assert!(!scene.window.is_banned("a/small", 0));
        // Used up.
        assert_eq!(scene.note("a/flood", 1, 1, 31 * SECOND_NS), None);
    }

    #[test]
    fn what_others_offered_counts_even_if_they_got_nothing() {
        let mut scene = Scene::new(Fairness::default());
        scene.note("a/other", 12, 0, 0);
        let found = scene.note("a/flood", 91, 91, 0).unwrap();
        assert_eq!(found.source_share, 1.0);
        assert!((found.competing_share - 12.0 / 103.0).abs() < 1e-12);
    }

    #[test]
    fn exactly_the_share_is_not_more_than_the_share() {
        let mut scene = Scene::new(Fairness::default());
        scene.note("a/other", 20, 20, 0);
        assert_eq!(scene.note("a/flood", 80, 80, 0), None);
        assert!(scene.note("a/flood", 5, 5, 0).is_some());
        let mut scene = Scene::new(Fairness::default());
        scene.note("a/other", 9, 9, 0);
        assert_eq!(scene.note("a/flood", 40, 40, 0), None);
        assert!(scene.note("a/flood", 1, 1, 0).is_some());
    }

    #[test]
    fn a_window_forgets_after_its_time() {
        let mut scene = Scene::new(Fairness::default());
        scene.note("a/other", 40, 40, 0);
        assert_eq!(scene.note("a/flood", 1000, 1000, 30 * SECOND_NS), None);
        assert_eq!(scene.window.sources(), 1);
    }

    #[test]
    fn a_crowd_takes_no_more_than_its_bound_and_bans_nobody_wrongly() {
        let mut scene = Scene::new(Fairness { minimum_volume: 1, ..Fairness::default() });
        for round in 0..5 {
            for number in 0..1000 {
                assert_eq!(scene.note(&format!("a/s{number}"), 1, 1, 0), None, "round {round}");
            }
        }
        assert!(scene.window.sources() <= SOURCES_PER_WINDOW);
        assert_eq!(scene.used.load(std::sync::atomic::Ordering::Relaxed), scene.window.sources());
        // And still finds the one that dominates.
        let found = (0..100).find_map(|_| scene.note("a/flood", 1000, 1000, 0));
        assert!(found.is_some());
        assert_eq!(scene.used.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    #[test]
    fn whoever_is_banned_in_a_crowd_was_dominant_by_exact_counts() {
        let rules = Fairness { minimum_volume: 20, dominant_share: 0.5, ..Fairness::default() };
        let mut scene = Scene::new(rules);
        let mut exact: std::collections::HashMap<String, (u64, u64)> = std::collections::HashMap::new();
        let (mut state, mut bans) = (7u64, 0);
        for step in 0..200_000 {
            let now = step / 2000 * 31 * SECOND_NS;
            if step % 2000 == 0 {
                exact.clear();
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = state >> 33;
            // Now and then somebody floods; the rest is a crowd far beyond what is counted one by one.
            let flood = step / 700 % 3 == 0 && draw % 3 > 0;
            let source = format!("a/s{}", if flood { draw % 2 } else { draw % 500 });
            let offered = 1 + draw / 500 % if draw % 7 == 0 { 60 } else { 3 };
            let sent = if draw % 4 == 0 { 0 } else { offered };
            let count = exact.entry(source.clone()).or_default();
            (count.0, count.1) = (count.0 + offered, count.1 + sent);
            let mine = *count;
            let Some(found) = scene.note(&source, offered, sent, now) else { continue };
            let all = exact.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
            assert!(mine.1 as f64 > 0.5 * all.1 as f64);
            assert!(exact.len() > 2 || (all.0 - mine.0) as f64 >= 0.1 * all.0 as f64);
            assert!(found.source_share <= mine.1 as f64 / all.1 as f64);
            assert!(found.competing_share <= (all.0 - mine.0) as f64 / all.0 as f64);
            bans += 1;
            exact.clear();
        }
        assert!(bans > 10, "{bans}");
    }

    #[test]
    fn without_room_for_one_source_nobody_is_counted_and_nobody_banned() {
        let mut scene = Scene::new(Fairness { minimum_volume: 1, ..Fairness::default() });
        scene.most = 0;
        for number in 0..10 {
            assert_eq!(scene.note(&format!("a/s{number}"), 100, 100, 0), None);
        }
        assert_eq!(scene.window.sources(), 0);
    }

    #[test]
    fn bans_of_a_route_are_bounded() {
        let mut scene = Scene::new(Fairness::default());
        for number in 0..200 {
            scene.window.ban(&format!("a/s{number}"), 1000 + number, 0);
        }
        assert_eq!(scene.window.bans.len(), BANS_PER_ROUTE);
        assert!(scene.window.is_banned("a/s199", 0) && !scene.window.is_banned("a/s0", 0));
    }
}
