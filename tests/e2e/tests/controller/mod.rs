//! The controller with both API servers: inside `machinist up`, and with a real kube-apiserver and OpenShift's
//! published CRDs. Machines are simulated daemons that follow the node protocol.

mod faults;
#[allow(dead_code, reason = "the tests of generated configs use the rest")]
pub(crate) mod fixture;
mod migrate;
mod missing_rights;
mod rendered_configs;
mod scenarios;
