//! Fast's counters since start; read by operators, never by a decision.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::deciding::Outlook;
use super::escalation::REASONS;
use super::phases::Phase;

#[derive(Debug, Default)]
pub struct Counters {
    dispatched: AtomicU64,
    refused: AtomicU64,
    escalated: [AtomicU64; REASONS.len()],
    usage: [AtomicU64; 3],
    acl_stale: AtomicU64,
    routing_stale: AtomicU64,
    duplicates: AtomicU64,
    strict: AtomicU64,
    route_missing: AtomicU64,
    unknown_saturated: AtomicU64,
    warm_bans: AtomicU64,
}

impl Counters {
    /// Counts the age of the entries that a lane of so many commands relied on.
    pub(super) fn used(&self, outlook: &Outlook, commands: u64) {
        if let Some(phase) = outlook.usage {
            self.usage[phase as usize].fetch_add(commands, Relaxed);
        }
        if outlook.acl == Some(Phase::Stale) {
            self.acl_stale.fetch_add(commands, Relaxed);
        }
        if outlook.routing == Some(Phase::Stale) {
            self.routing_stale.fetch_add(commands, Relaxed);
        }
        if outlook.banned.is_some() {
            self.warm_bans.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn dispatched(&self, commands: u64) {
        self.dispatched.fetch_add(commands, Relaxed);
    }

    pub(super) fn escalated(&self, reason: u8, commands: u64) {
        if let Some(counter) = self.escalated.get(usize::from(reason)) {
            counter.fetch_add(commands, Relaxed);
        }
    }

    /// Commands that do not parse.
    pub(super) fn unreadable(&self, commands: u64) {
        self.refused.fetch_add(commands, Relaxed);
    }

    pub(super) fn route_missing(&self, commands: u64) {
        self.route_missing.fetch_add(commands, Relaxed);
    }

    pub(super) fn unknown_saturated(&self, commands: u64) {
        self.unknown_saturated.fetch_add(commands, Relaxed);
    }

    /// Commands of strict routes, and those of them that were known to be delivered.
    pub(super) fn strict(&self, commands: u64, duplicates: u64) {
        self.strict.fetch_add(commands, Relaxed);
        self.duplicates.fetch_add(duplicates, Relaxed);
    }

    pub(super) fn told(&self) -> Vec<(String, u64)> {
        let mut told = vec![
            ("dispatched".to_owned(), self.dispatched.load(Relaxed)),
            ("refused".to_owned(), self.refused.load(Relaxed)),
        ];
        for (reason, count) in REASONS.iter().zip(&self.escalated).skip(1) {
            told.push((format!("escalated.{reason}"), count.load(Relaxed)));
        }
        for (name, count) in ["usage.fresh", "usage.stale", "usage.expired"].iter().zip(&self.usage) {
            told.push(((*name).to_owned(), count.load(Relaxed)));
        }
        for (name, count) in [
            ("usage.acl.stale", &self.acl_stale),
            ("usage.routing.stale", &self.routing_stale),
            ("strict", &self.strict),
            ("duplicates", &self.duplicates),
            ("route_missing", &self.route_missing),
            ("unknown_saturated", &self.unknown_saturated),
            ("warm_bans", &self.warm_bans),
        ] {
            told.push((name.to_owned(), count.load(Relaxed)));
        }
        told
    }
}
