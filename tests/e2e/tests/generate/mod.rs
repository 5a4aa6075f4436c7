//! MachineConfigs that are generated from other kinds, on both API servers and with the real consumers.

mod container_tools;
mod late_crd;
mod scenarios;
