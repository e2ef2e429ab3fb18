//! Routes that are not known here: what was asked of the authority lately, and what it did not know either.
//!
//! Bounded as a whole and per source. A source that names more unknown routes than its share is refused with a retry
//! hint, so that invented names neither fill this table nor load the authority, and other sources are not affected.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Bounds of the memory, in entries and in time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub routes: usize,
    pub routes_per_source: usize,
    pub life_ns: i64,
}

/// The decision about a command for a route that is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The authority has to say.
    Ask,
    /// The authority has just said that there is none.
    Missing,
    /// This source has asked for too many; again after so many nanoseconds.
    Wait(i64),
}

#[derive(Debug, Default)]
struct Share {
    /// True where the authority said that there is none, by `target\nname`; when it is forgotten stands in `order`.
    missing: HashMap<Box<str>, bool, RandomState>,
    order: VecDeque<(i64, Box<str>)>,
}

impl Share {
    /// Forgets what is over; how many that were.
    fn purge(&mut self, now_mono_ns: i64) -> usize {
        let before = self.order.len();
        while self.order.front().is_some_and(|(until, _)| *until <= now_mono_ns) {
            if let Some((_, key)) = self.order.pop_front() {
                self.missing.remove(&key);
            }
        }
        before - self.order.len()
    }
}

#[derive(Debug)]
pub struct Unknown {
    bounds: Bounds,
    sources: HashMap<Box<str>, Share, RandomState>,
    held: usize,
}

impl Unknown {
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, sources: HashMap::default(), held: 0 }
    }

    /// A command of `source` names a route that is not known here.
    pub fn ask(&mut self, source: &str, target: &str, name: &str, now_mono_ns: i64) -> Advice {
        if let Some(share) = self.sources.get_mut(source) {
            self.held -= share.purge(now_mono_ns);
            match share.missing.get(&*key(target, name)) {
                Some(true) => return Advice::Missing,
                Some(false) => return Advice::Ask,
                None => {}
            }
            if share.missing.len() >= self.bounds.routes_per_source {
                let until = share.order.front().map_or(now_mono_ns, |(until, _)| *until);
                return Advice::Wait(until - now_mono_ns);
            }
        }
        if self.held >= self.bounds.routes {
            self.sweep(now_mono_ns);
            if self.held >= self.bounds.routes {
                // Not remembered, but asked: others filled the table, and this one is not to blame.
                return Advice::Ask;
            }
        }
        let share = self.sources.entry(Box::from(source)).or_default();
        let key = key(target, name);
        share.order.push_back((now_mono_ns.saturating_add(self.bounds.life_ns), key.clone()));
        share.missing.insert(key, false);
        self.held += 1;
        Advice::Ask
    }

    /// The authority knows no such route. Its word lives as long as the question, and not from now on.
    pub fn learn(&mut self, source: &str, target: &str, name: &str) {
        if let Some(share) = self.sources.get_mut(source)
            && let Some(missing) = share.missing.get_mut(&*key(target, name))
        {
            *missing = true;
        }
    }

    /// Forgets what is over, of every source.
    pub fn sweep(&mut self, now_mono_ns: i64) {
        let held = &mut self.held;
        self.sources.retain(|_, share| {
            *held -= share.purge(now_mono_ns);
            !share.order.is_empty()
        });
    }

    pub fn len(&self) -> usize {
        self.held
    }

    pub fn is_empty(&self) -> bool {
        self.held == 0
    }
}

/// No name has a line break, so no two routes share a key.
fn key(target: &str, name: &str) -> Box<str> {
    let mut key = String::with_capacity(target.len() + name.len() + 1);
    key.push_str(target);
    key.push('\n');
    key.push_str(name);
    key.into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { routes: 8, routes_per_source: 5, life_ns: 100 };

    #[test]
    fn what_the_authority_does_not_know_is_missing_for_a_while() {
        let mut unknown = Unknown::new(BOUNDS);
        assert_eq!(unknown.ask("a/b", "bot", "say", 0), Advice::Ask);
        assert_eq!(unknown.ask("a/b", "bot", "say", 0), Advice::Ask);
        unknown.learn("a/b", "bot", "say");
        unknown.learn("a/c", "bot", "say");
        assert_eq!(unknown.ask("a/b", "bot", "say", 99), Advice::Missing);
        assert_eq!(unknown.ask("a/c", "bot", "say", 99), Advice::Ask);
        assert_eq!(unknown.ask("a/b", "bot", "say", 100), Advice::Ask);
        assert_eq!(unknown.len(), 2);
    }

    #[test]
    fn inventing_names_fills_only_ones_own_share() {
        let mut unknown = Unknown::new(BOUNDS);
        let advice = |unknown: &mut Unknown, source: &str, now| {
            (0..1000).map(|at| unknown.ask(source, &format!("t{at}"), "say", now)).collect::<Vec<_>>()
        };
        let first = advice(&mut unknown, "evil/x", 10);
        assert_eq!(first[..5], [Advice::Ask; 5]);
        assert_eq!(first[5..], [Advice::Wait(100); 995]);
        // The rest of the table, and then asked without being remembered.
        assert_eq!(advice(&mut unknown, "good/x", 20), [Advice::Ask; 1000]);
        assert_eq!(unknown.len(), 8);
        assert_eq!(advice(&mut unknown, "evil/x", 110)[..5], [Advice::Ask; 5]);
        unknown.sweep(300);
        assert!(unknown.is_empty() && unknown.sources.is_empty());
    }
}
