# Kills the process groups, and removes the directories, of a program that was killed before it could do so itself.
# Its lines on standard input: `+ GROUP` and `- GROUP` as a group begins and ends, `/ DIRECTORY`; then the end.
trap '' INT TERM HUP
groups=' '
directories=
while read -r sign name; do
    case $sign in
        +) groups="$groups$name " ;;
        -) case $groups in *" $name "*) groups="${groups%%" $name "*} ${groups#*" $name "}" ;; esac ;;
        /) directories="$directories$name
" ;;
    esac
done
for group in $groups; do
    # Not `-KILL --`: dash takes the dashes for a process.
    kill -s KILL -- "-$group"
done 2>/dev/null
printf '%s' "$directories" | while read -r directory; do
    rm -rf -- "$directory"
done
