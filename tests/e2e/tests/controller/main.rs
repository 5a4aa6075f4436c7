//! The controller with both API servers: inside `machinist up`, and with a real kube-apiserver and OpenShift's
//! published CRDs. Machines are simulated daemons that follow the node protocol.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod faults;
#[allow(dead_code, reason = "the tests of generated configs use the rest")]
mod fixture;
mod migrate;
mod missing_rights;
mod rendered_configs;
mod scenarios;
