#!/bin/sh
# Installs the pinned tools of tests/tools/release.txt on a runner of the forge, and puts them on its PATH.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
tools=${RUNNER_TEMP:?is set by the runner; else, install tests/tools/release.txt into an environment}/release-tools
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check -r "$root/tests/tools/release.txt"
echo "$tools/bin" >>"${GITHUB_PATH:?is set by the runner}"
