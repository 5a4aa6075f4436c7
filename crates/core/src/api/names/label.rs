//! Labels.

/// The role, or pool, that a MachineConfig is for.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";
/// Set on the pools that MCO defines: `master`, `worker`, `arbiter`.
pub const MCO_BUILT_IN: &str = "machineconfiguration.openshift.io/mco-built-in";
/// Set on pools that must be up to date before the cluster may be upgraded.
pub const REQUIRED_FOR_UPGRADE: &str =
    "operator.machineconfiguration.openshift.io/required-for-upgrade";
/// The prefix of the label by which other objects select a pool; the name of the pool follows.
pub const POOL_PREFIX: &str = "pools.operator.machineconfiguration.openshift.io/";
/// Set on secrets that were created from the ConfigMap of the same name.
pub const MANAGED_CA_BUNDLE: &str =
    "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";

/// The prefix of the label for the role of a machine; the role follows.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// Set on control plane machines; the legacy name.
pub const NODE_ROLE_MASTER: &str = "node-role.kubernetes.io/master";
/// Set on control plane machines.
pub const NODE_ROLE_CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// Set on worker machines.
pub const NODE_ROLE_WORKER: &str = "node-role.kubernetes.io/worker";
/// The operating system of a machine. Machines with `windows` are ignored.
pub const OS: &str = "kubernetes.io/os";
