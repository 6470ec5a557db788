#!/bin/sh
# The systemd unit parses and exposes little. Skips loudly without systemd.
set -eu
cd "$(dirname "$0")"

# Tenths, on the scale of `systemd-analyze security`: 0 is nothing, 100 is all.
# netguard holds capabilities, and so is exposed more.
exposure_max=20
netguard_exposure_max=30

if ! command -v systemd-analyze >/dev/null 2>&1; then
    echo "packaging: SKIPPED, there is no systemd-analyze here"
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
# `verify` wants the program to exist; drop-ins are read with their unit.
for unit in skep.service skep-netguard@.service; do
    sed 's|/usr/bin/skep|/bin/true|' "$unit" >"$folder/$unit"
done
mkdir "$folder/skep.service.d"
cp ./*.conf "$folder/skep.service.d"
systemd-analyze verify "$folder/skep.service" "$folder/skep-netguard@.service"

check_exposure() { # UNIT MAX
    systemd-analyze security --offline=true --threshold="$2" "$1" >"$folder/exposure" || {
        cat "$folder/exposure"
        exit 1
    }
    tail -n 1 "$folder/exposure" | sed 's/^[^A-Z]*/packaging: /'
}
check_exposure skep.service "$exposure_max"
check_exposure skep-netguard@.service "$netguard_exposure_max"
