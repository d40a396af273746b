//! Files → the servers in them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::adapt::{self, AdaptedEntry, EntrySetting};
use super::entry::{is_comment_entry, servers_in};
use super::placeholders::VscodeInputs;
use super::secrets::hide;
use super::{ConfigurationFile, KnownClient};
use super::{FileServers, LeftOutServers, OfferedServer, document, names, ourselves};
use crate::connections::mcp_client::{ServerReach, kind};
use crate::ground::files::small;
use crate::ground::text::{listed, one_line};

/// The largest file of a user that is read, in bytes: Claude Code keeps its history in the same file.
const LARGEST: u64 = 32 * 1024 * 1024;

/// Why no server of a file can be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableFile {
    /// It cannot be read.
    #[error("read `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("use `{}`: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        reason: String,
    },
    /// There are no servers in it.
    #[error(
        "find MCP servers in `{}`: {reason}\n\
         hint: servers are expected by name, as in `{{\"mcpServers\": {{\"github\": {{\"command\": \"npx\", \"args\": […]}}}}}}`",
        path.display()
    )]
    NoServers {
        /// The file.
        path: PathBuf,
        /// The content in its place.
        reason: String,
    },
}

impl UnreadableFile {
    /// Whether it is right for a client to have no such file, or no servers in it.
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Self::File { source, .. } => {
                matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
            Self::NoServers { .. } => true,
            Self::Content { .. } => false,
        }
    }
}

/// Reads configuration files.
pub(crate) struct ConfigurationReader<'a> {
    /// The workspace's real path.
    pub(crate) workspace: &'a Path,
    pub(crate) home: Option<&'a Path>,
    /// Says whether a command exists.
    pub(crate) has_program: &'a dyn Fn(&str) -> bool,
}

/// An entry as it is in the file.
type FileEntry = (String, Value);

