# Shared by prepare and the builds: the location of the cache and the names of the artifacts in it.
# shellcheck shell=bash

kit=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/testkit

# In an order in which they can be built, the longest first.
artifacts=(openshift-api kubernetes base node ostree ostree-node ostree-small os-image ignition mdbook)

# The input directories of an artifact: its own and, through its `needs`, those of others.
inputs() {
    local need
    echo "$1"
    if [ -f "$kit/$1/needs" ]; then
        while read -r need; do inputs "$need"; done <"$kit/$1/needs"
    fi
}

# The key of an artifact: a hash over the names and contents of its inputs. `src/cache.rs` computes the same.
key() {
    cd "$kit" && inputs "$1" | LC_ALL=C sort -u | while read -r dir; do
        find "$dir" -type f | LC_ALL=C sort | xargs -r sha256sum
    done | sha256sum | cut -c1-16
}

# The directory of a ready artifact.
artifact() { echo "$cache/$1-$(key "$1")"; }
