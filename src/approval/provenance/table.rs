//! A table of fingerprints within bounds: those without a label leave first, and of those with one the oldest.

use super::grams::mixed;
use super::label::Label;

/// The number of fingerprints in a bucket.
const WAYS: usize = 8;

/// An entry is the upper bits of a hash, when it came, and its source. Of the hash, 47 bits are left: in a full table of 48 MB
/// one of 20 million other fingerprints is found by chance.
const TIME_BITS: u32 = 5;
const SOURCE_BITS: u32 = 12;
const TAG_SHIFT: u32 = TIME_BITS + SOURCE_BITS;

/// The last number of a source; the first is 1.
pub(super) const LAST_SOURCE: u32 = (1 << SOURCE_BITS) - 1;

/// The units of time that it takes to fill a table. A clock goes round after four times as many: by then an entry that is
/// that old has long left. Each label has a clock of its own, since only entries of the same one are compared.
const UNITS: u64 = (1 << TIME_BITS) / 4;

/// A label, or none.
type LabelClass = Option<Label>;

/// The number of classes.
const CLASSES: usize = 1 + Label::ALL.len();

/// The number of buckets that a table begins with.
const FIRST_BUCKETS: usize = 1024;

/// Fingerprints and the sources that they come from: of each label one.
#[derive(Debug)]
pub(super) struct FingerprintTable {
    /// 0 is none.
    entries: Vec<u64>,
    buckets: usize,
    most: usize,
    /// The number of arrivals of each class.
    counts: [u64; CLASSES],
}

impl FingerprintTable {
    /// A table of at most this many bytes. It takes them as it fills.
    pub(super) fn new(bytes: usize) -> Self {
        let most = (bytes / size_of::<u64>() / WAYS).max(1);
        Self { entries: Vec::new(), buckets: 0, most, counts: [0; CLASSES] }
    }

    /// Notes that a source has this fingerprint. Of those with the same label the first is kept; one without a label gives
    /// way to one that has any.
    pub(super) fn insert(&mut self, hash: u64, source: u32, class_of: impl Fn(u32) -> LabelClass) {
        // Those that are chosen of a text are small: as they are they would all be in the first buckets.
        let hash = mixed(hash);
        let source = source.clamp(1, LAST_SOURCE);
        let new = class_of(source);
        self.counts[index(new)] += 1;
        if self.buckets == 0 {
            self.resize(FIRST_BUCKETS.min(self.most), &class_of);
        }
        let now = self.now(new) << SOURCE_BITS;
        let entry = |source: u32| tag(hash) | now | u64::from(source);
        let range = self.range(hash);
        let mut unlabelled = None;
        for other in self.entries[range].iter_mut().filter(|other| is_of(**other, hash)) {
            match class_of(source_of(*other)) {
                earlier if earlier == new => {
                    *other = entry(source_of(*other));
                    return;
                }
                Some(_) if new.is_none() => return,
                Some(_) => {}
                None => unlabelled = Some(other),
            }
        }
        if let Some(other) = unlabelled {
            *other = entry(source);
            return;
        }
        while !self.place(entry(source)) {
            if self.buckets == self.most {
                self.replace(entry(source), &class_of);
                return;
            }
            self.resize((self.buckets * 2).min(self.most), &class_of);
        }
    }

    /// The sources of a fingerprint.
    pub(super) fn find(&self, hash: u64) -> impl Iterator<Item = u32> {
        let hash = mixed(hash);
        let bucket = &self.entries[self.range(hash)];
        bucket.iter().filter(move |entry| is_of(**entry, hash)).map(|entry| source_of(*entry))
    }

    /// The range of the bucket of a hash, or of an entry.
    fn range(&self, hash: u64) -> std::ops::Range<usize> {
        // Only what an entry keeps of the hash chooses its bucket, so that it is found after the table has grown.
        let bucket = (u128::from(tag(hash)) * self.buckets as u128) >> 64;
        let first = bucket as usize * WAYS;
        first..first + if self.buckets == 0 { 0 } else { WAYS }
    }

    /// Puts an entry into its bucket. Returns whether there was room.
    fn place(&mut self, entry: u64) -> bool {
        let range = self.range(entry);
        let free = self.entries[range].iter_mut().find(|other| **other == 0);
        free.map(|free| *free = entry).is_some()
    }

    /// The time of a class, which goes round.
    fn now(&self, class: LabelClass) -> u64 {
        let unit = (self.most * WAYS) as u64 / UNITS;
        self.counts[index(class)] / unit.max(1) % (1 << TIME_BITS)
    }

    /// Puts an entry into the place of another one in its full bucket, or leaves it out.
    fn replace(&mut self, entry: u64, class_of: &impl Fn(u32) -> LabelClass) {
        let range = self.range(entry);
        let class_of = |entry: u64| class_of(source_of(entry));
        let mut counts = [0; CLASSES];
        self.entries[range.clone()].iter().for_each(|other| counts[index(class_of(*other))] += 1);
        let Some(leaving) = leaving(class_of(entry), &counts) else { return };
        let now = self.now(leaving);
        let age = |other: u64| now.wrapping_sub(time(other)) % (1 << TIME_BITS);
        let of_class = self.entries[range].iter_mut().filter(|other| class_of(**other) == leaving);
        if let Some(oldest) = of_class.max_by_key(|other| age(**other)) {
            *oldest = entry;
        }
    }

