//! Tokens of a user that the server of a team gives the user's sessions. The session holds nothing of the user's own login.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};

use super::Error;
use super::server::ProtectedServer;
use super::token::AccessToken;
use super::token_request::check_token;
use crate::ground::files::{ConnectionUse, FrontSocket};

/// The time that the server may take: it asks two providers at most.
const PATIENCE: Duration = Duration::from_secs(45);
/// The longest answer, in bytes.
const ANSWER_BYTES: u64 = 64 * 1024;

#[derive(Serialize)]
struct TeamQuestion<'a> {
    url: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum TeamAnswer {
    Token { token: String, seconds: u64 },
    Refused(String),
    Unavailable(String),
}

/// A token of the session's user for the server.
pub(super) async fn token(server: &ProtectedServer) -> Result<AccessToken, Error> {
    let Some(front) = &server.front else {
        return Err(Error::Team("this is no session of a team server, which alone has it".to_owned()));
    };
    let unavailable = |why: &dyn std::fmt::Display| Error::Unavailable(format!("the team server {why}"));
    let asked = tokio::time::timeout(PATIENCE, ask(front, server.url.as_str())).await;
    let late = |_| unavailable(&format_args!("does not answer within {} s", PATIENCE.as_secs()));
    match asked.map_err(late)?.map_err(|error| unavailable(&format_args!("cannot be asked: {error}")))? {
        TeamAnswer::Token { token, seconds } => {
            check_token(&token).map_err(|unusable| Error::Token(unusable.to_string()))?;
            Ok(AccessToken::lasting(token, Some(Duration::from_secs(seconds))))
        }
        TeamAnswer::Refused(why) => Err(Error::Team(super::foreign(&why))),
        TeamAnswer::Unavailable(why) => Err(Error::Unavailable(super::foreign(&why))),
    }
}

async fn ask(front: &FrontSocket, url: &str) -> io::Result<TeamAnswer> {
    let (input, mut output) = front.connect(ConnectionUse::Upstream).await?;
    let question = serde_json::to_string(&TeamQuestion { url })?;
    output.write_all(format!("{question}\n").as_bytes()).await?;
    let mut answer = Vec::new();
    input.take(ANSWER_BYTES).read_until(b'\n', &mut answer).await?;
    Ok(serde_json::from_slice(&answer)?)
}
