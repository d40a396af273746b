//! Files that code makes at the top of the workspace, and programs on the host take for their configuration.

use std::path::Path;

use super::host::{Backend, Host, User};
use super::nothing_gets_through_by;

/// Names by which programs find a configuration in the directory where they are started or opened, known to the sandbox or
/// not.
const NAMES: &str = r"
opencode.json opencode.jsonc .python-version .python-versions crush.json .crush.json .RData rust-toolchain.toml rust-toolchain
.bsp/x.json .merlin .latexmkrc latexmkrc hk.pkl gptme.toml .continuerc.json .continuerc.js .node-version .nvmrc .ruby-version
.java-version .sdkmanrc .envrc.local tox.ini pytest.ini setup.cfg pyproject.toml mypy.ini .mypy.ini pylintrc .pylintrc ruff.toml
.ruff.toml conftest.py noxfile.py Makefile GNUmakefile justfile .justfile Taskfile.yml deno.json deno.jsonc .eslintrc.js
eslint.config.js prettier.config.mjs .prettierrc.js vite.config.ts babel.config.json .babelrc tsconfig.json .stylelintrc.cjs
.lintstagedrc.js .rubocop.yml .solargraph.yml Rakefile Gemfile Cargo.toml build.rs CMakeLists.txt .clangd .clang-tidy
compile_commands.json compile_flags.txt WORKSPACE.bazel MODULE.bazel gradlew build.gradle build.gradle.kts pom.xml nuget.config
Directory.Build.props global.json x.csproj .sbtopts .jvmopts build.sbt .scalafix.conf .metals/x .zed/x .trunk/trunk.yaml
.lefthook-new.yml .pre-commit-config.yml .lfsconfig .sqlfluff .sqliterc .dbtrc .terraformrc .tflint.hcl hie.yaml .hlint.yaml
cabal.project stack.yaml mix.exs .formatter.exs .tmuxinator.yml .screenrc .gnuplot .julia/x Project.toml .Rprofile.site x.Rproj
jupyter_server_config.py ipython_config.py matplotlibrc .pythonrc .pythonstartup sitecustomize.py AGENTS.md CLAUDE.md
GEMINI.md .cursorrules .windsurfrules .goosehints mcp.json .vimspector.json .ycm_extra_conf.py .tool-that-nobody-knows
.tool-that-nobody-knows.d/x unknown.toml unknown.conf .OpenCode.json HEAD OPENCODE.JSON
";

/// Code that plants them, in every way in which a name comes into being.
const PLANT: &str = r"
import ctypes, os, shutil
libc = ctypes.CDLL(None)
TEXT = 'PLANTED'
def file(path):
    with open(path, 'w') as opened: opened.write(TEXT)
def write(name): file(name)
def rename(name): file('source'); os.rename('source', name)
def link(name): file('source'); os.link('source', name)
def symbolic(name): file('source.txt'); os.symlink('source.txt', name)
def unnamed(name):
    descriptor = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(descriptor, TEXT.encode())
    os.link(f'/proc/self/fd/{descriptor}', name, follow_symlinks=True)
def directory(name): os.makedirs('made', exist_ok=True); file('made/x'); os.rename('made', name)
def swap(name):
    file('source')
    if libc.renameat2(-100, b'source', -100, name.encode(), 2): raise OSError('swap')
def child(name): os.system(f'echo {TEXT} > {name}')
for path in names.split():
    name = path.split('/')[0]
    for way in (write, rename, link, symbolic, unnamed, directory, swap, child):
        if way is write and '/' in path:
            try: os.makedirs(name, exist_ok=True); file(path)
            except OSError: pass
            continue
        try: way(name)
        except OSError: pass
";

/// Names at the top whose file, or a file in it, code has written.
fn planted(workspace: &Path) -> Vec<String> {
    let is_of_code =
        |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("PLANTED"));
    let entries = std::fs::read_dir(workspace).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.filter(|path| {
        let mut below = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        is_of_code(path) || below.any(|path| is_of_code(&path))
    });
    let names = found.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    // Their names configure nothing.
    names.filter(|name| !["source", "source.txt", "made", "kept.csv"].contains(&name.as_str())).collect()
}

async fn everything(backend: Backend, user: User) -> String {
    let Some(host) = Host::new(backend, user) else { return String::new() };
    let workspace = host.workspace();
    let mut ipybox = host.start();
    ipybox.initialize().await;
    let mut through = Vec::new();
    let answer = ipybox.cell(&format!("names = {NAMES:?}\n{PLANT}")).await;
    through.extend(planted(&workspace).into_iter().map(|name| format!("{name} is there after the cell")));
    if !answer.text.contains("filesystem.allowWrite") {
        through.push(format!("the answer does not say how a name is permitted: {}", answer.text));
    }
    // Nothing is lost, and code cannot write to what was moved.
    let aside = workspace.join(".ipybox/set-aside");
    if std::fs::read_dir(&aside).map(Iterator::count).unwrap_or_default() < 50 {
        through.push("what was moved is not in `.ipybox/set-aside`".to_owned());
    }
    let writing = "
for entry in os.scandir('.ipybox/set-aside'):
    try: file(entry.path)
    except OSError: continue
    print('wrote', entry.path)";
    through.extend(
        ipybox.cell(writing).await.text.lines().filter(|line| line.starts_with("wrote")).map(str::to_owned),
    );
    // While a cell runs, the host does not wait for its end; nor does it confuse a short time with no change.
    let waiting = "
import time
def gone(name, deadline):
    while os.path.lexists(name):
        if time.monotonic() > deadline: return print('still there', name)
for round in range(5):
    for name in ['.while-it-runs', 'while-it-runs.toml']:
        file(name)
        file('kept.csv')
        gone(name, time.monotonic() + 120)";
    through.extend(
        ipybox.cell(waiting).await.text.lines().filter(|line| line.starts_with("still")).map(str::to_owned),
    );
    if !workspace.join("kept.csv").exists() {
        through.push("an ordinary file was moved".to_owned());
    }
    // The time of the directory's last change is not code's to set.
    let forged = "file('.forged'); os.utime('.', ns=(0, 0))";
    ipybox.cell(forged).await.ok();
    through.extend(
        planted(&workspace).into_iter().map(|name| format!("{name} is there after the times were set")),
    );
    // Between cells users work here, too: what comes then is told, not moved.
    let late =
        "import threading\nthreading.Timer(0.01, lambda: (file('.late'), file('late-done.txt'))).start()";
    let mut told = ipybox.cell(late).await.text;
    while !workspace.join("late-done.txt").exists() {
        told.push_str(&ipybox.cell("1").await.text);
    }
    told.push_str(&ipybox.cell("1").await.text);
    if !told.contains("`.late`") {
        through.push(format!("a file that came between cells is not told: {told}"));
    }
    ipybox.stop().await;
    if through.is_empty() { String::new() } else { format!("{backend:?} {user:?}:\n{}", through.join("\n")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_program_of_the_host_finds_a_configuration_that_code_has_made_at_the_top() {
    nothing_gets_through_by(everything).await;
}
