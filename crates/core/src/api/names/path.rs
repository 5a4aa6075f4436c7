//! Places on a machine.

/// The folder of the daemon's own files.
pub const DAEMON_DIR: &str = "/etc/machine-config-daemon";
/// The annotations that a new machine is to give its Node; there until it has.
pub const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
/// [`NODE_ANNOTATIONS`] once they were given.
pub const NODE_ANNOTATIONS_BACKUP: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// The MachineConfig that the machine has.
pub const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
/// The image that the machine runs, when its pool builds images.
pub const CURRENT_IMAGE: &str = "/etc/machine-config-daemon/currentimage";
/// How the configuration at installation differed from that of the cluster.
pub const BOOTSTRAP_CONFIG_DIFF: &str = "/etc/machine-config-daemon/bootstrapconfigdiff";
/// Copies of files as the vendor shipped them, taken before they were first overwritten.
pub const ORIGINALS: &str = "/etc/machine-config-daemon/orig";
/// Marks for files that the vendor does not ship.
pub const NO_ORIGINALS: &str = "/etc/machine-config-daemon/noorig";
/// Files here need no restart when they change.
pub const NO_REBOOT: &str = "/etc/machine-config-daemon/no-reboot";
/// The part of the first configuration that Ignition cannot carry out; there until it has been.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
/// [`ENCAPSULATED`] once it was carried out.
pub const ENCAPSULATED_BACKUP: &str = "/etc/ignition-machine-config-encapsulated.json.bak";
/// The first configuration as it was served.
pub const SERVED_CONFIG: &str = "/etc/mcs-machine-config-content.json";
/// When there, the daemon applies the wanted configuration without looking at the disk first.
pub const FORCE: &str = "/run/machine-config-daemon-force";
/// The pull secret of the machine.
pub const PULL_SECRET: &str = "/var/lib/kubelet/config.json";
/// The pull secret for the cluster's own image registry.
pub const INTERNAL_REGISTRY_PULL_SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
/// The proxy settings of the machine.
pub const PROXY_ENVIRONMENT: &str = "/etc/mco/proxy.env";
/// How the kubelet reaches the API server.
pub const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
/// The certificates that the kubelet trusts.
pub const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
/// The address of the API server.
pub const API_SERVER_URL: &str = "/etc/kubernetes/apiserver-url.env";
/// The units that Ignition enabled; removed so that the daemon decides.
pub const IGNITION_PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";
/// The images that the container runtime never throws away.
pub const PINNED_IMAGES: &str = "/etc/crio/crio.conf.d/50-pinned-images";
