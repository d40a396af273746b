# Kills the process groups, and removes the directories, of a program that was killed before it could do so itself.
# Its lines on standard input, until its end: `+ GROUP` and `- GROUP` as a group begins and ends, `~ GROUP` for one that is
# asked to end before it is killed, `. GROUP` for one that has been asked already, `= GROUP` for neither any more,
# `/ DIRECTORY`, `c DIRECTORY` for one of a control group.
trap '' INT TERM HUP
groups=' '
gentle=' '
asked=' '
directories=
controlled=
while read -r sign name; do
    case $sign in
        +) groups="$groups$name " ;;
        -) case $groups in *" $name "*) groups="${groups%%" $name "*} ${groups#*" $name "}" ;; esac ;;
        '~') gentle="$gentle$name " ;;
        .) asked="$asked$name " ;;
        =) case $gentle in *" $name "*) gentle="${gentle%%" $name "*} ${gentle#*" $name "}" ;; esac ;;
        /) directories="$directories$name
" ;;
        c) controlled="$controlled$name
" ;;
    esac
done
waiting=
for group in $groups; do
    # Not `-KILL --`: dash takes the dashes for a process.
    case $gentle in
        *" $group "*)
            waiting="$waiting $group"
            # A second request would have npx end at once.
            case $asked in *" $group "*) ;; *) kill -s TERM -- "-$group" ;; esac
            ;;
        *) kill -s KILL -- "-$group" ;;
    esac
done 2>/dev/null
# Nothing is started there any more.
printf '%s' "$controlled" | while read -r directory; do
    [ -e "$directory/pids.max" ] && echo 0 >"$directory/pids.max"
done 2>/dev/null
# What is there may take a moment to end.
printf '%s' "$controlled" | while read -r directory; do
    turn=0
    while [ -d "$directory" ] && ! rmdir "$directory" && [ "$turn" -lt 250 ]; do
        while read -r process; do kill -s KILL "$process"; done <"$directory/cgroup.procs"
        sleep 0.02
        turn=$((turn + 1))
    done
done 2>/dev/null
printf '%s' "$directories" | while read -r directory; do
    rm -rf -- "$directory"
done
# Half a second at a time, for a minute.
turn=0
while [ "$turn" -lt 120 ]; do
    living=
    for group in $waiting; do
        kill -s 0 -- "-$group" && living="$living $group"
    done 2>/dev/null
    waiting=$living
    [ -z "$waiting" ] && break
    sleep 0.5
    turn=$((turn + 1))
done
for group in $waiting; do
    kill -s KILL -- "-$group"
done 2>/dev/null
