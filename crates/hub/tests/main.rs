//! All integration tests of the crate in one binary: linking one takes a fraction of the time of linking many.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests may panic and print"
)]
#![allow(clippy::needless_pass_by_value, reason = "tests read better without borrows")]
#![allow(unreachable_pub, reason = "a module of a test binary is not reachable from outside")]

mod backup_access;
mod binary_access;
mod fuzz_decoders;
mod fuzz_definitions;
mod fuzz_patches;
mod fuzz_requests;
mod hostile_apply;
mod hostile_compression;
mod hostile_metadata;
mod hostile_objects;
mod hostile_quotas;
mod hostile_reads;
mod pure;
mod pure_discovery;
mod pure_patch;
mod pure_properties;
mod pure_schema;
mod pure_selector;
mod pure_status;
mod pure_table;
mod recorded_applies;
mod refused_bodies;
mod server_auth;
mod server_contention;
mod server_credentials;
mod server_definitions;
mod server_documents;
mod server_impersonation;
mod server_limits;
mod server_objects;
mod server_rbac;
mod server_watch;
mod server_websocket;
mod service_accounts;
mod store_backup;
mod store_crash;
mod store_disk;
mod store_full_disk;
mod store_model;
mod store_watch;
mod support;
mod unreadable_objects;
