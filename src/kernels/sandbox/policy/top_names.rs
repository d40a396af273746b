//! Names at the top of a workspace that take a permission of the policy: programs may take configuration from such a file
//! without being told to; pure.
//!
//! It knows formats rather than programs: a list of programs is always behind. Names that begin with a dot configure
//! something, unless they are listed here; so do files in formats of configuration. Formats that are data as well (JSON,
//! YAML, Markdown, source code) are listed by name.

/// Names with a dot that configure nothing, also with a further ending: caches, histories, results of builds.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    ".angular", ".astro", ".benchmarks", ".cache", ".coverage", ".directory", ".docusaurus", ".ds_store",
    ".eslintcache", ".gitkeep", ".hypothesis", ".ipynb_checkpoints", ".joblib", ".jupyter_cache", ".jupyter_ystore", ".keep",
    ".mypy_cache", ".next", ".nextflow", ".nojekyll", ".nuxt", ".nyc_output", ".parcel-cache", ".phpunit.result.cache",
    ".pytest_cache", ".python_history", ".rhistory", ".rspec_status", ".quarto", ".ruff_cache", ".sass-cache", ".snakemake", ".stack-work",
    ".stylelintcache", ".svelte-kit", ".trash", ".tsbuildinfo", ".turbo", ".virtual_documents", ".vite",
];

/// Beginnings of the names of temporary files: of editors, file systems, programs that replace a file, and ipybox.
const TEMPORARY: &[&str] = &[".~", "._", ".#", ".fuse_hidden", ".ipybox-new-", ".nfs", ".tmp"];

/// Endings of names with a dot that configure nothing: lists of ignored files, temporary files of editors.
const HARMLESS_ENDINGS: &[&str] = &["ignore", ".ipynb", ".swp", ".swo", ".swx", ".tmp", ".temp", ".part"];

/// Endings of formats of configuration.
#[rustfmt::skip]
const FORMATS: &[&str] = &[
    // Of any program.
    "cfg", "cnf", "conf", "config", "ini", "json5", "jsonc", "kdl", "neon", "plist", "properties", "rc", "toml", "cue", "hcl",
    "nix", "dhall", "jsonnet", 
    // Of editors, desktops and projects.
    "code-workspace", "sublime-project", "sublime-workspace", "sublime-settings", "iml", "ipr", "iws", "el", "vim",
    "desktop", "service", "rproj", "xcconfig", "workspace",
    // Of package managers and build tools.
    "bazel", "bzl", "cabal", "cmake", "csproj", "fsproj", "gemspec", "gradle", "kts", "mk", "nimble", "ninja", "opam",
    "podspec", "props", "rockspec", "sbt", "sln", "targets", "vcxproj",
];

/// Files in other formats, or in none, by their programs.
#[rustfmt::skip]
const FILES: &[&str] = &[
    // Agents, and what they read as instructions.
    "agent.md", "agents.md", "agents.override.md", "claude.local.md", "claude.md", "copilot-instructions.md",
    "codebuff.json", "crush.json", "crush.md", "fastagent.config.yaml", "fastagent.secrets.yaml", "forge.yaml", "gemini.md",
    "iflow.md", "kilo.json", "mcp.json", "mcp_agent.config.yaml", "mcp_agent.secrets.yaml", "opencode.json", "opencode.md", "qwen.md", "smithery.yaml", "warp.md",
    // Shells, editors, language servers.
    "_exrc", "_gvimrc", "_vimrc", "analysis_options.yaml", "compile_commands.json", "compile_flags.txt", "hie.yaml", "jsconfig.json",
    "pyrightconfig.json", "session.vim", "tsconfig.json", "tslint.json", "wallaby.js", "zls.build.json",
    // Version control, and what it runs.
    "head", "hk.pkl", "lefthook.json", "lefthook.yaml", "lefthook.yml", "overcommit.yml", "package.json",
    // Interpreters and tools that read a file where they are started.
    "autoexec.sas", "celeryconfig.py", "config.nims", "conftest.py", "dodo.py", "fabfile.py", "ipython_config.py", "latexmkrc", "matplotlibrc",
    "noxfile.py", "pathdef.m", "profile.do", "pylintrc", "screenrc", "setup.py", "sitecustomize.py", "startup.m",
    "usercustomize.py", "xonshrc",
    // Package managers and build tools.
    "angular.json", "bb.edn", "biome.json", "bower.json", "brewfile", "bsconfig.json", "build.bazel", "build.mill",
    "build.rs", "build.sc", "build.xml", "build.zig", "build.zig.zon", "cabal.project", "capfile", "cmakelists.txt",
    "cmakepresets.json", "cmakeuserpresets.json", "composer.json", "containerfile", "deno.json", "deps.edn",
    "devbox.json", "devcontainer.json", "devenv.yaml", "dockerfile", "dprint.json", "dub.json", "dune",
    "dune-project", "dune-workspace", "earthfile", "elm.json", "flake.lock", "gemfile", "global.json", "gnumakefile", "go.mod", "go.work",
    "gradlew", "guardfile", "jenkinsfile", "justfile", "lakefile.lean", "lean-toolchain", "lerna.json",
    "makefile", "meson.build", "mise", "mix.exs", "module.bazel", "mvnw", "nodemon.json", "nx.json", "package.swift", "packages.json",
    "phpunit.xml", "pipfile", "pklproject", "pnpm-workspace.yaml", "podfile", "pom.xml", "procfile", "project.clj", "project.json",
    "rakefile", "rescript.json", "rush.json", "rust-toolchain", "sconstruct", "shadow-cljs.edn", "stack.yaml",
    "turbo.json", "vagrantfile", "wscript",
];

