//! Which tags were admitted already, for as long as the window could admit them again.
//!
//! It must never forget a live entry: when it is full it refuses, because to evict is to reopen the window for
//! whatever was evicted. It must never grow by more than its capacity, let one tenant fill it, or give an entry
//! back because the clock stepped back.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

const NS_PER_SECOND: i64 = 1_000_000_000;
/// A second's entries lie in several tables, so that what must be moved at once when one grows stays small even
/// if a source stamps all its commands alike.
const TABLES: usize = 16;
const TABLE_BITS: u32 = TABLES.trailing_zeros();
const SMALLEST_TABLE: usize = 16;

/// The result of one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Fresh,
    Replayed,
    Saturated,
    /// Its time is over: an earlier claim would be forgotten by now.
    Expired,
}

/// One tag to claim: its first eight bytes, and the last moment at which the window would accept it.
#[derive(Clone, Copy, Debug)]
pub struct Nonce {
    fingerprint: u64,
    until_unix_ns: i64,
}

impl Nonce {
    /// Tags are uniform, so their first eight bytes do: two of a million in the same second meet once in ten
    /// million years. `None` when there are no eight bytes.
    #[inline]
    pub fn new(tag: &[u8], until_unix_ns: i64) -> Option<Self> {
        // Zero marks an empty slot.
        let fingerprint = u64::from_le_bytes(*tag.first_chunk::<8>()?).max(1);
        Some(Self { fingerprint, until_unix_ns })
    }

    /// End of the window in which the command could be accepted again.
    #[inline]
    pub fn until_unix_ns(&self) -> i64 {
        self.until_unix_ns
    }

    /// A number that is uniform over commands and unpredictable without `multiplier`.
    #[inline]
    pub fn spread(&self, multiplier: u64) -> u64 {
        let wide = u128::from(self.fingerprint) * u128::from(multiplier);
        (wide >> 64) as u64 ^ wide as u64
    }
}

/// A set of fingerprints: open addressing, linear probing, growing by half at four fifths. That is 10 to 15 bytes
/// per entry; doubling would cost up to 20.
#[derive(Default)]
struct Table {
    slots: Vec<u64>,
    used: usize,
}

impl Table {
    /// The slot that holds the fingerprint, or the empty one where it belongs. `slots` is never full.
    #[inline]
    fn probe(&self, fingerprint: u64, hash: u64) -> usize {
        let size = self.slots.len();
        let mut at = ((u128::from(hash) * size as u128) >> 64) as usize;
        loop {
            let held = self.slots[at];
            if held == fingerprint || held == 0 {
                return at;
            }
            at += 1;
            if at == size {
                at = 0;
            }
        }
    }

    #[inline]
    fn contains(&self, fingerprint: u64, hash: u64) -> bool {
        self.used > 0 && self.slots[self.probe(fingerprint, hash)] == fingerprint
    }

    /// Adds a fingerprint that is not in the set.
    #[inline]
    fn add(&mut self, fingerprint: u64, hash: u64, growth: Growth) {
        if (self.used + 1) * 5 > self.slots.len() * 4 {
            self.grow(growth);
        }
        let at = self.probe(fingerprint, hash);
        self.slots[at] = fingerprint;
        self.used += 1;
    }

    #[cold]
    fn grow(&mut self, Growth { table, spread }: Growth) {
        // The tables of a bucket fill alike; started at sizes up to half as large again, they grow in turn and
        // not in the same batch.
        let size = match self.slots.len() {
            0 => SMALLEST_TABLE + table * SMALLEST_TABLE / 2 / TABLES,
            size => size + size / 2,
        };
        let old = std::mem::replace(&mut self.slots, vec![0; size]);
        for fingerprint in old.into_iter().filter(|slot| *slot != 0) {
            let at = self.probe(fingerprint, place(fingerprint, spread).1);
            self.slots[at] = fingerprint;
        }
    }
}

/// Measures by which a table grows.
#[derive(Clone, Copy)]
struct Growth {
    table: usize,
    spread: u64,
}

/// Table and hash within it. The spread is secret, so that a source cannot sign its way into one long probe.
#[inline]
fn place(fingerprint: u64, spread: u64) -> (usize, u64) {
    let mixed = fingerprint.wrapping_mul(spread);
    ((mixed >> (64 - TABLE_BITS)) as usize, mixed << TABLE_BITS)
}

/// The entries that may be forgotten in one second.
#[derive(Default)]
struct Bucket {
    tables: [Table; TABLES],
    by_tenant: HashMap<u32, usize, FixedState>,
}

struct Tenant {
    name: Box<str>,
    live: usize,
}

