//! Actions that a team has published: `<name>/<version>.json` in a directory of its server, each file with all that a call needs.
//!
//! The server writes what an approver has seen; whoever reads it checks it again.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::bundle::{ActionBundle, MOST_PARSERS, MOST_USED};
use super::draft::{JSON_BYTES, TEXT_BYTES};
use super::record::{
    ActionFiles, ActionTest, SOURCES, SavedAction, TEST, ToolDigests, check_name, digest, parser_path,
};
use super::store::{SOURCE_BYTES, directories};
use crate::ground::files::small;
use crate::ground::text::{one_line, rfc3339};

/// The largest publication, in bytes: an approver reads all of it.
const PUBLISHED_BYTES: usize = 448 * 1024;
/// The largest file with one, in bytes.
const FILE_BYTES: u64 = 1024 * 1024;
/// The number of hexadecimal digits of a digest.
const DIGEST_DIGITS: usize = 64;

/// An action as it is published. The recording that has tested it stays with its author: it has answers of tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishedAction {
    pub(crate) category: String,
    pub(crate) name: String,
    description: String,
    signature: String,
    is_async: bool,
    input_schema: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_schema: Option<Map<String, Value>>,
    example: Map<String, Value>,
    /// The digests of the tools that its test calls.
    servers: ToolDigests,
    /// The SHA-256 of its test.
    test: String,
    /// Its files, by name.
    files: BTreeMap<String, String>,
    /// The saved actions that its code imports, and those that they import.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    uses: Vec<PublishedUse>,
}

/// An action that a published one uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedUse {
    category: String,
    name: String,
    files: BTreeMap<String, String>,
}

/// Why something cannot be published.
#[derive(Debug, thiserror::Error)]
#[error("publish an action: {0}")]
pub(crate) struct UnusablePublication(String);

impl PublishedAction {
    /// A saved action, with all that it uses.
    pub(crate) fn of(action: &SavedAction, bundle: ActionBundle) -> Self {
        let uses = bundle.used.into_iter().map(|(used, files)| PublishedUse {
            category: used.category,
            name: used.name,
            files: files.into_iter().collect(),
        });
        Self {
            category: action.category.clone(),
            name: action.name.clone(),
            description: action.description.clone(),
            signature: action.signature.clone(),
            is_async: action.is_async,
            input_schema: action.input_schema.clone(),
            output_schema: action.output_schema.clone(),
            example: action.example.clone(),
            servers: action.servers.clone(),
            test: action.files.get(TEST).cloned().unwrap_or_default(),
            uses: uses.collect(),
            files: bundle.files.into_iter().collect(),
        }
    }

    /// The publication in the arguments of a question. Nothing in them is trusted.
    ///
    /// # Errors
    /// They are none, or something in them is too large or leads elsewhere.
    pub(crate) fn parse(arguments: &Map<String, Value>) -> Result<Self, UnusablePublication> {
        let parsed = serde_json::from_value::<Self>(Value::Object(arguments.clone()));
        let published = parsed.map_err(|error| UnusablePublication(one_line(&error.to_string())))?;
        published.check()?;
        Ok(published)
    }

    /// Itself, as the arguments of a question.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub(crate) fn arguments(&self) -> Result<Map<String, Value>, UnusablePublication> {
        self.check()?;
        match serde_json::to_value(self) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            _ => Err(UnusablePublication("it cannot be written as JSON".to_owned())),
        }
    }

    fn check(&self) -> Result<(), UnusablePublication> {
        let refused = |why: String| Err(UnusablePublication(why));
        let own = [(&self.category, &self.name, &self.files)];
        let parts =
            own.into_iter().chain(self.uses.iter().map(|used| (&used.category, &used.name, &used.files)));
        let mut names = Vec::new();
        for (category, name, files) in parts {
            let named = check_name(category).and_then(|()| check_name(name));
            named.map_err(|error| UnusablePublication(error.to_string()))?;
            if names.contains(&name) {
                return refused(format!("it has `{name}` twice"));
            }
            names.push(name);
            check_files(name, files)?;
        }
        let objects = [Some(&self.input_schema), self.output_schema.as_ref(), Some(&self.example)];
        if objects.into_iter().flatten().any(|object| json_bytes(object) > JSON_BYTES) {
            return refused(format!("its schemas or its example have more than {JSON_BYTES} bytes"));
        }
        if self.description.trim().is_empty() || self.description.len().max(self.signature.len()) > TEXT_BYTES
        {
            return refused(format!(
                "its docstring or signature is empty, or has more than {TEXT_BYTES} bytes"
            ));
        }
        let digests = self.servers.values().flat_map(BTreeMap::values);
        if !is_digest(&self.test) || !digests.clone().all(|digest| digest.len() <= DIGEST_DIGITS) {
            return refused("a digest in it is none".to_owned());
        }
        if self.uses.len() > MOST_USED || json_bytes(self) > PUBLISHED_BYTES {
            return refused(format!(
                "it has more than {PUBLISHED_BYTES} bytes, or uses more than {MOST_USED} others: nobody reads so much"
            ));
        }
        Ok(())
    }

    /// The action and its files, as a version that was published then.
    fn into_saved(self, version: u32, time: SystemTime) -> (SavedAction, ActionBundle) {
        let time = rfc3339(time);
        let used = self.uses.into_iter().map(|used| {
            let files: ActionFiles = used.files.into_iter().collect();
            let action = SavedAction {
                category: used.category,
                name: used.name,
                files: digests(&files),
                ..bare(version, &time)
            };
            (action, files)
        });
        let used = used.collect();
        let files: ActionFiles = self.files.into_iter().collect();
        let action = SavedAction {
            category: self.category.clone(),
            name: self.name.clone(),
            summary: one_line(self.description.trim().lines().next().unwrap_or_default()),
            description: self.description,
            signature: self.signature,
            is_async: self.is_async,
            input_schema: self.input_schema,
            output_schema: self.output_schema,
            example: self.example,
            servers: self.servers,
            files: digests(&files),
            ..bare(version, &time)
        };
        (action, ActionBundle { category: self.category, name: self.name, files, used })
    }
}

