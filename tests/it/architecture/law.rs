//! The file `law.toml`: what rooms never know, beyond the order of their layers.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Names of rooms, of modules in rooms and of crates.
pub(super) type Names = Vec<String>;

/// The rules, by rooms or by crates. A room is written as a path below `src/`: `kernel`, `registry/search`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Law {
    /// The rooms that may name a crate. A crate that is not listed may be named everywhere.
    pub(super) crates: BTreeMap<String, Names>,
    /// Rooms that know no others than these.
    pub(super) only: BTreeMap<String, Names>,
    /// What rooms never know.
    pub(super) never: BTreeMap<String, Names>,
    /// The rooms in a room, the top one first: each uses those below it.
    pub(super) order: BTreeMap<String, Names>,
}

impl Law {
    /// Reads the text of the file. Panics if it cannot be understood.
    pub(super) fn read(text: &str) -> Self {
        toml::from_str(text).unwrap_or_else(|error| panic!("law.toml: {error}"))
    }
}

mod tests {
    use super::Law;

    #[test]
    fn a_law_has_four_tables() {
        let law = Law::read(
            "[crates]\naxum = ['page']\n[only]\nkernel = []\n[never]\n'a/b' = ['c']\n[order]\na = ['d', 'b']\n",
        );
        assert_eq!(law.crates["axum"], ["page"]);
        assert_eq!(law.only["kernel"], [""; 0]);
        assert_eq!(law.never["a/b"], ["c"]);
        assert_eq!(law.order["a"], ["d", "b"]);
    }

    #[test]
    #[should_panic(expected = "unknown field `sometimes`")]
    fn an_unknown_table_fails() {
        Law::read("[sometimes]\n");
    }
}
