# Cleans up after a bed, whoever ended it and however.
#
#   janitor.sh FILE     FILE is the bed's; stdout holds its lock until we end
#
# stdin tells, line by line, what there is: `net INODE HOLDER`, `cgroup FOLDER`,
# `link DEVICE`, and what no longer is: `gone INODE`. Its end is the end of the
# bed: kill all processes inside the networks, then take away what outlives
# processes. Holders stay until we end, which they learn by their leash, our
# stderr: while they live, no other network gets the number of theirs.

# Words `INODE:HOLDER`.
nets= cgroups= links=
while read -r kind value holder; do
    case $kind in
    net) nets="$nets $value:$holder" ;;
    gone)
        rest=
        for net in $nets; do [ "${net%:*}" = "$value" ] || rest="$rest $net"; done
        nets=$rest
        ;;
    cgroup) cgroups="$cgroups $value" ;;
    link) links="$links $value" ;;
    esac
done

living() {
    find /proc/[0-9]*/ns/net -maxdepth 0 -printf '%h %l\n' 2>/dev/null |
        while IFS='/ []' read -r _ _ pid _ _ net _; do
            case "$nets " in
            *" $net:$pid "*) ;;
            *" $net:"*) echo "$pid" ;;
            esac
        done
}

tries=1000
while pids=$(living) && [ -n "$pids" ] && [ $tries -gt 0 ]; do
    kill -9 $pids 2>/dev/null
    tries=$((tries - 1))
    sleep 0.01
done

for link in $links; do ip link delete dev "$link" 2>/dev/null; done

for cgroup in $cgroups; do
    tries=100
    until rmdir "$cgroup"/*/ "$cgroup" 2>/dev/null || [ ! -e "$cgroup" ] || [ $tries -eq 0 ]; do
        tries=$((tries - 1))
        sleep 0.01
    done
done

rm -f "$1"
