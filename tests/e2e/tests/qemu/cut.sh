#!/bin/sh
# testkit-cut STEP COMMAND…: runs a command, and stops it for good in the middle of a step, so that the power can be cut
# exactly there. Says on the serial console that it has, or how the command has ended.
step=$1
shift
image=/var/lib/machinist/images/*
loader=$(readlink /boot/loader)
IFS=: read -r _ _ own </proc/self/cgroup

# Whether the command is in the step. Uses only shell builtins: starting a command takes longer than some steps.
at() {
    case $step in
        # Two of three layers are here: the kernel and the empty one. The third is on its way.
        copy) set -- $image/oci/blobs/sha256/*; [ $# -gt 1 ] ;;
        # The directory is one of the last in the second layer.
        unpack) set -- $image/tree/usr/lib/systemd/system; [ -e "$1" ] ;;
        # Some of the objects are in the repository.
        commit) set -- /ostree/repo/tmp/staging-*/??; [ $# -gt 100 ] ;;
        # Some of the files are in the directory of the new deployment.
        deploy) set -- /ostree/deploy/debian/deploy/*/usr/bin; [ $# -gt 1 ] ;;
        # The new kernel is there, or a part of it, and the boot loader does not know it.
        kernel) set -- /boot/ostree/*; [ $# -gt 1 ] ;;
        # The boot loader gets the new entries.
        loader) ! [ /boot/loader -ef "/boot/$loader" ] ;;
    esac
}

# The last steps are too short for a pause.
pause() {
    case $step in
        kernel | loader) ;;
        *) sleep 0.1 ;;
    esac
}

say() { echo "testkit: $*" >/dev/ttyS0; }

"$@" >/run/command.log 2>&1 &
command=$!
until [ "$step" != none ] && at; do
    if [ "$step" = none ] || ! kill -0 $command 2>/dev/null; then
        wait $command
        say "ended $? $step"
        exit
    fi
    pause
done
for group in "$own" /system.slice/ostree-finalize-staged.service; do
    while read -r process; do
        [ "$process" = $$ ] || kill -STOP "$process"
    done <"/sys/fs/cgroup$group/cgroup.procs"
done 2>/dev/null
say "at $step"
exec sleep infinity
