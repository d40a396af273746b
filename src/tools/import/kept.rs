//! Secrets of a server, out of its parameters and into the vault.

use std::io;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::connections::mcp_client::ServerParameters;
use crate::ground::env::SECRET;
use crate::ground::env::vault::Vault;
use crate::ground::files::JournalNote;
use crate::ground::text::quoted;
use crate::tools::formats::{FoundSecret, replace_secrets};
use crate::tools::registry::Registry;

/// The length of the part of a secret's name that says where it was.
const KEY_CHARS: usize = 60;
/// The number of values that one secret may have had.
const MOST_VALUES: usize = 100;

/// Parameters with placeholders for their secrets, and where these are kept.
#[derive(Clone)]
pub(crate) struct KeptParameters {
    pub(crate) parameters: ServerParameters,
    secrets: Vec<KeptSecret>,
    vault: Arc<Vault>,
}

/// The secrets of a server while it is registered. If dropped before its end, a later start removes what is not used.
pub(crate) struct SecretKeeping {
    kept: KeptParameters,
    noted: Option<(Vec<String>, JournalNote)>,
    registry: Registry,
}

#[derive(Clone)]
struct KeptSecret {
    /// Its key in the vault, `secret:NAME`.
    key: String,
    /// The key that it has unless another value has it.
    first: String,
    value: String,
    /// Whether the vault does not have it yet.
    is_new: bool,
}

impl KeptParameters {
    /// Takes the secrets out of the parameters of the server `name`. The vault is read and not changed. A secret that it
    /// has already keeps its name, so that the same server has the same parameters each time; another value gets another
    /// name, so that no file changes what a registered server uses.
    pub(crate) fn of(name: &str, mut parameters: ServerParameters, vault: &Arc<Vault>) -> io::Result<Self> {
        let mut secrets: Vec<KeptSecret> = Vec::new();
        let mut failure = None;
        replace_secrets(&mut parameters, &mut |found| match secret(name, &found, &secrets, vault) {
            Ok(secret) => {
                let placeholder = format!("${{{}}}", secret.key);
                if secrets.iter().all(|known| known.key != secret.key) {
                    secrets.push(secret);
                }
                placeholder
            }
            Err(error) => {
                failure.get_or_insert(error);
                String::new()
            }
        });
        failure.map_or_else(|| Ok(Self { parameters, secrets, vault: Arc::clone(vault) }), Err)
    }

    /// Whether the vault lacks one of its secrets.
    pub(crate) fn has_new(&self) -> bool {
        self.secrets.iter().any(|secret| secret.is_new)
    }

    /// The names of its secrets, as they stand in placeholders.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.secrets.iter().map(|secret| secret.key.as_str()).collect()
    }

    /// Keeps the secrets that the vault does not have yet, for the server `name` that is about to be registered.
    pub(crate) async fn begin(&self, registry: &Registry, name: &str) -> io::Result<SecretKeeping> {
        let kept = self.clone();
        let registry = registry.clone();
        let name = name.to_owned();
        // Off the runtime's threads: the vault blocks.
        tokio::task::spawn_blocking(move || kept.begin_now(registry, &name)).await?
    }

    fn begin_now(mut self, registry: Registry, name: &str) -> io::Result<SecretKeeping> {
        let before = registry.parameters_of(name)?.map(|before| before.secrets()).unwrap_or_default();
        if self.secrets.is_empty() && before.is_empty() {
            return Ok(SecretKeeping { kept: self, noted: None, registry });
        }
        let vault = Arc::clone(&self.vault);
        let _turn = vault.turn()?;
        let new = self.rename_taken()?;
        let names: Vec<String> = self.secrets.iter().map(|secret| secret.key.clone()).chain(before).collect();
        let note = registry.note_secrets(&vault, name, &names)?;
        let put = new.iter().try_for_each(|secret| vault.put(&secret.key, &secret.value));
        if let Err(error) = put {
            registry.forget_secrets(&vault, &names, note)?;
            return Err(error);
        }
        Ok(SecretKeeping { kept: self, noted: Some((names, note)), registry })
    }

    /// Gives other names to secrets whose names another session has given to other values meanwhile. Returns those that the
    /// vault does not have.
    fn rename_taken(&mut self) -> io::Result<Vec<KeptSecret>> {
        let mut new = Vec::new();
        for number in 0..self.secrets.len() {
            let before = self.secrets[number].clone();
            if !before.is_new {
                continue;
            }
            let others = self.secrets.iter().filter(|other| other.key != before.key).cloned();
            let others: Vec<KeptSecret> = others.collect();
            let now = named(&before.first, &before.value, &others, &self.vault)?;
            if now.key != before.key {
                let text = Value::Object(self.parameters.to_json()).to_string();
                let text = text.replace(&format!("${{{}}}", before.key), &format!("${{{}}}", now.key));
                let object: Map<String, Value> = serde_json::from_str(&text)?;
                self.parameters = ServerParameters::parse(&object).map_err(io::Error::other)?;
            }
            new.extend(now.is_new.then(|| now.clone()));
            self.secrets[number] = now;
        }
        Ok(new)
    }
}

