//! The state of the MCP server.

use std::sync::Arc;

use super::answer_news::OnceNews;
use super::asking::AskingTurns;
use super::attached::AttachedPeople;
use super::ledger::CallLedger;
use super::resources::ResourceShelf;
use super::sessions::ClientSessions;
use super::skills::ServerSkills;
use crate::config::{Config, Images, ResourceLinks};
use crate::ground::telemetry::RequestLink;
use crate::session::Session;

/// The MCP server's state, shared by its tools and by the clients that come one after the other.
pub(crate) struct McpServer {
    pub(super) sessions: ClientSessions,
    /// The people at prompts of `ipybox attach`.
    pub(super) attached: Arc<AttachedPeople>,
    /// The calls of clients, and the answers that may not have reached them.
    pub(super) ledger: Arc<CallLedger>,
    pub(super) asking_turns: AskingTurns,
    /// The news at the beginning of the next answers.
    pub(super) news: OnceNews,
    /// The form of images in a cell's reply.
    pub(super) images: Images,
    /// The clients that get links to resources.
    pub(super) resource_links: ResourceLinks,
    /// The resources that answers have named.
    pub(super) shelf: ResourceShelf,
    /// The skills for every client.
    pub(super) skills: ServerSkills,
    /// Whether code gets no more than the commands of the client.
    pub(super) obeys_client: bool,
    /// Whether requests can stop waiting for their cells.
    pub(super) has_long_cells: bool,
    /// Whether clients that can show views get them.
    pub(super) has_views: bool,
    /// The connections with clients, for spans.
    pub(super) link: RequestLink,
}

impl McpServer {
    pub(super) fn new(session: Arc<Session>, config: &Config) -> Self {
        Self {
            attached: Arc::new(AttachedPeople::new(Arc::clone(session.audience()), config.approval.timeout)),
            sessions: ClientSessions::new(session, config),
            ledger: Arc::default(),
            asking_turns: AskingTurns::default(),
            news: OnceNews::default(),
            images: config.images,
            resource_links: config.resource_links,
            shelf: ResourceShelf::default(),
            skills: ServerSkills::new(config),
            obeys_client: config.obeys_client,
            has_long_cells: config.has_long_cells,
            has_views: config.has_views,
            link: RequestLink::to_client(),
        }
    }

    /// The client's own session.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.sessions.own().session
    }
}
