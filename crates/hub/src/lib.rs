//! The hub: the Kubernetes API in one process, over an embedded crash-safe store.
//!
//! It knows objects and schemas, not machine configs: it must not depend on `machinist-core`.
//! Nothing is built yet; the crate is here so that the arrow between the rooms is fixed from the
//! first day.
