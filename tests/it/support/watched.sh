#!/bin/sh
# watched DIRECTORY COMMAND…: runs the command until it ends by itself or stdin does, then removes the directory.
# Stdin is a pipe from the tests: it ends with their process, however that ends, and nothing is left behind.
set -u

directory=$1
shift

# In the background stdin is /dev/null.
exec 3<&0
"$@" </dev/null 3<&- &
command=$!
{
    # Nothing is ever written: this waits for the end.
    read -r _ <&3
    kill "$command"
    sleep 10
    kill -KILL "$command"
} 2>/dev/null &
watcher=$!
exec 3<&-

wait "$command"
status=$?
kill "$watcher" 2>/dev/null
# A kernel that dies with its server may have been writing still.
rm -rf -- "$directory" || { sleep 1 && rm -rf -- "$directory"; }
exit "$status"
