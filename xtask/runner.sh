#!/bin/sh
# Cargo's runner (.cargo/config.toml): starts a test with a PATH that holds the programs of
# tests/tools.txt and nothing else, so that one that no script installs fails on every machine.
#
#   runner.sh EXECUTABLE ARGUMENT...
#
# What is no test, such as what `cargo run` starts, keeps its PATH.
set -eu

case $1 in
*/deps/*) ;;
*) exec "$@" ;;
esac

# The file of a program. (`command -v` names what the shell does itself without one.)
file_of() {
    IFS=:
    # Servers stand where a user's PATH may not look.
    for folder in $PATH:/usr/sbin:/sbin; do
        [ ! -x "$folder/$1" ] || { echo "$folder/$1"; return; }
    done
}

# Lines of COMMAND FILE, of those that are there.
found() {
    while read -r command _; do
        case $command in '' | '#'*) continue ;; esac
        file=$(file_of "$command")
        [ -z "$file" ] || echo "$command $file"
    done <"$(dirname "$0")/../tests/tools.txt"
}

tools=$(found)
# A folder for each state of the list, beside the executables; made whole, then renamed.
folder=${1%/deps/*}/test-path/$(echo "$tools" | cksum | cut -d' ' -f1)
if [ ! -d "$folder" ]; then
    mkdir -p "${folder%/*}"
    new=$(mktemp -d "$folder.XXXXXX")
    chmod 755 "$new"
    echo "$tools" | while read -r command file; do ln -s "$file" "$new/$command"; done
    mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
fi
PATH=$folder
exec "$@"
