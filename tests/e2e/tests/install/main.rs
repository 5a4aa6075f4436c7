//! Installing into a Kubernetes: `deploy/`, the rights of each part, the operator, and a whole life on real nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod guards;
mod helm;
mod image;
mod life;
mod operator;
mod rights;
mod support;
