//! `POST /save`: an action that code in the kernel wants to save. The session tests it and asks about it.

use axum::extract::State;
use axum::response::Response;
use serde_json::Value;

use super::answer::{AnswerForm, CallAnswer};
use super::body::{BodyText, RefusedBody};
use super::call::SharedRoutes;
use crate::tools::actions::ActionDraft;

/// The largest request body with an action: its files, and texts about it.
const SAVE_LIMIT_BYTES: usize = 2 * 1024 * 1024;

const NOT_HERE: &str = "save an action: only a session of ipybox keeps actions, and no test of one does";

pub(super) async fn run(State(shared): State<SharedRoutes>, text: BodyText) -> Result<Response, RefusedBody> {
    let text = text.within("body with an action", SAVE_LIMIT_BYTES)?;
    let (draft, text) = text.parse::<ActionDraft>().await?;
    let saved = match &shared.actions {
        Some(actions) => actions.save(draft).await,
        None => Err(NOT_HERE.to_owned()),
    };
    drop(text);
    let answer = saved.map_or_else(CallAnswer::failed, |words| CallAnswer::Result(Value::String(words)));
    Ok(answer.into_response(AnswerForm::Json).await)
}
