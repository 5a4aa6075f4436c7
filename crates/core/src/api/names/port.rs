//! Ports.

/// The machine config server, with TLS.
pub const SERVER_TLS: u16 = 22623;
/// The machine config server, without TLS.
pub const SERVER_HTTP: u16 = 22624;
/// The registry of release images on control plane machines.
pub const RELEASE_REGISTRY: u16 = 22625;
/// Metrics behind the authenticating proxy.
pub const METRICS_PROXY: u16 = 9001;
/// Metrics on the machine itself.
pub const METRICS_LOCAL: u16 = 8797;
/// Metrics of the container runtime.
pub const RUNTIME_METRICS: u16 = 9637;
/// The kubelet's answer to whether it is well.
pub const KUBELET_HEALTH: u16 = 10248;
