//! Secrets of a server, out of its parameters and into the vault.

use std::io;
use std::sync::Arc;

use serde_json::Value;

use super::formats::{Found, replace_secrets};
use crate::connections::mcp_client::ServerParameters;
use crate::ground::env::SECRET;
use crate::ground::env::vault::Vault;
use crate::ground::text::quoted;
use crate::tools::registry::Registry;

/// How long the part of a secret's name may be that says where it was.
const KEY_CHARS: usize = 60;
/// How many values one secret may have had.
const MOST_VALUES: usize = 100;

/// Parameters with placeholders for their secrets, and where these are kept.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) parameters: ServerParameters,
    secrets: Vec<Secret>,
    vault: Arc<Vault>,
}

#[derive(Clone)]
struct Secret {
    /// Its key in the vault, `secret:NAME`.
    key: String,
    value: String,
    /// Whether the vault does not have it yet.
    is_new: bool,
}

impl Kept {
    /// Takes the secrets out of the parameters of the server `name`. The vault is read and not changed. A secret that it
    /// has already keeps its name, so that the same server has the same parameters each time; another value gets another
    /// name, so that no file changes what a registered server uses.
    pub(crate) fn of(name: &str, mut parameters: ServerParameters, vault: &Arc<Vault>) -> io::Result<Self> {
        let mut secrets: Vec<Secret> = Vec::new();
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

    /// Writes the secrets that the vault does not have yet.
    pub(crate) async fn put(&self) -> io::Result<()> {
        self.with_new(|vault, secret| vault.put(&secret.key, &secret.value)).await
    }

    /// Writes those that are gone again: another session, which failed to register the same server, has withdrawn them
    /// before this one had registered it.
    pub(crate) async fn put_back(&self) {
        let put_back = self.with_new(|vault, secret| match vault.get(&secret.key)? {
            Some(_) => Ok(()),
            None => vault.put(&secret.key, &secret.value),
        });
        if let Err(error) = put_back.await {
            tracing::warn!(%error, "the secrets of a server that was registered may be lost");
        }
    }

    /// Removes them again: the server `name` was not registered. If another session has registered it with the same
    /// secrets, or does so at this moment, they stay.
    pub(crate) async fn withdraw(&self, registry: &Registry, name: &str) {
        let (registry, name) = (registry.clone(), name.to_owned());
        let removed = self.with_new(move |vault, Secret { key, value, .. }| {
            // In doubt it stays.
            let is_used = || match registry.parameters_of(&name) {
                Ok(registered) => registered.is_some_and(|server| names_in(&server).contains(key)),
                Err(_) => true,
            };
            if is_used() {
                return Ok(());
            }
            vault.remove(key)?;
            if is_used() { vault.put(key, value) } else { Ok(()) }
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "the secrets of a server that was not registered are still kept");
        }
    }

    /// Off the runtime's threads: the vault blocks.
    async fn with_new(
        &self,
        act: impl Fn(&Vault, &Secret) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let new: Vec<Secret> = self.secrets.iter().filter(|secret| secret.is_new).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        let vault = Arc::clone(&self.vault);
        tokio::task::spawn_blocking(move || new.iter().try_for_each(|secret| act(&vault, secret))).await?
    }

    /// Removes the secrets that the server had `before` and does not have any more.
    pub(crate) async fn forget_those_of(&self, before: &ServerParameters) {
        let kept = names_in(&self.parameters);
        let gone: Vec<String> = names_in(before).into_iter().filter(|name| !kept.contains(name)).collect();
        let vault = Arc::clone(&self.vault);
        let removing = move || gone.iter().try_for_each(|name| vault.remove(name).map(drop));
        if !matches!(tokio::task::spawn_blocking(removing).await, Ok(Ok(()))) {
            tracing::warn!("secrets that a server does not use any more are still kept");
        }
    }
}

/// The names of the kept secrets that parameters refer to.
fn names_in(parameters: &ServerParameters) -> Vec<String> {
    let text = Value::Object(parameters.to_json()).to_string();
    let names = text.split("${").skip(1).filter_map(|part| part.split_once('}'));
    names.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with(SECRET)).collect()
}

