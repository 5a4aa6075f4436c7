//! The test kit: real machines, real clusters and real faults on one host.
//!
//! A whole-machine test is an ordinary `#[test]`:
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use machinist_e2e::Lab;
//!
//! let lab = Lab::new()?;
//! let machine = lab.machine("a").boot()?;
//! machine.write_file("/etc/motd", "hello")?;
//! machine.reboot()?;
//! assert_eq!(machine.read_file("/etc/motd")?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Everything that a test creates on the host (processes, mounts, networks, cgroups, files) belongs to its [`Lab`] and
//! carries the lab's name. When the last handle of the lab is dropped, or the test process dies for any reason, the
//! lab's janitor removes all of it. Labs share nothing, so tests run in parallel.
//!
//! | part | what it is |
//! |---|---|
//! | [`TestEnvironment`] | the requirements of the kit; a missing one fails the test as "environment" |
//! | [`Lab`] | the owner of names, files, network and processes of one test |
//! | [`Machine`] | a Debian machine in systemd-nspawn that boots, reboots, and loses power or link |
//! | [`Cluster`] | etcd and kube-apiserver, optionally with the rest of Kubernetes and machines as nodes |
//! | [`ApiServer`] | one of the two API servers: the hub, or a kube-apiserver with our CRDs |
//! | [`LoopDisk`], [`SyscallFault`] | true power cuts of a disk; system calls that fail or kill |
//! | [`IgnitionRun`] | the real Ignition, applied to a root |
//! | [`VirtualMachine`] | a virtual machine with its own kernel, booted from an ostree disk |
//! | [`ImageRegistry`], [`ContainerImage`] | a container registry, and images made by the kit |
//! | [`Fleet`] | thousands of simulated machines that speak the node protocol |
//! | [`rollout_checker`] | rules over a full watch log |
//! | [`HttpServer`] | fixed responses over HTTP or TLS, and a record of the requests |

pub mod api_server;
pub mod binary;
pub mod cache;
pub mod cgroup;
pub mod cluster;
pub mod command;
pub mod cpu_load;
pub mod environment;
pub mod faults;
pub mod fleet;
pub mod http_get;
pub mod http_server;
pub mod ignition;
pub mod image;
pub mod image_registry;
pub mod lab;
pub mod leftovers;
pub mod machine;
pub mod machine_config_files;
pub mod measurements;
pub mod mounts;
pub mod objects;
pub mod pki;
pub mod proxy;
pub mod qemu;
pub mod rollout_checker;
pub mod runtime;
pub mod wait;

pub use api_server::ApiServer;
pub use cluster::Cluster;
pub use environment::TestEnvironment;
pub use faults::{LoopDisk, SyscallFault};
pub use fleet::Fleet;
pub use http_server::HttpServer;
pub use ignition::IgnitionRun;
pub use image::ContainerImage;
pub use image_registry::ImageRegistry;
pub use lab::Lab;
pub use machine::Machine;
pub use machine_config_files::contents;
pub use proxy::TcpProxy;
pub use qemu::VirtualMachine;
pub use rollout_checker::WatchLog;
pub use runtime::{block_on, runtime};
pub use wait::{wait_for, wait_with_timeout};
