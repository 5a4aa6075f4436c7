//! The hub: a Kubernetes-compatible API server in one process, on an embedded crash-safe store.
//!
//! It knows objects and schemas, not machine configs, so it must not depend on `machinist-core`.
//! `docs/design/0001-hub.md` describes how the parts work together.
//!
//! ```text
//! bytes ─ server, auth ─→ request ─→ kind_registry ─→ admission ─→ store ─→ router: response
//! ```
//!
//! A [`Hub`] is a store with the kinds it serves. [`Hub::router`] is a `tower::Service`, so a
//! client in the same process needs no socket; [`server`] serves it over TLS.

#![forbid(unsafe_code)]

pub mod admission;
pub mod audit;
pub mod auth;
mod binaries;
pub mod built_in;
pub mod definition;
pub mod deletion;
pub mod discovery;
pub mod failure_log;
pub mod field_management;
pub mod hub;
pub mod json_path;
pub mod kind_registry;
pub mod metrics;
pub mod name_validation;
mod node_liveness;
pub mod object;
pub mod object_limits;
pub mod openapi;
pub mod patch;
pub mod random;
pub mod rbac;
pub mod request;
#[cfg(any(test, feature = "fuzzing"))]
pub mod robustness;
pub mod router;
pub mod scale;
pub mod schema;
pub mod selector;
pub mod server;
pub mod status;
pub mod store;
pub mod table;

mod backup_stream;
mod body;
mod compression_budget;
mod csr_ttl;
mod data_check;
mod definition_loop;
mod event_conversion;
mod event_ttl;
mod garbage_collector;
mod held_body;
mod hex;
mod machines;
mod quotas;
mod request_shares;
mod role_aggregation;
mod served_kinds;
mod signer;
mod startup;
mod stored_bytes;
mod strategy;
mod sweep;
mod unreadable_entries;
mod websocket;
mod write_order;

pub use data_check::{DataCheck, check_backup, check_data};
pub use hub::{Hub, ViewerRedaction};
pub use machines::machines_with_certificates;
pub use quotas::{WriteRate, WriteRates};
pub use startup::{HubConfig, StartError, namespace_object};