impl SecretKeeping {
    /// The parameters by which the server is registered.
    pub(crate) fn parameters(&self) -> &ServerParameters {
        &self.kept.parameters
    }

    /// Removes those of the secrets that the server had before or was to have, and that no registration names.
    pub(crate) async fn end(self) {
        let Self { kept, noted, registry } = self;
        let Some((names, note)) = noted else { return };
        let forgetting = move || {
            let _turn = kept.vault.turn()?;
            registry.forget_secrets(&kept.vault, &names, note)
        };
        let forgotten = tokio::task::spawn_blocking(forgetting).await;
        if let Err(error) = forgotten.unwrap_or_else(|panic| Err(panic.into())) {
            tracing::warn!(%error, "secrets that no server uses are still kept");
        }
    }
}

/// Finds the name for a secret of the server `server`.
fn secret(
    server: &str,
    found: &FoundSecret<'_>,
    others: &[KeptSecret],
    vault: &Vault,
) -> io::Result<KeptSecret> {
    let plain = |letter: char| match letter {
        '_' | '-' | '.' => letter,
        _ if letter.is_ascii_alphanumeric() => letter,
        _ => '_',
    };
    let part: String = found.key.chars().take(KEY_CHARS).map(plain).collect();
    named(&format!("{SECRET}{server}.{part}"), found.value, others, vault)
}

