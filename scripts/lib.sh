# Functions for all scripts: messages, and the installation of missing packages. Source it first.
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$project"
# As many compilers as processors, but no more than the memory is for: a few sources of the tests take 4 GB each.
compilers() {
    local most
    most=$(awk '/^MemTotal:/ { most = int($2 / 2^22 + 0.5); print (most > 0 ? most : 1) }' /proc/meminfo 2>/dev/null) || true
    printf '%s\n' "$(nproc)" "${most:-$(nproc)}" | sort -n | head -n 1
}
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(compilers)}
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}

say() { printf '\n== %s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# The comment at the head of a script is its help.
help() { sed -n '2,/^$/ s/^# \{0,1\}//p' "$0"; }
wrong_argument() { fail "unknown argument '$1'; '$0 --help' lists the valid ones"; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
can_be_root() { [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -v; }; }

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# need PACKAGE...: installs missing Debian packages with apt.
need() {
    if ! command -v dpkg-query >/dev/null; then
        say "this is not a Debian system: assuming that it has the contents of these packages: $*"
        return
    fi
    local package missing=()
    for package in "$@"; do is_installed "$package" || missing+=("$package"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    can_be_root || fail "missing Debian packages, and neither root nor sudo to install them: ${missing[*]}"
    say "installing ${missing[*]}"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# tool NAME VERSION: prints the command of a tool of LLVM in that major version. Fails if it is not installed.
tool() {
    local command
    for command in "$1-$2" "$1"; do
        if "$command" --version 2>/dev/null | grep -q "version $2\."; then
            echo "$command"
            return
        fi
    done
    return 1
}

# Lets CMake compile by ccache, if it is installed. Objects do not depend on the folder of the checkout.
use_ccache() {
    command -v ccache >/dev/null || return 0
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$project CCACHE_NOHASHDIR=1
    export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
}

# build PRESET [configure option...]: configures and builds.
build() {
    say "building: preset $1"
    cmake --preset "$@"
    cmake --build --preset "$1"
}
