#!/bin/sh
# The compressed twins of the sample site's text files, which nodes send to
# clients that accept them.
#
#   sidecars.sh            writes them (wants gzip, brotli and zstd)
#   sidecars.sh --check    compares them with their files; a twin whose tool is
#                          not installed is named and left out
set -eu
cd "$(dirname "$0")/site"

names="style.css site.js"

write() {
    for name in $names; do
        gzip -9 -n -c "$name" >"$name.gz"
        brotli -q 11 -f -o "$name.br" "$name"
        zstd -19 -q -f -o "$name.zst" "$name"
    done
}

compare() { # TWIN COMMAND...
    twin=$1
    shift
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "examples/site/$twin: not checked, $1 is not installed"
    elif ! "$@" <"$twin" | cmp -s - "${twin%.*}"; then
        echo "examples/site/$twin: is not ${twin%.*} compressed: run examples/sidecars.sh" >&2
        exit 1
    fi
}

case ${1-} in
--check)
    for name in $names; do
        compare "$name.gz" gzip -dc
        compare "$name.br" brotli -dc
        compare "$name.zst" zstd -dc
    done
    ;;
"") write ;;
*)
    echo "usage: sidecars.sh [--check]" >&2
    exit 2
    ;;
esac
