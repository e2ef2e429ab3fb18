//! Strings as small numbers, for keys that are compared far more often than they are written.
//!
//! Counted references: a directory whose routes come and go for years does not grow with its past.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

#[derive(Debug, Default)]
pub struct Interner {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_text: HashTable<u32>,
    seed: RandomState,
}

#[derive(Debug, Default)]
struct Entry {
    text: Box<str>,
    references: u32,
}

impl Interner {
    /// The number of `text`, if it has one.
    #[inline]
    pub fn find(&self, text: &str) -> Option<u32> {
        self.by_text.find(self.seed.hash_one(text), |at| *self.entries[*at as usize].text == *text).copied()
    }

    /// The number of `text`, held until `release`.
    pub fn hold(&mut self, text: &str) -> u32 {
        if let Some(at) = self.find(text) {
            self.entries[at as usize].references += 1;
            return at;
        }
        let entry = Entry { text: Box::from(text), references: 1 };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let (seed, entries) = (&self.seed, &self.entries);
        self.by_text.insert_unique(seed.hash_one(text), at, |at| seed.hash_one(&*entries[*at as usize].text));
        at
    }

    /// So many more holds of a number that is held.
    #[inline]
    pub fn again(&mut self, at: u32, times: u32) {
        if let Some(entry) = self.entries.get_mut(at as usize).filter(|entry| entry.references > 0) {
            entry.references += times;
        }
    }

    /// Room for so many more texts.
    pub fn reserve(&mut self, more: usize) {
        let (seed, entries) = (&self.seed, &self.entries);
        self.by_text.reserve(more, |at| seed.hash_one(&*entries[*at as usize].text));
        self.entries.reserve(more);
    }

    /// The text of a number that is held; empty for any other.
    pub fn text(&self, at: u32) -> &str {
        self.entries.get(at as usize).map_or("", |entry| &entry.text)
    }

    /// Texts by number; those given up are empty.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.text)
    }

    /// Gives up one hold; the last one frees the number for another text.
    pub fn release(&mut self, at: u32) {
        let Some(entry) = self.entries.get_mut(at as usize).filter(|entry| entry.references > 0) else {
            return;
        };
        entry.references -= 1;
        if entry.references == 0 {
            let text = std::mem::take(&mut entry.text);
            if let Ok(found) = self.by_text.find_entry(self.seed.hash_one(&*text), |other| *other == at) {
                found.remove();
            }
            self.free.push(at);
        }
    }

    /// Distinct texts held.
    pub fn len(&self) -> usize {
        self.by_text.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_text_has_one_number() {
        let mut strings = Interner::default();
        let (a, b) = (strings.hold("a"), strings.hold("b"));
        assert_ne!(a, b);
        assert_eq!((strings.hold("a"), strings.find("a"), strings.find("c")), (a, Some(a), None));
    }

    #[test]
    fn last_release_forgets_and_numbers_are_used_again() {
        let mut strings = Interner::default();
        let a = strings.hold("a");
        strings.hold("a");
        strings.release(a);
        assert_eq!(strings.find("a"), Some(a));
        strings.release(a);
        strings.release(a);
        assert_eq!((strings.find("a"), strings.len()), (None, 0));
        assert_eq!(strings.hold("z"), a);
        for round in 0..1000 {
            let text = format!("text-{round}");
            let at = strings.hold(&text);
            strings.release(at);
        }
        assert!(strings.entries.len() <= 2);
        assert_eq!(strings.find("z"), Some(a));
    }
}
