//! The lists of a server, all pages of them: tools, resources, templates of resources, and prompts.

use std::collections::HashSet;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListPromptsResult, ListResourceTemplatesRequest,
    ListResourceTemplatesResult, ListResourcesRequest, ListResourcesResult, ListToolsRequest,
    ListToolsResult, PaginatedRequestParams, Prompt, Resource, ResourceTemplate, ServerResult, Tool,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::{CallError, Connection, ReceivedResult};
use crate::connections::mcp_client::failure::{Error, LastWords};
use crate::connections::mcp_client::messages::ResultKind;
use crate::connections::mcp_client::requests::{ExpectedAnswer, McpFailure, request};
use crate::connections::mcp_client::results::ToolOutput;
use crate::ground::budget::{ANSWERS, Lease, apart};

/// The time that all pages of a list may take together.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for a list that a registration can do without.
const OPTIONAL_LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// More pages than any honest list has.
const LIST_PAGES: usize = 1_000;
/// The memory that all pages may take together, in bytes. The longest lists have some hundred kilobytes of text.
const LIST_BYTES: usize = 32 * 1024 * 1024;
/// The code of JSON-RPC for a method that does not exist.
const METHOD_NOT_FOUND: i32 = -32601;

/// A list that code can ask a server for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListKind {
    Resources,
    ResourceTemplates,
    Prompts,
}

impl ListKind {
    /// The method of MCP.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Resources => ListResourcesResult::METHOD,
            Self::ResourceTemplates => ListResourceTemplatesResult::METHOD,
            Self::Prompts => ListPromptsResult::METHOD,
        }
    }
}

/// A page of a list.
trait ListPage: ExpectedAnswer {
    type Item: Send + 'static;

    const METHOD: &'static str;

    /// The name of the items.
    const ITEMS: &'static str;

    fn request(cursor: Option<PaginatedRequestParams>) -> ClientRequest;

    /// The items, and the cursor of the next page.
    fn into_items(self) -> (Vec<Self::Item>, Option<String>);

    /// The part of an item that no other item has.
    fn key(item: &Self::Item) -> &str;

    /// Removes what code has no use for: icons may be whole pictures.
    fn slim(item: &mut Self::Item);
}

macro_rules! page {
    ($result:ident, $request:ident, $kind:ident, $field:ident: $item:ty, $key:ident, $method:literal, $items:literal) => {
        impl ExpectedAnswer for $result {
            type Large = Self;

            const KIND: ResultKind = ResultKind::$kind;

            fn from_result(result: ServerResult) -> Option<Self> {
                match result {
                    ServerResult::$result(result) => Some(result),
                    _ => None,
                }
            }
        }

        impl ListPage for $result {
            type Item = $item;

            const METHOD: &'static str = $method;

            const ITEMS: &'static str = $items;

            fn request(params: Option<PaginatedRequestParams>) -> ClientRequest {
                ClientRequest::$request($request { params, ..$request::default() })
            }

            fn into_items(self) -> (Vec<Self::Item>, Option<String>) {
                (self.$field, self.next_cursor)
            }

            fn key(item: &$item) -> &str {
                &item.$key
            }

            fn slim(item: &mut $item) {
                (item.icons, item.meta) = (None, None);
            }
        }
    };
}

page!(ListToolsResult, ListToolsRequest, Tools, tools: rmcp::model::Tool, name, "tools/list", "tools");
page!(
    ListResourcesResult, ListResourcesRequest, Resources,
    resources: Resource, uri, "resources/list", "resources"
);
page!(
    ListResourceTemplatesResult, ListResourceTemplatesRequest, ResourceTemplates,
    resource_templates: ResourceTemplate, uri_template, "resources/templates/list", "resource templates"
);
page!(ListPromptsResult, ListPromptsRequest, Prompts, prompts: Prompt, name, "prompts/list", "prompts");

/// All pages of a list, their weight and their memory lease.
struct List<T> {
    items: Vec<T>,
    weight: usize,
    lease: Lease,
}

/// Why a list could not be read.
enum ListFailure {
    Request(McpFailure),
    Endless,
    Large,
    Silent { after: Duration },
}

impl Connection {
    /// The server's tools.
    ///
    /// # Errors
    /// [`Error`] when the server is gone, does not answer in time, or answers with an error.
    pub(crate) async fn list_tools(&self) -> Result<Vec<Tool>, Error> {
        self.list::<ListToolsResult>(LIST_TIMEOUT).await
    }

    /// The templates of the server's resources.
    ///
    /// # Errors
    /// As [`list_tools`](Self::list_tools).
    pub(crate) async fn list_resource_templates(&self) -> Result<Vec<ResourceTemplate>, Error> {
        self.list::<ListResourceTemplatesResult>(OPTIONAL_LIST_TIMEOUT).await
    }

    /// The server's prompts.
    ///
    /// # Errors
    /// As [`list_tools`](Self::list_tools).
    pub(crate) async fn list_prompts(&self) -> Result<Vec<Prompt>, Error> {
        self.list::<ListPromptsResult>(OPTIONAL_LIST_TIMEOUT).await
    }