/// The beginnings and ends of names that a program has in several formats.
#[rustfmt::skip]
const FAMILIES: &[(&str, &str)] = &[
    ("", ".config.cjs"), ("", ".config.cts"), ("", ".config.js"), ("", ".config.json"), ("", ".config.mjs"),
    ("", ".conf.js"), ("", ".conf.py"), ("", ".config.mts"), ("", ".config.ts"), ("", ".config.yaml"), ("", ".config.yml"),
    ("", ".local.json"), ("_", ".yml"), ("gruntfile.", ""), ("gulpfile.", ""), ("", "rc.cjs"), ("", "rc.js"), ("", "rc.json"),
    ("", "rc.mjs"), ("", "rc.yaml"), ("", "rc.yml"), ("devenv.", ".nix"), ("devenv.", ".yaml"), ("jupyter", "_config.json"),
    ("jupyter", "_config.py"), ("lefthook-local.", ""), ("mkdocs.", "yml"), ("taskfile.", "yaml"), ("taskfile.", "yml"),
    ("vitest.workspace.", ""), ("wrangler.", ".json"),
];

/// Characters that file systems of macOS ignore in names.
const IGNORED: [(char, char); 4] =
    [('\u{200c}', '\u{200f}'), ('\u{202a}', '\u{202e}'), ('\u{206a}', '\u{206f}'), ('\u{feff}', '\u{feff}')];

/// Whether code may create a file or directory of this name at the top of the workspace only if the policy permits it.
pub(in crate::kernels::sandbox) fn takes_permission(name: &str) -> bool {
    let is_seen = |character: &char| !IGNORED.iter().any(|(first, last)| (first..=last).contains(&character));
    // File systems may not distinguish upper and lower case.
    let name: String = name.chars().filter(is_seen).flat_map(char::to_lowercase).collect();
    if name.starts_with('.') {
        let is_harmless = |known: &&str| {
            let rest = name.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
        };
        let is_temporary = TEMPORARY.iter().any(|start| name.starts_with(start));
        return !is_temporary
            && !HARMLESS.iter().any(is_harmless)
            && !HARMLESS_ENDINGS.iter().any(|end| name.ends_with(end));
    }
    let format = name.rsplit_once('.').map(|(_, format)| format);
    let is_of_family = || FAMILIES.iter().any(|(start, end)| name.starts_with(start) && name.ends_with(end));
    format.is_some_and(|format| FORMATS.contains(&format)) || FILES.contains(&name.as_str()) || is_of_family()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_dot_and_formats_of_configuration_take_permission() {
        for name in [
            ".python-version",
            ".RData",
            ".bsp",
            ".merlin",
            ".latexmkrc",
            ".continuerc.json",
            ".vscode",
            ".VSCode",
            ".anything-new",
            ".coveragerc",
            ".cacherc",
            "opencode.json",
            "OpenCode.JSON",
            "crush.json",
            "hk.pkl",
            "gptme.toml",
            "rust-toolchain.toml",
            "rust-toolchain",
            "Makefile",
            "HEAD",
            "AGENTS.md",
            "vite.config.mts",
            "tox.ini",
            "x.code-workspace",
            "pyproject.toml",
            "jupyter_server_config.py",
            "Taskfile.dist.yml",
            "a\u{200c}.toml",
            "\u{200c}.git",
            ".",
        ] {
            assert!(takes_permission(name), "{name}");
        }
    }

    #[test]
    fn what_data_analysts_make_takes_none() {
        for name in [
            "sales.csv",
            "model.pkl",
            "result.json",
            "config.yaml",
            "config.json",
            "environment.yml",
            "report.html",
            "notes.md",
            "README.md",
            "requirements.txt",
            "analysis.py",
            "plot.png",
            "db.sqlite",
            "db.sqlite-wal",
            "data",
            "outputs",
            "mlruns",
            "model.joblib",
            "x.parquet",
            "x.ipynb",
            "shelf",
            "a.b.c",
            "Untitled.ipynb",
            ".ipynb_checkpoints",
            ".cache",
            ".~notebook.ipynb",
            ".nfs000000000123",
            ".gitignore",
            ".coverage.host.1",
            ".report.csv.swp",
            "script.R",
            "query.sql",
            "index.js",
            "params.yaml",
            "package-lock.json",
            "x.csv.lock",
            "build",
            "node_modules",
            "Snakefile",
            "x.geojson",
            "x.xml",
            "x.npz",
            "model.pth",
            "train.log",
            "Dockerfile.txt",
        ] {
            assert!(!takes_permission(name), "{name}");
        }
    }
}
