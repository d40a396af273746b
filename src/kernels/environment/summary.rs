//! The result of an installation, in one line, by the installer's output. Pure.
//!
//! uv lists ` + name==version` for what it has installed, ` - …` for what it has removed and ` ~ …` for what it has installed
//! again; pip says `Successfully installed name-version …`, `Successfully uninstalled name-version` and `Requirement
//! already satisfied: name in … (version)`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::contents::normalized;
use super::requirement::name_of;
use crate::ground::text::first_few;

/// The number of packages that are listed after one verb.
const LISTED: usize = 20;

/// The number of warnings of the installer that follow.
const WARNINGS: usize = 5;

/// Warnings that say nothing about the packages.
const ASIDE: [&str; 5] = ["hardlink", "'root' user", "not on PATH", "cache", "dependency resolver"];

/// Lines of pip that say what it does, while nothing has failed.
const STEPS: [&str; 9] = [
    "Requirement already satisfied",
    "Looking in ",
    "Collecting ",
    "Downloading ",
    "Using cached ",
    "Installing build dependencies",
    "Getting requirements to build wheel",
    "Preparing metadata",
    "Obtaining dependency information",
];

/// The change of one package.
#[derive(Debug, Default)]
struct PackageChange<'a> {
    name: &'a str,
    before: Option<&'a str>,
    after: Option<&'a str>,
    is_again: bool,
}

/// Says what `output` of an installation of `requirements` lists, and warnings of the installer; `version_of` has the
/// versions of packages that were there. `None` if the output has another form.
pub(super) fn summary(
    output: &str,
    requirements: &[String],
    version_of: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let changes = changes(output);
    let there = already_there(output);
    let names: Vec<Option<&str>> = requirements.iter().map(|requirement| name_of(requirement)).collect();
    let is_wanted =
        |name: &str| names.iter().any(|wanted| wanted.is_none_or(|wanted| normalized(wanted) == name));
    let mut parts = vec![installed(&changes, is_wanted)];
    for (verb, orders) in
        [("upgraded", Ordering::Less), ("downgraded", Ordering::Greater), ("replaced", Ordering::Equal)]
    {
        let of_verb =
            changes.values().filter_map(|change| Some((change.name, change.before?, change.after?)));
        let of_verb = of_verb.filter(|(_, before, after)| before != after && order(before, after) == orders);
        parts.push(listed(verb, of_verb.map(|(name, before, after)| format!("{name} {before} to {after}"))));
    }
    let again = changes
        .values()
        .filter(|change| change.is_again || change.before.is_some() && change.before == change.after);
    parts.push(listed(
        "installed again:",
        again.map(|change| named(change.name, change.after.or(change.before))),
    ));
    let removed = changes.values().filter(|change| change.after.is_none() && !change.is_again);
    parts.push(listed("removed", removed.map(|change| named(change.name, change.before))));
    let kept = names.iter().flatten().filter(|name| !changes.contains_key(&normalized(name)));
    let kept = kept.filter_map(|name| {
        let version = there.get(&normalized(name)).map(|version| (*version).to_owned());
        Some(format!("{name} {}", version.or_else(|| version_of(&normalized(name)))?))
    });
    parts.push(listed("already there:", kept));
    parts.retain(|part| !part.is_empty());
    let mut text = capitalized(&parts.join("; "))?;
    if changes.values().any(|change| change.before.is_some() || change.is_again) {
        text.push_str(". If the kernel has imported an earlier version, it keeps that until `reset`");
    }
    let warnings = output.lines().filter(|line| is_warning(line)).take(WARNINGS);
    Some(warnings.fold(text, |text, warning| format!("{text}\n{}", warning.trim())))
}

/// The output of an installation that has failed, without what pip had done before.
pub(super) fn failure(output: &str) -> String {
    let is_step = |line: &&str| STEPS.iter().any(|step| line.trim_start().starts_with(step));
    output.lines().filter(|line| !is_step(line)).collect::<Vec<_>>().join("\n")
}

/// The requirements of which the error in `output` speaks.
pub(super) fn failed<'a>(output: &str, requirements: &'a [String]) -> Vec<&'a str> {
    let is_error = |line: &str| {
        let line = line.trim_start().to_lowercase();
        ["error", "×", "cause:"].iter().any(|begin| line.starts_with(begin))
    };
    let error: Vec<&str> = output.lines().skip_while(|line| !is_error(line)).collect();
    let is_part = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let words = error.iter().flat_map(|line| line.split(|character| !is_part(character)));
    let words: Vec<String> = words.map(|word| normalized(word.trim_end_matches(['.', '-']))).collect();
    let is_named = |requirement: &&String| match name_of(requirement) {
        Some(name) => words.contains(&normalized(name)),
        None => error.iter().any(|line| line.contains(requirement.as_str())),
    };
    requirements.iter().filter(is_named).map(String::as_str).collect()
}

