//! A table of fingerprints that never grows: the oldest leave.

use super::grams::mixed;

/// How many fingerprints share a bucket.
const WAYS: usize = 8;

/// An entry is the upper bits of a hash, when it came, and its source. Of the hash, 47 bits are left: in a full table of 48 MB
/// one of 20 million other fingerprints is found by chance.
const TIME_BITS: u32 = 5;
const SOURCE_BITS: u32 = 12;
const TAG_SHIFT: u32 = TIME_BITS + SOURCE_BITS;

/// The last number of a source; the first is 1.
pub(super) const LAST_SOURCE: u32 = (1 << SOURCE_BITS) - 1;

/// How many units of time it takes to fill a table. The clock goes round after four times as many: by then an entry that is
/// that old has long left.
const UNITS: u64 = (1 << TIME_BITS) / 4;

/// How many buckets a table begins with.
const FIRST_BUCKETS: usize = 1024;

/// Fingerprints and the sources that they come from.
#[derive(Debug)]
pub(super) struct Table {
    /// 0 is none.
    entries: Vec<u64>,
    buckets: usize,
    most: usize,
    /// How many have come.
    count: u64,
}

impl Table {
    /// A table of at most this many bytes. It takes them as it fills.
    pub(super) fn new(bytes: usize) -> Self {
        let most = (bytes / size_of::<u64>() / WAYS).max(1);
        Self { entries: Vec::new(), buckets: 0, most, count: 0 }
    }

    /// Notes that a source has this fingerprint. If another one had it before, `goes_before` says whether the new one (first)
    /// takes the place of the other.
    pub(super) fn insert(&mut self, hash: u64, source: u32, goes_before: impl Fn(u32, u32) -> bool) {
        // Those that are chosen of a text are small: as they are they would all be in the first buckets.
        let hash = mixed(hash);
        self.count += 1;
        let mut source = source.clamp(1, LAST_SOURCE);
        if let Some(earlier) = self.source(hash).filter(|earlier| !goes_before(source, *earlier)) {
            source = earlier;
        }
        let entry = tag(hash) | self.now() << SOURCE_BITS | u64::from(source);
        if self.buckets == 0 {
            self.resize(FIRST_BUCKETS.min(self.most));
        }
        while !self.place(entry) {
            if self.buckets == self.most {
                self.replace_oldest(entry);
                return;
            }
            self.resize((self.buckets * 2).min(self.most));
        }
    }

    /// The source of a fingerprint.
    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        self.source(mixed(hash))
    }

    fn source(&self, hash: u64) -> Option<u32> {
        let bucket = self.entries.get(self.range(hash))?;
        let found = bucket.iter().find(|entry| **entry != 0 && tag(**entry) == tag(hash))?;
        u32::try_from(*found & u64::from(LAST_SOURCE)).ok()
    }

    /// Where the bucket of a hash, or of an entry, is.
    fn range(&self, hash: u64) -> std::ops::Range<usize> {
        // Only what an entry keeps of the hash chooses its bucket, so that it is found after the table has grown.
        let bucket = (u128::from(tag(hash)) * self.buckets as u128) >> 64;
        let first = bucket as usize * WAYS;
        first..first + if self.buckets == 0 { 0 } else { WAYS }
    }

    /// Puts an entry into its bucket. Returns whether there was room.
    fn place(&mut self, entry: u64) -> bool {
        let range = self.range(entry);
        let bucket = &mut self.entries[range];
        let same = bucket.iter().position(|other| *other != 0 && tag(*other) == tag(entry));
        match same.or_else(|| bucket.iter().position(|other| *other == 0)) {
            Some(place) => {
                bucket[place] = entry;
                true
            }
            None => false,
        }
    }

    /// The time, which goes round.
    fn now(&self) -> u64 {
        let unit = (self.most * WAYS) as u64 / UNITS;
        self.count / unit.max(1) % (1 << TIME_BITS)
    }

    fn replace_oldest(&mut self, entry: u64) {
        let (range, now) = (self.range(entry), self.now());
        let age = |other: u64| now.wrapping_sub(time(other)) % (1 << TIME_BITS);
        if let Some(oldest) = self.entries[range].iter_mut().max_by_key(|other| age(**other)) {
            *oldest = entry;
        }
    }

    /// Grows in its place: twice as much memory would be taken otherwise.
    fn resize(&mut self, buckets: usize) {
        let before = std::mem::replace(&mut self.buckets, buckets);
        self.entries.reserve_exact((buckets - before) * WAYS);
        self.entries.resize(buckets * WAYS, 0);
        // No entry goes to an earlier bucket, so none gets into the way of those that have yet to move.
        for bucket in (0..before).rev() {
            let range = bucket * WAYS..(bucket + 1) * WAYS;
            let mut moving = [0; WAYS];
            moving.copy_from_slice(&self.entries[range.clone()]);
            self.entries[range].fill(0);
            for entry in moving.into_iter().filter(|entry| *entry != 0) {
                if !self.place(entry) {
                    self.replace_oldest(entry);
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }
}

/// What is kept of a hash.
fn tag(hash: u64) -> u64 {
    hash >> TAG_SHIFT << TAG_SHIFT
}

fn time(entry: u64) -> u64 {
    entry << (64 - TAG_SHIFT) >> (64 - TIME_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small hashes, as those are that are chosen of texts.
    fn hash(number: u64) -> u64 {
        number + 1
    }

    #[test]
    fn what_is_put_in_is_found_while_the_table_grows() {
        let mut table = Table::new(1 << 20);
        for number in 0..20_000 {
            table.insert(hash(number), 1 + (number % 7) as u32, |_, _| true);
        }
        for number in 0..20_000 {
            assert_eq!(table.find(hash(number)), Some(1 + (number % 7) as u32), "{number}");
        }
        assert_eq!((20_000..100_000).filter(|number| table.find(hash(*number)).is_some()).count(), 0);
        assert!(table.bytes() <= 1 << 20);
    }

    #[test]
    fn when_it_is_full_the_oldest_leave() {
        let mut table = Table::new(256 * 1024);
        for number in 0..1_000_000 {
            table.insert(hash(number), 1, |_, _| true);
        }
        assert_eq!(table.bytes(), 256 * 1024);
        let found =
            |range: std::ops::Range<u64>| range.filter(|number| table.find(hash(*number)).is_some()).count();
        assert!(found(990_000..1_000_000) > 9_000, "{}", found(990_000..1_000_000));
        assert_eq!(found(0..100_000), 0);
    }

    #[test]
    fn a_source_that_goes_before_takes_the_place_of_another() {
        let mut table = Table::new(1 << 16);
        for (source, expected) in [(3, 3), (2, 3), (4, 4), (1, 4)] {
            table.insert(5 << 40, source, |new, earlier| new > earlier);
            assert_eq!(table.find(5 << 40), Some(expected));
        }
        assert_eq!(Table::new(1 << 16).find(5 << 40), None);
    }

    #[test]
    fn the_newest_stay_after_any_number() {
        let mut table = Table::new(64 * 1024);
        for number in 0..3_000_000 {
            table.insert(hash(number), 1, |_, _| true);
        }
        let found = (2_998_000..3_000_000).filter(|number| table.find(hash(*number)).is_some()).count();
        assert!(found > 1_950, "{found} of the last 2000");
    }
}
