//! The files that a command may name; pure.

/// The separators of words of a shell's command. Quotes are among them: they only hold words together.
const SEPARATORS: &[char] = &['"', '\'', '`', ';', '&', '|', '(', ')', '<', '>', '=', ',', ':', '{', '}'];

/// Endings of scripts.
const SCRIPTS: [&str; 16] =
    ["bash", "cjs", "js", "jl", "lua", "mjs", "php", "pl", "ps1", "py", "r", "rb", "sh", "ts", "tcl", "zsh"];

/// Ways in which shells write the top of the working tree.
const TOP: [&str; 4] = [
    "$(git rev-parse --show-toplevel)/",
    "`git rev-parse --show-toplevel`/",
    "${GIT_WORK_TREE}/",
    "$GIT_WORK_TREE/",
];

/// A word of a command that may name a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandWord {
    /// Relative to the top of the working tree, absolute, or from `~/`.
    pub(super) text: String,
    /// Whether it names a file even if there is none: a program by its path, or a script.
    pub(super) is_file: bool,
}

/// The words of `command` that may name files.
pub(super) fn words(command: &str) -> Vec<CommandWord> {
    let mut command = command.trim_start_matches('!').to_owned();
    for top in TOP {
        command = command.replace(top, "./");
    }
    let command = command.replace("${HOME}/", "~/").replace("$HOME/", "~/");
    let pieces =
        command.split(|character: char| character.is_whitespace() || SEPARATORS.contains(&character));
    let mut words: Vec<CommandWord> = Vec::new();
    for (index, piece) in pieces.filter(|piece| !piece.is_empty()).enumerate() {
        // A variable that we do not know is taken for the working tree.
        let text = match piece.strip_prefix('$') {
            Some(rest) => rest.split_once('/').map_or("", |(_, rest)| rest),
            None => piece,
        };
        // A program without a directory is found on `PATH`.
        let is_on_path = index == 0 && !piece.contains('/');
        if is_on_path || text.starts_with('-') || text.is_empty() || text.contains(['%', '*', '?', '$', '\\'])
        {
            continue;
        }
        let is_path = text.starts_with(['.', '/', '~']) && text.contains('/');
        let is_program = index == 0 && text.contains('/');
        let is_file = piece == text && (is_path || is_program) || is_script(text);
        words.push(CommandWord { text: text.to_owned(), is_file });
    }
    words
}

/// Whether a name has the ending of a script.
pub(super) fn is_script(word: &str) -> bool {
    let ending = word.rsplit_once('.').filter(|(stem, _)| !stem.is_empty());
    ending.is_some_and(|(_, ending)| SCRIPTS.contains(&ending.to_ascii_lowercase().as_str()))
}

/// Whether `command` has Python import modules from its working directory, which git makes the top of the working tree.
pub(super) fn imports_from_working_directory(command: &str) -> bool {
    let words: Vec<&str> =
        command.split(|character: char| character.is_whitespace() || "\"'!;&|".contains(character)).collect();
    let names = words.iter().map(|word| word.rsplit('/').next().unwrap_or_default());
    let starts = names.enumerate().filter(|(_, name)| name.starts_with("python")).map(|(index, _)| index);
    let mut options = starts
        .map(|start| words[start + 1..].iter().take_while(|word| word.is_empty() || word.starts_with('-')));
    options.any(|options| {
        let flags: Vec<&str> = options.copied().collect();
        let has =
            |letters: &[char]| flags.iter().any(|flag| !flag.starts_with("--") && flag.contains(letters));
        has(&['m', 'c']) && !has(&['I', 'P'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: &[(&str, bool)]) {
        let words = words(command);
        let found: Vec<_> = words.iter().map(|word| (word.text.as_str(), word.is_file)).collect();
        assert_eq!(found, expected, "{command}");
    }

    #[test]
    fn programs_by_their_path_and_scripts_are_files_though_there_are_none() {
        check("tools/clean %f", &[("tools/clean", true)]);
        check("python3 tools/clean.py --x", &[("tools/clean.py", true)]);
        check("sh -c './a.sh \"$1\"'", &[("./a.sh", true)]);
        check("sed s/a/b/", &[("s/a/b/", false)]);
        check("git-lfs clean -- %f", &[("clean", false)]);
        check("", &[]);
    }

    #[test]
    fn the_top_of_the_working_tree_is_known_in_the_spellings_of_shells() {
        let top = [("./run", true)];
        check("!$(git rev-parse --show-toplevel)/run", &top);
        check("`git rev-parse --show-toplevel`/run", &top);
        check("$GIT_WORK_TREE/run", &top);
        check("$PROJECT/run", &[("run", false)]);
        check("$HOME/run", &[("~/run", true)]);
    }

    #[test]
    fn python_imports_from_the_working_directory_unless_it_is_told_not_to() {
        for command in [
            "python -m nbstripout",
            "\"/usr/bin/python3\" -m nbstripout -t",
            "!python3.12 -Bm x",
            "sh -c 'python -c 1'",
        ] {
            assert!(imports_from_working_directory(command), "{command}");
        }
        for command in ["python -P -m x", "python3 -Im x", "python tools/x.py -m", "nbstripout", "sh -c x"] {
            assert!(!imports_from_working_directory(command), "{command}");
        }
    }
}