/// Whether the installer had begun to change the environment before it failed.
pub(super) fn may_be_partial(output: &str) -> bool {
    ["Installing collected packages:", "Failed to install", "Failed to uninstall"]
        .iter()
        .any(|mark| output.contains(mark))
}

fn changes(output: &str) -> BTreeMap<String, PackageChange<'_>> {
    let mut changes = BTreeMap::new();
    for line in output.lines() {
        let listed = line.get(3..).and_then(|rest| rest.split_whitespace().next()?.split_once("=="));
        match (line.get(..3), listed) {
            (Some(" + "), Some((name, version))) => at(&mut changes, name).after = Some(version),
            (Some(" - "), Some((name, version))) => at(&mut changes, name).before = Some(version),
            (Some(" ~ "), Some((name, version))) => {
                let change = at(&mut changes, name);
                (change.after, change.is_again) = (Some(version), true);
            }
            _ => {
                for (name, version) in words_after(line, "Successfully installed ") {
                    at(&mut changes, name).after = Some(version);
                }
                for (name, version) in words_after(line, "Successfully uninstalled ") {
                    at(&mut changes, name).before = Some(version);
                }
            }
        }
    }
    changes
}

/// The change of the package of this name.
fn at<'a, 'b>(
    changes: &'b mut BTreeMap<String, PackageChange<'a>>,
    name: &'a str,
) -> &'b mut PackageChange<'a> {
    changes.entry(normalized(name)).or_insert_with(|| PackageChange { name, ..PackageChange::default() })
}

/// Names and versions in a line of pip that begins with these words.
fn words_after<'a>(line: &'a str, begin: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let rest = line.trim_start().strip_prefix(begin).unwrap_or_default();
    rest.split_whitespace().filter_map(|word| word.rsplit_once('-'))
}

/// The packages that were there, as pip says, with their versions.
fn already_there(output: &str) -> BTreeMap<String, &str> {
    let there = output.lines().filter_map(|line| {
        let (requirement, place) =
            line.strip_prefix("Requirement already satisfied: ")?.split_once(" in ")?;
        let version = place.rsplit_once('(')?.1.strip_suffix(')')?;
        Some((normalized(name_of(requirement)?), version))
    });
    there.collect()
}

/// The new packages: those that were asked for by name, and the number of those that came with them.
fn installed(changes: &BTreeMap<String, PackageChange<'_>>, is_wanted: impl Fn(&str) -> bool) -> String {
    let new = || changes.iter().filter(|(_, change)| change.before.is_none() && !change.is_again);
    let (wanted, others): (Vec<_>, Vec<_>) = new().partition(|(name, _)| is_wanted(name));
    // What comes alone was missing for a package that was there.
    let (shown, count) = if wanted.is_empty() { (others, 0) } else { (wanted, others.len()) };
    let text = listed("installed", shown.into_iter().map(|(_, change)| named(change.name, change.after)));
    match count {
        0 => text,
        1 => format!("{text} with 1 dependency"),
        count => format!("{text} with {count} dependencies"),
    }
}

fn named(name: &str, version: Option<&str>) -> String {
    version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}

/// `verb a, b and 3 more`; nothing for no packages.
fn listed(verb: &str, packages: impl Iterator<Item = String>) -> String {
    let shown = first_few(packages, LISTED);
    if shown.is_empty() { shown } else { format!("{verb} {shown}") }
}

fn capitalized(text: &str) -> Option<String> {
    let first = text.chars().next()?;
    Some(first.to_uppercase().chain(text.chars().skip(1)).collect())
}

/// The order of two versions by the numbers of their releases; equal if these do not tell.
fn order(before: &str, after: &str) -> Ordering {
    let release = |version: &str| -> Vec<u64> {
        let end = version.find(|character: char| !character.is_ascii_digit() && character != '.');
        let mut numbers: Vec<u64> = version[..end.unwrap_or(version.len())]
            .split('.')
            .map_while(|number| number.parse().ok())
            .collect();
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        numbers
    };
    release(before).cmp(&release(after))
}