impl ConfigurationReader<'_> {
    /// The servers in a file.
    ///
    /// # Errors
    /// There is none in it, or it cannot be read.
    pub(crate) fn read(&self, place: &ConfigurationFile) -> Result<FileServers, UnreadableFile> {
        let document = self.document(place)?;
        let mut contents = FileServers::default();
        let entries = self.entries(place, &document, &mut contents.left);
        let entries =
            entries.map_err(|reason| UnreadableFile::NoServers { path: place.path.clone(), reason })?;
        let inputs = VscodeInputs::of(&document);
        let setting = EntrySetting { place, workspace: self.workspace, home: self.home, inputs: &inputs };
        for (name, entry) in entries {
            match self.offered(&name, &entry, &setting) {
                Ok(offered) => contents.offered.push(offered),
                Err(why) => {
                    contents.left.push(LeftOutServers { name, place: place.clone(), why: hide(&why) })
                }
            }
        }
        Ok(contents)
    }

    fn document(&self, place: &ConfigurationFile) -> Result<Map<String, Value>, UnreadableFile> {
        let path = &place.path;
        let limit = if path.starts_with(self.workspace) { small::BY_HAND } else { LARGEST };
        let content = small::read_in(self.workspace, path, limit);
        let content = content.map_err(|source| UnreadableFile::File { path: path.clone(), source })?;
        let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let wrong = |reason: String| UnreadableFile::Content { path: path.clone(), reason };
        match document::parse(&content, is_toml).map_err(wrong)? {
            Value::Object(object) => Ok(object),
            other => Err(UnreadableFile::NoServers {
                path: path.clone(),
                reason: format!("it has {} instead of an object", kind(&other)),
            }),
        }
    }

    /// The entries of a document, by name; the error says what there is instead.
    fn entries(
        &self,
        place: &ConfigurationFile,
        document: &Map<String, Value>,
        left: &mut Vec<LeftOutServers>,
    ) -> Result<Vec<FileEntry>, String> {
        let Some(client) = place.client else {
            let found = servers_in(document);
            return match found {
                Some(entries) if entries.is_empty() => Err("it names none".to_owned()),
                Some(entries) => Ok(entries),
                None => Err(keys_of(document)),
            };
        };
        let mut entries = Vec::new();
        if client == KnownClient::ClaudeCode {
            entries.extend(self.local_entries(place, document, left)?);
        }
        match document.get(client.wrapper()) {
            Some(Value::Object(servers)) => entries.extend(servers.clone()),
            // As a setting of an editor, or a file that was written for another client.
            None if entries.is_empty() && client != KnownClient::Gemini => {
                entries.extend(servers_in(document).unwrap_or_default());
            }
            None => {}
            Some(Value::Array(_)) => entries.extend(servers_in(document).unwrap_or_default()),
            Some(other) => {
                return Err(format!("`{}` is {} instead of an object", client.wrapper(), kind(other)));
            }
        }
        entries.retain(|(name, entry)| !is_comment_entry(name, entry));
        if client == KnownClient::Gemini {
            refuse_excluded(place, document, &mut entries, left);
        }
        match (entries.is_empty() && left.is_empty(), document.contains_key(client.wrapper())) {
            (true, true) => Err(format!("`{}` names none", client.wrapper())),
            (true, false) => Err(keys_of(document)),
            (false, _) => Ok(entries),
        }
    }

    /// The servers that Claude Code has for this workspace alone, which win.
    fn local_entries(
        &self,
        place: &ConfigurationFile,
        document: &Map<String, Value>,
        left: &mut Vec<LeftOutServers>,
    ) -> Result<Vec<FileEntry>, String> {
        let Some(projects) = document.get("projects").and_then(Value::as_object) else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        let mut others = Vec::new();
        for (path, project) in projects {
            let Some(servers) = project["mcpServers"].as_object().filter(|servers| !servers.is_empty())
            else {
                continue;
            };
            let is_this = Path::new(path) == self.workspace
                || Path::new(path).canonicalize().is_ok_and(|path| path == self.workspace);
            if is_this {
                entries.extend(servers.clone())
            } else {
                others.extend(servers.keys().map(String::as_str))
            }
        }
        if !others.is_empty() {
            left.push(LeftOutServers {
                name: listed(others.iter().copied()).replace('`', ""),
                place: place.clone(),
                why: "configured for other projects: import there, by `--workspace`".to_owned(),
            });
        }
        Ok(entries)
    }

    fn offered(
        &self,
        name: &str,
        entry: &Value,
        setting: &EntrySetting<'_>,
    ) -> Result<OfferedServer, String> {
        let package = names::package(name)
            .ok_or("no letter or digit of its name can be in the name of a Python package")?;
        let entry = entry.as_object().ok_or_else(|| format!("it is {} instead of an object", kind(entry)))?;
        let AdaptedEntry { entry, file_variables, env_file, mut notes } = adapt::adapt(entry, setting)?;
        let adopted = super::adopt(name, &entry, self.has_program);
        let (mut parameters, more) = adopted.map_err(|error| one_line(&error.to_string()))?;
        if ourselves::is_ipybox(&package, &parameters) {
            return Err(ourselves::OURSELVES.to_owned());
        }
        if let ServerReach::Stdio(stdio) = &mut parameters.reach {
            for (name, value) in file_variables {
                if !value.contains('\0') {
                    stdio.env.entry(name).or_insert(value);
                }
            }
        }
        notes.extend(more);
        if package != name {
            notes.push(format!("`{}` is the package `{package}`.", one_line(name)));
        }
        let notes = notes.iter().map(|note| hide(note)).collect();
        let places = vec![setting.place.clone()];
        let read = env_file.into_iter().collect();
        Ok(OfferedServer { name: package, original: name.to_owned(), parameters, places, read, notes })
    }

    /// The servers of `.mcp.json` that the user has disabled in Claude Code.
    pub(crate) fn disabled_in_claude_code(&self, user_file: &Path) -> BTreeSet<String> {
        let settings = [".claude/settings.local.json", ".claude/settings.json"];
        let mut names = BTreeSet::new();
        let place = |path: PathBuf| ConfigurationFile { client: Some(KnownClient::ClaudeCode), path };
        for file in settings {
            if let Ok(document) = self.document(&place(self.workspace.join(file))) {
                names.extend(texts(&document, "disabledMcpjsonServers"));
            }
        }
        if let Ok(document) = self.document(&place(user_file.to_owned()))
            && let Some(projects) = document.get("projects").and_then(Value::as_object)
            && let Some(project) = projects.get(&*self.workspace.to_string_lossy()).and_then(Value::as_object)
        {
            names.extend(texts(project, "disabledMcpjsonServers"));
            names.extend(texts(project, "disabledMcpServers"));
        }
        names
    }
}

/// Gemini CLI says in `mcp` which servers it uses.
fn refuse_excluded(
    place: &ConfigurationFile,
    document: &Map<String, Value>,
    entries: &mut Vec<FileEntry>,
    left: &mut Vec<LeftOutServers>,
) {
    let Some(settings) = document.get("mcp").and_then(Value::as_object) else { return };
    let excluded = texts(settings, "excluded");
    let allowed = texts(settings, "allowed");
    entries.retain(|(name, _)| {
        let is_used = !excluded.contains(name) && (allowed.is_empty() || allowed.contains(name));
        if !is_used {
            let why = "it is disabled there".to_owned();
            left.push(LeftOutServers { name: name.clone(), place: place.clone(), why });
        }
        is_used
    });
}

/// The texts in a list.
fn texts(object: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = object.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn keys_of(document: &Map<String, Value>) -> String {
    if document.is_empty() {
        "it is an empty object".to_owned()
    } else {
        format!("it has {}", one_line(&listed(document.keys().map(String::as_str))))
    }
}
