#!/bin/sh
# The systemd unit parses and exposes little. Skips loudly without systemd.
set -eu
cd "$(dirname "$0")"

# Tenths, on the scale of `systemd-analyze security`: 0 is nothing, 100 is all.
exposure_max=20

if ! command -v systemd-analyze >/dev/null 2>&1; then
    echo "packaging: SKIPPED, there is no systemd-analyze here"
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
# `verify` wants the program to exist.
sed 's|/usr/bin/skep|/bin/true|' skep.service >"$folder/skep.service"
systemd-analyze verify "$folder/skep.service"
systemd-analyze security --offline=true --threshold="$exposure_max" skep.service >"$folder/exposure" || {
    cat "$folder/exposure"
    exit 1
}
tail -n 1 "$folder/exposure" | sed 's/^[^A-Z]*/packaging: /'
