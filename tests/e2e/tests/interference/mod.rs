//! Machines on which something else interferes with the daemon: immutable files, interrupted changes that cannot be
//! undone, things in the place of managed files. The daemon goes on with everything else.

mod damaged_files;
mod disk_quota;
mod enrolment_power_cuts;
mod fixture;
mod fought_over;
mod healing;
mod host_faults;
mod identity_power_cuts;
mod immutable_files;
mod leftovers;
mod own_unit;
mod quarantine;
mod random_faults;
mod sparse_files;
mod stalled_disk;
