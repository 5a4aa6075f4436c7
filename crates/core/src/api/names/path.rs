//! Paths on a machine.

/// The directory of the daemon's files.
pub const DAEMON_DIR: &str = "/etc/machine-config-daemon";
/// The annotations that a new machine sets on its Node; removed once they are set.
pub const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
/// [`NODE_ANNOTATIONS`] after they were set.
pub const NODE_ANNOTATIONS_BACKUP: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// The machine's current MachineConfig.
pub const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
/// The index of the machine's etcd member, which replaces `{{.etcd_index}}` in its configs.
pub const ETCD_INDEX: &str = "/etc/machine-config-daemon/machinist-etcd-index";
/// The image that the machine runs, when its pool builds images.
pub const CURRENT_IMAGE: &str = "/etc/machine-config-daemon/currentimage";
/// Copies of files as the vendor shipped them, taken before they were first overwritten.
pub const ORIGINALS: &str = "/etc/machine-config-daemon/orig";
/// Markers for files that the vendor does not ship.
pub const NO_ORIGINALS: &str = "/etc/machine-config-daemon/noorig";
/// The part of the first configuration that Ignition cannot apply; removed once it is applied.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
/// [`ENCAPSULATED`] after it was applied.
pub const ENCAPSULATED_BACKUP: &str = "/etc/ignition-machine-config-encapsulated.json.bak";
/// The first configuration as the machine config server sent it.
pub const SERVED_CONFIG: &str = "/etc/mcs-machine-config-content.json";
/// The files outside [`DAEMON_DIR`] that hold the contents of a config.
pub const CONTENTS_OUTSIDE_DAEMON_DIR: [&str; 3] =
    [ENCAPSULATED, ENCAPSULATED_BACKUP, SERVED_CONFIG];
/// If this file exists, the daemon applies the desired configuration without checking the disk
/// first.
pub const FORCE: &str = "/run/machine-config-daemon-force";
/// The pull secret of the machine.
pub const PULL_SECRET: &str = "/var/lib/kubelet/config.json";
/// The pull secret for the cluster's own image registry.
pub const INTERNAL_REGISTRY_PULL_SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
/// The kubeconfig of the kubelet.
pub const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
/// The CA certificates that the kubelet trusts.
pub const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
/// The address of the API server.
pub const API_SERVER_URL: &str = "/etc/kubernetes/apiserver-url.env";
/// The units that Ignition enabled; removed so that the daemon controls them.
pub const IGNITION_PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";