/// Whether a line warns of something about the packages, as uv and pip do.
fn is_warning(line: &str) -> bool {
    let is_marked = ["warning:", "WARNING:", "ERROR:"].iter().any(|mark| line.starts_with(mark));
    let is_conflict = line.ends_with("which is incompatible.") || line.ends_with("which is not installed.");
    is_conflict || is_marked && !ASIDE.iter().any(|aside| line.contains(aside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, requirements: &[&str], expected: &str) {
        let requirements: Vec<String> = requirements.iter().map(|&each| each.to_owned()).collect();
        let version_of = |name: &str| (name == "rich").then(|| "14.0".to_owned());
        let text = summary(output, &requirements, version_of);
        assert_eq!(text.as_deref(), Some(expected));
    }

    const UNTIL_RESET: &str = ". If the kernel has imported an earlier version, it keeps that until `reset`";

    #[test]
    fn what_was_installed_is_one_line() {
        check(
            "Resolved 3 packages in 2ms\nInstalled 1 package in 1ms\n + six==1.17.0",
            &["six"],
            "Installed six 1.17.0",
        );
        let satisfied = "Requirement already satisfied: pydantic>=2.6 in /v/lib (2.14.3)\n".repeat(20);
        let pip = format!(
            "Collecting six\n{satisfied}Installing collected packages: six\nSuccessfully installed six-1.17.0"
        );
        check(&pip, &["six"], "Installed six 1.17.0");
    }

    #[test]
    fn dependencies_are_counted_and_what_was_asked_for_is_named() {
        let uv = " + numpy==2.1.0\n + pandas==2.3.3\n + scikit-learn==1.7.2\n + scipy==1.15.0";
        check(
            uv,
            &["pandas", "Scikit_Learn>=1"],
            "Installed pandas 2.3.3, scikit-learn 1.7.2 with 2 dependencies",
        );
        check(" + six==1.17.0\n + a-b==1.0", &["git+https://host/a"], "Installed a-b 1.0, six 1.17.0");
        check(
            "Successfully installed typing_extensions-4.16.0",
            &["rich"],
            "Installed typing_extensions 4.16.0; already there: rich 14.0",
        );
    }

    #[test]
    fn other_versions_are_named_with_the_earlier_ones() {
        let uv = " - six==1.17.0\n + six==1.9.0\n - a==1.0\n + a==1.0.0.post1\n ~ b==1.0 (from file:///b)\n - gone==3";
        check(
            uv,
            &["six", "a", "./b"],
            &format!(
                "Downgraded six 1.17.0 to 1.9.0; replaced a 1.0 to 1.0.0.post1; installed again: b 1.0; removed gone 3{UNTIL_RESET}"
            ),
        );
        let pip = "  Attempting uninstall: typing-extensions\n      Successfully uninstalled typing-extensions-4.1\n\
                   Successfully installed typing_extensions-4.12 new-1.0";
        let expected = "Installed new 1.0; upgraded typing-extensions 4.1 to 4.12";
        check(pip, &["new"], &format!("{expected}{UNTIL_RESET}"));
    }

    #[test]
    fn what_was_there_is_said() {
        check("Checked 2 packages in 1ms", &["rich"], "Already there: rich 14.0");
        check(
            "Requirement already satisfied: six[x]>=1 in ./v (1.17.0)",
            &["six"],
            "Already there: six 1.17.0",
        );
    }

    #[test]
    fn warnings_about_packages_are_kept() {
        let uv = "warning: Failed to hardlink files\n + h==1\nwarning: The package `h==1` does not have an extra named `x`";
        check(uv, &["h[x]"], "Installed h 1\nwarning: The package `h==1` does not have an extra named `x`");
        let pip = "Successfully installed numpy-2.0\nERROR: pip's dependency resolver does not currently take into account \
                   all the packages\nnumba 0.59 requires numpy<1.27, but you have numpy 2.0 which is incompatible.\n\
                   WARNING: Running pip as the 'root' user can result in broken permissions";
        check(
            pip,
            &["numpy"],
            "Installed numpy 2.0\nnumba 0.59 requires numpy<1.27, but you have numpy 2.0 which is incompatible.",
        );
    }

    #[test]
    fn an_unknown_form_is_no_summary() {
        assert_eq!(summary("done", &["six".to_owned()], |_| None), None);
    }

    #[test]
    fn the_requirement_that_failed_is_found() {
        let requirements = ["six".to_owned(), "no-such_thing>=2".to_owned(), "ghost".to_owned()];
        let check =
            |output, expected: &[&str]| assert_eq!(failed(output, &requirements), expected, "{output}");
        check(
            "Collecting six\nERROR: Could not find a version that satisfies the requirement no-such_thing>=2\n\
             ERROR: No matching distribution found for no-such_thing>=2",
            &["no-such_thing>=2"],
        );
        check(
            "error: No solution found when resolving dependencies\n  cause: Because no-such-thing was not found in the \
             package registry and you require no-such-thing, we can conclude",
            &["no-such_thing>=2"],
        );
        check("  × No solution found\n  ╰─▶ Because ghost depends on six==9.", &["six", "ghost"]);
        check("error: Connection refused", &[]);
    }
}
