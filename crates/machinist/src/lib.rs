//! The imperative shell: every process of Machinist, in one binary.
//!
//! It reads the world, calls the decisions in `machinist-core`, and carries them out. It holds no
//! decision itself. The rooms do not import one another; they meet through API objects.
//!
//! | room | what it runs |
//! |---|---|
//! | [`cli`] | the commands, a file each |
//! | [`manifests`] | reading manifests from files, folders and standard input |
//! | [`up`] | everything in one process: `machinist up` |

pub mod cli;
pub mod manifests;
pub mod up;
