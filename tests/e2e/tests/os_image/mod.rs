//! Operating systems of machines with ostree: images from a registry, kernel arguments, and failures.

mod crash;
mod fetching;
mod fixture;
mod pool;
mod pool_scenario;
mod private_registry;
mod rejections;
mod resumed_download;
mod staging;
