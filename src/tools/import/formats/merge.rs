//! The servers of several files, under names that do not clash. Pure.

use super::{Contents, Left, Offered, names};

/// How many servers are taken. Nobody has as many; a stranger's file must not start or ask for any number.
const MOST_SERVERS: usize = 256;

/// Puts the servers of files together, in the order of precedence. A server that two files have the same way is one; of
/// different ones with the same name the first keeps it.
pub(crate) fn merge(files: impl IntoIterator<Item = Contents>) -> Contents {
    let mut merged = Contents::default();
    for Contents { offered, left } in files {
        merged.left.extend(left);
        for server in offered {
            add(&mut merged, server);
        }
    }
    merged
}

fn add(merged: &mut Contents, mut server: Offered) {
    let is_alike = |known: &&mut Offered| {
        known.parameters == server.parameters
            && (known.name == server.name || known.original == server.original)
    };
    if let Some(known) = merged.offered.iter_mut().find(is_alike) {
        known.places.extend(server.places);
        return;
    }
    if merged.offered.len() >= MOST_SERVERS {
        let (name, place) = (server.original, server.places.swap_remove(0));
        let why = format!("there are more than {MOST_SERVERS} servers");
        merged.left.push(Left { name, place, why });
        return;
    }
    let is_taken = |name: &str| merged.offered.iter().any(|known| known.name == name);
    if is_taken(&server.name) {
        let place = &server.places[0];
        let stem = place.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let suffix = place.client.map_or(stem, |client| client.name().to_owned());
        let Some(name) = names::with_suffix(&server.name, &suffix, is_taken) else {
            let (name, place) = (server.original, place.clone());
            merged.left.push(Left { name, place, why: "there is no name left for it".to_owned() });
            return;
        };
        server.notes.retain(|note| !note.ends_with(&format!("is the package `{}`.", server.name)));
        server.notes.push(format!("Another server is called `{}`: this one is `{name}`.", server.name));
        server.name = name;
    }
    merged.offered.push(server);
}
