//! The keys of one issuer: fetched when a token needs them, kept for a while, and through a short outage of the provider.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::config::IssuerConfig;
use super::key_set::KeySet;
use super::metadata::IssuerMetadata;
use super::provider_http::{ProviderHttp, RequestCredentials, fault};
use super::{ProviderFault, SecureUrl, TokenFault, TokenLoginError};

/// The time that a fetch takes at most, with the search for the address.
const LONGEST_FETCH: Duration = Duration::from_secs(15);
/// The time for which a request waits for new keys while those at hand would do.
const PATIENCE: Duration = Duration::from_secs(2);

/// The times of a set of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyTimes {
    /// The age at which keys are fetched anew; a key that its issuer withdraws is taken for so long.
    pub(super) fresh: Duration,
    /// The time between two fetches while the keys at hand would do.
    pub(super) calm: Duration,
    /// The time between two fetches for tokens that no key at hand verifies: made-up ones cost the provider no more.
    pub(super) urgent: Duration,
    /// The age to which keys are used while the provider cannot be reached.
    pub(super) longest: Duration,
}

impl KeyTimes {
    pub(super) const DEFAULT: Self = Self {
        fresh: Duration::from_secs(600),
        calm: Duration::from_secs(60),
        urgent: Duration::from_secs(10),
        longest: Duration::from_secs(3600),
    };
}

/// The keys of one issuer.
///
/// A fetch is a task of its own: a client that hangs up cannot cut it off, and so cause another one. It ends with this.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    config: Arc<IssuerConfig>,
    http: ProviderHttp,
    pub(super) times: KeyTimes,
    state: Arc<watch::Sender<KeyState>>,
    fetches: Mutex<JoinSet<()>>,
}

#[derive(Debug, Clone, Default)]
struct KeyState {
    keys: Option<(Arc<KeySet>, Instant)>,
    /// The end of the last fetch, and the fault that it ended with.
    last: Option<(Instant, Option<ProviderFault>)>,
    is_fetching: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyFetch {
    Started,
    Running,
    TooSoon,
}

impl IssuerKeys {
    pub(super) fn new(config: IssuerConfig, http: ProviderHttp, times: KeyTimes) -> Self {
        let state = Arc::new(watch::Sender::default());
        Self { config: Arc::new(config), http, times, state, fetches: Mutex::default() }
    }

    pub(super) fn config(&self) -> &IssuerConfig {
        &self.config
    }

    /// The keys for a token that names the key `id`.
    ///
    /// # Errors
    /// The issuer has no such key, or cannot be asked.
    pub(super) async fn for_token(&self, id: Option<&str>) -> Result<Arc<KeySet>, TokenLoginError> {
        let at_hand = self.state.borrow().keys.clone();
        match at_hand {
            Some((keys, at)) if keys.has(id) && at.elapsed() < self.times.fresh => return Ok(keys),
            Some((keys, at)) if keys.has(id) && at.elapsed() < self.times.longest => {
                let ended = self.state.subscribe();
                // Only the request that asks waits: the keys at hand would do.
                if self.fetch(self.times.calm) == KeyFetch::Started {
                    wait(ended, PATIENCE).await;
                }
            }
            _ => self.fetched(self.times.urgent).await,
        }
        self.usable(id)
    }

    /// Other keys than these, which do not verify a token: an issuer may change the key and keep its name, or have no names.
    pub(super) async fn instead_of(&self, keys: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        self.fetched(self.times.urgent).await;
        let newer = self.state.borrow().keys.as_ref().map(|(keys, _)| Arc::clone(keys));
        newer.filter(|newer| !Arc::ptr_eq(newer, keys))
    }

    /// Asks the provider, whatever is at hand.
    ///
    /// # Errors
    /// It cannot be reached, or its keys not be used.
    pub(super) async fn check(&self) -> Result<(), ProviderFault> {
        self.fetched(Duration::ZERO).await;
        self.state.borrow().last.as_ref().and_then(|(_, fault)| fault.clone()).map_or(Ok(()), Err)
    }

