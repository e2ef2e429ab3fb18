//! Permits that were debited by the authority before they got here, alive only within their interval.
//!
//! Never lets a command go without one, and never keeps one past the interval that it was taken from: the same
//! permit counted in two intervals would overrun the second.

/// Permits of one (target, command).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub permits: u64,
    /// Monotonic; counted by its keeper from when it asked, so that the way here shortens the life.
    pub ends_mono_ns: i64,
    /// The authority's number of the interval; goes back with unused permits.
    pub interval: u64,
}

/// Grants that one route holds; they overlap a little, because the next is fetched before the last one ends.
const GRANTS_PER_ROUTE: usize = 8;

/// The permits of a route's limit, and the demand for them.
#[derive(Debug, Default)]
pub struct Purse {
    /// By their end, the first to end first.
    grants: Vec<Grant>,
    /// Commands that asked since the last `report`.
    wanted: u64,
    /// Commands that went without a permit, where a limit only watches; paid with the next permits.
    debt: u64,
    /// In the list of those that asked.
    pub listed: bool,
}

/// A report to the authority about one purse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub wanted: u64,
    /// Commands that went without a permit and are still to be paid.
    pub debt: u64,
    pub left: u64,
}

impl Purse {
    /// As many of `count` permits as there are, those that end first first.
    pub fn take(&mut self, count: u64, now_mono_ns: i64) -> u64 {
        self.take_most(count, count, now_mono_ns)
    }

    /// As `take` for `wanted` commands of which no more than `most` can go.
    pub fn take_most(&mut self, wanted: u64, most: u64, now_mono_ns: i64) -> u64 {
        self.wanted += wanted;
        self.drop_ended(now_mono_ns);
        let mut missing = most;
        for grant in &mut self.grants {
            let taken = missing.min(grant.permits);
            (grant.permits, missing) = (grant.permits - taken, missing - taken);
            if missing == 0 {
                break;
            }
        }
        most - missing
    }

    /// Permits that are there.
    pub fn left(&mut self, now_mono_ns: i64) -> u64 {
        self.drop_ended(now_mono_ns);
        self.grants.iter().map(|grant| grant.permits).sum()
    }

    /// `count` commands went although there was no permit.
    pub fn went_without(&mut self, count: u64) {
        self.debt += count;
    }

    /// Takes a grant in. When there are too many, the first to end is lost: losing permits is safe.
    pub fn put(&mut self, mut grant: Grant, now_mono_ns: i64) {
        let paid = self.debt.min(grant.permits);
        (grant.permits, self.debt) = (grant.permits - paid, self.debt - paid);
        self.drop_ended(now_mono_ns);
        if self.grants.len() >= GRANTS_PER_ROUTE {
            self.grants.remove(0);
        }
        let at = self.grants.partition_point(|held| held.ends_mono_ns <= grant.ends_mono_ns);
        self.grants.insert(at, grant);
    }

    /// The demand since the last report; begins the next one.
    pub fn report(&mut self, now_mono_ns: i64) -> Need {
        self.listed = false;
        let left = self.left(now_mono_ns);
        Need { wanted: std::mem::take(&mut self.wanted), debt: self.debt, left }
    }

    /// Gives up what is left.
    pub fn empty(&mut self, now_mono_ns: i64) -> Vec<Grant> {
        self.drop_ended(now_mono_ns);
        std::mem::take(&mut self.grants)
    }

    pub fn is_idle(&self, now_mono_ns: i64) -> bool {
        !self.listed && self.grants.iter().all(|grant| now_mono_ns >= grant.ends_mono_ns)
    }

    /// Drops grants that have ended or are used up, for good: a clock that seemed to go back would not revive them.
    fn drop_ended(&mut self, now_mono_ns: i64) {
        self.grants.retain(|grant| grant.permits > 0 && now_mono_ns < grant.ends_mono_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(permits: u64, ends_mono_ns: i64, interval: u64) -> Grant {
        Grant { permits, ends_mono_ns, interval }
    }

    #[test]
    fn permits_are_taken_as_far_as_they_go_and_end_with_their_interval() {
        let mut purse = Purse::default();
        assert_eq!(purse.take(3, 0), 0);
        purse.put(grant(5, 100, 1), 0);
        assert_eq!((purse.take(3, 99), purse.take(3, 99), purse.take(3, 99)), (3, 2, 0));
        purse.put(grant(5, 100, 1), 0);
        assert_eq!(purse.take(1, 100), 0);
        assert_eq!(purse.take(1, 50), 0);
        assert_eq!(purse.report(100), Need { wanted: 14, debt: 0, left: 0 });
    }

    #[test]
    fn those_that_end_first_are_used_first_and_each_ends_by_itself() {
        let mut purse = Purse::default();
        purse.put(grant(5, 200, 2), 0);
        purse.put(grant(5, 100, 1), 0);
        assert_eq!((purse.take(7, 99), purse.report(99).left), (7, 3));
        purse.put(grant(4, 110, 1), 100);
        assert_eq!(purse.report(110).left, 3);
        assert_eq!(purse.empty(199), [grant(3, 200, 2)]);
        assert!(purse.empty(199).is_empty());
        for _ in 0..20 {
            purse.put(grant(1, 300, 3), 0);
        }
        assert_eq!(purse.report(0).left, GRANTS_PER_ROUTE as u64);
    }

    #[test]
    fn what_went_without_is_paid_first() {
        let mut purse = Purse::default();
        purse.went_without(7);
        assert_eq!(purse.report(0).debt, 7);
        purse.put(grant(5, 100, 1), 0);
        purse.put(grant(5, 100, 1), 0);
        assert_eq!((purse.report(0).debt, purse.take(9, 0)), (0, 3));
    }
}