/// A record without an action.
fn bare(version: u32, time: &str) -> SavedAction {
    SavedAction {
        category: String::new(),
        name: String::new(),
        version,
        saved: time.to_owned(),
        summary: String::new(),
        description: String::new(),
        signature: String::new(),
        is_async: false,
        input_schema: Map::new(),
        output_schema: None,
        example: Map::new(),
        servers: ToolDigests::new(),
        uses: BTreeMap::new(),
        files: BTreeMap::new(),
        sandbox: None,
        test: ActionTest { passed: true, why: None, time: time.to_owned() },
    }
}

fn check_files(name: &str, files: &BTreeMap<String, String>) -> Result<(), UnusablePublication> {
    let is_known = |file: &&String| SOURCES.contains(&file.as_str()) || parser_path(file).is_some();
    let has_sources = SOURCES.iter().all(|source| files.contains_key(*source));
    if !has_sources || !files.keys().all(|file| is_known(&file)) || files.len() > SOURCES.len() + MOST_PARSERS
    {
        let why = format!("the files of `{name}` must be {} and parsers, and no others", SOURCES.join(", "));
        return Err(UnusablePublication(why));
    }
    match files.iter().find(|(_, text)| text.len() > SOURCE_BYTES) {
        Some((file, _)) => {
            Err(UnusablePublication(format!("`{file}` of `{name}` has more than {SOURCE_BYTES} bytes")))
        }
        None => Ok(()),
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == DIGEST_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}

fn digests(files: &ActionFiles) -> BTreeMap<String, String> {
    files.iter().map(|(name, text)| (name.clone(), digest(text.as_bytes()))).collect()
}

/// The part of a published version's file that a call needs.
#[derive(Deserialize)]
struct PublishedDocument {
    /// When it was decided about, in seconds since 1970.
    time: u64,
    action: Map<String, Value>,
}

/// The published actions in a directory. Its methods block.
#[derive(Debug, Clone)]
pub(crate) struct PublishedActions {
    directory: PathBuf,
}

impl PublishedActions {
    pub(crate) fn in_directory(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The newest versions of all, by name.
    ///
    /// # Errors
    /// A file cannot be read; the error names it.
    pub(crate) fn all(&self) -> io::Result<Vec<SavedAction>> {
        let mut actions = Vec::new();
        for name in directories(&self.directory)? {
            let mut newest = None;
            for entry in std::fs::read_dir(self.directory.join(&name))? {
                newest = newest.max(version_of(&entry?.path()));
            }
            if let Some(version) = newest {
                actions.push(self.read(&name, version)?.0);
            }
        }
        Ok(actions)
    }

    /// The files of a version, and of all that it uses.
    ///
    /// # Errors
    /// It is removed, or cannot be read.
    pub(crate) fn bundle(&self, action: &SavedAction) -> io::Result<ActionBundle> {
        Ok(self.read(&action.name, action.version)?.1)
    }

    fn read(&self, name: &str, version: u32) -> io::Result<(SavedAction, ActionBundle)> {
        let path = self.directory.join(name).join(format!("{version}.json"));
        let failed = |kind, why: &dyn Display| {
            io::Error::new(kind, format!("`{}` cannot be used: {why}", path.display()))
        };
        let text = small::read_text(&path, FILE_BYTES).map_err(|error| failed(error.kind(), &error))?;
        let damaged = |why: &dyn Display| failed(io::ErrorKind::InvalidData, why);
        let PublishedDocument { time, action } =
            serde_json::from_str(&text).map_err(|error| damaged(&error))?;
        let published = PublishedAction::parse(&action).map_err(|error| damaged(&error))?;
        if published.name != name {
            return Err(damaged(&"it has another name"));
        }
        Ok(published.into_saved(version, SystemTime::UNIX_EPOCH + Duration::from_secs(time)))
    }
}

/// The version that a file has, by its name.
fn version_of(path: &Path) -> Option<u32> {
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    path.file_stem()?.to_str()?.parse().ok().filter(|_| is_json)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(change: impl FnOnce(&mut Value)) -> Map<String, Value> {
        let files = json!({"__init__.py": "", "api.py": "", "impl.py": "1"});
        let mut arguments = json!({
            "category": "sums", "name": "total", "description": "Add.\n\nMore.", "signature": "() -> int", "is_async": false,
            "input_schema": {}, "output_schema": {"type": "integer"}, "example": {}, "servers": {"s": {"t": "0a"}},
            "test": "0".repeat(64), "files": files,
            "uses": [{"category": "c", "name": "half", "files": files}],
        });
        change(&mut arguments);
        let Value::Object(arguments) = arguments else { panic!("an object") };
        arguments
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), why: &str) {
        let error = PublishedAction::parse(&arguments(change)).unwrap_err().to_string();
        assert!(error.contains(why) && error.len() < 1000, "{error}");
    }

    #[test]
    fn what_a_session_sends_is_checked() {
        assert_eq!(PublishedAction::parse(&arguments(|_| ())).unwrap().name, "total");
        for name in ["..", "../x", "a/b", "", ".hidden", "import", "A"] {
            check(|sent| sent["name"] = json!(name), "as a package name");
            check(|sent| sent["category"] = json!(name), "as a package name");
            check(|sent| sent["uses"][0]["name"] = json!(name), "as a package name");
        }
        check(|sent| sent["name"] = json!("x".repeat(1_000_000)), "as a package name");
        check(|sent| sent["uses"][0]["name"] = json!("total"), "`total` twice");
        check(|sent| sent["files"]["../x.py"] = json!(""), "no others");
        check(|sent| sent["uses"][0]["files"]["mcpparse.a/b.c.py"] = json!(""), "no others");
        check(|sent| drop(sent["files"].as_object_mut().unwrap().remove("impl.py")), "no others");
        check(|sent| sent["files"]["impl.py"] = json!("x".repeat(SOURCE_BYTES + 1)), "more than");
        check(|sent| sent["example"]["x"] = json!("x".repeat(JSON_BYTES)), "schemas or its example");
        check(|sent| sent["description"] = json!(" "), "docstring");
        check(|sent| sent["test"] = json!("x".repeat(64)), "digest");
        check(|sent| sent["servers"]["s"]["t"] = json!("0".repeat(65)), "digest");
        check(|sent| sent["hidden"] = json!("code"), "unknown field `hidden`");
        let large = "x".repeat(SOURCE_BYTES);
        check(
            |sent| (sent["files"]["impl.py"], sent["files"]["api.py"]) = (json!(large), json!(large)),
            "nobody reads",
        );
    }

    #[test]
    fn the_newest_version_is_read_and_an_older_one_stays() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("total");
        std::fs::create_dir(&place).unwrap();
        for (version, code) in [(2, "two"), (10, "ten")] {
            let action = arguments(|sent| sent["files"]["impl.py"] = json!(code));
            let document = json!({"time": 5, "by": "fay", "action": action});
            std::fs::write(place.join(format!("{version}.json")), document.to_string()).unwrap();
        }
        std::fs::write(place.join(".11.json"), "half of it").unwrap();
        let published = PublishedActions::in_directory(root.path().to_owned());
        let [action] = &published.all().unwrap()[..] else { panic!("one action") };
        assert_eq!((action.version, action.summary.as_str()), (10, "Add."));
        assert_eq!(action.saved, "1970-01-01T00:00:05.000Z");
        let bundle = published.bundle(&SavedAction { version: 2, ..action.clone() }).unwrap();
        assert_eq!(bundle.files.last().unwrap().1, "two");
        assert_eq!(bundle.placed_files().len(), 6);
        std::fs::write(place.join("11.json"), "{}").unwrap();
        assert!(published.all().unwrap_err().to_string().contains("11.json"));
    }
}
