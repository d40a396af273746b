//! A request of MCP, with its span and its duration.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use super::api::{Context, Span, has_contents, is_on, record};
use super::value::{DecidedCall, MetricInstrument, SpanAttribute, WorkKind, name};
use super::{CONTENT_BYTES, names};

/// The first request to a server, which belongs to the connection and not to the call that needs it.
const INITIALIZE: &str = "initialize";

/// The subject of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestTarget<'a> {
    Tool(&'a str),
    Prompt(&'a str),
    /// A resource's URI, which no span has in its name: there are too many.
    Resource(&'a str),
    /// Nothing in particular.
    None,
}

/// The connection that a request goes over.
#[derive(Clone, Default)]
pub(crate) struct RequestLink(Option<Arc<LinkPeer>>);

struct LinkPeer {
    /// The server at the other end; `None` if that is a client.
    server: Option<String>,
    /// Host and port, if it is reached by HTTP.
    address: Option<(String, Option<u16>)>,
}

/// A request under way. Dropping it ends it: as cancelled, unless it was said how it ended.
#[derive(Default)]
pub(crate) struct Operation(Option<Box<RunningOperation>>);

struct RunningOperation {
    span: Span,
    instrument: MetricInstrument,
    begun: Instant,
    /// Those of the metric.
    attributes: Vec<SpanAttribute>,
    end: OperationEnd,
}

enum OperationEnd {
    Open,
    Good,
    Bad(Cow<'static, str>),
}

impl RequestLink {
    /// To a client, by stdio.
    pub(crate) fn to_client() -> Self {
        Self(is_on().then(|| Arc::new(LinkPeer { server: None, address: None })))
    }

    /// To the server that is registered as `server`. `address` is its host and port, for a server behind a URL.
    pub(crate) fn to_server(server: &str, address: impl FnOnce() -> Option<(String, Option<u16>)>) -> Self {
        Self(is_on().then(|| Arc::new(LinkPeer { server: Some(server.to_owned()), address: address() })))
    }

    /// Whether requests over it have spans.
    pub(crate) fn is_traced(&self) -> bool {
        self.0.is_some()
    }

    fn attributes(&self) -> Vec<SpanAttribute> {
        let Some(known) = &self.0 else { return Vec::new() };
        let mut attributes: Vec<SpanAttribute> = Vec::with_capacity(12);
        match &known.address {
            None => attributes.push((names::TRANSPORT, "pipe".into())),
            Some((host, port)) => {
                attributes.push((names::TRANSPORT, "tcp".into()));
                attributes.push((names::TRANSPORT_PROTOCOL, "http".into()));
                attributes.push((names::ADDRESS, host.clone().into()));
                attributes.extend(port.map(|port| (names::PORT, i64::from(port).into())));
            }
        }
        attributes.extend(known.server.as_deref().map(|server| (names::SERVER, name(server).into())));
        attributes
    }
}

impl Operation {
    /// A request of a client, whose span is a child of `parent`.
    pub(crate) fn of_client(
        method: &str,
        target: RequestTarget<'_>,
        link: &RequestLink,
        parent: &Context,
    ) -> Self {
        Self::begin(WorkKind::Server, method, target, link, parent)
    }

    /// A request of ours to a server, whose span is a child of the current one.
    pub(crate) fn to_server(method: &str, target: RequestTarget<'_>, link: &RequestLink) -> Self {
        if !is_on() {
            return Self(None);
        }
        let parent = Context::current();
        let mut operation = Self::begin(WorkKind::Client, method, target, link, &parent);
        if method != INITIALIZE
            && let Some(call) = parent.call()
        {
            operation.describe(call.attributes());
        }
        operation
    }

    fn begin(
        kind: WorkKind,
        method: &str,
        target: RequestTarget<'_>,
        link: &RequestLink,
        parent: &Context,
    ) -> Self {
        if !is_on() {
            return Self(None);
        }
        let mut attributes = link.attributes();
        attributes.push((names::METHOD, method.to_owned().into()));
        let named = match target {
            RequestTarget::Tool(tool) => {
                attributes.push((names::OPERATION, "execute_tool".into()));
                attributes.push((names::TOOL, name(tool).into()));
                format!("{method} {}", name(tool))
            }
            RequestTarget::Prompt(prompt) => {
                attributes.push((names::PROMPT, name(prompt).into()));
                format!("{method} {}", name(prompt))
            }
            RequestTarget::Resource(_) | RequestTarget::None => method.to_owned(),
        };
        let instrument = match kind {
            WorkKind::Server => MetricInstrument::ServerOperation,
            WorkKind::Client | WorkKind::Internal => MetricInstrument::ClientOperation,
        };
        let span = Span::begin(named, kind, parent, None, attributes.clone());
        if let RequestTarget::Resource(uri) = target {
            span.set((names::RESOURCE, name(uri).into()));
        }
        Self(Some(Box::new(RunningOperation {
            span,
            instrument,
            begun: Instant::now(),
            attributes,
            end: OperationEnd::Open,
        })))
    }

    /// The context of work for this request.
    pub(crate) fn context(&self) -> Context {
        self.0.as_ref().map_or_else(Context::default, |running| running.span.context())
    }

    /// The id of the request.
    pub(crate) fn has_id(&self, id: impl FnOnce() -> String) {
        self.describe_with(|| (names::REQUEST, id().into()));
    }

    /// The revision of the protocol in which it is made.
    pub(crate) fn is_of_version(&mut self, version: impl FnOnce() -> Option<String>) {
        let Some(running) = &mut self.0 else { return };
        if let Some(version) = version() {
            let attribute: SpanAttribute = (names::PROTOCOL_VERSION, version.into());
            running.span.set(attribute.clone());
            running.attributes.push(attribute);
        }
    }

    /// The cell that it runs or waits for, by the name that models have for it.
    pub(crate) fn is_about_cell(&self, id: impl FnOnce() -> Option<String>) {
        if let Some(running) = &self.0
            && let Some(id) = id()
        {
            running.span.set((names::CELL_ID, id.into()));
        }
    }

    /// Its arguments, without secrets, if contents are asked for. The text may have so many bytes.
    pub(crate) fn has_arguments(&self, text: impl FnOnce(usize) -> String) {
        self.has_content(names::ARGUMENTS, text);
    }

    /// The same of its result.
    pub(crate) fn has_result(&self, text: impl FnOnce(usize) -> String) {
        self.has_content(names::RESULT, text);
    }

    fn has_content(&self, name: &'static str, text: impl FnOnce(usize) -> String) {
        if has_contents() {
            self.describe_with(|| (name, text(CONTENT_BYTES).into()));
        }
    }

    fn describe_with(&self, attribute: impl FnOnce() -> SpanAttribute) {
        if let Some(running) = self.0.as_ref().filter(|running| running.span.is_recording()) {
            running.span.set(attribute());
        }
    }

    fn describe(&mut self, attributes: impl IntoIterator<Item = SpanAttribute>) {
        if let Some(running) = &self.0 {
            attributes.into_iter().for_each(|attribute| running.span.set(attribute));
        }
    }

    /// It has its answer.
    pub(crate) fn succeeds(&mut self) {
        self.ends(OperationEnd::Good);
    }

    /// The tool has failed, which is its answer.
    pub(crate) fn tool_fails(&mut self) {
        self.ends(OperationEnd::Bad("tool_error".into()));
    }

    /// It is answered with this error of JSON-RPC.
    pub(crate) fn is_refused(&mut self, code: i32) {
        if let Some(running) = &mut self.0 {
            let attribute: SpanAttribute = (names::STATUS_CODE, code.to_string().into());
            running.span.set(attribute.clone());
            running.attributes.push(attribute);
        }
        self.ends(OperationEnd::Bad(code.to_string().into()));
    }

    /// It has no answer, for a reason of this kind.
    pub(crate) fn fails(&mut self, kind: &'static str) {
        self.ends(OperationEnd::Bad(kind.into()));
    }

    fn ends(&mut self, end: OperationEnd) {
        if let Some(running) = &mut self.0 {
            running.end = end;
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else { return };
        let RunningOperation { span, instrument, begun, mut attributes, end } = *running;
        let error = match end {
            OperationEnd::Good => None,
            OperationEnd::Bad(kind) => Some(kind),
            OperationEnd::Open => Some("cancelled".into()),
        };
        if let Some(kind) = error {
            let attribute: SpanAttribute = (names::ERROR_TYPE, kind.into_owned().into());
            span.set(attribute.clone());
            span.has_failed();
            attributes.push(attribute);
        }
        record(instrument, begun.elapsed().as_secs_f64(), &attributes);
    }
}

/// A connection of MCP, whose duration is recorded when this is dropped.
pub(crate) struct TracedConnection(Option<(MetricInstrument, Instant, RequestLink, Option<&'static str>)>);

impl TracedConnection {
    /// Of a client with us.
    pub(crate) fn of_client(link: &RequestLink) -> Self {
        Self(is_on().then(|| (MetricInstrument::ServerSession, Instant::now(), link.clone(), None)))
    }

    /// Of us with a server.
    pub(crate) fn with_server(link: &RequestLink) -> Self {
        Self(is_on().then(|| (MetricInstrument::ClientSession, Instant::now(), link.clone(), None)))
    }

    /// It ends by an error of this kind.
    pub(crate) fn fails(&mut self, kind: &'static str) {
        if let Some((_, _, _, error)) = &mut self.0 {
            *error = Some(kind);
        }
    }
}

impl Drop for TracedConnection {
    fn drop(&mut self) {
        let Some((instrument, begun, link, error)) = self.0.take() else { return };
        let mut attributes = link.attributes();
        attributes.extend(error.map(|kind| (names::ERROR_TYPE, kind.into())));
        record(instrument, begun.elapsed().as_secs_f64(), &attributes);
    }
}

impl Context {
    /// Writes the decision about the call on whose behalf work is done on its own span.
    pub(crate) fn describe(&self, call: &DecidedCall) {
        call.attributes().into_iter().for_each(|attribute| self.set(attribute));
    }
}
