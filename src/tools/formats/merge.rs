//! The servers of several files, under names that do not clash. Pure.

use std::path::Path;

use serde_json::Value;

use super::{FileServers, LeftOutServers, OfferedServer, names};
use crate::connections::mcp_client::ServerParameters;

/// The number of servers that are taken. Nobody has as many; a stranger's file must not start or ask for any number.
const MOST_SERVERS: usize = 256;

/// The directories that some files write as paths, and others as placeholders.
pub(crate) struct PathDirectories<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) home: Option<&'a Path>,
}

impl PathDirectories<'_> {
    /// Whether two servers are the same, however they name these directories.
    pub(crate) fn are_same(&self, left: &ServerParameters, right: &ServerParameters) -> bool {
        left == right || self.written_out(left) == self.written_out(right)
    }

    fn written_out(&self, parameters: &ServerParameters) -> Value {
        let mut value = Value::Object(parameters.to_json());
        self.write_out(&mut value);
        value
    }

    fn write_out(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let home = self.home.map(|home| ("${HOME}", home));
                for (placeholder, path) in [("${workspace}", self.workspace)].into_iter().chain(home) {
                    *text = text.replace(placeholder, &path.to_string_lossy());
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.write_out(value)),
            Value::Object(values) => values.values_mut().for_each(|value| self.write_out(value)),
            _ => {}
        }
    }
}

/// Puts the servers of files together, in the order of precedence. A server that two files have the same way is one; of
/// different ones with the same name the first keeps it.
pub(crate) fn merge(
    files: impl IntoIterator<Item = FileServers>,
    directories: &PathDirectories<'_>,
) -> FileServers {
    let mut merged = FileServers::default();
    for FileServers { offered, left } in files {
        merged.left.extend(left);
        for server in offered {
            add(&mut merged, server, directories);
        }
    }
    merged
}

fn add(merged: &mut FileServers, mut server: OfferedServer, directories: &PathDirectories<'_>) {
    let is_alike = |known: &&mut OfferedServer| {
        directories.are_same(&known.parameters, &server.parameters)
            && (known.name == server.name || known.original == server.original)
    };
    if let Some(known) = merged.offered.iter_mut().find(is_alike) {
        known.places.extend(server.places);
        return;
    }
    if merged.offered.len() >= MOST_SERVERS {
        let name = server.original;
        let place = server.places.swap_remove(0);
        let why = format!("there are more than {MOST_SERVERS} servers");
        merged.left.push(LeftOutServers { name, place, why });
        return;
    }
    let is_taken = |name: &str| merged.offered.iter().any(|known| known.name == name);
    if is_taken(&server.name) {
        let place = &server.places[0];
        let stem = place.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let suffix = place.client.map_or(stem, |client| client.name().to_owned());
        let Some(name) = names::with_suffix(&server.name, &suffix, is_taken) else {
            let name = server.original;
            let place = place.clone();
            merged.left.push(LeftOutServers { name, place, why: "there is no name left for it".to_owned() });
            return;
        };
        server.notes.retain(|note| !note.ends_with(&format!("is the package `{}`.", server.name)));
        server.notes.push(format!("Another server is called `{}`: this one is `{name}`.", server.name));
        server.name = name;
    }
    merged.offered.push(server);
}
