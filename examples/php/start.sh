#!/bin/sh
# Starts php-fpm and Skep for this folder, until Ctrl-C. Needs: apt install php-fpm
#   SKEP      the binary (default: skep)
#   ADDRESS   where to listen (default: 127.0.0.1:8080)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fpm=$(ls /usr/sbin/php-fpm[0-9]* 2>/dev/null | sort -V | tail -n 1)
[ -n "$fpm" ] || { echo "no php-fpm: apt install php-fpm" >&2; exit 1; }

run=$(mktemp -d)
chmod 755 "$run"
pids=
trap '[ -z "$pids" ] || kill $pids 2>/dev/null; wait; rm -rf "$run"' EXIT
trap 'exit 0' INT TERM
mkdir -m 1733 "$run/sessions-one" "$run/sessions-two"
for file in skep.toml php-fpm.conf; do
    sed "s|@HERE@|$here|g; s|@RUN@|$run|g; s|@ADDRESS@|${ADDRESS:-127.0.0.1:8080}|g" \
        "$here/$file" > "$run/$file"
done
# Only root can give the socket away, or become another user.
[ "$(id -u)" = 0 ] || sed -i '/^user\|^group\|^listen\.\(owner\|group\)/d' "$run/php-fpm.conf"

"$fpm" --nodaemonize --fpm-config "$run/php-fpm.conf" &
pids=$!
echo "for skep's commands: export SKEP_SOCKET=$run/state/comb.sock"
"${SKEP:-skep}" run --config "$run/skep.toml" --as comb &
pids="$pids $!"
wait $!
