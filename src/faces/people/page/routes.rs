//! The requests of the page.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::JsonRejection;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::diff::ComparedFiles;
use super::guard::{self, KEY, PageHost};
use super::hub::{BrowserHub, WatchingBrowser};
use super::key::{PageLock, TriedCode};
use super::{OnNews, PageNews, diff, row};
use crate::faces::people::{Label, PersonMessage, SettleAction, UserAnswer};
use crate::ground::files::small;
use crate::ground::web::listener::{self, BusyRequest, ListenerPeer};

/// The largest body, in bytes: answers to some thousand questions.
const BODY_BYTES: usize = 256 * 1024;

/// The parts of the page: paths, kinds and texts.
const PARTS: [(&str, &str, &str); 8] = [
    ("/page.css", CSS, include_str!("page.css")),
    ("/page.js", JAVASCRIPT, include_str!("page.js")),
    ("/activity.js", JAVASCRIPT, include_str!("activity.js")),
    ("/changes.js", JAVASCRIPT, include_str!("changes.js")),
    ("/python.js", JAVASCRIPT, include_str!("python.js")),
    ("/row.js", JAVASCRIPT, include_str!("row.js")),
    ("/table.js", JAVASCRIPT, include_str!("table.js")),
    ("/waiting.js", JAVASCRIPT, include_str!("waiting.js")),
];

/// The page for a browser on this machine.
const HTML_TEXT: &str = include_str!("page.html");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The time that a body may take: whatever runs on this machine can connect, and there is a limit of connections.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest image that is shown, in bytes.
const IMAGE_BYTES: u64 = 32 * 1024 * 1024;

/// The time that a look at a code takes: guesses are slow, and all connections together do not wait long.
const TRY_TIME: Duration = Duration::from_millis(200);

/// The interval at which a page that nothing happens on hears that the session is there.
const BEAT: Duration = Duration::from_secs(15);

/// The side of browsers that enter by a code.
#[derive(Clone)]
struct PageSite {
    cookie_name: Arc<str>,
    lock: Arc<PageLock>,
    on_news: Arc<OnNews>,
    turnstiles: Arc<Turnstiles>,
}

/// The side of one person, who is known.
#[derive(Clone)]
struct PersonSite {
    hub: Arc<BrowserHub>,
    /// The details of one call are made at a time: long texts take much memory then.
    details: Arc<tokio::sync::Mutex<()>>,
    files: ComparedFiles,
}

/// Let one code after the other be looked at, in the order of their arrival. The user does not wait behind other users.
#[derive(Default)]
struct Turnstiles {
    of_user: tokio::sync::Mutex<()>,
    of_others: tokio::sync::Mutex<()>,
}

/// The page, its parts and what it asks for.
pub(super) fn router(
    address: SocketAddr,
    hub: Arc<BrowserHub>,
    lock: Arc<PageLock>,
    on_news: Arc<OnNews>,
) -> Router {
    let site = PageSite {
        // Browsers send the cookies of all ports of a host to each of them.
        cookie_name: format!("ipybox-{}", address.port()).into(),
        lock,
        on_news,
        turnstiles: Arc::default(),
    };
    let inside = person(hub).layer(middleware::from_fn_with_state(site.clone(), admitted));
    let router = parts(HTML_TEXT.into()).merge(inside).route("/enter", post(enter).with_state(site));
    guarded(PageHost::of(address), router.fallback(nothing))
}

/// The page and its parts, which anybody may have.
pub(super) fn parts(html: Cow<'static, str>) -> Router {
    let router = Router::new().route("/", get(move || async move { part(HTML, html) }));
    PARTS.into_iter().fold(router, |router, (path, kind, text)| {
        router.route(path, get(move || async move { part(kind, text) }))
    })
}

/// The requests of a person who is known.
fn person(hub: Arc<BrowserHub>) -> Router {
    let site = PersonSite { hub, details: Arc::default(), files: ComparedFiles::OfThisUser };
    let own = Router::new()
        .route("/revoke", post(revoke))
        .route("/image", post(image))
        .route("/changes", post(changes))
        .route("/settle", post(settle));
    questions().merge(own).with_state(site)
}

/// The requests of a person on another machine: nothing of this one is read for them.
pub(super) fn hosted(hub: Arc<BrowserHub>) -> Router {
    questions().with_state(PersonSite { hub, details: Arc::default(), files: ComparedFiles::None })
}

