//! Installing into a Kubernetes: `deploy/`, the rights of each part, the operator, and a whole life on real nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod admission_policies;
mod helm;
mod image;
mod lifecycle;
mod operator;
mod rbac;
mod support;
