//! Changes the operating system of the host. Called by `agent::os` and by the first boot.
//!
//! Calls block: the daemon makes them on blocking threads.
//!
//! | module | does |
//! |---|---|
//! | `detect` | detects which backend a host needs |
//! | `abilities` | what a host can do |
//! | `command` | runs commands of the host, and logs their progress |
//! | `ostree` | only ostree: Machinist downloads, unpacks and deploys images |
//! | `rpm_ostree`, `extensions_repo` | Fedora CoreOS, RHCOS, SCOS |
//! | `bootc` | bootc |
//! | `plain` | package hosts: kernel arguments, and nothing else |

pub(crate) mod abilities;
mod bootc;
mod command;
pub(crate) mod detect;
mod extensions_repo;
mod ostree;
mod plain;
mod rpm_ostree;

use anyhow::Result;
use machinist_core::os::{DesiredOs, OsChange, OsStatus};

/// A way to change an operating system, one for each kind of host.
pub(crate) trait HostOs: Send + Sync {
    /// The name: `ostree`, `rpm-ostree`, `bootc`, `plain`.
    fn backend_name(&self) -> &'static str;

    /// What is booted, staged and kept.
    fn status(&self) -> Result<OsStatus>;

    /// Why this host cannot make the change. Asked before anything is written.
    fn refusal(&self, change: &OsChange) -> Option<String>;

    /// Downloads everything that the change needs, so that the machine is out of service as briefly as possible.
    /// May be called again after an interruption, and continues where it was.
    fn fetch(&self, change: &OsChange) -> Result<()>;

    /// Stages the change for the next boot, all of it or nothing. `now` asks for it to be on disk when this
    /// returns, with nothing left to do at shutdown.
    fn stage(&self, change: &OsChange, now: bool) -> Result<()>;

    /// Drops a change that has not been booted.
    fn unstage(&self) -> Result<()>;

    /// Removes what was kept for a rollback, and the rest of the download, after the change has passed its
    /// checks.
    fn confirm(&self) -> Result<()>;

    /// What is wrong with the running machine, apart from its image and kernel arguments.
    fn problem(&self, _wanted: &DesiredOs) -> Option<String> {
        None
    }
}
