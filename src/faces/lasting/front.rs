//! A front: a process that serves several clients of one user, each with a session of its own, and finds these again.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::json;

use super::entry::is_session_id;
use crate::ground::files::{FrontServer, FrontSocket};

/// The method of the notification that names the session.
const METHOD: &str = "notifications/ipybox/session";

/// The session that a front wants for a client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct FrontWish {
    /// The id of the client's session, which it has had before; `None` for any that nobody attends.
    #[serde(deserialize_with = "session_id")]
    session: Option<String>,
    /// The ids of the sessions of its other clients.
    leave: Vec<String>,
    /// The front as a server that the session asks.
    server: Option<FrontServer>,
}

impl FrontWish {
    /// The id of the session that the client has had.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Whether the client has had the session with this id.
    pub(super) fn had(&self, id: &str) -> bool {
        self.session.as_deref() == Some(id)
    }

    /// The socket of the front, for the session with this id and token.
    pub(super) fn socket(&self, session: String, token: &str) -> Option<FrontSocket> {
        Some(self.server.as_ref()?.for_session(session, token))
    }

    /// Whether people decide at the front's socket.
    pub(super) fn approvals(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.approvals)
    }

    /// Whether the client may have the session with this id.
    pub(super) fn allows(&self, id: &str) -> bool {
        match &self.session {
            Some(_) => self.had(id),
            None => !self.leave.iter().any(|other| other == id),
        }
    }
}

/// The id of a session, which names a directory.
fn session_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let id = Option::<String>::deserialize(deserializer)?;
    match id {
        Some(id) if !is_session_id(&id) => {
            Err(D::Error::custom(format!("`{id}` is no session's id: those have 8 hexadecimal digits")))
        }
        id => Ok(id),
    }
}

/// The first message to a front: the id of its client's session.
pub(super) fn introduction(id: &str) -> String {
    let message = json!({"jsonrpc": "2.0", "method": METHOD, "params": {"id": id}});
    format!("{message}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_own_session_or_one_that_is_nobodys() {
        let wish = |json: &str| serde_json::from_str::<FrontWish>(json).unwrap();
        assert!(wish("{}").allows("a"));
        let own = wish(r#"{"session": "0123abcd", "leave": ["b"]}"#);
        assert!(own.allows("0123abcd") && !own.allows("b") && !own.allows("c"));
        let any = wish(r#"{"leave": ["b", "c"]}"#);
        assert!(any.allows("a") && !any.allows("b") && !any.allows("c"));
        for wrong in [r#"{"sessions": []}"#, r#"{"session": "../../x"}"#, r#"{"session": "0123ABCD"}"#] {
            assert!(serde_json::from_str::<FrontWish>(wrong).is_err(), "{wrong}");
        }
    }
}
