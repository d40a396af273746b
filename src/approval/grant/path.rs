//! Paths within a directory, by their text alone: the host cannot see the files of a server.

/// The longest path, in bytes, as most systems have it.
const LONGEST: usize = 4096;

/// The longest component of a path, in bytes.
const LONGEST_NAME: usize = 255;

/// Beside letters and ASCII digits, the characters that no shell, URL or template gives a meaning in a path.
const LITERAL: &str = "-_.+=,@#() ";

/// Directories below which other people's or the system's directories are, and how many components a directory has at
/// least that is proposed below them.
const SHARED: [(&str, usize); 6] =
    [("home", 3), ("Users", 3), ("var", 3), ("usr", 3), ("etc", 3), ("private", 4)];

/// A path whose text has one meaning alone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlainPath<'a> {
    is_absolute: bool,
    components: Vec<&'a str>,
}

impl<'a> PlainPath<'a> {
    /// Reads a path; `None` if it may refer to another place than its text says.
    pub(super) fn read(path: &'a str) -> Option<Self> {
        if path.len() > LONGEST || path.starts_with('-') {
            return None;
        }
        let relative = path.strip_prefix('/');
        let components: Vec<_> = relative.unwrap_or(path).split('/').collect();
        let is_absolute = relative.is_some();
        components.iter().all(|name| is_plain(name)).then_some(Self { is_absolute, components })
    }

    /// Whether this is below `directory`, and not the directory itself.
    pub(super) fn is_below(&self, directory: &Self) -> bool {
        self.is_absolute == directory.is_absolute
            && self.components.len() > directory.components.len()
            && self.components.starts_with(&directory.components)
    }

    /// The deepest directory that all of the paths are below; `None` if there is none, or if it is so far up that others
    /// use it too.
    pub(super) fn common_directory(paths: &[Self]) -> Option<String> {
        let (first, others) = paths.split_first()?;
        let mut length = first.components.len() - 1;
        for path in others {
            if path.is_absolute != first.is_absolute {
                return None;
            }
            let alike = first.components.iter().zip(&path.components).take_while(|(one, other)| one == other);
            length = length.min(alike.count()).min(path.components.len() - 1);
        }
        let components = &first.components[..length];
        let root = components.first()?;
        let shared = SHARED.iter().find(|(name, _)| name == root);
        let least = if first.is_absolute { shared.map_or(2, |(_, least)| *least) } else { 1 };
        let slash = if first.is_absolute { "/" } else { "" };
        (length >= least).then(|| format!("{slash}{}", components.join("/")))
    }
}

/// Whether a component of a path is a name that means itself, on all systems.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c.is_alphabetic() || LITERAL.contains(c))
        && !name.starts_with(' ')
        // Some systems drop these: `a.` is `a`, and `.. ` is `..`.
        && !name.ends_with([' ', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(directory: &str, path: &str, expected: bool) {
        let directory = PlainPath::read(directory).unwrap();
        let is_below = PlainPath::read(path).is_some_and(|path| path.is_below(&directory));
        assert_eq!(is_below, expected, "{path:?}");
    }

    #[test]
    fn what_is_below_a_directory() {
        for path in
            ["/work/out/a", "/work/out/a.txt", "/work/out/b/c d.txt", "/work/out/.a", "/work/out/é(1)"]
        {
            check("/work/out", path, true);
        }
        check("out", "out/a", true);
    }

    #[test]
    fn what_is_not() {
        for path in [
            "/work/out",
            "/work/out/",
            "/work/out2/a",
            "/work/outa",
            "/Work/out/a",
            "/work",
            "/",
            "",
            "work/out/a",
            "//work/out/a",
            "/work//out/a",
            "/work/out//a",
            "/work/./out/a",
            "/work/out/./a",
            "/work/out/.",
            "/work/out/..",
            "/work/out/../a",
            "/work/out/a/../../b",
            "/work/out/.../a",
            "/work/out/.. /a",
            "/work/out/ ../a",
            "/work/out/a.",
            "/work/out\\a",
            "/work/out/..\\a",
            "/work/out/a\0b",
            "/work/out/a\nb",
            "/work/out/%2e%2e/a",
            "/work/out/${HOME}",
            "/work/out/$HOME",
            "/work/out/~",
            "~/work/out/a",
            "/work/out/{a,../b}",
            "/work/out/*",
            "/work/out/a;b",
            "/work/out/a|b",
            "/work/out/`a`",
            "/work/out/\u{ff0e}\u{ff0e}/a",
            "/work/out/\u{2025}/a",
            "/work/out/\u{2488}",
            "/work/out/a\u{200b}",
            "/work/out/a\u{2215}b",
            "file:///work/out/a",
            "C:/work/out/a",
        ] {
            check("/work/out", path, false);
        }
        check("out", "/out/a", false);
        check("out", "-out/a", false);
    }

    #[test]
    fn a_path_that_is_too_long_is_not() {
        check("/work", &format!("/work/{}", "a".repeat(255)), true);
        check("/work", &format!("/work/{}", "a".repeat(256)), false);
        check("/work", &format!("/work/{}", "a/".repeat(3000) + "a"), false);
    }

    #[track_caller]
    fn common(paths: &[&str], expected: Option<&str>) {
        let paths: Vec<_> = paths.iter().map(|path| PlainPath::read(path).unwrap()).collect();
        assert_eq!(PlainPath::common_directory(&paths).as_deref(), expected);
    }

    #[test]
    fn the_directory_of_paths() {
        common(&["/work/out/a", "/work/out/b"], Some("/work/out"));
        common(&["/work/out/a", "/work/out/b/c"], Some("/work/out"));
        common(&["/work/out/a", "/work/out2/a"], None);
        common(&["out/a", "out/b"], Some("out"));
        common(&["out/a", "/out/b"], None);
        common(&["a", "b"], None);
    }

    #[test]
    fn a_directory_of_many_people_is_not_proposed() {
        common(&["/a", "/b"], None);
        common(&["/tmp/a", "/tmp/b"], None);
        common(&["/root/a", "/root/b"], None);
        common(&["/home/me/a", "/home/me/b"], None);
        common(&["/home/me/out/a", "/home/me/out/b"], Some("/home/me/out"));
        common(&["/Users/me/a", "/Users/me/b"], None);
        common(&["/var/lib/a", "/var/lib/b"], None);
        common(&["/etc/cron.d/a", "/etc/cron.d/b"], None);
    }
}
