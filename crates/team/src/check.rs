//! Tries everything that a server needs, without serving: for `ipybox doctor --team`.

use std::path::PathBuf;

use serde::Serialize;

use crate::config::TeamConfig;
use crate::describe;
use crate::front::tls_problem;
use crate::hub::TeamHub;
use crate::login::UserAuthenticator;
use crate::sandboxes::{OpenClaimer, TeamSandboxes};
use crate::upstream::UpstreamServers;
use crate::users::{SessionStarter, UserAccounts, UserSystem};

/// The result of trying one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TeamFinding {
    /// The thing.
    pub name: String,
    /// The reason why it does not work; `None` if it does.
    pub problem: Option<String>,
}

impl TeamFinding {
    fn new(name: impl Into<String>, result: Result<(), String>) -> Self {
        Self { name: name.into(), problem: result.err() }
    }
}

impl TeamConfig {
    /// Tries what the server would need: files of TLS, places for users, control groups, a sandbox or the place of kernels, and identity providers.
    ///
    /// The arguments are those of [`TeamServer::open`](crate::TeamServer::open). Makes the directory of the state.
    pub async fn check(
        &self,
        program: PathBuf,
        client: reqwest::Client,
        system: UserSystem,
        open_claimer: OpenClaimer,
    ) -> Vec<TeamFinding> {
        let mut findings = Vec::new();
        if let Some(files) = &self.server.tls {
            findings.push(TeamFinding::new("server.tls", tls_problem(files).map_or(Ok(()), Err)));
        }
        let mut has_ids = false;
        match UserAccounts::open(&self.server.state_dir, &self.users, system) {
            Err(error) => findings.push(TeamFinding::new("server.state_dir", Err(describe(&error)))),
            Ok(accounts) => {
                has_ids = accounts.has_ids();
                findings.push(TeamFinding::new("server.state_dir", Ok(())));
                // With control groups, if they are needed.
                match accounts.probe() {
                    Err(error) => findings.push(TeamFinding::new("users", Err(describe(&error)))),
                    Ok(_) if !self.kernels.is_local() => {}
                    Ok(place) => {
                        let starter =
                            SessionStarter::new(program, self.sessions.clone(), self.packages.clone());
                        findings.push(TeamFinding::new("sandbox", starter.check(&place).await));
                    }
                }
            }
        }
        findings.extend(self.check_hub(client.clone()).await);
        findings.extend(self.check_sandboxes(open_claimer, has_ids).await);
        match UpstreamServers::open(&self.upstream, &self.login, client.clone(), |name| {
            std::env::var(name).ok()
        }) {
            Err(error) => findings.push(TeamFinding::new("upstream", Err(describe(&error)))),
            Ok(upstream) => {
                for (name, result) in checks_of(upstream).await {
                    findings.push(TeamFinding::new(format!("upstream {name}"), result));
                }
            }
        }
        match UserAuthenticator::new(self.login.clone(), client, |name| std::env::var(name).ok()) {
            Err(error) => findings.push(TeamFinding::new("login", Err(describe(&error)))),
            Ok(authenticator) => {
                for check in authenticator.check().await {
                    let result = check.result.map_err(|error| describe(&error));
                    findings.push(TeamFinding::new(format!("login.issuer {}", check.issuer), result));
                }
                findings.push(TeamFinding::new("login", Ok(())));
            }
        }
        findings
    }

    async fn check_hub(&self, client: reqwest::Client) -> Option<TeamFinding> {
        let Self { kernels, login, server, .. } = self;
        let secret = |name: &str| std::env::var(name).ok();
        let hub = TeamHub::open(kernels, &login.resource, &server.state_dir, client, secret);
        let result = match hub {
            Ok(None) => return None,
            Ok(Some(hub)) => hub.check().await,
            Err(error) => Err(describe(&error)),
        };
        Some(TeamFinding::new("kernels", result))
    }

    async fn check_sandboxes(&self, open_claimer: OpenClaimer, has_ids: bool) -> Option<TeamFinding> {
        let Self { kernels, login, users, .. } = self;
        let opened = TeamSandboxes::open(kernels, users.max_sessions, &login.resource, open_claimer);
        let result = match opened {
            Ok(None) => return None,
            Ok(Some(sandboxes)) => match sandboxes.prepare(has_ids).await {
                Ok(()) => sandboxes.check().await,
                Err(error) => Err(describe(&error)),
            },
            Err(error) => Err(describe(&error)),
        };
        Some(TeamFinding::new("kernels", result))
    }
}

async fn checks_of(upstream: Option<UpstreamServers>) -> Vec<(String, Result<(), String>)> {
    match upstream {
        Some(upstream) => upstream.check().await,
        None => Vec::new(),
    }
}