/// The name for a value: `first`, or that with the first number that no other value has.
fn named(first: &str, value: &str, others: &[KeptSecret], vault: &Vault) -> io::Result<KeptSecret> {
    for number in 1..=MOST_VALUES {
        let key = if number == 1 { first.to_owned() } else { format!("{first}-{number}") };
        let known = match others.iter().find(|other| other.key == key) {
            Some(other) => Some(other.value.clone()),
            None => vault.get(&key)?,
        };
        let is_new = known.is_none();
        if is_new || known.as_deref() == Some(value) {
            return Ok(KeptSecret { key, first: first.to_owned(), value: value.to_owned(), is_new });
        }
    }
    Err(io::Error::other(format!("{} has had {MOST_VALUES} values", quoted(first))))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::connections::mcp_client::{Connector, StartGuard};
    use crate::ground::env::Variables;

    fn kept(token: &str, vault: &Arc<Vault>) -> KeptParameters {
        let object =
            json!({"command": "a", "args": ["--token", "t1t2"], "env": {"A_TOKEN": token, "B_TOKEN": token}});
        let parameters = ServerParameters::parse(object.as_object().unwrap()).unwrap();
        KeptParameters::of("s", parameters, vault).unwrap()
    }

    fn registry(state: &Path) -> Registry {
        let connector = Connector::new(
            Arc::new(Variables::load(state)),
            state.to_owned(),
            StartGuard::without_directory(),
        );
        Registry::in_directory(state, connector)
    }

    fn register(state: &Path, keeping: &SecretKeeping) {
        let servers = json!({"s": {"parameters": keeping.parameters().to_json()}});
        let document = json!({"version": 1, "servers": servers}).to_string();
        std::fs::write(state.join("servers.json"), document).unwrap();
    }

    async fn begin(kept: &KeptParameters, state: &Path) -> SecretKeeping {
        kept.begin(&registry(state), "s").await.unwrap()
    }

    #[track_caller]
    fn check(vault: &Vault, secret: &str, expected: Option<&str>) {
        assert_eq!(vault.get(&format!("secret:s.{secret}")).unwrap().as_deref(), expected, "{secret}");
    }

    #[tokio::test]
    async fn the_same_secret_has_the_same_name_and_another_one_another() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let vault = Arc::new(Vault::in_directory(state));
        let first = kept("one1", &vault);
        assert_eq!(first.names(), ["secret:s.A_TOKEN", "secret:s.B_TOKEN", "secret:s.args.1"]);
        check(&vault, "A_TOKEN", None);
        let keeping = begin(&first, state).await;
        register(state, &keeping);
        keeping.end().await;
        check(&vault, "A_TOKEN", Some("one1"));
        assert!(kept("one1", &vault).parameters == first.parameters);
        let second = kept("two2", &vault);
        assert_eq!(second.names(), ["secret:s.A_TOKEN-2", "secret:s.B_TOKEN-2", "secret:s.args.1"]);
        // It is not registered.
        let keeping = begin(&second, state).await;
        check(&vault, "A_TOKEN-2", Some("two2"));
        keeping.end().await;
        check(&vault, "A_TOKEN", Some("one1"));
        check(&vault, "A_TOKEN-2", None);
        check(&vault, "args.1", Some("t1t2"));
        // It is.
        let keeping = begin(&second, state).await;
        register(state, &keeping);
        keeping.end().await;
        check(&vault, "A_TOKEN", None);
        check(&vault, "A_TOKEN-2", Some("two2"));
    }

    #[tokio::test]
    async fn two_sessions_with_different_values_keep_both() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let vault = Arc::new(Vault::in_directory(state));
        let [first, second] = ["one1", "two2"].map(|token| kept(token, &vault));
        assert_eq!(first.names(), second.names());
        let [first, second] = [begin(&first, state).await, begin(&second, state).await];
        check(&vault, "A_TOKEN", Some("one1"));
        check(&vault, "A_TOKEN-2", Some("two2"));
        register(state, &second);
        first.end().await;
        second.end().await;
        check(&vault, "A_TOKEN", None);
        check(&vault, "A_TOKEN-2", Some("two2"));
        check(&vault, "args.1", Some("t1t2"));
    }

    /// Of two sessions that offer the same server, one registers it, and the other fails to: before, or after.
    async fn check_kept_for_the_other(is_before: bool) {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let vault = Arc::new(Vault::in_directory(state));
        let [first, second] = [kept("one1", &vault), kept("one1", &vault)];
        let [first, second] = [begin(&first, state).await, begin(&second, state).await];
        if is_before {
            second.end().await;
            register(state, &first);
            first.end().await;
        } else {
            register(state, &first);
            first.end().await;
            second.end().await;
        }
        for name in ["A_TOKEN", "B_TOKEN", "args.1"] {
            assert!(vault.get(&format!("secret:s.{name}")).unwrap().is_some(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_session_that_fails_withdraws_nothing_that_another_has_registered() {
        check_kept_for_the_other(true).await;
        check_kept_for_the_other(false).await;
    }

    #[tokio::test]
    async fn secrets_of_a_session_that_died_are_removed_unless_they_are_used() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let vault = Arc::new(Vault::in_directory(state));
        let keeping = begin(&kept("one1", &vault), state).await;
        registry(state).settle(state);
        check(&vault, "A_TOKEN", Some("one1"));
        drop(keeping);
        registry(state).settle(state);
        check(&vault, "A_TOKEN", None);
        let keeping = begin(&kept("one1", &vault), state).await;
        register(state, &keeping);
        drop(keeping);
        registry(state).settle(state);
        check(&vault, "A_TOKEN", Some("one1"));
    }
}