    /// Whether the server has any resource now, by the first page of the list. In doubt it has.
    pub(crate) async fn has_any_resource(&self) -> bool {
        let first = request::<ListResourcesResult>(
            &self.peer,
            &self.client.traced,
            ListResourcesResult::request(None),
        );
        match timeout(OPTIONAL_LIST_TIMEOUT, first).await {
            Ok(Ok(page)) => !page.answer.resources.is_empty() || page.answer.next_cursor.is_some(),
            Ok(Err(McpFailure::Answered { code: METHOD_NOT_FOUND, .. })) => false,
            _ => true,
        }
    }

    /// All items. A server that knows no such list has none: many have resources, and no templates.
    async fn list<P: ListPage>(&self, limit: Duration) -> Result<Vec<P::Item>, Error> {
        match self.pages::<P>(limit).await {
            Ok(listed) => Ok(listed.items),
            Err(ListFailure::Request(McpFailure::Answered { code: METHOD_NOT_FOUND, .. })) => Ok(Vec::new()),
            Err(failure) => Err(self.list_error::<P>(failure).await),
        }
    }

    /// A list for code, as a structured result. Dropping the future cancels the request at the server.
    ///
    /// # Errors
    /// [`CallError`] when the server refuses the request, does not answer in time, or is gone.
    pub(crate) async fn list_for_code(&self, kind: ListKind) -> Result<ReceivedResult, CallError> {
        self.check_alive().await?;
        match kind {
            ListKind::Resources => self.received::<ListResourcesResult>().await,
            ListKind::ResourceTemplates => self.received::<ListResourceTemplatesResult>().await,
            ListKind::Prompts => self.received::<ListPromptsResult>().await,
        }
    }

    async fn received<P: ListPage>(&self) -> Result<ReceivedResult, CallError>
    where
        P::Item: Serialize,
    {
        let List { items, weight, lease } = match self.pages::<P>(LIST_TIMEOUT).await {
            Ok(listed) => listed,
            Err(ListFailure::Request(failure)) => return Err(self.judge(failure).await),
            Err(failure) => {
                let reason = self.list_error::<P>(failure).await.to_string();
                return Err(CallError::Unusable { reason });
            }
        };
        let values = move || {
            let values = items.into_iter().map(|mut item| {
                P::slim(&mut item);
                serde_json::to_value(item)
            });
            values.collect::<Result<Vec<Value>, _>>()
        };
        let unusable = |reason: String| CallError::Unusable { reason };
        let values = apart(weight, values).await.map_err(|error| unusable(error.to_string()))?;
        let values = values.map_err(|error| unusable(error.to_string()))?;
        let output = ToolOutput { structured: Some(Value::Array(values)), content: Vec::new() };
        Ok(ReceivedResult { output, weight, lease })
    }

    async fn pages<P: ListPage>(&self, limit: Duration) -> Result<List<P::Item>, ListFailure> {
        let pages = timeout(limit, self.all_pages::<P>()).await;
        pages.unwrap_or(Err(ListFailure::Silent { after: limit }))
    }

    async fn all_pages<P: ListPage>(&self) -> Result<List<P::Item>, ListFailure> {
        let mut all = List { items: Vec::new(), weight: 0, lease: ANSWERS.lease() };
        let mut cursor: Option<String> = None;
        let mut cursors = HashSet::new();
        let mut keys = HashSet::new();
        for _ in 0..LIST_PAGES {
            let asked = cursor.clone();
            let params = asked.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let page = request::<P>(&self.peer, &self.client.traced, P::request(params)).await;
            let page = page.map_err(ListFailure::Request)?;
            all.weight += page.weight;
            if all.weight > LIST_BYTES {
                return Err(ListFailure::Large);
            }
            all.lease.join(page.lease);
            let (items, next) = page.answer.into_items();
            // Items that are all known: the page was read before, under another cursor.
            let count = items.len();
            let known = all.items.len();
            all.items.extend(items.into_iter().filter(|item| keys.insert(P::key(item).to_owned())));
            let is_known = count > 0 && all.items.len() == known;
            let Some(next) = next else { return Ok(all) };
            let repeats = !cursors.insert(next.clone());
            if is_known || repeats {
                // An empty cursor is one like others, but servers that give one mean that there are no more pages.
                if !next.is_empty() {
                    tracing::warn!(
                        server = self.client.name.as_ref(),
                        list = P::METHOD,
                        "the cursor of an MCP server does not advance; its list is used as far as it was read"
                    );
                }
                return Ok(all);
            }
            cursor = Some(next);
        }
        Err(ListFailure::Endless)
    }

    async fn list_error<P: ListPage>(&self, failure: ListFailure) -> Error {
        let method = P::METHOD;
        let items = P::ITEMS;
        let failure = match failure {
            ListFailure::Request(failure) => failure,
            ListFailure::Endless => return Error::EndlessList { items, pages: LIST_PAGES },
            ListFailure::Large => return Error::LargeList { items, limit_bytes: LIST_BYTES },
            ListFailure::Silent { after } => {
                return Error::Silent { method, after, last_words: LastWords::default() };
            }
        };
        match self.judge(failure).await {
            CallError::Protocol { code, message } => Error::Refused { method, code, message },
            CallError::Disconnected { reason: None, last_words, .. } => Error::Ended { method, last_words },
            CallError::Disconnected { reason: Some(reason), last_words, .. } => {
                Error::Unusable { method, reason, last_words }
            }
            CallError::Refused(refusal) => Error::Unauthorized { refusal },
            CallError::Tool(reason) | CallError::Unusable { reason } => {
                Error::Unusable { method, reason, last_words: LastWords::default() }
            }
        }
    }
}
