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

# What is missing, and the packages that have it; installed together, since each call of apt
# takes seconds.
missing=
packages=
miss() { # WHAT PACKAGE...
    missing="$missing${missing:+, }$1"
    shift
    packages="$packages $*"
}

install_missing() {
    [ -n "$packages" ] || return 0
    say "missing: $missing; installing the Debian packages$packages, by apt-get: a minute or so"
    refresh "$missing"
    keep_services_down
    # Another apt-get may hold the lock.
    # shellcheck disable=SC2086 # names of packages, one word each
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends $packages </dev/null >/dev/null ||
        fail "apt-get could not install$packages"
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

need_cc() { links || miss "a C compiler that links" gcc libc6-dev; }

need_cargo() {
    ! has cargo || return 0
    refresh cargo
    apt-cache policy rustup | grep -q 'Candidate: [0-9]' ||
        fail "cargo is missing and this Debian has no package rustup: get Rust as https://rustup.rs says, then try again"
    miss cargo rustup
}

check_cargo() {
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    # Under rustup the first call fetches the toolchain that the file pins.
    if has rustup && ! rustup toolchain list 2>/dev/null | grep -q "^$wanted-"; then
        say "rustup fetches Rust $wanted, some 200 MB: a minute or so"
    fi
    found=$(cargo --version </dev/null | cut -d' ' -f2) || fail "cargo does not start"
    [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ] ||
        fail "cargo is $found, $wanted or newer is needed: get it as https://rustup.rs says"
}

cd "$(dirname "$0")/.."
for thing in "$@"; do
    case $thing in
    cc) need_cc ;;
    cargo) need_cargo ;;
    *) has "${thing%%:*}" || miss "${thing%%:*}" "${thing#*:}" ;;
    esac
done
install_missing
for thing in "$@"; do
    [ "$thing" != cargo ] || check_cargo
done
