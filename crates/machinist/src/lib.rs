//! The imperative shell: every process of Machinist, in one binary.
//!
//! It observes API objects and disks, calls the pure decisions in `machinist-core`, and performs them. It holds no
//! decision itself. The processes do not import one another; they meet through API objects.
//!
//! | module | purpose |
//! |---|---|
//! | [`bootstrap`] | the directory that a first control plane is served from: `machinist bootstrap` |
//! | [`cli`] | the commands, a file each |
//! | [`controller`] | renders configs for pools and rolls them out to machines: `machinist controller` |
//! | [`daemon`] | what runs on a machine: `machinist daemon`, `once`, `join`, `leave` |
//! | [`data_dir`] | the paths of a hub's data directory |
//! | [`enrol`] | enrols a new machine, which then gets the sealed half of its config: `machinist enrol` |
//! | [`kubernetes`] | shared Kubernetes plumbing: client, caches, leases, events |
//! | `listen` | ports on every address, IPv4 and IPv6 |
//! | [`manifests`] | reads manifests from files, directories and standard input |
//! | [`metrics`] | the HTTP endpoint for metrics and health of a process |
//! | [`must_gather`] | collects the state of everything in one archive, without secrets: `machinist must-gather` |
//! | [`operator`] | deploys the other components into a Kubernetes cluster: `machinist operator` |
//! | [`server`] | serves Ignition configs to machines on their first boot: `machinist server` |
//! | [`telemetry`] | the log |
//! | [`up`] | everything in one process: `machinist up` |

pub mod bootstrap;
pub mod cli;
pub mod controller;
pub mod daemon;
pub mod data_dir;
pub mod enrol;
pub mod kubernetes;
mod listen;
pub mod manifests;
pub mod metrics;
pub mod must_gather;
pub mod operator;
pub mod server;
mod systemd_notify;
pub mod telemetry;
pub mod up;