    /// Grows in its place: twice as much memory would be taken otherwise.
    fn resize(&mut self, buckets: usize, class_of: &impl Fn(u32) -> LabelClass) {
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
                    self.replace(entry, class_of);
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }
}

/// Of which class an entry leaves a full bucket for a new one; `None` if the new one is left out.
///
/// The class that gives way. No label, or a trusted one, never displaces the rest, and of that the larger share goes: neither a
/// flood of numbers from an echo nor one of web pages drives out what is confidential.
fn leaving(new: LabelClass, counts: &[usize; CLASSES]) -> Option<LabelClass> {
    const SHARING: [LabelClass; 2] = [Some(Label::Untrusted), Some(Label::Confidential)];
    let is_there = |class: &LabelClass| counts[index(*class)] > 0;
    if let Some(lowest) = [None, Some(Label::Trusted)].into_iter().find(is_there) {
        return Some(lowest).filter(|lowest| *lowest <= new);
    }
    let larger = SHARING.into_iter().max_by_key(|class| (counts[index(*class)], *class == new));
    larger.filter(|_| SHARING.contains(&new))
}

fn index(class: LabelClass) -> usize {
    class.map_or(0, |label| 1 + label as usize)
}

fn is_of(entry: u64, hash: u64) -> bool {
    entry != 0 && tag(entry) == tag(hash)
}

fn source_of(entry: u64) -> u32 {
    entry as u32 & LAST_SOURCE
}

/// The kept part of a hash.
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

    /// Of four sources the first has no label.
    fn label(source: u32) -> Option<Label> {
        [None, Some(Label::Trusted), Some(Label::Untrusted), Some(Label::Confidential)]
            [(source as usize - 1) % CLASSES]
    }

    const UNLABELLED: u32 = 1;
    const TRUSTED: u32 = 2;
    const UNTRUSTED: u32 = 3;
    const CONFIDENTIAL: u32 = 4;

    fn found(table: &FingerprintTable, numbers: std::ops::Range<u64>) -> usize {
        numbers.filter(|number| table.find(hash(*number)).next().is_some()).count()
    }

    #[test]
    fn what_is_put_in_is_found_while_the_table_grows() {
        let mut table = FingerprintTable::new(1 << 20);
        for number in 0..20_000 {
            table.insert(hash(number), 1 + (number % 7) as u32, label);
        }
        for number in 0..20_000 {
            let sources: Vec<u32> = table.find(hash(number)).collect();
            assert_eq!(sources, [1 + (number % 7) as u32], "{number}");
        }
        assert_eq!(found(&table, 20_000..100_000), 0);
        assert!(table.bytes() <= 1 << 20);
    }

    #[test]
    fn when_it_is_full_the_oldest_leave() {
        for source in [UNLABELLED, TRUSTED, UNTRUSTED, CONFIDENTIAL] {
            let mut table = FingerprintTable::new(256 * 1024);
            for number in 0..1_000_000 {
                table.insert(hash(number), source, label);
            }
            assert_eq!(table.bytes(), 256 * 1024);
            let newest = found(&table, 990_000..1_000_000);
            assert!(newest > 9_000, "{newest}");
            assert_eq!(found(&table, 0..100_000), 0);
        }
    }

    #[test]
    fn a_fingerprint_has_a_source_of_each_label() {
        let mut table = FingerprintTable::new(1 << 16);
        let sources = |table: &FingerprintTable| table.find(5 << 40).collect::<Vec<u32>>();
        for (source, expected) in [
            (UNLABELLED + 4, &[5][..]),
            (UNLABELLED, &[5]),
            (UNTRUSTED + 4, &[7]),
            (CONFIDENTIAL, &[7, 4]),
            (UNTRUSTED, &[7, 4]),
            (UNLABELLED, &[7, 4]),
            (TRUSTED, &[7, 4, 2]),
        ] {
            table.insert(5 << 40, source, label);
            assert_eq!(sources(&table), expected);
        }
        // Nor do they get lost when the table grows.
        for number in 0..5_000 {
            table.insert(hash(number), TRUSTED, label);
        }
        assert_eq!(sources(&table).len(), 3);
        assert!(sources(&FingerprintTable::new(1 << 16)).is_empty());
    }

    #[test]
    fn a_flood_drives_out_nothing_that_has_a_stricter_label() {
        for (flood, kept, of) in [
            (UNLABELLED, TRUSTED, 2_000),
            (UNLABELLED, UNTRUSTED, 2_000),
            (UNLABELLED, CONFIDENTIAL, 2_000),
            (TRUSTED, CONFIDENTIAL, 2_000),
            (UNTRUSTED, CONFIDENTIAL, 1_000),
            (CONFIDENTIAL, UNTRUSTED, 1_000),
        ] {
            // 8192 entries.
            let mut table = FingerprintTable::new(64 * 1024);
            for number in 0..of {
                table.insert(hash(number), kept, label);
            }
            for number in of..500_000 {
                table.insert(hash(number), flood, label);
            }
            let found = found(&table, 0..of);
            assert!(found as u64 + 20 > of, "{found} of {of} after a flood of {flood}");
        }
    }

    #[test]
    fn the_newest_stay_after_any_number() {
        let mut table = FingerprintTable::new(64 * 1024);
        for number in 0..3_000_000 {
            table.insert(hash(number), UNLABELLED, label);
        }
        let found = found(&table, 2_998_000..3_000_000);
        assert!(found > 1_950, "{found} of the last 2000");
    }
}
