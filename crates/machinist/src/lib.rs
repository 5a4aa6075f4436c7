//! The imperative shell: every process of Machinist, in one binary.
//!
//! It reads the world, calls the decisions in `machinist-core`, and carries them out. It holds no
//! decision itself. The rooms do not import one another; they meet through API objects.
//!
//! | room | what it runs |
//! |---|---|
//! | [`bootstrap`] | the folder that a first control plane is served from: `machinist bootstrap` |
//! | [`cli`] | the commands, a file each |
//! | [`controller`] | pools get their rendered configs, machines get their pool's: `machinist controller` |
//! | [`daemon`] | what runs on a machine: `machinist daemon`, `once`, `join`, `leave` |
//! | [`enrol`] | a new machine becomes known and gets the sealed half of its config: `machinist enrol` |
//! | [`figures`] | what processes serve about themselves: figures and health |
//! | [`home`] | the hub or a Kubernetes from outside: finding it, asking it, its kinds |
//! | `listen` | ports on every address, whichever versions of IP there are |
//! | [`manifests`] | reading manifests from files, folders and standard input |
//! | [`must_gather`] | the state of everything in one archive, without secrets: `machinist must-gather` |
//! | [`operator`] | deploys the other parts into a Kubernetes and reports: `machinist operator` |
//! | [`server`] | Ignition configs for machines on their first boot: `machinist server` |
//! | [`telemetry`] | the log |
//! | [`up`] | everything in one process: `machinist up` |

pub mod bootstrap;
pub mod cli;
pub mod client;
pub mod controller;
pub mod daemon;
pub mod enrol;
mod listen;
pub mod manifests;
pub mod metrics;
pub mod must_gather;
pub mod operator;
pub mod server;
pub mod telemetry;
pub mod up;