fn questions() -> Router<PersonSite> {
    Router::new().route("/events", post(events)).route("/answer", post(answer)).route("/call", post(call))
}

/// Has a router answer requests of the page at `host` alone, with the headers of all answers.
pub(super) fn guarded(host: PageHost, router: Router) -> Router {
    router.layer(middleware::from_fn_with_state(host, guard_request))
}

async fn nothing() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "There is nothing here.")
}

/// Lets requests of the page itself through.
async fn guard_request(State(host): State<PageHost>, request: Request, next: Next) -> Response {
    if let Some((status, why)) = host.refusal(&request) {
        return guard::refused(status, why);
    }
    let (head, body) = request.into_parts();
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, BODY_BYTES)).await {
        Ok(Ok(body)) => guard::with_headers(next.run(Request::from_parts(head, Body::from(body))).await),
        Ok(Err(_)) => guard::refused(StatusCode::PAYLOAD_TOO_LARGE, "The body is too long, or broke off."),
        Err(_) => guard::refused(StatusCode::REQUEST_TIMEOUT, "The body did not come in time."),
    }
}

/// Lets those through who have entered.
async fn admitted(State(site): State<PageSite>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let key = guard::only(headers, &KEY).unwrap_or_default();
    let is_admitted = guard::cookies(headers, &site.cookie_name)
        .any(|cookie| site.lock.admits(cookie.as_bytes(), key.as_bytes()));
    if !is_admitted {
        return (StatusCode::UNAUTHORIZED, "The page asks for its code first.").into_response();
    }
    let busy = BusyRequest::begin(request.extensions());
    busy.until_written(next.run(request).await)
}

fn part(kind: &'static str, text: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entering {
    code: String,
}

/// Takes the code. A right one brings the cookie and the key.
async fn enter(
    State(site): State<PageSite>,
    extensions: Extensions,
    entering: Result<Json<Entering>, JsonRejection>,
) -> Result<Response, JsonRejection> {
    let Json(Entering { code }) = entering?;
    let turnstile = match listener::peer_of(&extensions) {
        ListenerPeer::User => &site.turnstiles.of_user,
        ListenerPeer::Other => &site.turnstiles.of_others,
    };
    let _turn = turnstile.lock().await;
    tokio::time::sleep(TRY_TIME).await;
    let Ok(tried) = site.lock.enter(&code) else {
        return Ok((StatusCode::INTERNAL_SERVER_ERROR, "There are no random numbers.").into_response());
    };
    if tried == TriedCode::Guessed {
        (site.on_news)(PageNews::Guessed);
    }
    Ok(match tried {
        TriedCode::Right => {
            (site.on_news)(PageNews::Entered(site.lock.code()));
            let (cookie, key) = site.lock.secrets();
            let cookie = format!("{}={cookie}; HttpOnly; SameSite=Strict; Path=/", site.cookie_name);
            ([(header::SET_COOKIE, cookie)], Json(json!({"key": key, "entries": site.lock.entries()})))
                .into_response()
        }
        TriedCode::Wrong | TriedCode::Guessed => {
            (StatusCode::FORBIDDEN, "That is not the code.").into_response()
        }
    })
}

