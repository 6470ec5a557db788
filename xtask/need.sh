#!/bin/sh
# Installs what a make target lacks, and says so in one line for each.
#
#   need.sh THING...     THING is `cargo`, `cc`, or COMMAND[:DEBIAN-PACKAGE]
#
# Works as root or with sudo. What is there already costs nothing.
set -eu

# Servers stand where a user's PATH may not look.
PATH=$PATH:/usr/sbin:/sbin

say() { echo "skep: $*"; }
fail() { echo "skep: $*" >&2; exit 1; }

has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        fail "neither root nor sudo: run as root '$*', then try again"
    fi
}

# Package lists are fetched once, and only when something must be installed.
lists=old
refresh() {
    has apt-get || fail "$1 is missing and there is no apt-get here: install it by hand, then try again"
    [ "$lists" = new ] || as_root apt-get update -qq </dev/null || fail "apt-get update has failed"
    lists=new
}

install() { # WHAT PACKAGE...
    what=$1
    shift
    refresh "$what"
    say "$what is missing: installing the Debian package $*"
    keep_services_down
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null ||
        fail "apt-get could not install $*"
}

# Debian starts the servers that it installs, unless this file says no.
keep_services_down() {
    policy=/usr/sbin/policy-rc.d
    [ ! -e "$policy" ] || return 0
    trap 'as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod +x "$policy"
}

# A compiler that cannot link is of no use: the headers are a package of their own.
links() { has cc && echo 'int main(void){return 0;}' | cc -x c -o /dev/null - 2>/dev/null; }

need_cc() {
    links || install "a C compiler that links" gcc libc6-dev
}

need_cargo() {
    if ! has cargo; then
        refresh cargo
        apt-cache policy rustup | grep -q 'Candidate: [0-9]' ||
            fail "cargo is missing and this Debian has no package rustup: get Rust as https://rustup.rs says, then try again"
        install cargo rustup
    fi
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    # Under rustup the first call fetches the toolchain that the file pins.
    found=$(cargo --version </dev/null | cut -d' ' -f2) || fail "cargo does not start"
    [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ] ||
        fail "cargo is $found, $wanted or newer is needed: get it as https://rustup.rs says"
}

cd "$(dirname "$0")/.."
for thing in "$@"; do
    case $thing in
    cc) need_cc ;;
    cargo) need_cargo ;;
    *) has "${thing%%:*}" || install "${thing%%:*}" "${thing#*:}" ;;
    esac
done
