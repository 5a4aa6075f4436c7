//! All processes and commands of Machinist, in one binary.
//!
//! This crate observes the API server and the machine, lets `machinist-core` decide, and performs the
//! decisions. It decides nothing itself. The processes do not import one another; they communicate through
//! API objects.
//!
//! | module | what it is for |
//! |---|---|
//! | `backup` | backup files of a hub: written, encrypted, verified and restored |
//! | [`bootstrap`] | writes the directory that `machinist server bootstrap` serves |
//! | [`cli`] | the commands, one file each |
//! | [`controller`] | renders pools and rolls their configs out to machines: `machinist controller` |
//! | [`daemon`] | applies configs to a machine: `machinist daemon`, `once`, `join`, `leave` |
//! | `durable_file` | files that survive a power loss |
//! | `fault_injection` | crashes at chosen points, for tests |
//! | [`enrol`] | enrols a new machine, which gets the sealed part of its config: `machinist enrol` |
//! | [`data_dir`] | the paths of a hub's data directory |
//! | [`kubernetes`] | shared Kubernetes plumbing: connection, requests, caches, lease, events |
//! | `listen` | listening sockets for IPv4 and IPv6 |
//! | `liveness` | whether the loops of a process make progress, for systemd's watchdog |
//! | `machine_report` | encrypts what a machine reports to the one who asked |
//! | [`manifests`] | reads manifests from files, directories and standard input |
//! | [`metrics`] | the endpoint for metrics and health of every process |
//! | [`must_gather`] | collects the state of cluster and machine into an archive without secrets: `machinist must-gather` |
//! | [`operator`] | deploys the other components into a Kubernetes cluster: `machinist operator` |
//! | [`server`] | serves Ignition configs to machines on their first boot: `machinist server` |
//! | [`serving_certificate`] | the certificate that a process serves HTTPS with |
//! | `systemd_notify` | readiness and watchdog of systemd services |
//! | [`telemetry`] | logging |
//! | [`up`] | hub, controller and server in one process: `machinist up` |

mod backup;
pub mod bootstrap;
pub mod cli;
pub mod controller;
pub mod daemon;
pub mod data_dir;
mod durable_file;
pub mod enrol;
mod fault_injection;
pub mod kubernetes;
mod listen;
mod liveness;
mod machine_report;
pub mod manifests;
pub mod metrics;
pub mod must_gather;
pub mod operator;
pub mod server;
pub mod serving_certificate;
mod systemd_notify;
pub mod telemetry;
pub mod up;