/// Tenants with live entries, numbered, so that a bucket counts them in a few bytes each.
#[derive(Default)]
struct Tenants {
    numbers: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
    rows: Vec<Tenant>,
    free: Vec<u32>,
}

impl Tenants {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let row = Tenant { name: name.into(), live: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.rows[number as usize] = row;
                number
            }
            None => {
                self.rows.push(row);
                (self.rows.len() - 1) as u32
            }
        };
        self.numbers.insert(name.into(), number);
        number
    }

    fn settle(&mut self, number: u32, gone: usize) {
        let row = &mut self.rows[number as usize];
        row.live -= gone;
        if row.live == 0 {
            self.numbers.remove(&row.name);
            self.free.push(number);
        }
    }
}

/// The division of the table, by the rule of `snavio/host/shares.py`, to which a test holds it: a tenant has at most
/// `per_tenant`, all tenants together leave `reserve`, and who has no tenant may use all of `total`.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub total: usize,
    pub per_tenant: usize,
    pub reserve: usize,
}

impl Share {
    /// The amount that a tenant with `held` entries may take while all hold `used`.
    fn room(self, tenant: &str, held: usize, used: usize) -> usize {
        if tenant.is_empty() {
            return self.total.saturating_sub(used);
        }
        let left = self.total.saturating_sub(self.reserve).saturating_sub(used);
        left.min(self.per_tenant.saturating_sub(held))
    }
}

/// The nonce table. Entries stay until the second in which the window closes over them has passed.
pub struct NonceSet {
    share: Share,
    spread: u64,
    now_unix_ns: i64,
    live: usize,
    buckets: BTreeMap<i64, Bucket>,
    tenants: Tenants,
}

impl NonceSet {
    pub fn new(share: Share) -> Self {
        Self {
            share,
            spread: RandomState::new().hash_one(0u8) | 1,
            now_unix_ns: i64::MIN,
            live: 0,
            buckets: BTreeMap::new(),
            tenants: Tenants::default(),
        }
    }

    /// Claims every nonce of one source, in order; `answer` hears of each with its position.
    pub fn claim_all(
        &mut self,
        source: &str,
        nonces: &[Nonce],
        now_unix_ns: i64,
        mut answer: impl FnMut(usize, Claim),
    ) {
        self.pass(now_unix_ns);
        // A source is `<tenant>/<service>`: counted by source, a tenant of many services would have many shares.
        let tenant = source.split_once('/').map_or("", |(tenant, _)| tenant);
        let number = self.tenants.number(tenant);
        let room = self.share.room(tenant, self.tenants.rows[number as usize].live, self.live);
        let mut taken = 0;
        let mut rest = nonces;
        let mut position = 0;
        while let Some(first) = rest.first() {
            // Commands of a batch share a second or two: the bucket is looked up per stretch, not per command.
            let second = first.until_unix_ns.div_euclid(NS_PER_SECOND);
            let same = |nonce: &Nonce| nonce.until_unix_ns.div_euclid(NS_PER_SECOND) == second;
            let stretch = rest.iter().position(|nonce| !same(nonce)).unwrap_or(rest.len());
            let (now, spread) = (self.now_unix_ns, self.spread);
            let mut bucket = self.buckets.get_mut(&second);
            let before = taken;
            for nonce in &rest[..stretch] {
                let claim = if nonce.until_unix_ns < now {
                    Claim::Expired
                } else {
                    let (table, hash) = place(nonce.fingerprint, spread);
                    let held =
                        bucket.as_ref().is_some_and(|b| b.tables[table].contains(nonce.fingerprint, hash));
                    if held {
                        Claim::Replayed
                    } else if taken >= room {
                        Claim::Saturated
                    } else {
                        if bucket.is_none() {
                            bucket = Some(self.buckets.entry(second).or_default());
                        }
                        if let Some(bucket) = bucket.as_mut() {
                            bucket.tables[table].add(nonce.fingerprint, hash, Growth { table, spread });
                        }
                        taken += 1;
                        Claim::Fresh
                    }
                };
                answer(position, claim);
                position += 1;
            }
            if let Some(bucket) = bucket.filter(|_| taken > before) {
                *bucket.by_tenant.entry(number).or_default() += taken - before;
            }
            rest = &rest[stretch..];
        }
        self.live += taken;
        self.tenants.rows[number as usize].live += taken;
        self.tenants.settle(number, 0);
    }

    /// Claims one nonce.
    pub fn claim(&mut self, source: &str, nonce: Nonce, now_unix_ns: i64) -> Claim {
        let mut outcome = Claim::Saturated;
        self.claim_all(source, &[nonce], now_unix_ns, |_, claim| outcome = claim);
        outcome
    }

