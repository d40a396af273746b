# %% The server works on a repository that the cell makes.
import subprocess
from pathlib import Path

from mcptools.git import git_add, git_commit, git_create_branch, git_log, git_status

repository = Path("repository").resolve()


def git(*arguments):
    """Runs git in the repository; gives its output back."""
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


repository.mkdir()
git("init", "-q")
git("config", "user.name", "Test")
git("config", "user.email", "test@example.org")

# %% Files are committed one by one, and each status decides whether there is something to commit.
commits = 0
for name in ("one", "two", "two"):
    (repository / f"{name}.txt").write_text(f"{name}\n")
    git_add.run(git_add.Params(repo_path=str(repository), files=[f"{name}.txt"]))
    status = git_status.run(git_status.Params(repo_path=str(repository)))
    if "nothing to commit" not in status:
        git_commit.run(
            git_commit.Params(repo_path=str(repository), message=f"Add {name}")
        )
        commits += 1
assert commits == 2, commits

# %% An optional parameter is left out, then given.
everything = git_log.run(git_log.Params(repo_path=str(repository)))
assert "Add one" in everything and "Add two" in everything, everything
latest = git_log.run(git_log.Params(repo_path=str(repository), max_count=1))
assert "Add two" in latest and "Add one" not in latest, latest

git_create_branch.run(
    git_create_branch.Params(repo_path=str(repository), branch_name="topic")
)
branches = git("branch", "--format=%(refname:short)").split()
assert len(branches) == 2 and "topic" in branches, branches

# %% The server's refusal is the tool call's error.
try:
    git_status.run(git_status.Params(repo_path="/nowhere/to/be/found"))
except Exception as error:  # noqa: BLE001 - its class is known by name only
    names = [cls.__name__ for cls in type(error).__mro__]
    assert "ToolRunnerError" in names, names
    assert "/nowhere/to/be/found" in str(error), error
else:
    raise AssertionError("a missing repository is no error")

# %%
print("git: done")
