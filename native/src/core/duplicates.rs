//! Commands of strict routes whose delivery was seen here: their duplicates are answered from memory.
//!
//! Only a committed outcome is remembered, and only for as long as the authority would remember it. Forgetting is
//! always safe: what is not found here is decided by Slow.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// A command by who sent it under which id, and by what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    id: [u8; 16],
    content: [u8; 16],
}

impl Fingerprint {
    pub fn of(source: &[u8], id: &[u8; 16], target: &[u8], name: &[u8], payload: &[u8]) -> Self {
        Self { id: head(digest(&[source, id])), content: head(contents(target, name, payload)) }
    }
}

/// The contents that two commands of one id must share: another target or name under it is no duplicate, and answered
/// as one it would be lost without a word.
pub fn contents(target: &[u8], name: &[u8], payload: &[u8]) -> [u8; 32] {
    digest(&[target, name, payload])
}

/// Lengths first, so that no bytes can move between the pieces.
fn digest(pieces: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for piece in pieces {
        hasher.update(&(piece.len() as u64).to_le_bytes());
        hasher.update(piece);
    }
    *hasher.finalize().as_bytes()
}

fn head(digest: [u8; 32]) -> [u8; 16] {
    std::array::from_fn(|at| digest[at])
}

#[derive(Debug)]
pub struct Duplicates {
    capacity: usize,
    seen: HashMap<[u8; 16], Seen, RandomState>,
    /// In the order in which they are forgotten; a later entry of the same id stands here too.
    order: VecDeque<([u8; 16], i64)>,
}

#[derive(Debug)]
struct Seen {
    content: [u8; 16],
    until_mono_ns: i64,
    /// When it was stored and as which message; empty where that was not told.
    first: Box<str>,
}

impl Duplicates {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, seen: HashMap::default(), order: VecDeque::new() }
    }

    /// Where the first one is, if exactly this was delivered before. The same id with other contents is for Slow to
    /// judge.
    pub fn knows(&self, command: &Fingerprint, now_mono_ns: i64) -> Option<&str> {
        self.seen
            .get(&command.id)
            .filter(|seen| seen.content == command.content && now_mono_ns < seen.until_mono_ns)
            .map(|seen| &*seen.first)
    }

    /// It was delivered; `first` says when and as which message. When full, the oldest makes room.
    pub fn remember(&mut self, command: &Fingerprint, first: &str, until_mono_ns: i64, now_mono_ns: i64) {
        if self.capacity == 0 || until_mono_ns <= now_mono_ns {
            return;
        }
        self.forget_until(now_mono_ns);
        while self.order.len() >= self.capacity {
            self.forget_oldest();
        }
        self.order.push_back((command.id, until_mono_ns));
        self.seen
            .insert(command.id, Seen { content: command.content, until_mono_ns, first: Box::from(first) });
    }

    /// Forgets what is over.
    pub fn forget_until(&mut self, now_mono_ns: i64) {
        while self.order.front().is_some_and(|(_, until)| *until <= now_mono_ns) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((id, until)) = self.order.pop_front()
            && self.seen.get(&id).is_some_and(|seen| seen.until_mono_ns <= until)
        {
            self.seen.remove(&id);
        }
    }

    pub fn len(&self) -> usize {
        self.seen.len()
    }

    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str, id: u8, payload: &str) -> Fingerprint {
        Fingerprint::of(source.as_bytes(), &[id; 16], b"bot", b"say", payload.as_bytes())
    }

    #[test]
    fn only_the_same_source_id_and_contents_are_a_duplicate() {
        let mut seen = Duplicates::new(10);
        seen.remember(&of("a/b", 1, "x"), "m", 100, 0);
        assert_eq!(seen.knows(&of("a/b", 1, "x"), 99), Some("m"));
        for other in [of("a/c", 1, "x"), of("a/b", 2, "x"), of("a/b", 1, "y")] {
            assert!(seen.knows(&other, 0).is_none());
        }
        assert!(seen.knows(&of("a/b", 1, "x"), 100).is_none());
        let moved = Fingerprint::of(b"a/b", &[1; 16], b"bots", b"ay", b"x");
        assert!(seen.knows(&moved, 0).is_none());
    }

    #[test]
    fn it_never_holds_more_than_it_may() {
        let mut seen = Duplicates::new(3);
        for id in 0..100 {
            seen.remember(&of("a/b", id, "x"), "m", 100 + i64::from(id), 0);
            seen.remember(&of("a/b", id, "x"), "m", 100 + i64::from(id), 0);
            assert!(seen.len() <= 3 && seen.order.len() <= 3);
        }
        assert!(seen.knows(&of("a/b", 99, "x"), 0).is_some());
        seen.forget_until(1000);
        assert!(seen.is_empty());
        seen.remember(&of("a/b", 1, "x"), "m", 5, 5);
        assert!(seen.is_empty());
    }
}