/// The events, one line of JSON each, from now on.
async fn events(State(site): State<PersonSite>) -> Response {
    let lines = futures::stream::unfold(site.hub.watch(), |mut watching: WatchingBrowser| async {
        let line = match tokio::time::timeout(BEAT, watching.next()).await {
            Ok(line) => line?,
            Err(_) => watching.browsers(),
        };
        Some((Ok::<_, Infallible>(Bytes::from_owner(StreamLine(line))), watching))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

struct StreamLine(Arc<str>);

impl AsRef<[u8]> for StreamLine {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PostedAnswers {
    questions: Vec<u64>,
    answer: UserAnswer,
    /// For the servers whose registration this answers.
    #[serde(default)]
    label: Option<Label>,
}

/// Passes answers on. How a question was decided is an event: somebody else may have been earlier.
async fn answer(
    State(site): State<PersonSite>,
    answers: Result<Json<PostedAnswers>, JsonRejection>,
) -> Result<Response, JsonRejection> {
    let Json(PostedAnswers { questions, answer, label }) = answers?;
    let mut passed_on = Vec::new();
    let mut over = Vec::new();
    for question in questions {
        let scene = site.hub.scene();
        // Without a grant to give, that answer would be a refusal.
        let is_open =
            scene.can_answer(question, answer) && (answer != UserAnswer::Grant || scene.can_grant(question));
        drop(scene);
        if !is_open {
            over.push(question);
            continue;
        }
        if !site.hub.say(PersonMessage::Answer { question, answer, label }) {
            return Ok(unheard());
        }
        passed_on.push(question);
    }
    Ok(Json(json!({"passed_on": passed_on, "over": over})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Revoked {
    grant: u64,
}

/// Ends a grant. Which ones hold after that is an event.
async fn revoke(
    State(site): State<PersonSite>,
    revoked: Result<Json<Revoked>, JsonRejection>,
) -> Result<Response, JsonRejection> {
    let Json(Revoked { grant }) = revoked?;
    let is_heard = site.hub.say(PersonMessage::Revoke { grant });
    Ok(if is_heard { Json(json!({})).into_response() } else { unheard() })
}

/// Asks the session which changes wait: the answer is an event.
async fn changes(State(site): State<PersonSite>) -> Response {
    if site.hub.say(PersonMessage::Changes) { Json(json!({})).into_response() } else { unheard() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PostedChanges {
    revision: u64,
    copy: String,
    action: SettleAction,
    /// Their places in the copy; all of them without any.
    changes: Option<Vec<usize>>,
}

/// Has changes that the page has shown applied or discarded. The result is an event.
async fn settle(
    State(site): State<PersonSite>,
    posted: Result<Json<PostedChanges>, JsonRejection>,
) -> Result<Response, JsonRejection> {
    let Json(PostedChanges { revision, copy, action, changes }) = posted?;
    let seen = site.hub.scene().waiting().seen(revision, &copy, action, changes.as_deref());
    let seen = match seen {
        Ok(seen) => seen,
        Err(why) => return Ok((StatusCode::CONFLICT, why).into_response()),
    };
    let is_heard = site.hub.say(PersonMessage::Settle { copy, action, seen });
    Ok(if is_heard { Json(json!({})).into_response() } else { unheard() })
}

fn unheard() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "The session does not listen.").into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedDetails {
    question: u64,
    /// Without the arguments, for the row.
    #[serde(default)]
    only_changes: bool,
}

#[derive(Serialize)]
struct CallDetails {
    changes: Vec<diff::TextChange>,
    arguments: Vec<row::WholeArgument>,
}

/// The changes that a call would make, and all of its arguments in full.
async fn call(
    State(site): State<PersonSite>,
    asked: Result<Json<AskedDetails>, JsonRejection>,
) -> Result<Response, JsonRejection> {
    let Json(AskedDetails { question, only_changes }) = asked?;
    let turn = Arc::clone(&site.details).lock_owned().await;
    let call = site.hub.scene().call(question).cloned();
    let Some(call) = call else {
        return Ok((StatusCode::NOT_FOUND, "The question is over.").into_response());
    };
    let shown = tokio::task::spawn_blocking(move || {
        // It goes on although nobody waits for it any more.
        let _turn = turn;
        let arguments = if only_changes { Vec::new() } else { row::wholes(&call) };
        Json(CallDetails { changes: diff::changes(&call, site.files), arguments }).into_response()
    });
    Ok(match shown.await {
        Ok(shown) => shown,
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageQuery {
    cell: u64,
    image: usize,
}

/// An image that a cell has shown, if it is one that browsers only draw.
async fn image(
    State(site): State<PersonSite>,
    shown: Result<Json<ImageQuery>, JsonRejection>,
) -> Result<Response, JsonRejection> {
    let Json(ImageQuery { cell, image }) = shown?;
    let path = site.hub.scene().image(cell, image);
    let read = move || path.and_then(|path| read_image(&path));
    Ok(match tokio::task::spawn_blocking(read).await.ok().flatten() {
        Some((kind, bytes)) => ([(header::CONTENT_TYPE, kind)], bytes).into_response(),
        None => (StatusCode::NOT_FOUND, "There is no such image.").into_response(),
    })
}

/// Reads a file that code may have replaced meanwhile: it is shown if it is a picture without scripts.
fn read_image(path: &Path) -> Option<(&'static str, Vec<u8>)> {
    let bytes = small::read(path, IMAGE_BYTES).ok()?;
    let kind = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => return None,
    };
    Some((kind, bytes))
}
