# Layers on top of the base: an overlay to install into, and packages put there by this machine's own apt.
# shellcheck shell=bash

# Mounts an overlay of the base and "$1"/layer at "$1"/root, until the script ends.
open_layer() {
    mkdir -p "$1/layer" "$1/work" "$1/root"
    mount -t overlay overlay -o "lowerdir=$(artifact base)/root,upperdir=$1/layer,workdir=$1/work" "$1/root"
    # shellcheck disable=SC2064
    trap "umount -l '$1/root'" EXIT
}

close_layer() {
    umount "$1/root"
    trap - EXIT
    rmdir "$1/root"
    rm -rf "$1/work"
}

# Downloads packages, with what they need beyond the root "$1", into "$2".
download() {
    local root=$1 directory=$2
    shift 2
    mkdir -p "$directory/partial"
    apt-get -q -y -o "Dir::State::status=$root/var/lib/dpkg/status" -o "Dir::Cache::archives=$directory" \
        -o Debug::NoLocking=1 -o APT::Sandbox::User=root --no-install-recommends --download-only install "$@"
}

# Installs packages into the root "$1" without starting anything.
install() {
    local root=$1
    shift
    download "$root" "$root/debs" "$@"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    DEBIAN_FRONTEND=noninteractive chroot "$root" sh -c 'dpkg --install --force-unsafe-io /debs/*.deb'
    rm -rf "$root/debs" "$root/usr/sbin/policy-rc.d"
}
