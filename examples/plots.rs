//! Plots become files in the workspace.
//! Needs Python 3.10 or newer and a package index; keeps its files in `target/examples`.
//!
//! ```sh
//! cargo run --example plots
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::path::Path;

use anyhow::Context as _;
use ipybox::CodeExecutor;

/// The configuration keeps the figure's size: IPython cuts margins off otherwise.
const CODE: &str = "
%config InlineBackend.print_figure_kwargs = {'bbox_inches': None}
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 4), dpi=100)
axes.plot([1, 2, 3], [1, 4, 9])
plt.show()
print('plotted')";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/examples");
    let workspace = directory.join("workspace");
    let executor =
        CodeExecutor::builder().working_dir(&workspace).state_dir(directory.join("state")).start().await?;

    executor.install_package("matplotlib").await?;
    let result = executor.execute(CODE).await?;
    println!("{}", result.text.unwrap_or_default());
    for image in result.images {
        let [width, height] = png_size(&image)?;
        // The workspace's real path is the one that images are below.
        println!("{}: {width} × {height}", image.strip_prefix(workspace.canonicalize()?)?.display());
    }
    executor.stop().await;
    Ok(())
}

/// The size in pixels, which a PNG file has in its first bytes.
fn png_size(path: &Path) -> anyhow::Result<[u32; 2]> {
    let bytes = std::fs::read(path)?;
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    number(16).zip(number(20)).map(|(width, height)| [width, height]).context("not a PNG file")
}
