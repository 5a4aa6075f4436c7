//! The machine config server and the real Ignition: from a directory, from a hub, from a Kubernetes cluster.
mod api_servers;
mod boot;
mod sealed_config;
mod sockets;
pub(crate) mod support;
mod versions;
