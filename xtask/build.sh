#!/bin/sh
# Builds packages for release, and says what it does and how far it is. On a terminal cargo's
# bar shows the latter; elsewhere cargo would only name crates.
#
#   build.sh PACKAGE...
set -eu

say() { echo "skep: $*"; }

cd "$(dirname "$0")/.."
folder=${CARGO_TARGET_DIR:-target}/release
packages=$(printf -- '--package %s ' "$@")

# shellcheck disable=SC2086 # options, one word each
crates=$(cargo tree $packages --edges normal,build --prefix none | sed 's/ (\*)$//' | sort -u | wc -l)
say "building $* for release, to $folder: $crates crates and some 5 minutes on two cores the first time;" \
    "the last step makes one program of all, takes half of that and says nothing"

# shellcheck disable=SC2086
build() { cargo build --release $packages; }

# Cargo's lines, those of crates with a number; ends as cargo did.
numbered() {
    crate=0
    while IFS= read -r line; do
        case $line in
        *' Compiling '*)
            crate=$((crate + 1))
            say "crate $crate of at most $crates:${line#*Compiling}"
            ;;
        'end '*) return "${line#end }" ;;
        *) echo "$line" ;;
        esac
    done
}

if [ -t 2 ]; then
    build
else
    { build 2>&1 && echo "end 0" || echo "end $?"; } | numbered
fi
