# Kills the process groups, and removes the directories, of a program that was killed before it could do so itself.
# Its lines on standard input: `+ GROUP` and `- GROUP` as a group begins and ends, `~ GROUP` for one that may clean up
# behind itself, `/ DIRECTORY`; then the end.
trap '' INT TERM HUP
groups=' '
gentle=' '
directories=
while read -r sign name; do
    case $sign in
        +) groups="$groups$name " ;;
        -) case $groups in *" $name "*) groups="${groups%%" $name "*} ${groups#*" $name "}" ;; esac ;;
        '~') gentle="$gentle$name " ;;
        /) directories="$directories$name
" ;;
    esac
done
waiting=
for group in $groups; do
    # Not `-KILL --`: dash takes the dashes for a process.
    case $gentle in
        *" $group "*) kill -s TERM -- "-$group" && waiting="$waiting $group" ;;
        *) kill -s KILL -- "-$group" ;;
    esac
done 2>/dev/null
printf '%s' "$directories" | while read -r directory; do
    rm -rf -- "$directory"
done
# Half a second at a time, for five seconds.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    living=
    for group in $waiting; do
        kill -s 0 -- "-$group" && living="$living $group"
    done 2>/dev/null
    waiting=$living
    [ -z "$waiting" ] && break
    sleep 0.5
done
for group in $waiting; do
    kill -s KILL -- "-$group"
done 2>/dev/null
