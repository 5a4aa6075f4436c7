//! The hub: the Kubernetes API in one process, over an embedded crash-safe store.
//!
//! It knows objects and schemas, not machine configs: it must not depend on `machinist-core`.
//! See `docs/design/0001-hub.md` for how the parts meet.

pub mod registry;
