//! Which memory a daemon that rests can give back: pages that are a file's, word for word. Whoever needs
//! one again gets it from the file.

use std::ops::Range;

/// What the kernel says about one mapping.
struct MemoryMapping {
    range: Range<usize>,
    is_file_backed: bool,
    is_writable: bool,
    resident: u64,
    /// Pages that are not, or not any more, the file's.
    private_kib: u64,
}

/// The mappings that can go, out of the text of `/proc/self/smaps`. A mapping that may be written, or that
/// has one page of its own in it, stays: nobody could bring that page back.
#[must_use]
pub fn reclaimable_ranges(smaps: &str) -> Vec<Range<usize>> {
    let mut mappings: Vec<MemoryMapping> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = parse_header(line) {
            mappings.push(mapping);
        } else if let (Some((field, size)), Some(last)) = (parse_field(line), mappings.last_mut()) {
            match field {
                "Rss" => last.resident = size,
                "Anonymous" | "Private_Dirty" | "Shared_Dirty" | "Swap" | "Locked" => {
                    last.private_kib += size;
                }
                _ => {}
            }
        }
    }
    let can_go = |mapping: &MemoryMapping| {
        mapping.is_file_backed
            && !mapping.is_writable
            && mapping.resident > 0
            && mapping.private_kib == 0
    };
    mappings.into_iter().filter(can_go).map(|mapping| mapping.range).collect()
}

/// `55a3-55a9 r-xp 00652000 fe:00 5376744   /usr/bin/machinist`
fn parse_header(line: &str) -> Option<MemoryMapping> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let range = number(from)?..number(to)?;
    let permissions = words.next()?;
    let path = words.nth(3).unwrap_or_default();
    Some(MemoryMapping {
        range,
        // Memory that is shared is not this process's to judge.
        is_file_backed: path.starts_with('/') && permissions.ends_with('p'),
        is_writable: permissions.contains('w'),
        resident: 0,
        private_kib: 0,
    })
}

/// `Private_Dirty:      1904 kB`
fn parse_field(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.split_once(':')?;
    Some((name, rest.trim().strip_suffix(" kB")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(range: &str, permissions: &str, path: &str, fields: &[(&str, u64)]) -> String {
        let mut text = format!("{range} {permissions} 00000000 fe:00 53767 {path}\n");
        text.push_str("Size:    64 kB\nKernelPageSize:        4 kB\n");
        for (name, size) in fields {
            text.push_str(&format!("{name}:     {size} kB\n"));
        }
        text + "THPeligible:           0\nVmFlags: rd ex mr mw me\n"
    }

    #[test]
    fn only_what_is_a_files_word_for_word() {
        let program = "/usr/bin/machinist";
        let none = [("Rss", 64), ("Private_Clean", 64), ("Anonymous", 0), ("Private_Dirty", 0)];
        let text = [
            mapping("1000-2000", "r--p", program, &none),
            mapping("2000-3000", "r-xp", program, &none),
            // Addresses that were filled in when the program started.
            mapping("3000-4000", "r--p", program, &[("Rss", 64), ("Anonymous", 8)]),
            mapping("4000-5000", "r--p", program, &[("Rss", 64), ("Private_Dirty", 8)]),
            mapping("5000-6000", "r--p", program, &[("Rss", 64), ("Swap", 4)]),
            mapping("6000-7000", "rw-p", program, &none),
            mapping("7000-8000", "r--s", program, &none),
            mapping("8000-9000", "r--p", program, &[("Rss", 0)]),
            mapping("9000-a000", "rw-p", "[heap]", &none),
            mapping("a000-b000", "r-xp", "[vdso]", &none),
            mapping("b000-c000", "r--p", "", &none),
            mapping("7f00-7fa0", "r-xp", "/usr/lib/libc.so.6", &none),
        ];
        let found = reclaimable_ranges(&text.concat());
        assert_eq!(found, [0x1000..0x2000, 0x2000..0x3000, 0x7f00..0x7fa0]);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text: String) {
            let _ = reclaimable_ranges(&text);
        }
    }
}