    /// The keys at hand, if they are of use for the token.
    fn usable(&self, id: Option<&str>) -> Result<Arc<KeySet>, TokenLoginError> {
        let state = self.state.borrow().clone();
        let keys = state.keys.filter(|(_, at)| at.elapsed() < self.times.longest).map(|(keys, _)| keys);
        match (keys, state.last) {
            (Some(keys), _) if keys.has(id) => Ok(keys),
            (_, Some((_, None))) => Err(TokenFault::Signature.into()),
            (_, Some((_, Some(fault)))) => Err(fault.into()),
            (_, None) => Err(fault(self.config.issuer.secure(), "does not answer").into()),
        }
    }

    /// Returns when a fetch has ended, unless the last one is too near.
    async fn fetched(&self, pause: Duration) {
        let ended = self.state.subscribe();
        if self.fetch(pause) != KeyFetch::TooSoon {
            wait(ended, LONGEST_FETCH).await;
        }
    }

    /// Starts a fetch, unless one is under way, or the last one ended within `pause`.
    fn fetch(&self, pause: Duration) -> KeyFetch {
        let mut fetch = KeyFetch::Started;
        self.state.send_if_modified(|state| {
            let is_near = state.last.as_ref().is_some_and(|(at, _)| at.elapsed() < pause);
            if state.is_fetching {
                fetch = KeyFetch::Running;
            } else if is_near {
                fetch = KeyFetch::TooSoon;
            } else {
                state.is_fetching = true;
            }
            // Others wait for the end of a fetch, not for its beginning.
            false
        });
        if fetch == KeyFetch::Started {
            let config = Arc::clone(&self.config);
            let http = self.http.clone();
            let turn = FetchTurn { state: Arc::clone(&self.state), result: None };
            let mut fetches = self.fetches.lock();
            while fetches.try_join_next().is_some() {}
            fetches.spawn(turn.run(config, http));
        }
        fetch
    }
}

/// Returns at the end of a fetch, or after `patience`.
async fn wait(mut ended: watch::Receiver<KeyState>, patience: Duration) {
    // Either way it is the state that says what is known.
    tokio::time::timeout(patience, ended.changed()).await.ok();
}

/// A fetch under way. Its end is noted however it ends.
struct FetchTurn {
    state: Arc<watch::Sender<KeyState>>,
    result: Option<Result<KeySet, ProviderFault>>,
}

impl FetchTurn {
    async fn run(mut self, config: Arc<IssuerConfig>, http: ProviderHttp) {
        let late = |_| Err(fault(config.issuer.secure(), "does not answer in time"));
        let result = tokio::time::timeout(LONGEST_FETCH, fetch(&config, &http)).await.unwrap_or_else(late);
        if let Err(fault) = &result {
            tracing::warn!(issuer = config.issuer.as_str(), %fault, "no keys of the identity provider");
        }
        self.result = Some(result);
    }
}

impl Drop for FetchTurn {
    fn drop(&mut self) {
        let result = self.result.take();
        self.state.send_modify(|state| {
            let now = Instant::now();
            state.is_fetching = false;
            match result {
                None => {}
                Some(Ok(keys)) => (state.keys, state.last) = (Some((Arc::new(keys), now)), Some((now, None))),
                Some(Err(fault)) => state.last = Some((now, Some(fault))),
            }
        });
    }
}

async fn fetch(config: &IssuerConfig, http: &ProviderHttp) -> Result<KeySet, ProviderFault> {
    let url = address(config, http).await?;
    let answer = http.get(&url, RequestCredentials::None).await?;
    match answer.status {
        StatusCode::OK => KeySet::parse(&answer.body).map_err(|why| fault(&url, why)),
        status => Err(fault(&url, format!("answers {status}"))),
    }
}

async fn address(config: &IssuerConfig, http: &ProviderHttp) -> Result<SecureUrl, ProviderFault> {
    if let Some(url) = &config.jwks_uri {
        return Ok(url.clone());
    }
    let metadata = IssuerMetadata::fetch(http, &config.issuer).await?;
    let without = || fault(config.issuer.secure(), "publishes no `jwks_uri`; write where its keys are");
    metadata.jwks_uri.ok_or_else(without)
}
