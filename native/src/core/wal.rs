//! Tells a damaged write-ahead log of SQLite from one whose end was torn by a crash.
//!
//! SQLite stops reading at the first frame that does not verify and takes the rest for a write that never ended. Never
//! calls a torn end damaged: only a frame that was synced once, or that is one bit away from the frame that was written.

/// Of the log itself: magic, version, page size, checkpoint, two salts, two sums.
pub const HEADER_BYTES: usize = 32;
/// Before each page: page number, size after a commit, two salts, two sums.
pub const FRAME_HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;
/// The smallest that a disk writes as one.
const SECTOR: u64 = 512;

type Sums = (u32, u32);

/// Bytes that no torn write explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Of the frame that does not verify.
    pub offset: u64,
    /// The byte and the bit that make it whole again, if it is one bit away and no other bit would do.
    pub flip: Option<(u64, u8)>,
}

/// One log, fed frame by frame.
#[derive(Debug)]
pub struct Walk {
    big_endian: bool,
    page_bytes: usize,
    salts: [u8; 8],
    sums: Sums,
    offset: u64,
    committed_end: u64,
    committed: u64,
    behind: u64,
    behind_end: u64,
    suspect: Option<Suspect>,
}

/// From the first frame that does not verify on.
#[derive(Debug)]
struct Suspect {
    offset: u64,
    flip: Option<(u64, u8)>,
    /// One bit away from the frame that was written.
    near: bool,
    /// With that bit it ends a transaction.
    commits: bool,
    synced: bool,
    previous: Vec<u8>,
    /// The previous frame ends a transaction of this log.
    previous_commits: bool,
    /// Of the previous frame, where its own sums may have been hit.
    true_sums: Option<Sums>,
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// SQLite's sums over whole pairs of words, going on from `sums`.
fn summed(big_endian: bool, sums: Sums, bytes: &[u8]) -> Sums {
    let (mut first, mut second) = sums;
    for pair in bytes.chunks_exact(8) {
        let (mut one, mut two) = (word(pair), word(&pair[4..]));
        if !big_endian {
            (one, two) = (one.swap_bytes(), two.swap_bytes());
        }
        first = first.wrapping_add(one).wrapping_add(second);
        second = second.wrapping_add(two).wrapping_add(first);
    }
    (first, second)
}

/// The bits of `bytes`, as (byte, bit), each of which alone makes them sum up to `wanted` instead of `found`.
///
/// The sums are linear, so the effect of each bit is known without summing again. High bits of distant words have the
/// same effect, so there may be several.
fn single_bits(big_endian: bool, bytes: &[u8], found: Sums, wanted: Sums) -> Vec<(usize, u8)> {
    let missing = (wanted.0.wrapping_sub(found.0), wanted.1.wrapping_sub(found.1));
    // The effect on the sums of adding one to the first or the second word of the last pair; for earlier pairs, by
    // recurrence.
    let (mut first, mut second): (Sums, Sums) = ((1, 1), (0, 1));
    let mut bits = Vec::new();
    for (at, pair) in bytes.chunks_exact(8).enumerate().rev() {
        for (half, effect) in [(0, first), (4, second)] {
            for bit in 0..32u8 {
                let index = usize::from(bit / 8);
                let byte = half + if big_endian { 3 - index } else { index };
                let step = 1u32 << bit;
                let step = if pair[byte] >> (bit % 8) & 1 == 1 { step.wrapping_neg() } else { step };
                if (effect.0.wrapping_mul(step), effect.1.wrapping_mul(step)) == missing {
                    bits.push((at * 8 + byte, bit % 8));
                }
            }
        }
        let later = |(a, b): Sums| (a.wrapping_add(b), a.wrapping_add(b).wrapping_add(b));
        (first, second) = (later(first), later(second));
    }
    bits
}

/// The one bit in which two pieces of the same length differ.
fn differing_bit(found: &[u8], wanted: &[u8]) -> Option<(usize, u8)> {
    let mut differing = found.iter().zip(wanted).enumerate().filter(|(_, (one, two))| one != two);
    let (at, (one, two)) = differing.next()?;
    let bits = one ^ two;
    (differing.next().is_none() && bits.count_ones() == 1).then_some((at, bits.trailing_zeros() as u8))
}

/// The log up to the byte `end` with sums that verify, whatever its frames hold: for a rescue, on a copy.
#[must_use]
pub fn resealed(log: &[u8], end: usize) -> Option<Vec<u8>> {
    let mut sealed = log.get(..end)?.to_vec();
    let (header, frames) = sealed.split_at_mut_checked(HEADER_BYTES)?;
    let big_endian = word(header) == MAGIC | 1;
    let page_bytes = word(&header[8..]) as usize;
    if !page_bytes.is_power_of_two() || !(512..=65536).contains(&page_bytes) {
        return None;
    }
    let mut sums = summed(big_endian, (0, 0), &header[..24]);
    header[24..28].copy_from_slice(&sums.0.to_be_bytes());
    header[28..32].copy_from_slice(&sums.1.to_be_bytes());
    for frame in frames.chunks_exact_mut(FRAME_HEADER_BYTES + page_bytes) {
        frame[8..16].copy_from_slice(&header[16..24]);
        sums = summed(big_endian, summed(big_endian, sums, &frame[..8]), &frame[FRAME_HEADER_BYTES..]);
        frame[16..20].copy_from_slice(&sums.0.to_be_bytes());
        frame[20..24].copy_from_slice(&sums.1.to_be_bytes());
    }
    Some(sealed)
}

impl Walk {
    /// None for a header that SQLite would not take.
    #[must_use]
    pub fn new(header: &[u8]) -> Option<Self> {
        if header.len() != HEADER_BYTES {
            return None;
        }
        let big_endian = word(header) == MAGIC | 1;
        let page_bytes = word(&header[8..]) as usize;
        let sums = summed(big_endian, (0, 0), &header[..24]);
        let sound = word(header) & !1 == MAGIC
            && word(&header[4..]) == VERSION
            && page_bytes.is_power_of_two()
            && (512..=65536).contains(&page_bytes)
            && sums == (word(&header[24..]), word(&header[28..]));
        sound.then(|| Self {
            big_endian,
            page_bytes,
            salts: [
                header[16], header[17], header[18], header[19], header[20], header[21], header[22],
                header[23],
            ],
            sums,
            offset: HEADER_BYTES as u64,
            committed_end: HEADER_BYTES as u64,
            committed: 0,
            behind: 0,
            behind_end: HEADER_BYTES as u64,
            suspect: None,
        })
    }

