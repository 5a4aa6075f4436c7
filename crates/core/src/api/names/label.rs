//! Labels.

/// The role, or pool, that a MachineConfig is for.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";
/// There on pools that come with the system: `master`, `worker`, `arbiter`.
pub const MCO_BUILT_IN: &str = "machineconfiguration.openshift.io/mco-built-in";
/// There on pools that run images of their own.
pub const LAYERING_ENABLED: &str = "machineconfiguration.openshift.io/layering-enabled";
/// Asks for the image of a pool to be built again.
pub const REBUILD_IMAGE: &str = "machineconfiguration.openshift.io/rebuildImage";
/// There on pools that must be up to date before the cluster may be upgraded.
pub const REQUIRED_FOR_UPGRADE: &str =
    "operator.machineconfiguration.openshift.io/required-for-upgrade";
/// What the label of a pool by which other objects select it begins with; the name of the pool
/// follows.
pub const POOL_PREFIX: &str = "pools.operator.machineconfiguration.openshift.io/";
/// There on secrets that were made from the ConfigMap of the same name.
pub const MANAGED_CA_BUNDLE: &str =
    "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
/// The pool that the objects of an image build belong to.
pub const TARGET_MACHINE_CONFIG_POOL: &str =
    "machineconfiguration.openshift.io/target-machine-config-pool";
/// The rendered config that the objects of an image build belong to.
pub const RENDERED_MACHINE_CONFIG: &str =
    "machineconfiguration.openshift.io/rendered-machine-config";
/// The MachineOSConfig that the objects of an image build belong to.
pub const MACHINE_OS_CONFIG: &str = "machineconfiguration.openshift.io/machine-os-config";
/// The stream of operating system images that a MachineSet follows.
pub const OS_STREAM: &str = "machineconfiguration.openshift.io/osstream";
/// There on CRDs that the operator looks after.
pub const OPERATOR_MANAGED: &str = "openshift.io/operator-managed";

/// What the label for the role of a machine begins with; the role follows.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// There on control plane machines, by the old word.
pub const NODE_ROLE_MASTER: &str = "node-role.kubernetes.io/master";
/// There on control plane machines.
pub const NODE_ROLE_CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// There on machines that run the workload.
pub const NODE_ROLE_WORKER: &str = "node-role.kubernetes.io/worker";
/// There on machines that only help the control plane to a majority.
pub const NODE_ROLE_ARBITER: &str = "node-role.kubernetes.io/arbiter";
/// The zone that a machine is in.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The operating system of a machine; those with `windows` are left alone.
pub const OS: &str = "kubernetes.io/os";
