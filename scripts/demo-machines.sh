# The machines of scripts/demo: real ones in systemd-nspawn, or directories with a daemon each.
# Both have NAME_start, NAME_join and root_of. Uses work, data, machinist, server, token, processes.
# shellcheck shell=bash disable=SC2154

machines_possible() {
  [ "$(id -u)" = 0 ] && command -v systemd-nspawn nsenter >/dev/null && [ -d "$(artifact base)/root" ]
}

# A control group for all machines, in every mounted hierarchy, so that all their processes can be killed
# in any state.
group_name() { echo "${MACHINIST_DEMO_GROUP:-machinist-demo-$$}"; }
hierarchies() {
  local each
  [ ! -e /sys/fs/cgroup/cgroup.procs ] || { echo /sys/fs/cgroup; return; }
  for each in /sys/fs/cgroup/*; do [ -L "$each" ] || [ ! -e "$each/cgroup.procs" ] || echo "$each"; done
}
groups() { hierarchies | sed "s,\$,/$(group_name),"; }
members() { groups | while read -r group; do find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null; done | sort -u; }

machines_start() { # the disk of NAME, and its first start
  local name=$1 group file
  mkdir -p "$work/$name"/{upper,work,root}
  mount -t overlay machinist-demo -o "lowerdir=$(artifact base)/root,upperdir=$work/$name/upper,workdir=$work/$name/work" "$work/$name/root"
  for group in $(groups); do
    mkdir -p "$group/$name"
    # A new cpuset is empty and accepts no process until it is filled.
    for file in cpuset.cpus cpuset.mems; do
      [ -e "$group/cgroup.controllers" ] || [ ! -e "$group/$file" ] || {
        cat "$group/../$file" >"$group/$file"
        cat "$group/$file" >"$group/$name/$file"
      }
    done
  done
  power "$name" >"$work/$name.log" 2>&1 &
  processes+=($!)
}

# Starts NAME, and starts it again whenever it reboots. It shares the network of this host, without privileges.
power() {
  local name=$1 group code
  for group in $(groups); do echo "$BASHPID" >"$group/$name/cgroup.procs"; done
  while :; do
    code=0
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --boot --register=no --keep-unit --resolv-conf=off \
      --timezone=off --link-journal=no --console=read-only --machine="machinist-demo-$$-$name" --hostname="$name" \
      --bind-ro="$machinist:/usr/local/bin/machinist" --bind-ro="$data/pki/ca.crt:/opt/ca.crt" \
      --directory="$work/$name/root" &
    echo $! >"$work/$name.pid"
    wait $! || code=$?
    [ $code = 133 ] || return 0 # with this code systemd-nspawn requests a reboot
  done
}

# Runs a command in the namespaces of NAME.
inside() {
  local name=$1 nspawn leader
  shift
  nspawn=$(cat "$work/$name.pid") || return 1
  # shellcheck disable=SC2013 # words are meant
  for leader in $(cat "/proc/$nspawn/task/$nspawn/children" 2>/dev/null); do
    # The leader is process 1 in its PID namespace; nspawn also has a helper process.
    grep -q '^NSpid:.*[[:space:]]1$' "/proc/$leader/status" 2>/dev/null || continue
    nsenter -t "$leader" -m -u -i -p -n -C -r -w -- env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
    return
  done
  return 1
}
is_up() { [[ $(inside "$1" systemctl is-system-running 2>/dev/null) =~ ^(running|degraded)$ ]]; }

machines_join() {
  until_holds "$1 boots" is_up "$1"
  inside "$1" machinist join --apiserver-url "$server" --ca-file /opt/ca.crt --token "$token" --pool worker
}

machines_stop() {
  local name pids
  for _ in $(seq 200); do
    pids=$(members)
    [ -n "$pids" ] || break
    # shellcheck disable=SC2086
    kill -9 $pids 2>/dev/null
    sleep 0.05
  done
  for name in "${names[@]}"; do
    ! mountpoint -q "$work/$name/root" || umount "$work/$name/root" || umount -l "$work/$name/root"
  done
  groups | while read -r name; do [ ! -d "$name" ] || find "$name" -depth -type d -exec rmdir {} \; ; done
}

directories_start() { mkdir -p "$work/$1/root/etc/skel"; }

directories_join() {
  local root=$work/$1/root
  "$machinist" join --apiserver-url "$server" --ca-file "$data/pki/ca.crt" --token "$token" --pool worker --root "$root" --node-name "$1"
  "$machinist" daemon start --root "$root" --kubeconfig "$root/var/lib/machinist/kubeconfig" --node-name "$1" --register >"$work/$1.log" 2>&1 &
  processes+=($!)
}

# Runs a command that reads below the root of NAME: root_of NAME COMMAND PATH
root_of() {
  if [ "$kind" = machines ]; then inside "$@"; else "$2" "$work/$1/root$3"; fi
}
