#!/bin/sh
# Prepares a runner of the forge, with Ubuntu, for tests of sandboxes.
set -eu

sudo apt-get update -q
sudo apt-get install -q -y --no-install-recommends bubblewrap ripgrep socat
# Ubuntu lets programs without an AppArmor profile make no user namespaces, which is what bubblewrap works with.
sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0
