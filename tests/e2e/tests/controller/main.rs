//! The controller on both homes: inside `machinist up`, and beside a real kube-apiserver with the published CRDs of
//! OpenShift. Machines are simulated daemons that follow the node protocol.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod faults;
mod migrate;
mod rendered_configs;
mod scenarios;
mod site;
