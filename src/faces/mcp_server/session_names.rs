//! The names of sessions in calls.

use crate::ground::text::backticked;

/// The handle of the client's own session.
pub(super) const OWN: &str = "main";
/// The value that a model passes for a session of its own; `new:gpu` chooses its kernels.
pub(super) const NEW: &str = "new";
/// The value for a copy of the client's own session, and the words before the handle of another one to copy.
const COPY: &str = "copy";
const COPY_OF: &str = "copy of ";

/// The session that a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedSession<'a> {
    /// The client's own.
    Own,
    /// One that is made, perhaps with kernels of this name.
    New { kernels: Option<&'a str> },
    /// One that is made as a copy of that with this handle.
    Copy { origin: &'a str },
    /// The one with this handle, if there is one.
    Beside(&'a str),
}

/// The handle that a call gives, if it gives one.
pub(super) fn given(handle: Option<&str>) -> Option<&str> {
    handle.map(str::trim).filter(|handle| !handle.is_empty())
}

impl<'a> NamedSession<'a> {
    /// The session that a call gives.
    pub(super) fn read(given: &'a str) -> Self {
        match given.trim() {
            OWN => Self::Own,
            NEW => Self::New { kernels: None },
            COPY => Self::Copy { origin: OWN },
            given => match (given.strip_prefix(COPY_OF), given.split_once(':')) {
                (Some(origin), _) => Self::Copy { origin: origin.trim() },
                (None, Some((NEW, kernels))) => Self::New { kernels: Some(kernels.trim()) },
                (None, _) => Self::Beside(given),
            },
        }
    }
}

/// Whether a call asks for a session that is not there yet.
pub(super) fn is_new(given: &str) -> bool {
    matches!(NamedSession::read(given), NamedSession::New { .. } | NamedSession::Copy { .. })
}

/// The refusal of a new session with kernels of a name that is none of these.
pub(super) fn no_kernels(name: &str, names: &[&str]) -> String {
    let choices = match names {
        [] => "no kernels can be chosen here, which takes ipybox's flag `--kernel-pool NAME=POOL` or `--kernel-hub-options NAME=JSON`"
            .to_owned(),
        names => format!("there are {}", backticked(names.iter().map(|name| format!("{NEW}:{name}")))),
    };
    format!("no session `{NEW}:{name}` can be opened: {choices}; `{NEW}` takes the usual kernels")
}

/// The description of the argument. Each conversation pays for it.
pub(super) fn description(names: &[&str]) -> String {
    let choices: Vec<_> = names.iter().map(|name| format!(", `{NEW}:{name}`")).collect();
    format!(
        "`{NEW}`{} for your own kernel, `{COPY}` or `{COPY_OF}HANDLE` for one with the same variables, later the answer's handle",
        choices.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_session_is_meant() {
        use NamedSession::{Beside, Copy, New, Own};

        for (given, expected) in [
            ("main", Own),
            (" new ", New { kernels: None }),
            ("new:gpu", New { kernels: Some("gpu") }),
            ("new: gpu", New { kernels: Some("gpu") }),
            ("new:", New { kernels: Some("") }),
            ("copy", Copy { origin: "main" }),
            ("copy of ab12cd", Copy { origin: "ab12cd" }),
            ("ab12cd", Beside("ab12cd")),
            ("newer:gpu", Beside("newer:gpu")),
        ] {
            assert_eq!(NamedSession::read(given), expected, "{given}");
        }
        assert!(["new", "new:gpu", "new:nothing", "copy"].into_iter().all(is_new));
        assert!(!is_new("main") && !is_new("ab12cd"));
    }

    #[test]
    fn only_names_that_there_are_cost_words() {
        assert!(description(&[]).starts_with("`new` for your own kernel, "));
        assert!(
            description(&["gpu", "large"]).starts_with("`new`, `new:gpu`, `new:large` for your own kernel, ")
        );
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        assert!(
            no_kernels("big", &["gpu", "large"])
                .contains("`new:big` can be opened: there are `new:gpu`, `new:large`; `new`")
        );
        assert!(no_kernels("big", &[]).contains("`--kernel-pool NAME=POOL`"));
    }
}
