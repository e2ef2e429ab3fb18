//! Terms of one source's right to use a route: an age profile, an end and a limit of its own.
//!
//! Kept beside the table of rights: a right without any costs one bit, and its commands no lookup.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::directory::Limited;
use super::grants::Purse;
use super::phases::Profile;

/// In the version of a right: there are terms for it. Versions are counted and never get this far.
pub const OWN: u64 = 1 << 63;

/// Terms of one (source, target, name).
#[derive(Debug, Default)]
pub struct OwnTerms {
    /// In place of the route's.
    pub profile: Option<Profile>,
    /// On the authority's clock; 0 for a right that lasts.
    pub ends_unix_ns: u64,
    /// The source's own limit, beside the route's.
    pub limited: Limited,
    purse: Mutex<Purse>,
}

impl OwnTerms {
    /// Nothing in it: the same as none.
    pub fn is_empty(&self) -> bool {
        self.profile.is_none() && self.ends_unix_ns == 0 && self.limited == Limited::No
    }

    /// The permits of the source's own limit.
    pub fn purse(&self) -> MutexGuard<'_, Purse> {
        self.purse.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits that were taken under other terms are lost.
    pub fn limit(&mut self, limited: Limited) {
        self.limited = limited;
        *self.purse.get_mut().unwrap_or_else(PoisonError::into_inner) = Purse::default();
    }
}

/// The authority's clock, as known from its answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuthorityClock {
    /// Its time at our monotonic zero; None before its first answer.
    zero_unix_ns: Option<i64>,
}

impl AuthorityClock {
    /// The authority said `unix_ns` at or after `mono_ns`. Never moves back: an end that was reached stays reached,
    /// whoever sets a clock.
    pub fn heard(&mut self, unix_ns: u64, mono_ns: i64) {
        let zero = i64::try_from(unix_ns).unwrap_or(i64::MAX).saturating_sub(mono_ns);
        self.zero_unix_ns = self.zero_unix_ns.max(Some(zero));
    }

    /// True once `end_unix_ns` is reached, and as long as the authority has not said what time it is: what was loaded
    /// from a snapshot may have ended while nobody looked.
    pub fn is_past(&self, end_unix_ns: u64, now_mono_ns: i64) -> bool {
        let end = i64::try_from(end_unix_ns).unwrap_or(i64::MAX);
        self.zero_unix_ns.is_none_or(|zero| zero.saturating_add(now_mono_ns) >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_past_until_the_authority_has_said_otherwise_and_stays_past_once_reached() {
        let mut clock = AuthorityClock::default();
        assert!(clock.is_past(1_000, 0));
        clock.heard(900, 50);
        assert!(!clock.is_past(1_000, 149) && clock.is_past(1_000, 150));
        // It was set back; its later answers change nothing.
        clock.heard(100, 60);
        assert!(!clock.is_past(1_000, 149) && clock.is_past(1_000, 150));
        // It was set ahead.
        clock.heard(1_000, 60);
        assert!(clock.is_past(1_000, 60));
    }

    #[test]
    fn a_clock_beyond_all_bounds_ends_everything_and_overflows_nothing() {
        let mut clock = AuthorityClock::default();
        clock.heard(u64::MAX, i64::MIN);
        assert!(clock.is_past(u64::MAX, i64::MAX) && clock.is_past(1, 0));
    }
}
