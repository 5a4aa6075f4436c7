//! Names of objects, namespaces and pools.

/// The one ControllerConfig.
pub const CONTROLLER_CONFIG: &str = "machine-config-controller";
/// The one object of its kind: MachineConfiguration, OSImageStream, InternalReleaseImage,
/// FeatureGate, Node, APIServer, Infrastructure, Network, DNS, Proxy, Image, Scheduler.
pub const CLUSTER: &str = "cluster";
/// The one ClusterVersion.
pub const CLUSTER_VERSION: &str = "version";
/// The namespace that the system runs in.
pub const NAMESPACE: &str = "openshift-machine-config-operator";
/// The namespace of what administrators configure: pull secret, certificates.
pub const CONFIG_NAMESPACE: &str = "openshift-config";
/// The Secret there with what registries want to know: the pull secret of the whole system.
pub const PULL_SECRET: &str = "pull-secret";
/// The namespace of what other operators hand out.
pub const CONFIG_MANAGED_NAMESPACE: &str = "openshift-config-managed";

/// The pool of the control plane.
pub const POOL_MASTER: &str = "master";
/// The pool of all other machines; custom pools build on it.
pub const POOL_WORKER: &str = "worker";
/// The pool of machines that only help the control plane to a majority.
pub const POOL_ARBITER: &str = "arbiter";
/// What the name of a rendered config begins with; the pool and the hash follow.
pub const RENDERED_PREFIX: &str = "rendered-";
