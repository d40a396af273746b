//! The HTTP routes by which a kernel saves its variables and has them back: `POST /checkpoint/…`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use futures::StreamExt as _;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

use super::body::{BodyText, RefusedBody};
use crate::approval::Gate;
use crate::ground::text::describe;
use crate::kernels::checkpoint::{ArrivingValue, Checkpoint, CheckpointReport, Error};

/// The largest request body with names, and with a report.
const NAMES_LIMIT_BYTES: usize = 16 * 1024;
const REPORT_LIMIT_BYTES: usize = 4 * 1024 * 1024;
/// The time to wait for the next piece of a value.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);
/// The part of a value that is read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Code names a variable that it was offered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    digest: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// The routes, for requests with the caller token.
pub(super) fn router(checkpoint: Arc<Checkpoint>, gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/checkpoint/list", post(list))
        .route("/checkpoint/load", post(load))
        .route("/checkpoint/{number}/value", post(value))
        .route("/checkpoint/{number}/end", post(end))
        .with_state(checkpoint)
        .layer(axum::Extension(gate))
}

async fn list(State(checkpoint): State<Arc<Checkpoint>>, text: BodyText) -> Result<Response, RefusedBody> {
    let (Nothing {}, _text) = text.within("body without content", NAMES_LIMIT_BYTES)?.parse().await?;
    Ok(axum::Json(checkpoint.saved()).into_response())
}

async fn load(
    State(checkpoint): State<Arc<Checkpoint>>,
    Extension(gate): Extension<Arc<Gate>>,
    text: BodyText,
) -> Result<Response, RefusedBody> {
    let (Wanted { name, digest }, _text) =
        text.within("body with a name", NAMES_LIMIT_BYTES)?.parse().await?;
    let opened = blocking(move || checkpoint.load(&name, &digest)).await?;
    let (file, bytes) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ok(refusal(&error)),
    };
    if let Some(memory) = gate.memory() {
        memory.restored();
    }
    // One that has grown since must not break the connection.
    let file = tokio::fs::File::from_std(file).take(bytes);
    let pieces = futures::stream::try_unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece).await?;
        std::io::Result::Ok((read > 0).then(|| (Bytes::from(piece), file)))
    });
    let headers = [(header::CONTENT_TYPE, "application/octet-stream".to_owned())];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Takes a value, which is never parsed.
async fn value(
    State(checkpoint): State<Arc<Checkpoint>>,
    Path(number): Path<u64>,
    body: Body,
) -> Result<Response, RefusedBody> {
    let receiving = blocking(move || ArrivingValue::begin(&checkpoint, number)).await?;
    let mut receiving = match receiving {
        Ok(receiving) => receiving,
        Err(error) => return Ok(refusal(&error)),
    };
    let mut pieces = body.into_data_stream();
    loop {
        let next = tokio::time::timeout(PIECE_TIMEOUT, pieces.next()).await;
        let Some(piece) = next.map_err(|_| RefusedBody::Slow)? else { break };
        if let Err(error) = receiving.write(&piece.map_err(RefusedBody::Broken)?).await {
            // The kernel sends all before it reads the answer.
            while let Ok(Some(Ok(_))) = tokio::time::timeout(PIECE_TIMEOUT, pieces.next()).await {}
            return Ok(refusal(&error));
        }
    }
    Ok(receiving.finish().await.map_or_else(|error| refusal(&error), |()| StatusCode::OK.into_response()))
}

async fn end(
    State(checkpoint): State<Arc<Checkpoint>>,
    Path(number): Path<u64>,
    text: BodyText,
) -> Result<Response, RefusedBody> {
    let text = text.within("report of saved variables", REPORT_LIMIT_BYTES)?;
    let (report, _text) = text.parse::<CheckpointReport>().await?;
    let ended = blocking(move || checkpoint.end(number, report)).await?;
    Ok(ended.map_or_else(|error| refusal(&error), |()| axum::Json(()).into_response()))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RefusedBody> {
    tokio::task::spawn_blocking(work).await.map_err(|error| RefusedBody::Bug(error.into()))
}

fn refusal(error: &Error) -> Response {
    let status = match error {
        Error::NotAsked | Error::Occupied => StatusCode::CONFLICT,
        Error::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Error::Unknown => StatusCode::NOT_FOUND,
        Error::Disk(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, describe(error)).into_response()
}
