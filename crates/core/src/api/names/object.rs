//! Names of objects, namespaces and pools.

/// The one ControllerConfig.
pub const CONTROLLER_CONFIG: &str = "machine-config-controller";
/// The one object of its kind: MachineConfiguration, OSImageStream, InternalReleaseImage,
/// FeatureGate, Node, APIServer, Infrastructure, Network, DNS, Proxy, Image, Scheduler.
pub const CLUSTER: &str = "cluster";
/// The one ClusterVersion.
pub const CLUSTER_VERSION: &str = "version";
/// The namespace of Machinist's components, the same as MCO's.
pub const NAMESPACE: &str = "openshift-machine-config-operator";
/// The namespace of objects that administrators configure: pull secret, certificates.
pub const CONFIG_NAMESPACE: &str = "openshift-config";
/// The Secret in [`CONFIG_NAMESPACE`] with the registry credentials of the whole cluster.
pub const PULL_SECRET: &str = "pull-secret";

/// The pool of the control plane.
pub const POOL_MASTER: &str = "master";
/// The pool of all other machines; custom pools build on it.
pub const POOL_WORKER: &str = "worker";
/// The pool of arbiter machines, which only complete the control plane's quorum.
pub const POOL_ARBITER: &str = "arbiter";
/// The prefix of the name of a rendered config; the pool and the hash follow.
pub const RENDERED_PREFIX: &str = "rendered-";
