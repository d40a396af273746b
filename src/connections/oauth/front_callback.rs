//! The answer that a browser brings to the server of a team, which hands it to the session that waits for it: the browser is on
//! another machine than the session.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};

use super::Error;
use super::callback_answer::{ArrivedCallback, read};
use crate::ground::files::{ConnectionUse, FrontSocket};

/// The time between two tries to reach the server, which may be started anew.
const RETRY: Duration = Duration::from_millis(500);
/// The longest answer, in bytes.
const ANSWER_BYTES: u64 = 64 * 1024;

/// A login whose answer comes by the server.
pub(super) struct FrontCallback {
    pub(super) front: FrontSocket,
    /// The host of the MCP server, for the page that asks the user.
    pub(super) server: String,
    pub(super) arrived: mpsc::Sender<ArrivedCallback>,
}

#[derive(Serialize)]
struct BegunLogin<'a> {
    state: &'a str,
    server: &'a str,
}

/// The server's word that it knows of the login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownLogin {}

#[derive(Deserialize)]
struct BroughtQuery {
    query: String,
}

impl FrontCallback {
    /// Waits for the answer with this state, until there is one or nobody waits for it. `begun` hears when the server knows of it.
    pub(super) async fn wait(self, state: String, begun: oneshot::Sender<()>) {
        let mut begun = Some(begun);
        loop {
            let brought = tokio::select! {
                brought = self.brought(&state, &mut begun) => brought,
                () = self.arrived.closed() => return,
            };
            match brought {
                Ok(Some((query, output))) => {
                    if let Err(error) = self.pass_on(&query, &state, output).await {
                        tracing::debug!(%error, "a browser does not learn how a login has ended");
                    }
                    return;
                }
                Ok(None) => tracing::debug!("the team server has ended a login's connection"),
                Err(error) => tracing::debug!(%error, "the team server cannot be reached for a login"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// The query that a browser brings, by one connection; `None` if it ends before.
    async fn brought(
        &self,
        state: &str,
        begun: &mut Option<oneshot::Sender<()>>,
    ) -> io::Result<Option<(String, OwnedWriteHalf)>> {
        let (input, mut output) = self.front.connect(ConnectionUse::Login).await?;
        let login = serde_json::to_string(&BegunLogin { state, server: &self.server })?;
        output.write_all(format!("{login}\n").as_bytes()).await?;
        let mut lines = input.take(ANSWER_BYTES).lines();
        let Some(known) = lines.next_line().await? else { return Ok(None) };
        serde_json::from_str::<KnownLogin>(&known)?;
        if let Some(begun) = begun.take() {
            // Nobody hears it who has given up.
            begun.send(()).ok();
        }
        let Some(brought) = lines.next_line().await? else { return Ok(None) };
        let BroughtQuery { query } = serde_json::from_str(&brought)?;
        Ok(Some((query, output)))
    }

    /// Passes the answer in a query on, and says how the login has ended.
    async fn pass_on(self, query: &str, state: &str, mut output: OwnedWriteHalf) -> io::Result<()> {
        let foreign = || Error::Answer("it belongs to another login".to_owned());
        let answer = read(query, state).map_err(|error| error.unwrap_or_else(foreign));
        let (page, ended) = oneshot::channel();
        let is_over = self.arrived.send(ArrivedCallback { answer, page }).await.is_err();
        let failed = match ended.await {
            Ok(outcome) if !is_over => outcome.err(),
            _ => Some("this login is over".to_owned()),
        };
        output.write_all(format!("{}\n", json!({"failed": failed})).as_bytes()).await
    }
}
