//! The resources of a server: files that answers name, and generated modules.
//!
//! Clients read them wherever the workspace is. What may be read is what ipybox itself has made there: code in the kernel
//! can replace those files, so that they are opened with care ([`crate::ground::files::inside`]).

mod content;
mod links;
mod media;
mod shelf;

use rmcp::model::{
    CacheScope, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::json;
use tokio::sync::Mutex;

use self::content::{MOST_BYTES, ResourceFailure};
pub(super) use self::links::are_wanted;
use self::media::media_type;
pub(super) use self::shelf::ResourceShelf;
use super::resource_address::{AddressRefusal, ResourceAddress, ResourcePart};
use super::skills::ServerSkills;
use super::views;
use crate::session::Session;

/// The number of resources that one answer lists.
const PAGE: usize = 50;

/// The time that a client may keep a file that does not change, in milliseconds: an hour.
const FRESH_MS: u64 = 60 * 60 * 1000;

/// Reads one resource at a time, to bound memory however many are asked for at once.
static TURNSTILE: Mutex<()> = Mutex::const_new(());

/// One page of the resources: skills, the notebook, what answers have named, the overviews of generated packages.
pub(super) fn list(
    session: &Session,
    skills: &ServerSkills,
    shelf: &ResourceShelf,
    request: Option<PaginatedRequestParams>,
) -> Result<ListResourcesResult, ErrorData> {
    let packages = session.servers();
    let packages = packages.iter().filter_map(|(name, tools)| {
        let address = ResourceAddress::parse(&format!("ipybox://mcptools/{name}/__init__.py")).ok()?.0;
        let resource = Resource::new(address.uri(), format!("mcptools.{name}"));
        let title = format!("Python package of `{name}`, with {tools} tools");
        Some(resource.with_title(title).with_mime_type(media_type(address.name())))
    });
    let notebook = session.notebook().filter(|file| file.exists()).map(|_| {
        let address = ResourceAddress::Notebook;
        let resource = Resource::new(address.uri(), address.name());
        resource.with_title("Notebook of this session").with_mime_type(media_type(address.name()))
    });
    let all = skills.resources().into_iter().chain(notebook).chain(shelf.all()).chain(packages);
    page(all.collect(), request.and_then(|request| request.cursor))
}

/// One page of the list. The cursor is the number of resources before it.
fn page(mut all: Vec<Resource>, cursor: Option<String>) -> Result<ListResourcesResult, ErrorData> {
    let begin = match cursor {
        None => 0,
        Some(cursor) => cursor.parse::<usize>().ok().filter(|begin| *begin > 0).ok_or_else(|| {
            let message =
                format!("there is no page `{cursor}` of the resources: `cursor` is a `nextCursor` of before");
            ErrorData::invalid_params(message, None)
        })?,
    };
    let end = begin.saturating_add(PAGE);
    let next = (end < all.len()).then(|| end.to_string());
    all.truncate(end);
    let mut result = ListResourcesResult::with_all_items(all.split_off(begin.min(all.len())));
    result.next_cursor = next;
    Ok(result)
}

/// The forms of addresses.
pub(super) fn templates() -> ListResourceTemplatesResult {
    let template = |uri: &str, name: &str, description: &str| {
        ResourceTemplate::new(uri, name).with_description(description)
    };
    ListResourceTemplatesResult::with_all_items(vec![
        template(
            "ipybox://outputs/{name}{?from,bytes}",
            "output",
            "All of a cell's output, by the name of the file that its answer names. `from` and `bytes` choose a part",
        )
        .with_mime_type("text/plain"),
        template("ipybox://images/{name}", "image", "An image of a cell, by the name of its file"),
        template(
            "ipybox://files/{name}{?from,bytes}",
            "file",
            "A file that a cell has shown by `show_file`, by the name of its copy",
        ),
        template(
            "ipybox://mcptools/{server}/{module}.py",
            "module",
            "The generated Python module of a tool; `__init__` is the overview of a server",
        )
        .with_mime_type("text/x-python"),
    ])
}

/// Reads a resource.
pub(super) async fn read(
    session: &Session,
    skills: &ServerSkills,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResult, ErrorData> {
    let is_cacheable =
        context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    if let Some(content) = skills.read(uri).or_else(|| views::page(uri)) {
        return Ok(result(content, is_cacheable.then_some((FRESH_MS, CacheScope::Private))));
    }
    let (address, part) = ResourceAddress::parse(uri).map_err(|refusal| refused(uri, &refusal))?;
    let place = address.place(session.places(), session.notebook());
    let (root, path) = place.ok_or_else(|| refused(uri, &AddressRefusal::Unknown))?;
    let is_lasting = address.is_lasting() && part == ResourcePart::Whole;
    let turn = TURNSTILE.lock().await;
    let reading = tokio::task::spawn_blocking(move || {
        let content = content::read(&root, &path, &address, part);
        // Dropped here, since the reading goes on if its caller is gone.
        drop(turn);
        content
    });
    let content = reading.await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let content = content.map_err(|failure| failed(uri, &failure))?;
    let fresh_ms = if is_lasting { FRESH_MS } else { 0 };
    Ok(result(content, is_cacheable.then_some((fresh_ms, CacheScope::Private))))
}

/// The answer with a content, and how long it may be kept by whom. Revisions before 2026-07-28 do not know that.
fn result(content: ResourceContents, keeping: Option<(u64, CacheScope)>) -> ReadResourceResult {
    let result = ReadResourceResult::new(vec![content]);
    match keeping {
        Some((fresh_ms, scope)) => result.with_ttl_ms(fresh_ms).with_cache_scope(scope),
        None => result,
    }
}

/// The error of a URI that is not read.
fn refused(uri: &str, refusal: &AddressRefusal) -> ErrorData {
    match refusal {
        AddressRefusal::Unknown => {
            let shown: String = uri.chars().take(200).collect();
            let message = format!(
                "there is no resource `{shown}`: addresses are as `resources/templates/list` and `resources/list` have them"
            );
            ErrorData::resource_not_found(message, Some(json!({ "uri": shown })))
        }
        AddressRefusal::Part => {
            let message = format!(
                "the part in `{uri}` cannot be used: it is `?from=<byte>&bytes=<count>`, or one of them"
            );
            ErrorData::invalid_params(message, None)
        }
    }
}

/// The error of a resource whose file is not read.
fn failed(uri: &str, failure: &ResourceFailure) -> ErrorData {
    match failure {
        ResourceFailure::Refused(error) => {
            let message = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    format!("the file of `{uri}` is not there: old ones are removed")
                }
                _ => format!("the file of `{uri}` is not read: {error}"),
            };
            ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
        }
        ResourceFailure::TooLong { bytes } => {
            let message = format!(
                "`{uri}` has {bytes} bytes, and at most {MOST_BYTES} are read at once: read parts, beginning with `{uri}?from=0`"
            );
            ErrorData::invalid_params(message, Some(json!({ "uri": uri, "size": bytes })))
        }
        ResourceFailure::Beyond { bytes } => {
            let message = format!("the part in `{uri}` begins after the end: there are {bytes} bytes");
            ErrorData::invalid_params(message, Some(json!({ "uri": uri, "size": bytes })))
        }
        ResourceFailure::Unreadable(error) => {
            ErrorData::internal_error(format!("the file of `{uri}` could not be read: {error}"), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(count: usize) -> Vec<Resource> {
        (0..count).map(|number| Resource::new(format!("ipybox://{number}"), number.to_string())).collect()
    }

    #[test]
    fn pages_make_the_whole_list() {
        for count in [0, 1, PAGE, PAGE + 1, 3 * PAGE - 1] {
            let (mut cursor, mut listed) = (None, Vec::new());
            loop {
                let page = page(resources(count), cursor).unwrap();
                assert!(page.resources.len() <= PAGE);
                listed.extend(page.resources);
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(listed, resources(count));
        }
        assert_eq!(page(resources(3), Some("50".to_owned())).unwrap().resources, []);
        for wrong in ["", "0", "-1", "x", "99999999999999999999999"] {
            page(resources(3), Some(wrong.to_owned())).unwrap_err();
        }
    }
}
