//! The number of requests of a user in a time.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of users after which those are forgotten who have been quiet.
const REMEMBERED: usize = 4096;

/// A bucket for each user, which fills with time and is emptied by requests.
pub(crate) struct RateLimits {
    per_minute: u32,
    buckets: Mutex<HashMap<String, TokenBucket>>,
}

struct TokenBucket {
    tokens: f64,
    filled: Instant,
}

impl RateLimits {
    pub(crate) fn new(per_minute: u32) -> Self {
        Self { per_minute, buckets: Mutex::default() }
    }

    /// Counts a request of a user.
    ///
    /// # Errors
    /// It is one too many: the time until the next one may come.
    pub(crate) fn take(&self, user: &str) -> Result<(), Duration> {
        let now = Instant::now();
        let most = f64::from(self.per_minute);
        let per_second = most / 60.0;
        let mut buckets = self.buckets.lock();
        if buckets.len() > REMEMBERED {
            buckets.retain(|_, bucket| now.duration_since(bucket.filled) < Duration::from_secs(60));
        }
        let bucket = buckets.entry(user.to_owned()).or_insert(TokenBucket { tokens: most, filled: now });
        bucket.tokens =
            (bucket.tokens + now.duration_since(bucket.filled).as_secs_f64() * per_second).min(most);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_user_waits_and_others_do_not() {
        let rates = RateLimits::new(60);
        assert!((0..60).all(|_| rates.take("ann").is_ok()));
        assert_eq!(rates.take("ann").unwrap_err().as_secs_f64().round(), 1.0);
        assert!(rates.take("bob").is_ok());
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert!(rates.take("ann").is_ok() && rates.take("ann").is_err());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..100).filter(|_| rates.take("ann").is_ok()).count(), 60);
    }
}