/// Finds the name for a secret of the server `server`.
fn secret(server: &str, found: &Found<'_>, others: &[Secret], vault: &Vault) -> io::Result<Secret> {
    let plain = |letter: char| match letter {
        '_' | '-' | '.' => letter,
        _ if letter.is_ascii_alphanumeric() => letter,
        _ => '_',
    };
    let part: String = found.key.chars().take(KEY_CHARS).map(plain).collect();
    let first = format!("{SECRET}{server}.{part}");
    for number in 1..=MOST_VALUES {
        let key = if number == 1 { first.clone() } else { format!("{first}-{number}") };
        let value = match others.iter().find(|other| other.key == key) {
            Some(other) => Some(other.value.clone()),
            None => vault.get(&key)?,
        };
        let is_new = value.is_none();
        if is_new || value.as_deref() == Some(found.value) {
            return Ok(Secret { key, value: found.value.to_owned(), is_new });
        }
    }
    Err(io::Error::other(format!("{} has had {MOST_VALUES} values", quoted(&first))))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::connections::mcp_client::Connector;
    use crate::ground::env::Variables;

    fn kept(token: &str, vault: &Arc<Vault>) -> Kept {
        let object =
            json!({"command": "a", "args": ["--token", "t1t2"], "env": {"A_TOKEN": token, "B_TOKEN": token}});
        let parameters = ServerParameters::parse(object.as_object().unwrap()).unwrap();
        Kept::of("s", parameters, vault).unwrap()
    }

    #[tokio::test]
    async fn the_same_secret_has_the_same_name_and_another_one_another() {
        let directory = tempfile::tempdir().unwrap();
        let vault = Arc::new(Vault::in_directory(directory.path()));
        let first = kept("one1", &vault);
        assert_eq!(first.names(), ["secret:s.A_TOKEN", "secret:s.B_TOKEN", "secret:s.args.1"]);
        assert_eq!(vault.get("secret:s.A_TOKEN").unwrap(), None);
        first.put().await.unwrap();
        assert_eq!(vault.get("secret:s.A_TOKEN").unwrap().as_deref(), Some("one1"));
        assert!(kept("one1", &vault).parameters == first.parameters);
        let second = kept("two2", &vault);
        assert_eq!(second.names(), ["secret:s.A_TOKEN-2", "secret:s.B_TOKEN-2", "secret:s.args.1"]);
        second.put().await.unwrap();
        let registry = registry(directory.path());
        second.withdraw(&registry, "s").await;
        assert_eq!(vault.get("secret:s.A_TOKEN").unwrap().as_deref(), Some("one1"));
        assert_eq!(vault.get("secret:s.A_TOKEN-2").unwrap(), None);
        assert_eq!(vault.get("secret:s.args.1").unwrap().as_deref(), Some("t1t2"));
    }

    fn registry(state: &Path) -> Registry {
        let connector = Connector::new(Arc::new(Variables::load(state)), state.to_owned());
        Registry::in_directory(state, connector)
    }

    fn register(state: &Path, kept: &Kept) {
        let servers = json!({"s": {"parameters": kept.parameters.to_json()}});
        let document = json!({"version": 1, "servers": servers}).to_string();
        std::fs::write(state.join("servers.json"), document).unwrap();
    }

    /// Of two sessions that offer the same server, one registers it, and the other fails to: before, or after.
    async fn check_kept_for_the_other(is_before: bool) {
        let directory = tempfile::tempdir().unwrap();
        let vault = Arc::new(Vault::in_directory(directory.path()));
        let [first, second] = [kept("one1", &vault), kept("one1", &vault)];
        first.put().await.unwrap();
        second.put().await.unwrap();
        if is_before {
            second.withdraw(&registry(directory.path()), "s").await;
            assert_eq!(vault.get("secret:s.A_TOKEN").unwrap(), None);
        }
        register(directory.path(), &first);
        first.put_back().await;
        if !is_before {
            second.withdraw(&registry(directory.path()), "s").await;
        }
        for name in first.names() {
            assert!(vault.get(name).unwrap().is_some(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_session_that_fails_withdraws_nothing_that_another_has_registered() {
        check_kept_for_the_other(true).await;
        check_kept_for_the_other(false).await;
    }
}
