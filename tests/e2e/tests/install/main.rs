//! Installing into a Kubernetes cluster: `deploy/`, the permissions of each component, the operator, and the whole
//! lifecycle on real nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod admission_policies;
mod helm;
mod image;
mod lifecycle;
mod operator;
mod rbac;
mod support;
