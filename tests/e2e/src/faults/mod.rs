//! Faults of power and disk: true power cuts, and system calls that fail or kill.

mod disk;
mod inject;

pub use disk::LoopDisk;
pub use inject::SyscallFault;