    /// Moves time on and gives back whole seconds that are over. Time that steps back is not followed: a bucket
    /// that is gone cannot say any more what it held.
    fn pass(&mut self, now_unix_ns: i64) {
        self.now_unix_ns = self.now_unix_ns.max(now_unix_ns);
        let second = self.now_unix_ns.div_euclid(NS_PER_SECOND);
        while let Some(oldest) = self.buckets.first_entry().filter(|entry| *entry.key() < second) {
            for (number, count) in oldest.remove().by_tenant {
                self.live -= count;
                self.tenants.settle(number, count);
            }
        }
    }

    /// Milliseconds until the oldest second is given back; 0 when nothing is held.
    pub fn room_in_ms(&self) -> u32 {
        let Some((second, _)) = self.buckets.first_key_value() else { return 0 };
        let end = second.saturating_add(1).saturating_mul(NS_PER_SECOND);
        let left = end.saturating_sub(self.now_unix_ns).max(0) / 1_000_000 + 1;
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    pub fn len(&self) -> usize {
        self.live
    }

    /// The entries of each tenant.
    pub fn holders(&self) -> Vec<(String, usize)> {
        let live = |number: &u32| self.tenants.rows[*number as usize].live;
        self.tenants.numbers.iter().map(|(name, number)| (name.to_string(), live(number))).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Bytes held by the tables.
    pub fn table_bytes(&self) -> usize {
        let tables = self.buckets.values().flat_map(|bucket| &bucket.tables);
        tables.map(|table| table.slots.capacity() * size_of::<u64>()).sum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const S: i64 = NS_PER_SECOND;

    fn set_of(total: usize, per_tenant: usize) -> NonceSet {
        NonceSet::new(Share { total, per_tenant, reserve: 0 })
    }

    fn nonce(number: u64, until_unix_ns: i64) -> Nonce {
        // Spread like a tag's bytes would be.
        let tag = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        Nonce::new(&tag, until_unix_ns).unwrap()
    }

    #[test]
    fn second_and_third_claims_are_replays() {
        let mut set = set_of(10, 10);
        assert_eq!(set.claim("a/b", nonce(1, 60 * S), 0), Claim::Fresh);
        assert_eq!(set.claim("a/b", nonce(1, 60 * S), S), Claim::Replayed);
        assert_eq!(set.claim("c/d", nonce(1, 60 * S), 60 * S), Claim::Replayed);
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn an_entry_lives_through_its_last_moment_and_goes_with_its_second() {
        let mut set = set_of(1, 1);
        assert_eq!(set.claim("a/b", nonce(1, 60 * S), 0), Claim::Fresh);
        assert_eq!(set.claim("a/b", nonce(1, 60 * S), 60 * S), Claim::Replayed);
        assert_eq!(set.claim("a/b", nonce(2, 70 * S), 61 * S - 1), Claim::Saturated);
        assert_eq!(set.claim("a/b", nonce(2, 70 * S), 61 * S), Claim::Fresh);
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn a_full_table_refuses_and_evicts_nothing() {
        let mut set = set_of(100, 100);
        for number in 0..100 {
            assert_eq!(set.claim("a/b", nonce(number, 60 * S), 0), Claim::Fresh);
        }
        for number in 100..200 {
            assert_eq!(set.claim("a/b", nonce(number, 61 * S), 0), Claim::Saturated);
        }
        for number in 0..100 {
            assert_eq!(set.claim("a/b", nonce(number, 60 * S), 0), Claim::Replayed);
        }
        assert_eq!(set.buckets.len(), 1);
    }

    #[test]
    fn one_tenant_cannot_take_the_share_of_another() {
        let mut set = set_of(10, 3);
        let fresh = (0..9).filter(|n| set.claim("a/b", nonce(*n, (*n as i64 + 5) * S), 0) == Claim::Fresh);
        assert_eq!(fresh.count(), 3);
        assert_eq!(set.claim("c/d", nonce(100, 60 * S), 0), Claim::Fresh);
        // Its own share comes back as its own entries expire.
        assert_eq!(set.claim("a/b", nonce(101, 60 * S), 6 * S), Claim::Fresh);
        assert_eq!(set.claim("a/b", nonce(102, 60 * S), 6 * S), Claim::Saturated);
    }

    #[test]
    fn sources_of_one_tenant_have_one_share_and_all_leave_the_reserve() {
        let mut set = NonceSet::new(Share { total: 10, per_tenant: 6, reserve: 2 });
        let mut fresh = |source: &str, first: u64| {
            (first..first + 10).filter(|n| set.claim(source, nonce(*n, 60 * S), 0) == Claim::Fresh).count()
        };
        assert_eq!(fresh("a/b", 0), 6);
        assert_eq!(fresh("a/c", 100), 0);
        assert_eq!(fresh("b/c", 200), 2);
        assert_eq!(fresh("c/d", 300), 0);
        assert_eq!(fresh("", 400), 2);
        let mut held = set.holders();
        held.sort();
        assert_eq!(held, [(String::new(), 2), ("a".to_owned(), 6), ("b".to_owned(), 2)]);
    }

    #[test]
    fn time_that_steps_back_gives_nothing_back() {
        let mut set = set_of(10, 10);
        assert_eq!(set.claim("a/b", nonce(1, 60 * S), 0), Claim::Fresh);
        assert_eq!(set.claim("a/b", nonce(2, 200 * S), 120 * S), Claim::Fresh);
        assert_eq!(set.claim("a/b", nonce(1, 60 * S), 0), Claim::Expired);
        assert_eq!(set.claim("a/b", nonce(2, 200 * S), 0), Claim::Replayed);
    }

    #[test]
    fn a_batch_sees_its_own_replays_across_seconds() {
        let mut set = set_of(10, 10);
        let batch = [nonce(1, 5 * S), nonce(2, 6 * S), nonce(1, 5 * S), nonce(2, 6 * S), nonce(3, 6 * S + 1)];
        let mut claims = Vec::new();
        set.claim_all("a/b", &batch, 0, |_, claim| claims.push(claim));
        use Claim::{Fresh, Replayed};
        assert_eq!(claims, [Fresh, Fresh, Replayed, Replayed, Fresh]);
    }

    #[test]
    fn tenants_without_live_entries_are_forgotten() {
        let mut set = set_of(100, 100);
        for number in 0..50 {
            set.claim(&format!("tenant-{number}/service"), nonce(number, 5 * S), 0);
        }
        assert_eq!(set.tenants.numbers.len(), 50);
        set.claim("a/b", nonce(99, 20 * S), 10 * S);
        assert_eq!(set.tenants.numbers.len(), 1);
        assert_eq!(set.tenants.rows.len(), 50);
        // A refused claim leaves no name behind either.
        assert_eq!(set.claim("c/d", nonce(98, S), 10 * S), Claim::Expired);
        assert_eq!(set.tenants.numbers.len(), 1);
    }

    #[test]
    fn an_entry_costs_fourteen_bytes_amortised() {
        let mut set = set_of(10_000_000, 10_000_000);
        let (mut cost, mut samples, mut worst) = (0.0, 0.0, 0.0f64);
        let mut number = 0;
        let mut size = 20_000.0f64;
        // Sizes evenly spread on a logarithmic scale, so that no phase of the growth is favoured.
        while size < 1_000_000.0 {
            while set.len() < size as usize {
                assert_eq!(set.claim("a/b", nonce(number, 60 * S), 0), Claim::Fresh);
                number += 1;
            }
            let each = set.table_bytes() as f64 / set.len() as f64;
            worst = worst.max(each);
            cost += each;
            samples += 1.0;
            size *= 1.05;
        }
        assert!(cost / samples <= 14.0, "{}", cost / samples);
        assert!(worst <= 16.0, "{worst}");
    }

    /// `cargo test --release -- --ignored --nocapture live_entries`
    #[test]
    #[ignore = "takes 400 MB and some seconds"]
    fn thirty_million_live_entries_neither_stall_nor_cost_more() {
        let mut set = set_of(40_000_000, 40_000_000);
        let (mut number, mut worst, mut bytes) = (0u64, std::time::Duration::ZERO, 0.0f64);
        let mut steady = Vec::new();
        for second in 0..150i64 {
            for batch in 0..250i64 {
                let now = second * S + batch * 4_000_000;
                let nonces: Vec<Nonce> = (0..1000).map(|each| nonce(number + each, now + 120 * S)).collect();
                number += 1000;
                let start = std::time::Instant::now();
                set.claim_all("a/b", &nonces, now, |_, claim| assert_eq!(claim, Claim::Fresh));
                let spent = start.elapsed();
                worst = worst.max(spent);
                if second > 125 {
                    steady.push(spent);
                }
            }
            bytes = bytes.max(set.table_bytes() as f64 / set.len() as f64);
        }
        steady.sort();
        println!(
            "{} live, at most {bytes:.1} bytes each; batch of 1000: median {:?}, p99 {:?}, longest {worst:?}",
            set.len(),
            steady[steady.len() / 2],
            steady[steady.len() * 99 / 100],
        );
        assert!(set.len() >= 30_000_000 && bytes <= 16.0);
    }
}
