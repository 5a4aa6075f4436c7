//! Shared Kubernetes plumbing: everything a process needs to talk to an API server, be it a hub or a Kubernetes cluster.
//!
//! Knows nothing about pools, machines or rollouts. The controller, operator, server, daemon and CLI all build on it; it
//! imports none of them.
//!
//! | module | purpose |
//! |---|---|
//! | [`connect`] | finds the API server: a flag, the environment, a running hub, a kubeconfig, the cluster around us |
//! | [`bounded_responses`] | asks for gzip, and bounds what a response may take |
//! | [`request`] | one request and its response, in JSON |
//! | [`watch`] | a watch on objects that resumes when the server ends it |
//! | [`resource`] | the served resources, by all their names |
//! | [`discovery`] | asks the API server which resources it serves |
//! | [`apply`] | client-side apply: the patch that brings an object to its manifest |
//! | `cache` | all objects of one kind in memory, kept current by one watch |
//! | `reflectors` | starts the watches of a set of caches |
//! | `error_text` | errors of the API server for people |
//! | `events` | records Kubernetes Events |
//! | [`lease`] | leader election with a Lease |

pub mod apply;
pub mod bounded_responses;
pub(crate) mod cache;
pub mod connect;
pub mod discovery;
pub(crate) mod error_text;
mod event_budget;
pub(crate) mod events;
pub mod lease;
pub(crate) mod reflectors;
pub mod request;
pub mod resource;
pub mod watch;

pub use connect::ConnectionOptions;
pub use request::{ApiClient, ApiStatusError};
pub use resource::{ServedResource, ServedResources};
