//! The test kit: real machines, real clusters and real faults on one box.
//!
//! A whole-machine test is an ordinary `#[test]`:
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use machinist_e2e::Lab;
//!
//! let lab = Lab::new()?;
//! let machine = lab.machine("a").boot()?;
//! machine.put("/etc/motd", "hello")?;
//! machine.reboot()?;
//! assert_eq!(machine.get("/etc/motd")?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Everything that a test makes on the machine (processes, mounts, networks, cgroups, files) belongs to its [`Lab`] and
//! carries the lab's name. When the last handle of the lab goes, or the test process dies however it dies, the lab's
//! janitor removes all of it. Nothing is shared between labs, so tests run side by side.
//!
//! | part | what it is |
//! |---|---|
//! | [`Environment`] | what must be there before anything starts; a missing piece fails the test as "environment" |
//! | [`Lab`] | the owner of names, files, network and processes of one test |
//! | [`Machine`] | a Debian machine in systemd-nspawn that boots, reboots, and loses power or link |
//! | [`Cluster`] | etcd and kube-apiserver, on request with the rest of Kubernetes and machines as nodes |
//! | [`Home`] | one of the two homes of the API: the hub, or a kube-apiserver with our CRDs |
//! | [`Disk`], [`Injection`] | true power cuts of a disk; system calls that fail or kill |
//! | [`Ignition`] | the real Ignition, against a root |
//! | [`Qemu`] | a virtual machine with a kernel of its own, booted from an ostree disk |
//! | [`Registry`], [`Image`] | a container registry, and images made by the kit |
//! | [`Fleet`] | thousands of simulated machines that speak the node protocol |
//! | [`checker`] | rules over a full watch log |
//! | [`Server`] | fixed answers over HTTP or TLS, and a record of what was asked |

pub mod api_server;
pub mod binary;
pub mod cache;
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
pub mod objects;
pub mod pki;
pub mod proxy;
pub mod qemu;
pub mod rollout_checker;
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
pub use wait::{wait_for, wait_with_timeout};

use std::future::Future;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// Runs a future to its end on the kit's own runtime, for tests that are plain `#[test]` functions.
pub fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// The one runtime behind [`block_on`]: clients made on it stay usable from any later call.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        #[expect(clippy::expect_used, reason = "no test can run without threads")]
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a tokio runtime")
    })
}
