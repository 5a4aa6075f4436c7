//! The machine config server and the real Ignition: from a directory, from a hub, from a Kubernetes cluster.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod api_servers;
mod boot;
mod sealed_config;
mod sockets;
mod support;
mod versions;
