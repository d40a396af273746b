//! The resources that answers have named, the newest first.

use std::collections::VecDeque;
use std::path::Path;

use parking_lot::Mutex;
use rmcp::model::Resource;

use super::media::media_type;
use crate::faces::mcp_server::resource_address::ResourceAddress;
use crate::session::Outcome;

/// The number of resources that are listed. Older ones can still be read, as long as their files are kept.
const MOST: usize = 256;

/// The resources that are listed.
#[derive(Default)]
pub(in crate::faces::mcp_server) struct ResourceShelf {
    newest: Mutex<VecDeque<Resource>>,
}

impl ResourceShelf {
    /// Lists the resources of a cell, and returns them.
    pub(in crate::faces::mcp_server) fn add(&self, outcome: &Outcome) -> Vec<Resource> {
        let resources = resources_of(outcome);
        let mut newest = self.newest.lock();
        for resource in &resources {
            newest.push_front(resource.clone());
        }
        newest.truncate(MOST);
        resources
    }

    /// Those that are listed.
    pub(super) fn all(&self) -> Vec<Resource> {
        self.newest.lock().iter().cloned().collect()
    }
}

/// The resources that the answer of a cell names, in its order.
fn resources_of(outcome: &Outcome) -> Vec<Resource> {
    let texts = [&outcome.late, &outcome.shown.text];
    let outputs = texts.into_iter().filter_map(|text| {
        let cut = text.cut.as_ref()?;
        let resource = resource("outputs", cut.file.as_ref()?)?;
        Some(resource.with_title(format!("All {} characters of a cell's output", cut.chars)))
    });
    let images = outcome.shown.images.iter().filter_map(|image| {
        let image_resource = resource("images", &image.path)?.with_title("Image of a cell");
        let bytes = image.bytes.as_ref().map(|bytes| bytes.len() as u64);
        Some(match bytes {
            Some(bytes) => image_resource.with_size(bytes),
            None => image_resource,
        })
    });
    let files = outcome.shown.files.iter().filter_map(|file| {
        Some(resource("files", &file.path)?.with_title(file.name()).with_size(file.bytes))
    });
    outputs.chain(images).chain(files).collect()
}

fn resource(kind: &str, path: &Path) -> Option<Resource> {
    let address = ResourceAddress::of_file(kind, path)?;
    let media_type = media_type(address.name());
    Some(Resource::new(address.uri(), address.name()).with_mime_type(media_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::output::{CutText, OutputText, RecordedOutput, SavedFile, SavedImage};
    use crate::session::CellEnding;

    fn outcome() -> Outcome {
        let file = Some("/w/.ipybox/outputs/0a1b2c3d.txt".into());
        let shown = RecordedOutput {
            text: OutputText { excerpt: String::new(), cut: Some(CutText { limit: 5, chars: 9, file }) },
            images: vec![SavedImage::new("/w/images/1a1b2c3d.png".into(), Some(vec![0; 3]))],
            files: vec![SavedFile { path: "/w/.ipybox/files/2a1b2c3d-a.csv".into(), bytes: 7 }],
            ..RecordedOutput::default()
        };
        Outcome { shown, ..Outcome::not_run(CellEnding::Finished) }
    }

    #[test]
    fn an_answer_names_outputs_images_and_files() {
        let shelf = ResourceShelf::default();
        let resources = shelf.add(&outcome());
        let described: Vec<_> = resources
            .iter()
            .map(|resource| (resource.uri.as_str(), resource.mime_type.as_deref(), resource.size))
            .collect();
        let expected = [
            ("ipybox://outputs/0a1b2c3d.txt", Some("text/plain"), None),
            ("ipybox://images/1a1b2c3d.png", Some("image/png"), Some(3)),
            ("ipybox://files/2a1b2c3d-a.csv", Some("text/csv"), Some(7)),
        ];
        assert_eq!(described, expected);
        assert_eq!(resources[2].title.as_deref(), Some("a.csv"));
        assert_eq!(shelf.all()[0].uri, "ipybox://files/2a1b2c3d-a.csv");
    }

    #[test]
    fn the_list_is_bounded() {
        let shelf = ResourceShelf::default();
        for _ in 0..MOST {
            shelf.add(&outcome());
        }
        assert_eq!(shelf.all().len(), MOST);
    }
}
