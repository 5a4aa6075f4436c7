//! The machine config server and the real Ignition: out of a folder, out of a hub, out of a Kubernetes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod api_servers;
mod boot;
mod sealed_config;
mod sockets;
mod support;
mod versions;
