#!/bin/sh
# Makes .venv exactly what requirements/lock.txt says, and generates the protobuf stubs into build/stubs.
# Cheap when nothing changed (a few hashes), and offline after the first run.
# Usage: sh requirements/setup.sh      from the project's root folder
set -eu

venv=.venv
stamp=$venv/.setup-key
stubs_stamp=build/stubs/.protos-key

say() { printf '%s\n' "$*" >&2; }

find_python() {
    # The environment keeps the interpreter it was made with; a new one takes the first python3 that is new enough.
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$candidate"
            return 0
        fi
    done
    say "Python 3.11 or newer is needed, and none was found."
    if command -v python3 >/dev/null 2>&1; then say "python3 here is $(python3 --version 2>&1)."; fi
    say "Install one (for example: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python3.12 ..."
    return 1
}

set_cache() {
    # uv keeps its cache below HOME; where that cannot be written, the cache lives in the ignored build folder.
    if [ -z "${UV_CACHE_DIR:-}" ]; then
        home_cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}
        if ! { mkdir -p "$home_cache/uv" && [ -w "$home_cache/uv" ]; } 2>/dev/null; then
            UV_CACHE_DIR=$PWD/build/uv-cache
            PIP_CACHE_DIR=$PWD/build/pip-cache
            export UV_CACHE_DIR PIP_CACHE_DIR
        fi
    fi
    export UV_LINK_MODE="${UV_LINK_MODE:-copy}" UV_NO_CONFIG=1 UV_PYTHON_DOWNLOADS=never
}

install_packages() {
    # uv installs in seconds. A machine whose package index only pip knows how to reach gets the same lock through pip.
    if "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input --require-hashes \
            -r requirements/bootstrap.txt \
        && "$venv/bin/uv" pip sync -q --python "$venv/bin/python" --require-hashes \
            requirements/lock.txt requirements/bootstrap.txt; then
        return 0
    fi
    say "uv could not install the packages; trying pip with the same lock (about a minute)"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input --require-hashes --no-deps \
        -r requirements/lock.txt
}

install_project() {
    mkdir -p build/stubs    # the editable install records this folder as importable
    if [ -x "$venv/bin/uv" ]; then
        "$venv/bin/uv" pip install -q --python "$venv/bin/python" --no-deps --no-build-isolation --offline -e .
    else
        "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
    fi
}

setup_environment() {
    # The key covers everything the environment depends on, and the folder itself: a venv cannot be moved.
    key=$(cat requirements/lock.txt requirements/bootstrap.txt pyproject.toml requirements/setup.sh | cksum)
    key="$key $PWD"
    if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] \
        && "$venv/bin/python" -c '' >/dev/null 2>&1; then
        return 0
    fi
    say "Setting up the Python environment in $venv (the first time downloads about 250 MB)"
    rm -f "$stamp"
    set_cache
    # Rebuilt where it was made elsewhere or by an interpreter that is gone; otherwise brought up to date in place.
    made_in=$(sed -n 's/^# made in //p' "$venv/.made-in" 2>/dev/null || true)
    if [ "$made_in" != "$PWD" ] || ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
        python=$(find_python)
        rm -rf "$venv"
        if ! "$python" -m venv "$venv"; then
            rm -rf "$venv"
            say "$python cannot make a virtual environment: its venv or ensurepip module is missing."
            say "On Debian and Ubuntu: apt install python3-venv"
            return 1
        fi
        printf '# made in %s\n' "$PWD" > "$venv/.made-in"
    fi
    if ! install_packages; then
        say "The packages could not be installed. The first run needs a package index; later runs work offline."
        return 1
    fi
    install_project
    printf '%s' "$key" > "$stamp"
}

generate_stubs() {
    files=$(find protos -name '*.proto' | LC_ALL=C sort)
    [ -n "$files" ] || return 0
    # Proto paths below protos/ contain no spaces: package names are folders.
    key=$( { printf '%s\n' $files; cat $files requirements/lock.txt; } | cksum)
    if [ "$(cat "$stubs_stamp" 2>/dev/null)" = "$key" ]; then
        return 0
    fi
    fresh=build/stubs.$$
    rm -rf "$fresh"
    mkdir -p "$fresh" build/stubs
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if ! "$venv/bin/python" -m grpc_tools.protoc -Iprotos -I"$packages" \
            --plugin=protoc-gen-mypy="$venv/bin/protoc-gen-mypy" \
            --plugin=protoc-gen-mypy_grpc="$venv/bin/protoc-gen-mypy_grpc" \
            --python_out="$fresh" --grpc_python_out="$fresh" --mypy_out="quiet:$fresh" --mypy_grpc_out="quiet:$fresh" \
            $files; then
        rm -rf "$fresh"
        return 1
    fi
    # A half-written package is never importable: the old one goes and the new one comes in one rename each.
    rm -rf "build/stubs.old.$$"
    if [ -e build/stubs/ninaku ]; then mv build/stubs/ninaku "build/stubs.old.$$"; fi
    mv "$fresh/ninaku" build/stubs/ninaku
    rm -rf "build/stubs.old.$$" "$fresh"
    printf '%s' "$key" > "$stubs_stamp"
}

# Two of these at once would pull the environment from under each other: the second waits for the first.
mkdir -p build
if command -v flock >/dev/null 2>&1; then
    exec 9>build/.setup-lock
    flock 9
fi
setup_environment
generate_stubs
