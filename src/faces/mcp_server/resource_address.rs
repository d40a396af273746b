//! The addresses of resources: pure.
//!
//! `ipybox://<kind>/<name>`, and behind it which part is wanted: `?from=<byte>&bytes=<count>`. Names have letters, digits
//! and `.-_` only, so that an address has one spelling and needs no decoding.

use std::path::{Path, PathBuf};

use crate::kernels::output::{FILES, OUTPUTS, OutputPlaces, VIEWS};

const SCHEME: &str = "ipybox://";

/// The longest address that is looked at, in bytes.
const LONGEST: usize = 512;

/// The name of the session's notebook, whatever that of its file is.
const NOTEBOOK: &str = "session.ipynb";

/// The extensions of images, and of pages of plots.
const IMAGES: [&str; 7] = ["gif", "html", "jpg", "pdf", "png", "svg", "webp"];

/// Which file a resource is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResourceAddress {
    /// All of a cell's output.
    Output(String),
    /// An image that a cell has shown.
    Image(String),
    /// A file that a cell has shown.
    File(String),
    /// A view of what a cell has shown.
    View(String),
    /// A generated module, by its package and its file.
    Module { package: String, file: String },
    /// The notebook of the session.
    Notebook,
}

/// Which part of a resource is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourcePart {
    Whole,
    /// So many bytes from this one on; as many as one answer has if it does not say.
    Bytes {
        from: u64,
        count: Option<u64>,
    },
}

/// Why a URI is not the address of a resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddressRefusal {
    /// It is no address of ours.
    Unknown,
    /// It asks for a part in words that are not understood.
    Part,
}

impl ResourceAddress {
    /// Reads a URI.
    pub(super) fn parse(uri: &str) -> Result<(Self, ResourcePart), AddressRefusal> {
        if uri.len() > LONGEST {
            return Err(AddressRefusal::Unknown);
        }
        let (place, query) = match uri.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (uri, None),
        };
        let (kind, name) = place
            .strip_prefix(SCHEME)
            .and_then(|path| path.split_once('/'))
            .ok_or(AddressRefusal::Unknown)?;
        let address = Self::of(kind, name).ok_or(AddressRefusal::Unknown)?;
        let part =
            query.map_or(Some(ResourcePart::Whole), ResourcePart::parse).ok_or(AddressRefusal::Part)?;
        Ok((address, part))
    }

    fn of(kind: &str, name: &str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
        match kind {
            "outputs" if is_digits(stem) && extension == "txt" => Some(Self::Output(name.to_owned())),
            "images" => {
                // The words of a title may come first.
                let (words, digits) = stem.rsplit_once('-').unwrap_or(("x", stem));
                let is_titled = !words.is_empty() && words.bytes().all(is_of_title);
                let is_ours = is_titled && is_digits(digits) && IMAGES.contains(&extension);
                is_ours.then(|| Self::Image(name.to_owned()))
            }
            "files" => {
                let (digits, rest) = name.split_once('-')?;
                let is_ours = is_digits(digits) && !rest.is_empty() && rest.chars().all(is_plain);
                is_ours.then(|| Self::File(name.to_owned()))
            }
            "views" => match Self::of("files", name)? {
                Self::File(name) => Some(Self::View(name)),
                _ => None,
            },
            "notebook" if name == NOTEBOOK => Some(Self::Notebook),
            "mcptools" => {
                let (package, file) = name.split_once('/')?;
                let is_module = is_identifier(package) && is_identifier(file.strip_suffix(".py")?);
                is_module.then(|| Self::Module { package: package.to_owned(), file: file.to_owned() })
            }
            _ => None,
        }
    }

    /// The address of a file that an answer names; `None` if code has given the file a name that has none.
    pub(super) fn of_file(kind: &str, path: &Path) -> Option<Self> {
        Self::of(kind, path.file_name()?.to_str()?)
    }

    /// The URI of the whole.
    pub(super) fn uri(&self) -> String {
        match self {
            Self::Output(name) => format!("{SCHEME}outputs/{name}"),
            Self::Image(name) => format!("{SCHEME}images/{name}"),
            Self::File(name) => format!("{SCHEME}files/{name}"),
            Self::View(name) => format!("{SCHEME}views/{name}"),
            Self::Module { package, file } => format!("{SCHEME}mcptools/{package}/{file}"),
            Self::Notebook => format!("{SCHEME}notebook/{NOTEBOOK}"),
        }
    }

    /// The name of its file.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Output(name) | Self::Image(name) | Self::File(name) | Self::View(name) => name,
            Self::Module { file, .. } => file,
            Self::Notebook => NOTEBOOK,
        }
    }

    /// A trusted directory, and the path of the file below it; `None` if it is the notebook, and there is none.
    pub(super) fn place(&self, places: &OutputPlaces, notebook: Option<&Path>) -> Option<(PathBuf, PathBuf)> {
        let in_workspace = |path: PathBuf| (places.workspace.clone(), path);
        Some(match self {
            Self::Output(name) => in_workspace(Path::new(OUTPUTS).join(name)),
            Self::Image(name) => below(&places.workspace, &places.images.join(name)),
            Self::Notebook => below(&places.workspace, notebook?),
            Self::File(name) => in_workspace(Path::new(FILES).join(name)),
            Self::View(name) => in_workspace(Path::new(VIEWS).join(name)),
            Self::Module { package, file } => in_workspace(Path::new("mcptools").join(package).join(file)),
        })
    }

    /// Whether the file stays as it is, as long as nobody tampers with it.
    pub(super) fn is_lasting(&self) -> bool {
        !matches!(self, Self::Module { .. } | Self::Notebook)
    }
}

