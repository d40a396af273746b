//! Records a cell's output: an excerpt for the reply; long texts, images and files in the workspace.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::excerpt::Excerpt;
use super::files::{OUTPUTS, OutputFile};
use super::images::{self, OutputPlaces, SavedImage};
use super::shown_files::{self, MOST_FILES, SavedFile};
use crate::kernels::kernel::{AttachmentId, FileRole, MessageEffect, SettledText, ShownFile, ShownImage};

/// Records output while the cell runs.
#[derive(Debug)]
pub(crate) struct OutputRecorder {
    places: OutputPlaces,
    limit: usize,
    excerpt: Excerpt,
    whole: WholeTextPlace,
    images: BTreeMap<AttachmentId, SavedImage>,
    files: BTreeMap<AttachmentId, SavedFile>,
    views: BTreeMap<AttachmentId, SavedFile>,
    troubles: Vec<String>,
}

/// The place of the whole text.
#[derive(Debug)]
enum WholeTextPlace {
    /// In the excerpt, which has room for it.
    Excerpt,
    File(OutputFile),
    /// Nowhere: it could not be written.
    Lost,
}

/// The complete output.
#[derive(Debug, Default)]
pub(crate) struct RecordedOutput {
    /// Streams and shown objects, in order.
    pub(crate) text: OutputText,
    /// Saved images, in order.
    pub(crate) images: Vec<SavedImage>,
    /// Files that code has shown, in order.
    pub(crate) files: Vec<SavedFile>,
    /// The files of views and images, in order.
    pub(crate) views: Vec<PathBuf>,
    /// The failures to save, with their reasons.
    pub(crate) troubles: Vec<String>,
}

impl RecordedOutput {
    /// Puts the images and files of `late` output before its own. Returns the text of that output apart.
    pub(crate) fn after(self, mut late: Self) -> (Self, OutputText) {
        late.images.extend(self.images);
        late.files.extend(self.files);
        late.views.extend(self.views);
        late.troubles.extend(self.troubles);
        let text = std::mem::replace(&mut late.text, self.text);
        (late, text)
    }
}

/// A text, or the beginning and end of one.
#[derive(Debug, Default)]
pub(crate) struct OutputText {
    /// The text as it may be shown.
    pub(crate) excerpt: String,
    /// Set if the text is longer than the limit.
    pub(crate) cut: Option<CutText>,
}

/// Details of a text that was cut.
#[derive(Debug)]
pub(crate) struct CutText {
    /// The limit in characters.
    pub(crate) limit: usize,
    /// The number of its characters.
    pub(crate) chars: usize,
    /// The file in which it is saved, if it could be.
    pub(crate) file: Option<PathBuf>,
}

impl OutputRecorder {
    /// An empty record. More than `limit` characters are written to a file.
    pub(crate) fn new(places: &OutputPlaces, limit: usize) -> Self {
        Self {
            places: places.clone(),
            limit,
            excerpt: Excerpt::new(limit),
            whole: WholeTextPlace::Excerpt,
            images: BTreeMap::new(),
            files: BTreeMap::new(),
            views: BTreeMap::new(),
            troubles: Vec::new(),
        }
    }

    /// Records the result of one message, and returns its text for readers of chunks.
    pub(crate) async fn keep(&mut self, taken: MessageEffect) -> Option<String> {
        // First, since what is shown instead needs the room.
        for id in taken.discarded {
            self.discard(id).await;
        }
        for (id, image) in taken.images {
            self.save(id, image).await;
        }
        for (id, file) in taken.files {
            self.save_file(id, file).await;
        }
        if let Some(settled) = taken.settled {
            self.begin_anew_if(settled.is_anew).await;
            self.add(&settled.text).await;
        }
        taken.chunk
    }

    /// The file of an image that is shown, if it could be saved.
    pub(crate) fn file_of(&self, id: AttachmentId) -> Option<&Path> {
        self.images.get(&id).map(|image| image.path.as_path())
    }

    /// Records the rest.
    pub(crate) async fn finish(mut self, rest: SettledText) -> RecordedOutput {
        self.begin_anew_if(rest.is_anew).await;
        // Trailing white space is no reason to cut a text.
        let trimmed = rest.text.trim_end();
        let text = if self.excerpt.has_room_for(trimmed) { trimmed } else { &rest.text };
        self.add(text).await;
        let cut = self.excerpt.is_cut().then(|| (self.limit, self.excerpt.chars()));
        let cut = match cut {
            Some((limit, chars)) => Some(CutText { limit, chars, file: self.finish_file().await }),
            None => None,
        };
        let mut excerpt = self.excerpt.into_string();
        excerpt.truncate(excerpt.trim_end().len());
        let images = self.images.iter().filter(|(_, image)| !image.is_page());
        let images = images.map(|(id, image)| (*id, &image.path));
        let views = self.views.iter().map(|(id, view)| (*id, &view.path)).chain(images);
        let views = BTreeMap::from_iter(views).into_values().cloned().collect();
        let images = self.images.into_values().collect();
        let files = self.files.into_values().collect();
        RecordedOutput { text: OutputText { excerpt, cut }, images, files, views, troubles: self.troubles }
    }

