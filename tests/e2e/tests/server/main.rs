//! The machine config server and the real Ignition: from a directory, from a hub, from a Kubernetes cluster.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod api_servers;
mod boot;
mod sealed_config;
mod sockets;
mod support;
mod versions;
