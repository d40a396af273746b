//! Secrets that are kept outside of the environment; in the parameters of a server they are `${secret:NAME}`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Variables;
use super::vault::Vault;

/// The beginning of a secret's name in a placeholder.
pub(crate) const SECRET: &str = "secret:";

type Find = dyn Fn(&str) -> io::Result<Option<String>> + Send + Sync;

/// Finds kept secrets by `secret:NAME`. By default there are none.
#[derive(Clone, Default)]
pub(super) struct KeptSecrets(Option<Arc<Find>>);

impl KeptSecrets {
    pub(super) fn get(&self, name: &str) -> io::Result<Option<String>> {
        self.0.as_ref().map_or(Ok(None), |find| find(name))
    }
}

impl Variables {
    /// From now on placeholders `${secret:NAME}` refer to the vault of a state directory.
    pub(crate) fn find_secrets_in(&mut self, state_directory: &Path) {
        let vault = Vault::in_directory(state_directory);
        self.find_secrets_by(move |key| vault.get(key));
    }

    /// From now on `find` says what a placeholder `${secret:NAME}` refers to, by `secret:NAME`. It may block for some
    /// milliseconds.
    pub(super) fn find_secrets_by(
        &mut self,
        find: impl Fn(&str) -> io::Result<Option<String>> + Send + Sync + 'static,
    ) {
        self.secrets = KeptSecrets(Some(Arc::new(find)));
    }
}

/// Whether `name` is `secret:NAME`.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let is_free = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    name.strip_prefix(SECRET).is_some_and(|name| !name.is_empty() && name.bytes().all(is_free))
}
