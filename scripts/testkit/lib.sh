# Shared by prepare and by the builds: where the cache is, and which name an artifact has in it.
# shellcheck shell=bash

kit=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/testkit

# In the order in which they can be built.
artifacts=(openshift-api base node ostree ostree-node ostree-small os-image kubernetes ignition helm mdbook)

# The files an artifact is made from: its own folder and, by its `needs`, the folders of others.
inputs() {
    local need
    echo "$1"
    if [ -f "$kit/$1/needs" ]; then
        while read -r need; do inputs "$need"; done <"$kit/$1/needs"
    fi
}

# The key of an artifact: a hash over the names and contents of its inputs. `src/cache.rs` computes the same.
key() {
    cd "$kit" && inputs "$1" | LC_ALL=C sort -u | while read -r folder; do
        find "$folder" -type f | LC_ALL=C sort | xargs -r sha256sum
    done | sha256sum | cut -c1-16
}

# The folder of a ready artifact.
artifact() { echo "$cache/$1-$(key "$1")"; }
