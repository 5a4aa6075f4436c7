//! Installing into a Kubernetes cluster: `deploy/`, the permissions of each component, the operator, and the whole
//! lifecycle on real nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod admission_policies;
mod helm;
mod image;
mod lifecycle;
mod operator;
mod rbac;
mod support;
