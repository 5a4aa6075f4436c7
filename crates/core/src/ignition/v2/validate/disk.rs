//! Disks and their partitions.

use std::collections::HashSet;

use super::super::schema::{Disk, Partition, WholeNumber};
use super::{V2Validator, path_problem};
use crate::ignition::report::ConfigPath;

/// Partitions are aligned to this many sectors.
const ALIGNMENT: i64 = 2048;

impl V2Validator {
    pub(super) fn disk(&mut self, disk: &Disk, path: &ConfigPath) {
        let problem = if disk.device.is_empty() {
            Some("disk device is required")
        } else {
            path_problem(&disk.device)
        };
        self.error_if(problem, path, "device");
        let partitions = path.key("partitions");
        let mut numbers = HashSet::new();
        if disk.partitions.iter().any(|p| p.number != 0 && !numbers.insert(p.number)) {
            self.report.error(&partitions, "partition numbers collide");
        }
        if self.overlap(&disk.partitions) {
            self.report.error(&partitions, "partitions overlap");
        }
        if disk.partitions.iter().any(|p| p.start.0 & (ALIGNMENT - 1) != 0) {
            self.report.error(&partitions, "partitions misaligned");
        }
        for (index, partition) in disk.partitions.iter().enumerate() {
            self.partition(partition, &partitions.index(index));
        }
    }

    /// Whether two partitions with a start share sectors. Up to 2.2, a partition that equals
    /// another one in every field is treated as the same partition.
    fn overlap(&self, partitions: &[Partition]) -> bool {
        let placed: Vec<_> =
            partitions.iter().filter(|p| p.start.0 != 0).map(|p| (p, self.extent(p))).collect();
        placed.iter().enumerate().any(|(index, (p, (start, end)))| {
            placed.iter().enumerate().any(|(other, (o, (from, to)))| {
                let same = if self.minor < 3 { p == o } else { index == other };
                !same
                    && ((from..=to).contains(&start)
                        || (from..=to).contains(&end)
                        || start < from && end > to)
            })
        })
    }

    /// The first and the last sector; a partition of unknown size counts as one sector.
    fn extent(&self, partition: &Partition) -> (i128, i128) {
        let Partition { start: WholeNumber(start), size: WholeNumber(size), .. } = *partition;
        let end = if size == 0 { start } else { start.wrapping_add(size).wrapping_sub(1) };
        match self.minor {
            0 => (i128::from(start.cast_unsigned()), i128::from(end.cast_unsigned())),
            _ => (i128::from(start), i128::from(end)),
        }
    }

    fn partition(&mut self, partition: &Partition, path: &ConfigPath) {
        self.error_if(guid_problem(&partition.guid), path, "guid");
        if partition.label.len() > 36 {
            let message = "partition labels may not exceed 36 characters";
            self.report.error(&path.key("label"), message);
        }
        if partition.label.contains(':') {
            let message = "partition label will be truncated to text before the colon";
            self.report.warning(&path.key("label"), message);
        }
        if self.minor >= 3 {
            // The translator to 2.3 sets both fields of every partition.
            self.deprecated(&path.key("size"), "size is deprecated; use sizeMB instead");
            self.deprecated(&path.key("start"), "start is deprecated; use startMB instead");
        }
        self.error_if(guid_problem(&partition.type_guid), path, "typeGuid");
    }
}

fn guid_problem(guid: &str) -> Option<&'static str> {
    let parts: Vec<&str> = guid.split('-').collect();
    let fits = parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()));
    (!guid.is_empty() && !fits)
        .then_some("doesn't match the form \"01234567-89AB-CDEF-EDCB-A98765432101\"")
}
