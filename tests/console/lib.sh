# shellcheck shell=bash disable=SC2034
# Places and functions of the scripts, which source it.
set -euo pipefail

here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
repo=$(realpath "$here/../..")
out=$repo/target/console-test

say() { echo "console: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

# The browser: $CHROMIUM, or the first of these on the PATH.
find_browser() {
    if [[ -n ${CHROMIUM:-} ]]; then
        echo "$CHROMIUM"
        return
    fi
    type -P chromium || type -P chromium-browser || type -P google-chrome
}

can_install() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null && apt-cache show chromium >/dev/null 2>&1; }
