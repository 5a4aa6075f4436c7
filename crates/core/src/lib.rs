//! Machinist's functional core.
//!
//! Every decision Machinist takes is a pure function in this crate: values in, values out. The crate
//! uses no async code, client, clock, environment, file or process. The shell (`crates/machinist`)
//! reads API and disk, calls these functions and performs what they return.
//!
//! Modules form a directed graph; the test `layers` of `crates/machinist` holds the allowed edges.
//!
//! | module | decides |
//! |---|---|
//! | [`adopt`] | whether a running cluster can be taken over without touching a machine |
//! | [`api`] | what objects look like: the kinds, their schemas, labels and annotations |
//! | [`apply`] | what a change does to a machine's disk, step by step, and how each step is undone |
//! | [`backup_schedule`] | when a hub is backed up next, and which backups are deleted |
//! | [`bootstrap`] | what the first control plane is served before there is an API server |
//! | [`certificates`] | which certificates and secrets the cluster keeps up to date on a machine |
//! | [`container_runtime`] | which files mirrors, image policies and CRI-O settings put on a machine |
//! | [`daemon`] | what the daemon of a machine does next, and what it reports |
//! | [`diff`] | what differs between two configs |
//! | [`disruption`] | what a change costs a running machine: nothing, a reload, a drain, a reboot |
//! | [`drain`] | which pods are evicted, what blocks a drain, when it is retried |
//! | [`drift`] | what differs between a machine's config and its disk |
//! | [`duration`] | durations that administrators write by hand |
//! | [`generate`] | all generators of MachineConfigs together |
//! | [`generated_config`] | what the generators share: result, names, ownership, errors |
//! | [`go`] | the behaviour of Go's libraries that MCO's formats depend on |
//! | [`health`] | whether a machine is healthy on its new config, and what follows if not |
//! | [`hex`] | hexadecimal text |
//! | [`ignition`] | Ignition configs of every version: parse, validate, merge, convert |
//! | [`kubelet`] | what KubeletConfig, FeatureGate and Node settings mean for a pool's kubelets |
//! | [`lint`] | what is wrong or suspicious in a manifest, with field and remedy |
//! | [`machine_report`] | what an administrator asks a daemon for, and how it answers |
//! | [`metrics_access`] | who may read the metrics of a process, and how often tokens are reviewed |
//! | [`migrate`] | which objects move between two API servers, and what prevents it |
//! | [`node`] | a machine's Node and MachineConfigNode |
//! | [`on_change`] | what administrators say that a change costs: the annotation `machinist.dev/on-change` |
//! | [`operator`] | what is deployed into a Kubernetes cluster, in which order, and its status |
//! | [`os`] | the operating system: image, kernel, arguments and extensions |
//! | [`own_files`] | what no config may touch: Machinist's own units, state and binary |
//! | [`plan`] | what a change would do, and which configs a pool can be rolled back to |
//! | [`profile`] | which built-in templates fit a node, by who installed its kubelet |
//! | [`reconcile_check`] | whether a running machine can change from one config to another |
//! | [`redact`] | which parts of objects are removed before they leave the cluster |
//! | [`render`] | a pool's rendered config: selection, merge, name, provenance |
//! | [`rollout`] | a machine's pool, which machine is updated next, the pool's status |
//! | [`secrets`] | which values must never be shown |
//! | [`serve`] | what a machine is served on its first boot, and in which Ignition version |
//! | [`template`] | the MachineConfigs that every machine starts from |
//! | [`tls_profile`] | TLS versions and cipher suites of a TLS profile |
//! | [`user_data`] | what points a new machine to the machine config server |
//! | [`validate`] | whether one MachineConfig is valid |
//! | [`versioned`] | which versions of the daemon's own files can be read |
//! | [`watchdog`] | whether the daemon of a machine can run, and what its watchdog restores |

#![forbid(unsafe_code)]

pub mod adopt;
pub mod api;
pub mod apply;
pub mod backup_schedule;
pub mod bootstrap;
pub mod certificates;
pub mod container_runtime;
pub mod daemon;
pub mod diff;
pub mod disruption;
pub mod drain;
pub mod drift;
pub mod duration;
pub mod generate;
pub mod generated_config;
pub mod go;
pub mod health;
pub mod hex;
pub mod ignition;
pub mod kubelet;
pub mod lint;
pub mod machine_report;
pub mod metrics_access;
pub mod migrate;
pub mod node;
pub mod on_change;
pub mod operator;
pub mod os;
pub mod own_files;
pub mod plan;
pub mod profile;
pub mod reconcile_check;
pub mod redact;
pub mod render;
pub mod rollout;
pub mod secrets;
pub mod serve;
pub mod template;
pub mod tls_profile;
pub mod user_data;
pub mod validate;
pub mod versioned;
pub mod watchdog;