    async fn save(&mut self, id: AttachmentId, image: ShownImage) {
        let places = self.places.clone();
        let save = move || images::save(&places, image);
        match tokio::task::spawn_blocking(save).await.map_err(io::Error::other).flatten() {
            Ok(saved) => drop(self.images.insert(id, saved)),
            Err(error) => self.trouble(format!(
                "An image could not be saved in `{}`: {error}",
                self.places.images.display()
            )),
        }
    }

    async fn save_file(&mut self, id: AttachmentId, file: ShownFile) {
        let role = file.role;
        if self.files_of(role).len() >= MOST_FILES {
            let what = match role {
                FileRole::Copy => "files",
                FileRole::View => "views",
            };
            return self
                .trouble(format!("Only the first {MOST_FILES} of the {what} were kept that were shown"));
        }
        let workspace = self.places.workspace.clone();
        let save = move || shown_files::save(&workspace, &file);
        match tokio::task::spawn_blocking(save).await.map_err(io::Error::other).flatten() {
            Ok(saved) => drop(self.files_of(role).insert(id, saved)),
            Err(error) => {
                let place = shown_files::directory_of(role);
                self.trouble(format!("A file could not be saved in `{place}/`: {error}"));
            }
        }
    }

    fn files_of(&mut self, role: FileRole) -> &mut BTreeMap<AttachmentId, SavedFile> {
        match role {
            FileRole::Copy => &mut self.files,
            FileRole::View => &mut self.views,
        }
    }

    async fn discard(&mut self, id: AttachmentId) {
        let image = self.images.remove(&id);
        let places = self.places.clone();
        let mut file = |role| self.files_of(role).remove(&id).map(|file| (file, role));
        let file = file(FileRole::Copy).or_else(|| file(FileRole::View));
        let remove = move || match (image, file) {
            (Some(image), _) => images::remove(&places, &image),
            (None, Some((file, role))) => shown_files::remove(&places.workspace, &file, role),
            (None, None) => Ok(()),
        };
        if let Err(error) = tokio::task::spawn_blocking(remove).await.map_err(io::Error::other).flatten() {
            // Code in the kernel may have moved it.
            tracing::debug!(%error, "could not remove what is shown no more");
        }
    }

    async fn add(&mut self, text: &str) {
        if !self.excerpt.has_room_for(text)
            && let Err(error) = self.add_to_file(text).await
        {
            self.lose_file(&error).await;
        }
        self.excerpt.push(text);
    }

    async fn add_to_file(&mut self, text: &str) -> io::Result<()> {
        if matches!(self.whole, WholeTextPlace::Excerpt) {
            let mut file = OutputFile::create(&self.places.workspace).await?;
            file.append(self.excerpt.whole()).await?;
            self.whole = WholeTextPlace::File(file);
        }
        match &mut self.whole {
            WholeTextPlace::File(file) => file.append(text).await,
            WholeTextPlace::Excerpt | WholeTextPlace::Lost => Ok(()),
        }
    }

    async fn finish_file(&mut self) -> Option<PathBuf> {
        let WholeTextPlace::File(file) = std::mem::replace(&mut self.whole, WholeTextPlace::Lost) else {
            return None;
        };
        match file.finish().await {
            Ok((path, is_whole)) => {
                if !is_whole {
                    self.trouble(format!(
                        "The output was too long for a file: `{}` has its beginning.",
                        path.display()
                    ));
                }
                Some(path)
            }
            Err(error) => {
                self.lose_file(&error).await;
                None
            }
        }
    }

    async fn begin_anew_if(&mut self, is_cleared: bool) {
        if !is_cleared {
            return;
        }
        self.excerpt = Excerpt::new(self.limit);
        if let WholeTextPlace::File(file) = std::mem::replace(&mut self.whole, WholeTextPlace::Excerpt)
            && let Err(error) = file.discard().await
        {
            tracing::debug!(%error, "could not remove output that was cleared");
        }
    }

    /// Gives up on a file that cannot be written: the disk may be full, and a partial file is useless.
    async fn lose_file(&mut self, error: &io::Error) {
        if let WholeTextPlace::File(file) = std::mem::replace(&mut self.whole, WholeTextPlace::Lost)
            && let Err(error) = file.discard().await
        {
            tracing::debug!(%error, "could not remove output that is not whole");
        }
        self.trouble(format!("The whole output could not be saved in `{OUTPUTS}/`: {error}"));
    }

    /// Records a problem once: a thousand images that cannot be saved have one reason.
    fn trouble(&mut self, words: String) {
        if !self.troubles.contains(&words) {
            self.troubles.push(words);
        }
    }
}
