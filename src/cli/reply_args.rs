//! The flags for what replies hold besides text.

use clap::ValueEnum;
use ipybox::Settings;

use super::headings::REPLIES;

/// What the reply of a cell holds besides text.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplyArgs {
    /// Whether replies show the images of a cell, besides links to their files
    #[arg(long, help_heading = REPLIES, value_name = "HOW", default_value = "inline")]
    images: ImagesArg,

    /// Which clients get links to the resources that a reply names, besides its text
    #[arg(long, help_heading = REPLIES, value_name = "WHICH", default_value = "auto")]
    resource_links: ResourceLinksArg,

    /// Show no tables and plots to users of clients that can show them (MCP Apps)
    #[arg(long, help_heading = REPLIES)]
    no_views: bool,
}

/// What a cell's reply holds of its images.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ImagesArg {
    /// Up to 4 images of up to 1 MiB, scaled down to 1568 pixels
    Inline,
    /// Links alone
    Link,
}

/// The clients that get links to resources.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ResourceLinksArg {
    /// Clients that are known to show them
    Auto,
    /// All clients
    Always,
    /// None
    Never,
}

impl ReplyArgs {
    /// Adds them to the settings.
    pub(super) fn apply(&self, settings: &mut Settings) {
        settings.images = match self.images {
            ImagesArg::Inline => ipybox::Images::Inline,
            ImagesArg::Link => ipybox::Images::Link,
        };
        settings.resource_links = match self.resource_links {
            ResourceLinksArg::Auto => ipybox::ResourceLinks::Auto,
            ResourceLinksArg::Always => ipybox::ResourceLinks::Always,
            ResourceLinksArg::Never => ipybox::ResourceLinks::Never,
        };
        settings.views = !self.no_views;
    }
}
