//! The servers that the host has registered with a standalone tool server.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use parking_lot::Mutex;
use serde_json::Value;

use crate::connections::mcp_client::ServerParameters;
use crate::tools::servers::{RegisteredServer, SearchQuery, ServerLookup};

/// The registered servers of a standalone tool server, in memory.
#[derive(Default)]
pub(super) struct AnnouncedServers(Mutex<BTreeMap<String, RegisteredServer>>);

impl AnnouncedServers {
    /// Registers `name` with these parameters. Returns whether it replaced other ones.
    pub(super) fn put(&self, name: &str, parameters: ServerParameters) -> bool {
        // Its tools are not listed before a call, so their annotations are not known.
        let server = RegisteredServer {
            parameters,
            annotations: BTreeMap::new(),
            for_apps: BTreeSet::new(),
            definitions: BTreeMap::new(),
        };
        let before = self.0.lock().insert(name.to_owned(), server.clone());
        before.is_some_and(|before| before != server)
    }

    /// Removes `name`. Returns whether it was registered.
    pub(super) fn remove(&self, name: &str) -> bool {
        self.0.lock().remove(name).is_some()
    }

    pub(super) fn all(&self) -> BTreeMap<String, RegisteredServer> {
        self.0.lock().clone()
    }
}

impl ServerLookup for AnnouncedServers {
    fn find(&self, name: &str) -> io::Result<Option<RegisteredServer>> {
        Ok(self.0.lock().get(name).cloned())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().keys().cloned().collect())
    }

    fn how_to_register(&self) -> &'static str {
        "its host registers it with `PUT /servers/{name}`"
    }

    fn search(&self, _query: &SearchQuery) -> Result<String, String> {
        Err("search tools: this tool server does not keep the tools of its servers\n\
             hint: the packages in `mcptools/` list theirs: `print(mcptools.<server_name>)`"
            .to_owned())
    }

    fn infer_result(&self, server: &str, _module: &str, _results: &[Value]) -> Result<String, String> {
        Err(format!(
            "infer a result type: this tool server does not keep the package `{server}`\n\
             hint: generate it again by `ipybox apigen --infer`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::approval::Target;

    fn parameters(value: Value) -> ServerParameters {
        let Value::Object(object) = value else { panic!("an object") };
        crate::tools::servers::read("a", &object, &|_| false).unwrap().0
    }

    #[test]
    fn a_change_is_distinguished_from_a_repetition() {
        let servers = AnnouncedServers::default();
        assert!(!servers.put("a", parameters(json!({"command": "x"}))));
        assert!(!servers.put("a", parameters(json!({"command": "x", "args": []}))));
        assert!(servers.put("a", parameters(json!({"url": "http://x/mcp"}))));
        assert!(matches!(servers.find("a").unwrap().unwrap().target(), Target::Url(_)));
        assert!(servers.remove("a") && !servers.remove("a"));
        assert!(servers.find("a").unwrap().is_none() && servers.all().is_empty());
    }

    #[test]
    fn a_search_says_why_it_finds_nothing() {
        let error = AnnouncedServers::default().search(&SearchQuery::new("x")).unwrap_err();
        assert!(error.contains("does not keep the tools") && error.contains("hint: "), "{error}");
    }
}