impl ResourcePart {
    fn parse(query: &str) -> Option<Self> {
        let mut from = None;
        let mut count = None;
        for pair in query.split('&') {
            let (name, number) = pair.split_once('=')?;
            let number = number.parse().ok().filter(|_| number.bytes().all(|digit| digit.is_ascii_digit()));
            let slot = match name {
                "from" => &mut from,
                "bytes" => &mut count,
                _ => return None,
            };
            if slot.replace(number?).is_some() {
                return None;
            }
        }
        (count != Some(0)).then_some(Self::Bytes { from: from.unwrap_or(0), count })
    }
}

/// The workspace and a path in it, or else the directory of a file and its name.
fn below(workspace: &Path, file: &Path) -> (PathBuf, PathBuf) {
    match file.strip_prefix(workspace) {
        Ok(path) => (workspace.to_owned(), path.to_owned()),
        Err(_) => {
            let name = file.file_name().unwrap_or_default();
            (file.parent().unwrap_or(Path::new("/")).to_owned(), name.into())
        }
    }
}

fn is_digits(stem: &str) -> bool {
    stem.len() == 8 && stem.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_of_title(byte: u8) -> bool {
    byte == b'-' || byte.is_ascii_digit() || byte.is_ascii_lowercase()
}

fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || ".-_".contains(char)
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written() {
        for uri in [
            "ipybox://outputs/0a1b2c3d.txt",
            "ipybox://images/0a1b2c3d.png",
            "ipybox://images/sales-by-region-0a1b2c3d.html",
            "ipybox://files/0a1b2c3d-a-report.final.pdf",
            "ipybox://views/0a1b2c3d-table.jsonl",
            "ipybox://mcptools/git/get_file.py",
            "ipybox://mcptools/git/__init__.py",
            "ipybox://notebook/session.ipynb",
        ] {
            let (address, part) = ResourceAddress::parse(uri).unwrap();
            assert_eq!((address.uri().as_str(), part), (uri, ResourcePart::Whole));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for uri in [
            "",
            "ipybox://",
            "ipybox://outputs/",
            "ipybox://outputs/0a1b2c3d.png",
            "ipybox://outputs/../../.env",
            "ipybox://outputs/..%2f..%2f.env",
            "ipybox://outputs/0a1b2c3d.txt/",
            "ipybox://outputs/0A1B2C3D.txt",
            "ipybox://outputs/0a1b2c3d.txt#x",
            "IPYBOX://outputs/0a1b2c3d.txt",
            "ipybox://images/0a1b2c3d.exe",
            "ipybox://images/sub/0a1b2c3d.png",
            "ipybox://images/../a-0a1b2c3d.png",
            "ipybox://images/-0a1b2c3d.png",
            "ipybox://images/sales.png",
            "ipybox://files/0a1b2c3d-",
            "ipybox://files/0a1b2c3d-../.env",
            "ipybox://files/0a1b2c3d-a\0b",
            "ipybox://files/.env",
            "ipybox://mcptools/git/../../.env",
            "ipybox://mcptools/../.py",
            "ipybox://mcptools/git/.py",
            "ipybox://mcptools/git/secret.txt",
            "ipybox://mcptools//get_file.py",
            "ipybox://notebook/other.ipynb",
            "ipybox://workspace/data.csv",
            "file:///etc/passwd",
            "skill://codeact/SKILL.md",
        ] {
            assert_eq!(ResourceAddress::parse(uri), Err(AddressRefusal::Unknown), "{uri}");
        }
        let long = format!("ipybox://files/0a1b2c3d-{}", "x".repeat(LONGEST));
        assert_eq!(ResourceAddress::parse(&long), Err(AddressRefusal::Unknown));
    }

    #[test]
    fn a_part_is_two_numbers() {
        let part_of = |query: &str| ResourceAddress::parse(&format!("ipybox://outputs/0a1b2c3d.txt?{query}"));
        let check = |query: &str, from: u64, count: Option<u64>| {
            assert_eq!(part_of(query).unwrap().1, ResourcePart::Bytes { from, count }, "{query}");
        };
        check("from=0", 0, None);
        check("from=10&bytes=5", 10, Some(5));
        check("bytes=5", 0, Some(5));
        check("bytes=5&from=18446744073709551615", u64::MAX, Some(5));
        for wrong in
            ["", "from", "from=", "from=-1", "from=+1", "from=1&from=2", "bytes=0", "to=3", "from=1&"]
        {
            assert_eq!(part_of(wrong), Err(AddressRefusal::Part), "{wrong}");
        }
    }

    #[test]
    fn what_is_outside_of_the_workspace_is_found() {
        let places = |images: &str| OutputPlaces { workspace: "/w".into(), images: images.into() };
        let image = ResourceAddress::Image("0a1b2c3d.png".to_owned());
        let place = |root: &str, path: &str| Some((root.into(), path.into()));
        assert_eq!(image.place(&places("/w/images"), None), place("/w", "images/0a1b2c3d.png"));
        assert_eq!(image.place(&places("/plots"), None), place("/plots", "0a1b2c3d.png"));
        let notebook = |file: &str| ResourceAddress::Notebook.place(&places("/plots"), Some(Path::new(file)));
        assert_eq!(notebook("/w/a/run.ipynb"), place("/w", "a/run.ipynb"));
        assert_eq!(notebook("/state/run.ipynb"), place("/state", "run.ipynb"));
        assert_eq!(ResourceAddress::Notebook.place(&places("/plots"), None), None);
    }
}
