//! Which known names a misspelt one is likely meant to be; pure.

/// The likeness of two names of which one may be meant by the other, as `strsim` counts: a third of the letters may be wrong.
const NEAR: f64 = 0.65;
/// The number of names that are suggested.
const SUGGESTED: usize = 3;

/// Those of `known` that may be meant by `name`, the nearest first, whatever their case.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let letters = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let wanted = letters(name);
    let alike = known.into_iter().map(|known| {
        let likeness = strsim::normalized_damerau_levenshtein(&wanted, &letters(known));
        (likeness, known)
    });
    let mut near: Vec<_> = alike.filter(|(likeness, _)| *likeness >= NEAR).collect();
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    near.into_iter().take(SUGGESTED).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &[&str]) {
        let known =
            ["allowWrite", "denyWrite", "denyRead", "git", "list_commits", "get_commit", "listIssues"];
        assert_eq!(nearest(name, known), expected, "{name}");
    }

    #[test]
    fn names_that_may_be_meant_are_found_in_any_case() {
        check("allowwrite", &["allowWrite"]);
        check("allow_write", &["allowWrite"]);
        check("denyWrites", &["denyWrite"]);
        check("denyReed", &["denyRead"]);
        check("listCommits", &["list_commits"]);
        check("list-issues", &["listIssues"]);
        check("gt", &["git"]);
        check("gx", &[]);
        check("", &[]);
        check("weather", &[]);
    }
}
