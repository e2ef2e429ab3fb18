//! The age of entries from an authority: fresh, stale, or expired.
//!
//! Jitter only shortens: a longer life would stretch the time in which a revoked right is still used.

pub const SECOND_NS: i64 = 1_000_000_000;

/// The age that an ACL entry may have: the wire's Profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Critical,
    Moderate,
    Low,
    Sync,
}

impl Profile {
    /// A number that this version does not know is as strict as can be.
    pub fn from_wire(number: u32) -> Self {
        match number {
            0 | 3 => Self::Low,
            1 => Self::Critical,
            2 => Self::Moderate,
            _ => Self::Sync,
        }
    }
}

/// The ages at which an entry of each profile becomes stale, and expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfilePhases {
    pub critical: Phases,
    pub moderate: Phases,
    pub low: Phases,
}

impl ProfilePhases {
    #[inline]
    pub fn of(&self, profile: Profile) -> &Phases {
        match profile {
            Profile::Critical => &self.critical,
            Profile::Moderate => &self.moderate,
            Profile::Low => &self.low,
            Profile::Sync => &Phases::NEVER,
        }
    }
}

impl Default for ProfilePhases {
    fn default() -> Self {
        let seconds = |fresh, stale| Phases { fresh_ns: fresh * SECOND_NS, stale_ns: stale * SECOND_NS };
        Self { critical: seconds(2, 4), moderate: seconds(10, 20), low: seconds(30, 90) }
    }
}

/// Phase of a cache entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Used as it is.
    Fresh,
    /// Used, and asked for again in the background.
    Stale,
    /// Not used.
    Expired,
}

/// The ages, in nanoseconds, at which a phase ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    pub fresh_ns: i64,
    pub stale_ns: i64,
}

impl Phases {
    /// Of what is never used from memory.
    const NEVER: Self = Self { fresh_ns: 0, stale_ns: 0 };

    /// The phase at an age. `shorten` takes so many thousandths off the fresh time, so that many instances do
    /// not all ask again at the same moment; the stale limit is a promise and stays.
    #[inline]
    pub fn at(&self, age_ns: i64, shorten: u16) -> Phase {
        if age_ns >= self.stale_ns {
            return Phase::Expired;
        }
        let fresh_ns = self.fresh_ns - self.fresh_ns / 1000 * i64::from(shorten.min(1000));
        if age_ns >= fresh_ns { Phase::Stale } else { Phase::Fresh }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_end_where_they_say() {
        let profiles = ProfilePhases::default();
        let phases = profiles.of(Profile::Critical);
        let at = |age| phases.at(age, 0);
        assert_eq!(
            [at(0), at(2 * SECOND_NS - 1), at(2 * SECOND_NS)],
            [Phase::Fresh, Phase::Fresh, Phase::Stale]
        );
        assert_eq!([at(4 * SECOND_NS - 1), at(4 * SECOND_NS)], [Phase::Stale, Phase::Expired]);
        assert_eq!(profiles.of(Profile::Sync).at(0, 0), Phase::Expired);
    }

    #[test]
    fn jitter_only_shortens() {
        let phases = Phases { fresh_ns: 10 * SECOND_NS, stale_ns: 20 * SECOND_NS };
        assert_eq!(phases.at(9 * SECOND_NS, 100), Phase::Stale);
        assert_eq!(phases.at(9 * SECOND_NS - 1, 100), Phase::Fresh);
        assert_eq!(phases.at(20 * SECOND_NS - 1, 1000), Phase::Stale);
        assert_eq!(phases.at(0, u16::MAX), Phase::Stale);
    }
}
