//! `ipybox team`: a server for many users.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use ipybox::SessionLimits;
use ipybox::page;
use ipybox::telemetry::exporting;
use ipybox_team::login::{NewUser, TokenFile, configure_client};
use ipybox_team::{
    ApprovalPages, TeamAccount, TeamAdmin, TeamConfig, TeamServer, UserLimits, UserSystem, become_user,
};
use serde_json::{Value, json};

use super::team_actions::{self, PublishedCommand};
#[cfg(feature = "kubernetes")]
use super::team_sandboxes::open_claimer;
use super::values::lifetime;
use super::{multi_threaded, print, print_message, single_threaded};

const RESULT: &str = "write the result";

/// The flags of `ipybox team`.
#[derive(Debug, clap::Args)]
pub(crate) struct TeamArgs {
    #[command(subcommand)]
    action: TeamAction,

    /// The configuration of the server, in TOML
    #[arg(long, value_name = "FILE", default_value = "team.toml", global = true)]
    config: PathBuf,

    /// Print JSON, whose keys do not change
    #[arg(long, global = true)]
    json: bool,
}

/// The commands of `ipybox team`.
#[derive(Debug, Subcommand)]
enum TeamAction {
    /// Serve MCP by HTTP to users who log in, each with sessions of their own
    ///
    /// Ends on SIGTERM, SIGINT and SIGHUP; sessions go on, and their clients find them again.
    Serve,
    /// Make tokens for users where there is no identity provider
    #[command(subcommand)]
    User(UserAction),
    /// List the users who have come
    Users,
    /// List the sessions of all users, or of one
    Sessions {
        /// The user: a key that `ipybox team users` lists, or a name
        user: Option<String>,
    },
    /// End sessions of a user
    End {
        /// The user: a key that `ipybox team users` lists, or a name
        user: String,
        /// The ids of sessions [default: all that no client has]
        ids: Vec<String>,
    },
    /// Show what each user takes: sessions, memory
    Usage,
    /// Print the audit logs of all users, or of one, as events of OCSF, one a line
    ///
    /// Fails if a chain is broken, which is named: events after the break are not printed.
    Audit {
        /// The user: a key that `ipybox team users` lists, or a name
        user: Option<String>,
        /// Print only what happened then or later: a time as in the log, or how long ago (90s, 30m, 2h, 7d)
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
    },
    /// Look at the actions that users have published, and remove them
    #[command(subcommand)]
    Actions(PublishedCommand),
    /// Become a program in the name of a user, inside of control groups
    #[command(hide = true)]
    Become {
        /// The directory of a control group; may be given several times
        #[arg(long, value_name = "DIR")]
        group: Vec<PathBuf>,
        /// The system's id of the user
        #[arg(long)]
        id: Option<u32>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// The commands for tokens.
#[derive(Debug, Subcommand)]
enum UserAction {
    /// Make a token for a user, and print it: nothing else has it
    Add {
        /// The name: letters, digits and `._@+-`
        name: String,
        /// A group of the user; may be given several times
        #[arg(long, value_name = "GROUP")]
        group: Vec<String>,
        /// The time for which the token is valid, as 90d or 12h [default: for ever]
        #[arg(long, value_name = "DURATION", value_parser = lifetime)]
        expires: Option<Duration>,
    },
    /// List the users with tokens
    List,
    /// Take the token of a user away
    Remove {
        /// The name
        name: String,
    },
}

/// Serves a team, or does something for its operator.
pub(crate) fn run(args: TeamArgs) -> anyhow::Result<ExitCode> {
    if let TeamAction::Become { group, id, command } = &args.action {
        let error = become_user(group, *id, command);
        return Err(error).context("become the program of a user");
    }
    let config = TeamConfig::read(&args.config)?;
    match args.action {
        TeamAction::Become { .. } => unreachable!("it needs no configuration"),
        TeamAction::Serve => serve(config)?,
        TeamAction::User(action) => user(&config, action, args.json)?,
        TeamAction::Users => {
            let users = admin(&config)?.users()?;
            let text = if args.json { lines(&serde_json::to_value(&users)?)? } else { table(&users) };
            print(&text, RESULT)?;
        }
        TeamAction::Sessions { user } => {
            let admin = admin(&config)?;
            let users = match user {
                Some(name) => vec![admin.user(&name)?],
                None => admin.users()?,
            };
            let found = single_threaded()?.block_on(sessions(&admin, &users))?;
            let text = if args.json { lines(&Value::Array(found))? } else { session_table(&found) };
            print(&text, RESULT)?;
        }
        TeamAction::End { user, ids } => {
            let admin = admin(&config)?;
            let user = admin.user(&user)?;
            let ended = single_threaded()?.block_on(admin.end(&user, &ids))?;
            if args.json {
                print(&lines(&Value::Array(ended))?, RESULT)?;
            } else {
                print_message(&format!("{} sessions of `{}` have ended", ended.len(), user.name));
            }
        }
        TeamAction::Actions(command) => team_actions::run(&admin(&config)?, command, args.json)?,
        TeamAction::Audit { user, since } => {
            let admin = admin(&config)?;
            let users = match user {
                Some(name) => vec![admin.user(&name)?],
                None => admin.users()?,
            };
            return single_threaded()?.block_on(audit(&admin, &users, since));
        }
        TeamAction::Usage => {
            let admin = admin(&config)?;
            let users = admin.users()?;
            let found = single_threaded()?.block_on(sessions(&admin, &users))?;
            let usage = usage(&users, &found);
            let text = if args.json { lines(&Value::Array(usage))? } else { usage_table(&usage) };
            print(&text, RESULT)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(config: TeamConfig) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find the program")?;
    let client = ipybox::http_client(configure_client).map_err(anyhow::Error::msg)?;
    let runtime = multi_threaded()?;
    let resource = config.login.resource.to_string();
    let pages = ApprovalPages::new(page::hosted_parts, page::hosted_guarded, page::hosted_person);
    let serving = async {
        let check = team_actions::check;
        let server = TeamServer::open(config, program, client, SYSTEM, pages, check, open_claimer).await?;
        let address = server.address()?;
        print_message(&format!("serving {resource} on {address}"));
        server.serve().await
    };
    let served = runtime.block_on(exporting(Box::pin(serving)));
    runtime.shutdown_background();
    Ok(served?)
}

/// Tries everything that the server with this configuration needs. Exits with success if it could serve.
pub(super) fn examine(file: &Path) -> anyhow::Result<ExitCode> {
    let config = TeamConfig::read(file)?;
    let program = std::env::current_exe().context("find the program")?;
    let client = ipybox::http_client(configure_client).map_err(anyhow::Error::msg)?;
    let findings = single_threaded()?.block_on(config.check(program, client, SYSTEM, open_claimer));
    let mut text = String::new();
    for finding in &findings {
        match &finding.problem {
            None => text.push_str(&format!("  ok      {}\n", finding.name)),
            Some(problem) => text.push_str(&format!("  FAILED  {}: {problem}\n", finding.name)),
        }
    }
    print(&text, RESULT)?;
    let is_well = findings.iter().all(|finding| finding.problem.is_none());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The help of this program for users on the machine.
const SYSTEM: UserSystem = UserSystem {
    make_groups: groups,
    remove_groups: |key| ipybox::remove_user_group(&group_name(key)),
    remove_tree: ipybox::lasting::remove_directory,
};

/// There is no client of a cluster in this program.
#[cfg(not(feature = "kubernetes"))]
fn open_claimer(
    _: ipybox_team::ClaimerSettings,
) -> Result<std::sync::Arc<dyn ipybox_team::SandboxClaimer>, String> {
    Err("this program is built without the feature `kubernetes`".to_owned())
}

fn group_name(key: &str) -> String {
    format!("ipybox-team-{key}")
}

/// The control groups of a user.
fn groups(key: &str, owner: Option<u32>, limits: &UserLimits) -> Result<Vec<PathBuf>, String> {
    let mut held = SessionLimits::default();
    held.memory = limits.memory;
    held.cpu = limits.cpu;
    held.processes = limits.processes;
    ipybox::user_group(&group_name(key), held, owner)
}

fn admin(config: &TeamConfig) -> anyhow::Result<TeamAdmin> {
    let program = std::env::current_exe().context("find the program")?;
    Ok(TeamAdmin::open(config, program)?)
}

fn user(config: &TeamConfig, action: UserAction, as_json: bool) -> anyhow::Result<()> {
    let path = config.login.tokens_file.clone().context(
        "find the file of tokens: the configuration has none\nhint: name one, as `tokens_file = \"tokens.json\"` in `[login]`",
    )?;
    let tokens = TokenFile::new(path);
    match action {
        UserAction::Add { name, group, expires } => {
            let token =
                tokens.add(NewUser { name, groups: group.into_iter().collect(), lifetime: expires })?;
            let text = token.reveal();
            print(&if as_json { lines(&json!({"token": text}))? } else { format!("{text}\n") }, RESULT)
        }
        UserAction::List => {
            let users = tokens.list()?;
            let users = users.iter().map(|user| {
                json!({
                    "name": user.name,
                    "groups": user.groups,
                    "created_secs": user.created_secs,
                    "expires_secs": user.expires_secs,
                    "is_expired": user.is_expired(),
                })
            });
            let users: Vec<Value> = users.collect();
            let text = if as_json {
                lines(&Value::Array(users))?
            } else {
                let line = |user: &Value| {
                    let end = if user["is_expired"] == true { "  expired" } else { "" };
                    format!("{}{end}\n", user["name"].as_str().unwrap_or_default())
                };
                users.iter().map(line).collect()
            };
            print(&text, RESULT)
        }
        UserAction::Remove { name } => {
            tokens.remove(&name)?;
            print_message(&format!("`{name}` has no token any more"));
            Ok(())
        }
    }
}

/// The sessions of users, each with its user.
async fn sessions(admin: &TeamAdmin, users: &[TeamAccount]) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for user in users {
        for mut session in admin.sessions(user).await? {
            session["user"] = json!(user.key);
            session["name"] = json!(user.name);
            found.push(session);
        }
    }
    Ok(found)
}

async fn audit(admin: &TeamAdmin, users: &[TeamAccount], since: Option<String>) -> anyhow::Result<ExitCode> {
    let flags: Vec<String> = since.map(|since| vec!["--since".to_owned(), since]).unwrap_or_default();
    let mut is_whole = true;
    for user in users {
        is_whole &= admin.audit(user, &flags).await?;
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn usage(users: &[TeamAccount], sessions: &[Value]) -> Vec<Value> {
    let of = |user: &TeamAccount| {
        let own = sessions.iter().filter(|session| session["user"] == user.key.as_str());
        let memory: u64 = own.clone().filter_map(|session| session["memory_bytes"].as_u64()).sum();
        json!({"user": user.key, "name": user.name, "sessions": own.count(), "memory_bytes": memory})
    };
    users.iter().map(of).collect()
}

fn lines(value: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("write JSON")? + "\n")
}

fn table(users: &[TeamAccount]) -> String {
    let mut text = format!("{:<22}{:<24}{:<12}{}\n", "KEY", "NAME", "ID", "ISSUER");
    for user in users {
        let id = user.id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        text.push_str(&format!("{:<22}{:<24}{id:<12}{}\n", user.key, user.name, user.issuer));
    }
    text
}

fn session_table(sessions: &[Value]) -> String {
    let mut text = format!("{:<22}{:<24}{:<10}{:<10}{}\n", "USER", "NAME", "ID", "MEMORY", "CLIENT");
    for session in sessions {
        let word = |key: &str| session[key].as_str().unwrap_or_default();
        let client = if session["is_attended"] == true { "yes" } else { "no" };
        let memory = megabytes(&session["memory_bytes"]);
        text.push_str(&format!(
            "{:<22}{:<24}{:<10}{memory:<10}{client}\n",
            word("user"),
            word("name"),
            word("id")
        ));
    }
    text
}

fn usage_table(usage: &[Value]) -> String {
    let mut text = format!("{:<22}{:<24}{:<10}{}\n", "USER", "NAME", "SESSIONS", "MEMORY");
    for user in usage {
        let word = |key: &str| user[key].as_str().unwrap_or_default();
        let memory = megabytes(&user["memory_bytes"]);
        text.push_str(&format!("{:<22}{:<24}{:<10}{memory}\n", word("user"), word("name"), user["sessions"]));
    }
    text
}

fn megabytes(bytes: &Value) -> String {
    bytes.as_u64().map_or_else(|| "-".to_owned(), |bytes| format!("{} MB", bytes / 1_000_000))
}