    /// The bit that makes a header one that SQLite would take, if no other bit does.
    #[must_use]
    pub fn header_flip(header: &[u8]) -> Option<(u64, u8)> {
        let mut flips = (0..header.len() * 8).filter(|at| {
            let mut flipped = header.to_vec();
            flipped[at / 8] ^= 1 << (at % 8);
            Self::new(&flipped).is_some()
        });
        let only = flips.next()?;
        flips.next().is_none().then_some(((only / 8) as u64, (only % 8) as u8))
    }

    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.page_bytes
    }

    /// The next frames; what is less than a frame at the end was never written whole.
    pub fn feed(&mut self, frames: &[u8]) {
        for frame in frames.chunks_exact(self.frame_bytes()) {
            if self.suspect.is_none() {
                self.follow(frame);
            } else {
                self.look_behind(frame);
            }
            self.offset += frame.len() as u64;
        }
    }

    /// End of the last transaction that SQLite would read, as an offset in the log.
    #[must_use]
    pub fn committed_end(&self) -> u64 {
        self.committed_end
    }

    /// Transactions that SQLite would read.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Transactions of this log whose end stands behind the first frame that does not verify.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.behind + u64::from(self.suspect.as_ref().is_some_and(|suspect| suspect.commits))
    }

    /// End of the last of those, as an offset in the log.
    #[must_use]
    pub fn behind_end(&self) -> u64 {
        self.behind_end
    }

    /// Damage of the log; None for a whole one and for one with a torn end.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        let suspect = self.suspect.as_ref()?;
        // One bit away and never committed: no sender has an answer that it is stored.
        let hidden = suspect.near && (suspect.commits || self.behind > 0);
        (suspect.synced || hidden).then_some(Damage { offset: suspect.offset, flip: suspect.flip })
    }

    fn sums_of(&self, before: Sums, frame: &[u8]) -> Sums {
        let head = summed(self.big_endian, before, &frame[..8]);
        summed(self.big_endian, head, &frame[FRAME_HEADER_BYTES..])
    }

    fn follow(&mut self, frame: &[u8]) {
        let stored = (word(&frame[16..]), word(&frame[20..]));
        let found = self.sums_of(self.sums, frame);
        let salted = frame[8..16] == self.salts;
        let commits = word(&frame[4..]) != 0;
        if salted && found == stored && word(frame) != 0 {
            self.sums = stored;
            if commits {
                self.committed_end = self.offset + frame.len() as u64;
                self.committed += 1;
            }
            return;
        }
        let flips = self.flips_of(frame, found, stored, salted);
        let commits_with = |&(at, bit): &(usize, u8)| {
            let mut flipped = [frame[4], frame[5], frame[6], frame[7]];
            if (4..8).contains(&at) {
                flipped[at - 4] ^= 1 << bit;
            }
            flipped != [0; 4]
        };
        self.suspect = Some(Suspect {
            offset: self.offset,
            flip: (flips.len() == 1).then(|| (self.offset + flips[0].0 as u64, flips[0].1)),
            near: !flips.is_empty(),
            commits: flips.iter().any(commits_with),
            // A frame of an earlier log never goes on from the sums of this one.
            synced: !salted && found == stored && commits,
            previous: frame.to_vec(),
            previous_commits: commits && salted && self.head_is_one_write(),
            true_sums: flips.iter().any(|&(at, _)| (16..24).contains(&at)).then_some(found),
        });
    }

    fn flips_of(&self, frame: &[u8], found: Sums, stored: Sums, salted: bool) -> Vec<(usize, u8)> {
        if !salted {
            let bit = differing_bit(&frame[8..16], &self.salts).filter(|_| found == stored);
            return bit.map(|(at, bit)| (at + 8, bit)).into_iter().collect();
        }
        let mut wanted = [0; 8];
        wanted[..4].copy_from_slice(&found.0.to_be_bytes());
        wanted[4..].copy_from_slice(&found.1.to_be_bytes());
        let mut summed_bytes = frame[..8].to_vec();
        summed_bytes.extend_from_slice(&frame[FRAME_HEADER_BYTES..]);
        let mut flips = single_bits(self.big_endian, &summed_bytes, found, stored);
        for (at, _) in &mut flips {
            *at = if *at < 8 { *at } else { *at - 8 + FRAME_HEADER_BYTES };
        }
        flips.extend(differing_bit(&frame[16..24], &wanted).map(|(at, bit)| (at + 16, bit)));
        flips
    }

    /// Each frame is looked at from its predecessor's own sums, so one that is damaged hides only itself.
    fn look_behind(&mut self, frame: &[u8]) {
        let one_write = self.head_is_one_write();
        let Some(suspect) = self.suspect.as_ref() else { return };
        let before = (word(&suspect.previous[16..]), word(&suspect.previous[20..]));
        let stored = (word(&frame[16..]), word(&frame[20..]));
        let salted = frame[8..16] == self.salts;
        let follows = |before: Sums| self.sums_of(before, frame) == stored;
        let sound = salted && word(frame) != 0 && (follows(before) || suspect.true_sums.is_some_and(follows));
        let commits = salted && word(&frame[4..]) != 0;
        // SQLite repeats a commit's frame up to the end of a sector where a disk needs that: the same write.
        let padding = suspect.previous[..8] == frame[..8] && suspect.previous[24..] == frame[24..];
        // A frame that goes on from a commit was written after that commit's sync had returned.
        let synced = suspect.synced || (sound && suspect.previous_commits && !padding);
        if sound && commits {
            self.behind += u64::from(!padding);
            self.behind_end = self.offset + frame.len() as u64;
        }
        if let Some(suspect) = self.suspect.as_mut() {
            suspect.synced = synced;
            suspect.previous_commits = commits && (sound || one_write);
            suspect.true_sums = None;
            suspect.previous.clear();
            suspect.previous.extend_from_slice(frame);
        }
    }

    /// Page number, size and salts of the frame at hand lie in one sector: none of them is older than the others.
    fn head_is_one_write(&self) -> bool {
        self.offset % SECTOR + 16 <= SECTOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 512;
    const SALTS: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

    fn push(log: &mut Vec<u8>, sums: &mut Sums, page: u32, commit: u32, fill: u8) {
        let mut head = page.to_be_bytes().to_vec();
        head.extend(commit.to_be_bytes());
        let data: Vec<u8> = (0..PAGE).map(|at| (at as u8).wrapping_mul(31) ^ fill).collect();
        *sums = summed(false, summed(false, *sums, &head), &data);
        log.extend(head);
        log.extend(SALTS);
        log.extend(sums.0.to_be_bytes());
        log.extend(sums.1.to_be_bytes());
        log.extend(data);
    }

    /// Three transactions of two frames.
    fn log() -> Vec<u8> {
        let mut log = MAGIC.to_be_bytes().to_vec();
        for value in [VERSION, PAGE as u32, 0] {
            log.extend(value.to_be_bytes());
        }
        log.extend(SALTS);
        let mut sums = summed(false, (0, 0), &log);
        log.extend(sums.0.to_be_bytes());
        log.extend(sums.1.to_be_bytes());
        for number in 0..6 {
            push(&mut log, &mut sums, number + 1, (number % 2) * 9, number as u8);
        }
        log
    }

    fn walked(log: &[u8]) -> Walk {
        let mut walk = Walk::new(&log[..HEADER_BYTES]).unwrap();
        walk.feed(&log[HEADER_BYTES..]);
        walk
    }

    #[test]
    fn whole_log_is_whole() {
        let walk = walked(&log());
        assert_eq!((walk.damage(), walk.committed(), walk.behind()), (None, 3, 0));
        assert_eq!(walk.committed_end(), log().len() as u64);
    }

    #[test]
    fn every_cut_is_a_torn_end() {
        let whole = log();
        for end in HEADER_BYTES..whole.len() {
            assert_eq!(walked(&whole[..end]).damage(), None, "cut at {end}");
            // A disk loses whole sectors, never the last bits of one word, which look like one bit elsewhere.
            if end % 64 == 0 {
                let mut zeros = whole.clone();
                zeros[end..].fill(0);
                assert_eq!(walked(&zeros).damage(), None, "zeros from {end}");
            }
        }
    }

    #[test]
    fn every_flip_of_a_bit_is_found_and_told() {
        let whole = log();
        let mut told = 0;
        for at in (HEADER_BYTES * 8..whole.len() * 8).step_by(5) {
            let mut flipped = whole.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            let damage = walked(&flipped).damage().unwrap_or_else(|| panic!("bit {at}"));
            let flip = ((at / 8) as u64, (at % 8) as u8);
            assert!(damage.flip.is_none_or(|found| found == flip), "bit {at}");
            told += usize::from(damage.flip.is_some());
        }
        assert!(told * 50 > (whole.len() - HEADER_BYTES) * 8 * 7, "{told}");
        for at in 0..HEADER_BYTES * 8 {
            let mut flipped = whole[..HEADER_BYTES].to_vec();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(Walk::new(&flipped).is_none());
            let flip = ((at / 8) as u64, (at % 8) as u8);
            assert!(Walk::header_flip(&flipped).is_none_or(|found| found == flip));
        }
    }

    #[test]
    fn ruin_before_a_later_transaction_is_damage_and_in_the_last_one_is_not() {
        let whole = log();
        let frame = FRAME_HEADER_BYTES + PAGE;
        for number in 0..6 {
            let mut ruined = whole.clone();
            let first = HEADER_BYTES + number * frame;
            ruined[first + 100..first + 140].fill(0xA5);
            let walk = walked(&ruined);
            assert_eq!(walk.damage().is_some(), number < 4, "frame {number}");
            if let Some(damage) = walk.damage() {
                let sealed = resealed(&ruined, walk.behind_end() as usize).unwrap();
                assert_eq!((walked(&sealed).damage(), walked(&sealed).committed()), (None, 3));
                assert_eq!((damage.offset, damage.flip), (first as u64, None));
                assert_eq!(walk.committed(), number as u64 / 2);
            }
        }
    }
}
