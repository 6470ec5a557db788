# Makes a machine of a bed one with systemd as process 1: in the machine's network, with its bpffs,
# and with all else of its own.
#
#   systemd.sh ROOT CONTROL_GROUP SKEP
#
# ROOT holds what is particular to this machine (see systemd.rs); the rest comes from the machine
# below. CONTROL_GROUP is a path below the root of version 2, SKEP the binary under test.
set -eu

if [ $# -eq 3 ]; then
    mkdir "/sys/fs/cgroup/$2"
    echo $$ >"/sys/fs/cgroup/$2/cgroup.procs"
    exec unshare --pid --mount --cgroup --uts --ipc --fork --kill-child sh "$0" "$@" inside
fi

cd "$1"
mount --bind . .
cd "$1"
for folder in lib lib64; do
    [ ! -d "/usr/$folder" ] || { mkdir "usr/$folder" && mount --bind "/usr/$folder" "usr/$folder"; }
done
# Units and generators of the machine below would start what it has.
mount --bind units usr/lib/systemd/system
mount -t tmpfs lab usr/lib/systemd/system-generators
mount --bind "$3" usr/bin/skep

mount -t proc lab proc
mount --bind /sys sys
mount --bind /sys/fs/bpf sys/fs/bpf
mount -t cgroup2 lab sys/fs/cgroup
mount -t tmpfs -o mode=755 lab run
mount -t tmpfs lab tmp
mount -t tmpfs -o mode=755 lab dev
for device in null zero full random urandom tty ptmx; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done

mkdir below
pivot_root . below
export container=skep-test PATH=/usr/bin
umount -l below
exec /usr/lib/systemd/systemd --system --unit=basic.target --show-status=no
