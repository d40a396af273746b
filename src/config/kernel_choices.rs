//! The kernels that agents choose for a further session, by name.

use std::collections::BTreeMap;

use super::Error;

/// Words that name sessions.
const SESSION_WORDS: [&str; 3] = ["main", "new", "copy"];

/// Checks that agents can choose kernels by a name: it is a part of `new:NAME`, and of messages.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let is_small = |byte: &u8| byte.is_ascii_lowercase();
    let is_name = name.as_bytes().first().is_some_and(is_small)
        && name.bytes().all(|byte| is_small(&byte) || byte.is_ascii_digit() || byte == b'-')
        && !SESSION_WORDS.contains(&name);
    if is_name { Ok(()) } else { Err(Error::KernelChoice { name: name.to_owned() }) }
}

/// The source of a session's kernels, and those that further sessions can choose.
#[derive(Debug, Clone)]
pub(crate) struct KernelChoices<T> {
    /// That of this session.
    pub(crate) source: T,
    chosen: Option<String>,
    named: BTreeMap<String, T>,
}

impl<T: Clone> KernelChoices<T> {
    /// This source for sessions that choose none.
    pub(super) fn new(source: T, named: BTreeMap<String, T>) -> Self {
        Self { source, chosen: None, named }
    }

    /// All sources.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        [&self.source].into_iter().chain(self.named.values())
    }

    /// The names of the others.
    pub(super) fn names(&self) -> Vec<&str> {
        self.named.keys().map(String::as_str).collect()
    }

    /// The name with which the source was chosen; `None` for that of sessions that choose none.
    pub(super) fn chosen(&self) -> Option<&str> {
        self.chosen.as_deref()
    }

    /// The same with the source of this name; `None` if there is none.
    pub(super) fn choose(&self, name: &str) -> Option<Self> {
        let source = self.named.get(name)?.clone();
        Some(Self { source, chosen: Some(name.to_owned()), named: self.named.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_that_means_no_session() {
        for name in ["gpu", "a", "gpu-2", "new-gpu", "x--"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "main", "new", "copy", "GPU", "2gpu", "-gpu", "g pu", "gpu:a", "gpü", "a.b", "a_b"]
        {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }
}
