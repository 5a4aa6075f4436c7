//! The home of the API objects, from outside: the hub or any Kubernetes, the same to whoever asks.
//!
//! | module | is |
//! |---|---|
//! | [`find`] | which home is meant: a flag, the environment, a running hub, a kubeconfig, a cluster around us |
//! | [`request`] | one question and its answer, in JSON |
//! | [`watch`] | what happens to objects from now on |
//! | [`resource`] | the kinds that the home serves, by all names that people give them |
//! | [`discovery`] | asking for those |
//! | [`apply`] | what has to change so that an object is as its manifest says |
//! | `cache` | objects of one kind in memory, kept in step by one watch |

pub mod apply;
pub(crate) mod cache;
pub mod connect;
pub mod discovery;
pub mod request;
pub mod resource;
pub mod watch;

pub use connect::ConnectionOptions;
pub use request::{ApiClient, ApiStatusError};
pub use resource::{ServedResource, ServedResources};
