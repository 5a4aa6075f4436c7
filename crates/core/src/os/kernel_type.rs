//! Other kernels: their names, and how rpm-ostree installs them.

use super::OsDeployment;

/// The kernel of the image.
pub const DEFAULT_KERNEL: &str = "default";

const DEFAULT_KERNEL_PACKAGES: [&str; 5] =
    ["kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"];
const REALTIME_KERNEL_PACKAGES: [&str; 3] =
    ["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"];
const LARGE_PAGE_KERNEL_PACKAGES: [&str; 4] = [
    "kernel-64k-core",
    "kernel-64k-modules",
    "kernel-64k-modules-core",
    "kernel-64k-modules-extra",
];

/// The name of a kernel; the default if none is given.
#[must_use]
pub fn canonical(kernel_type: Option<&str>) -> &str {
    kernel_type.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_KERNEL)
}

/// Why a kernel is not available on this kind of machine.
#[must_use]
pub fn refusal(kernel_type: &str, architecture: &str) -> Option<String> {
    match kernel_type {
        DEFAULT_KERNEL | "realtime" => None,
        "64k-pages" if architecture == "aarch64" => None,
        "64k-pages" => Some("64k-pages is only supported for aarch64 architecture".to_owned()),
        other => Some(format!(
            "kernelType={other} is invalid: it is one of default, realtime, 64k-pages"
        )),
    }
}

/// The arguments with which rpm-ostree replaces the kernel of the image; empty for the default, which
/// [`reset`] restores.
#[must_use]
pub fn switch_arguments(kernel_type: &str) -> Option<Vec<String>> {
    let packages: &[&str] = match kernel_type {
        "realtime" => &REALTIME_KERNEL_PACKAGES,
        "64k-pages" => &LARGE_PAGE_KERNEL_PACKAGES,
        _ => return None,
    };
    let removed = ["override", "remove"].into_iter().chain(DEFAULT_KERNEL_PACKAGES);
    let installed = packages.iter().flat_map(|package| ["--install", package]);
    Some(removed.chain(installed).map(str::to_owned).collect())
}

/// The arguments with which rpm-ostree restores the kernel of the image; empty if it was not replaced.
#[must_use]
pub fn reset_arguments(booted: &OsDeployment) -> Option<Vec<String>> {
    let of_image = |name: &&String| name.starts_with("kernel");
    let put_on = |name: &&String| name.starts_with("kernel-rt-") || name.starts_with("kernel-64k-");
    let removed: Vec<&String> = booted.removed_packages.iter().filter(of_image).collect();
    let layered: Vec<&String> = booted.requested_packages.iter().filter(put_on).collect();
    if removed.is_empty() || layered.is_empty() {
        return None;
    }
    let words = ["override", "reset"].into_iter().map(str::to_owned);
    let layered = layered.into_iter().flat_map(|name| ["--uninstall".to_owned(), name.clone()]);
    Some(words.chain(removed.into_iter().cloned()).chain(layered).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_commands() {
        assert_eq!(switch_arguments("default"), None);
        assert_eq!(
            switch_arguments("realtime").unwrap().join(" "),
            "override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra --install kernel-rt-core --install kernel-rt-modules --install kernel-rt-modules-extra"
        );
        assert_eq!(
            switch_arguments("64k-pages").unwrap().join(" "),
            "override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra --install kernel-64k-core --install kernel-64k-modules --install kernel-64k-modules-core --install kernel-64k-modules-extra"
        );
    }

    #[test]
    fn only_a_replaced_kernel_is_reset() {
        let list = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        for (removed, requested, expected) in [
            (&[][..], &["usbguard"][..], None),
            (&["kernel", "kernel-core"], &["usbguard"], None),
            (&[], &["kernel-rt-core"], None),
            (
                &["kernel", "kernel-core", "nano"],
                &["usbguard", "kernel-rt-core", "kernel-rt-modules"],
                Some(
                    "override reset kernel kernel-core --uninstall kernel-rt-core --uninstall kernel-rt-modules",
                ),
            ),
        ] {
            let booted = OsDeployment {
                removed_packages: list(removed),
                requested_packages: list(requested),
                ..OsDeployment::default()
            };
            assert_eq!(reset_arguments(&booted).map(|call| call.join(" ")).as_deref(), expected);
        }
    }

    #[test]
    fn refusals_name_the_available_kernels() {
        assert_eq!(canonical(Some("")), DEFAULT_KERNEL);
        assert_eq!(refusal("realtime", "x86_64"), None);
        assert_eq!(refusal("64k-pages", "aarch64"), None);
        assert!(refusal("64k-pages", "x86_64").unwrap().contains("only supported for aarch64"));
        assert!(refusal("x", "x86_64").unwrap().starts_with("kernelType=x is invalid"));
    }
}
