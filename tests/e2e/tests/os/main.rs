//! Operating systems of machines with ostree: images from a registry, kernel arguments, and what goes wrong with them.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod crash;
mod fetching;
mod refusals;
mod site;
mod staging;
