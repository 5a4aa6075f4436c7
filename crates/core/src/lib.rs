//! Machinist's functional core.
//!
//! Every decision Machinist takes is a pure function in this crate: values in, values out. There
//! is no async code, no client, no clock, no environment, no file and no process here; the shell
//! (`crates/machinist`) reads the world, calls these functions and carries out what they return.
//!
//! | module | decides |
//! |---|---|
//! | [`adopt`] | whether a running cluster can be taken over without touching a machine |
//! | [`api`] | what objects look like: the kinds, their schemas, labels and annotations |
//! | [`apply`] | what a change does to the disk of a machine, step by step, and the way back |
//! | [`bootstrap`] | what the first control plane gets before there is an API, and where it lies |
//! | [`certificates`] | which certificates and secrets the cluster keeps up to date on a machine |
//! | [`generate`] | which MachineConfigs are made out of other objects, and from what |
//! | [`go`] | what Go's typed world does to values: structs, JSON, YAML, durations |
//! | [`agent`] | what the daemon of a machine does next, and what it says |
//! | [`health`] | whether a machine is well on its new config, and what follows if not |
//! | [`ignition`] | what an Ignition config says, in any version, and how two of them merge |
//! | [`render`] | which MachineConfigs a pool takes, what they make together, what it is called |
//! | [`diff`] | what differs between two configs |
//! | [`disruption`] | what a change costs a running machine |
//! | [`drift`] | what differs between a machine's config and its disk, and in which words it is told |
//! | [`drain`] | how a machine is emptied: who goes, what is in the way, when to try again |
//! | [`moving`] | what goes from one home of the API to another, and what is in the way |
//! | [`kubelet`] | what a KubeletConfig makes of the kubelets of a pool |
//! | [`operator`] | what is deployed into a Kubernetes, in which order, and what is said about it |
//! | [`plan`] | what a change would do, and where a pool could go back to |
//! | [`reconcile_check`] | whether a running machine can go from one to the other |
//! | [`redact`] | what is left of objects that leave the house: everything but secrets |
//! | [`runtime`] | what image mirrors, image policies and runtime settings make on a machine |
//! | [`serve`] | what a machine gets on its first boot, and in which version |
//! | [`template`] | the MachineConfigs that every machine starts from |
//! | [`lint`] | what is wrong or odd in a manifest, with field and remedy |
//! | [`update`] | who is in which pool, who goes next, what the pool's status says |
//! | [`user_data`] | what points a machine at its config before it has one |
//! | [`hex`] | digests as people write them |
//! | [`versioned`] | which versions of the daemon's own files can be read |
//! | [`secrets`] | what must never be shown |

#![forbid(unsafe_code)]

pub mod adopt;
pub mod api;
pub mod apply;
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
pub mod migrate;
pub mod node;
pub mod operator;
pub mod os;
pub mod plan;
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
