//! The host's operating system, as far as a config may change it.
//!
//! Calls block: the daemon makes them on a thread of their own.
//!
//! | file | does |
//! |---|---|
//! | `host` | finds out by looking which of these it is |
//! | `run` | runs the host's programs, and tells how far they are |
//! | `ostree` | ostree alone: images are fetched, unpacked and deployed by us |
//! | `rpm_ostree`, `extensions_repo` | Fedora CoreOS, RHCOS, SCOS |
//! | `bootc` | bootc |
//! | `plain` | hosts of packages: kernel arguments, and nothing else |

mod bootc;
mod command;
pub(crate) mod detect;
mod extensions_repo;
mod ostree;
mod plain;
mod rpm_ostree;

use anyhow::Result;
use machinist_core::os::{DesiredOs, OsChange, OsStatus};

/// A way to change an operating system. One for each kind of host.
pub(crate) trait HostOs: Send + Sync {
    /// What it is called: `ostree`, `rpm-ostree`, `bootc`, `plain`.
    fn backend_name(&self) -> &'static str;

    /// What is booted, what comes next, what is kept.
    fn status(&self) -> Result<OsStatus>;

    /// Why this host cannot make the change; asked before anything is written.
    fn refusal(&self, change: &OsChange) -> Option<String>;

    /// Brings everything onto the machine that the change needs, so that it is away as short as
    /// possible. May be called again after an interruption, and goes on where it was.
    fn fetch(&self, change: &OsChange) -> Result<()>;

    /// Makes the change for the next boot, all of it or nothing. `now` asks for it to be on disk when
    /// this returns, without anything left to do while the machine goes down.
    fn stage(&self, change: &OsChange, now: bool) -> Result<()>;

    /// Takes back a change that has not been booted.
    fn unstage(&self) -> Result<()>;

    /// The change has proved itself: what was kept for the way back, and what is left of the
    /// download, may go.
    fn confirm(&self) -> Result<()>;

    /// What is wrong with the running machine beyond its image and kernel arguments.
    fn problem(&self, _wanted: &DesiredOs) -> Option<String> {
        None
    }
}
