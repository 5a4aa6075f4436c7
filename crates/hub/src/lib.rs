//! The hub: the Kubernetes API in one process, over an embedded crash-safe store.
//!
//! It knows objects and schemas, not machine configs: it must not depend on `machinist-core`.
//! See `docs/design/0001-hub.md` for how the parts meet.
//!
//! ```text
//! bytes ─ server, auth ─→ request ─→ registry ─→ admit ─→ store ─→ router: object, list, table, watch, Status
//! ```
//!
//! A [`Hub`] is a store with the kinds it serves. [`Hub::router`] is a `tower::Service`, so that a
//! client in the same process needs no socket; [`server`] serves it over TLS.

#![forbid(unsafe_code)]

pub mod admit;
pub mod audit;
pub mod auth;
pub mod built_in;
pub mod discovery;
pub mod figures;
pub mod finalize;
pub mod hub;
pub mod json_path;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod registry;
pub mod request;
pub mod robustness;
pub mod router;
pub mod schema;
pub mod selector;
pub mod server;
pub mod status;
pub mod store;
pub mod table;

mod collector;
mod events;
mod expiry;
mod signer;
mod strategy;

pub use hub::{Hub, Settings, StartError};
