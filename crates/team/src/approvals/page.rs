//! The page of one user: what a session tells a page, the board tells it of all sessions.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream, duplex};
use tokio_util::sync::CancellationToken;

use super::board::QuestionBoard;
use crate::login::TeamUser;

/// The amount that may be on its way to or from a page, in bytes.
const PAGE_BYTES: usize = 256 * 1024;
/// The interval of looks at whether the login holds: its token may be taken away while nothing happens.
const LOOK: Duration = Duration::from_secs(15);

/// Speaks to a page as a session would, with the questions that its user may answer, until the user is not `current` any more
/// or the stream is dropped; then it is `over`.
pub(crate) fn speak(
    board: Arc<QuestionBoard>,
    current: impl Fn() -> Option<TeamUser> + Send + 'static,
    over: CancellationToken,
) -> DuplexStream {
    let (page, ours) = duplex(PAGE_BYTES);
    tokio::spawn(async move {
        let _over = over.drop_guard();
        if let Err(error) = converse(&board, current, ours).await {
            tracing::debug!(%error, "a page has ended");
        }
    });
    page
}

async fn converse(
    board: &QuestionBoard,
    current: impl Fn() -> Option<TeamUser>,
    stream: DuplexStream,
) -> io::Result<()> {
    let (input, mut output) = tokio::io::split(stream);
    let mut lines = BufReader::new(input).lines();
    let mut changes = board.changes();
    let mut looks = tokio::time::interval(LOOK);
    let mut shown = BTreeSet::new();
    let Some(user) = current() else { return Ok(()) };
    show(board, &user, &mut shown, &mut output).await?;
    // It knows all questions once it knows whose they are.
    let who = format!("{} ({})", user.name, user.identity);
    tell(&mut output, &json!({"hear": "about", "workspace": "", "client": who})).await?;
    loop {
        let said = tokio::select! {
            Ok(()) = changes.changed() => None,
            _ = looks.tick() => None,
            line = lines.next_line() => match line? {
                Some(line) => Some(serde_json::from_str::<Value>(&line)?),
                None => return Ok(()),
            },
        };
        let Some(user) = current() else { return Ok(()) };
        match said {
            Some(said) if said["say"] == "answer" => {
                if let Some(number) = said["question"].as_u64() {
                    // Its end is seen by all.
                    board.answer(number, &user, &said).await;
                }
            }
            Some(_) => {}
            None => show(board, &user, &mut shown, &mut output).await?,
        }
    }
}

/// Shows the questions that are new, and the end of those that are over.
async fn show(
    board: &QuestionBoard,
    user: &TeamUser,
    shown: &mut BTreeSet<u64>,
    output: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let open = board.of(user);
    let over: Vec<u64> = shown.iter().copied().filter(|number| !open.contains_key(number)).collect();
    for number in over {
        shown.remove(&number);
        let how = board.end_of(number);
        tell(output, &json!({"hear": "decided", "question": number, "how": how})).await?;
    }
    for (number, question) in open {
        if shown.insert(number) {
            tell(output, &question.message()).await?;
        }
    }
    Ok(())
}

async fn tell(output: &mut (impl AsyncWrite + Unpin), message: &Value) -> io::Result<()> {
    output.write_all(format!("{message}\n").as_bytes()).await
}
