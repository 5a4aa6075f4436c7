//! The test kit: real machines, real clusters and real faults on one box.
