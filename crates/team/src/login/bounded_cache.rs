//! Answers that are kept for a time, by the hash of what was asked, a bounded number of them.

use std::collections::HashMap;
use std::time::Instant;

/// A map whose entries end.
#[derive(Debug)]
pub(super) struct BoundedCache<V> {
    most: usize,
    entries: HashMap<[u8; 32], (V, Instant)>,
}

impl<V: Clone> BoundedCache<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, entries: HashMap::new() }
    }

    pub(super) fn get(&mut self, key: &[u8; 32], now: Instant) -> Option<V> {
        self.entries.get(key).filter(|(_, end)| now < *end).map(|(value, _)| value.clone())
    }

    /// Keeps an answer until `end`. If there are too many, another one goes.
    pub(super) fn insert(&mut self, key: [u8; 32], value: V, end: Instant) {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            let now = Instant::now();
            self.entries.retain(|_, (_, end)| now < *end);
            if self.entries.len() >= self.most
                && let Some(any) = self.entries.keys().next().copied()
            {
                self.entries.remove(&any);
            }
        }
        self.entries.insert(key, (value, end));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_end_and_are_few() {
        let mut cache = BoundedCache::new(2);
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        cache.insert([1; 32], "a", now);
        assert_eq!(cache.get(&[1; 32], now), None);
        cache.insert([2; 32], "b", later);
        cache.insert([3; 32], "c", later);
        assert_eq!((cache.get(&[2; 32], now), cache.get(&[3; 32], now)), (Some("b"), Some("c")));
        assert_eq!(cache.get(&[2; 32], later), None);
        cache.insert([4; 32], "d", later);
        assert_eq!(cache.get(&[4; 32], now), Some("d"));
        assert_eq!(cache.entries.len(), 2);
    }
}
