//! A front: a process that serves several clients of one user, each with a session of its own, and finds these again.

use serde::Deserialize;
use serde_json::json;

/// The method of the notification that names the session.
const METHOD: &str = "notifications/ipybox/session";

/// The session that a front wants for a client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct FrontWish {
    /// The id of the client's session, which it has had before; `None` for any that nobody attends.
    session: Option<String>,
    /// The ids of the sessions of its other clients.
    leave: Vec<String>,
}

impl FrontWish {
    /// Whether the client has had the session with this id.
    pub(super) fn had(&self, id: &str) -> bool {
        self.session.as_deref() == Some(id)
    }

    /// Whether the client may have the session with this id.
    pub(super) fn allows(&self, id: &str) -> bool {
        match &self.session {
            Some(_) => self.had(id),
            None => !self.leave.iter().any(|other| other == id),
        }
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
        let own = wish(r#"{"session": "a", "leave": ["b"]}"#);
        assert!(own.allows("a") && !own.allows("b") && !own.allows("c"));
        let any = wish(r#"{"leave": ["b", "c"]}"#);
        assert!(any.allows("a") && !any.allows("b") && !any.allows("c"));
        assert!(serde_json::from_str::<FrontWish>(r#"{"sessions": []}"#).is_err());
    }
}
