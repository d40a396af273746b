//! The pools from which agents choose the kernels of a further session, by name.

use super::{Config, Error, KernelSite};

/// Words that name sessions.
const SESSION_WORDS: [&str; 3] = ["main", "new", "copy"];

/// Checks that agents can choose kernels by a name: it is a part of `new:NAME`, and of messages.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let is_small = |byte: &u8| byte.is_ascii_lowercase();
    let is_name = name.as_bytes().first().is_some_and(is_small)
        && name.bytes().all(|byte| is_small(&byte) || byte.is_ascii_digit() || byte == b'-')
        && !SESSION_WORDS.contains(&name);
    if is_name { Ok(()) } else { Err(Error::PoolName { name: name.to_owned() }) }
}

impl Config {
    /// The names by which the kernels of a further session can be chosen.
    pub(crate) fn pool_names(&self) -> Vec<&str> {
        match &self.site {
            KernelSite::Pod(server) => server.named.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// The same with kernels of the pool of this name; `None` if there is none.
    pub(crate) fn with_pool(&self, name: &str) -> Option<Self> {
        let KernelSite::Pod(server) = &self.site else { return None };
        let site = KernelSite::Pod(server.with_pool(name)?);
        Some(Self { site, ..self.clone() })
    }

    /// The name of the pool, if it was chosen.
    pub(crate) fn chosen_pool(&self) -> Option<&str> {
        match &self.site {
            KernelSite::Pod(server) => server.chosen.as_deref(),
            _ => None,
        }
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
