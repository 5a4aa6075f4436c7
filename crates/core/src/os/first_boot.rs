//! What is left to do on the first boot after Ignition: kernel arguments, the image, FIPS.

use super::{DesiredOs, KernelArgumentsChange, OsChange, OsDeployment, kernel_arguments};
use crate::api::MachineConfig;

/// The kernel argument that enables FIPS mode.
const FIPS_ARGUMENT: &str = "fips=1";

/// A new machine that only Ignition has touched.
#[derive(Debug, Clone, Copy)]
pub struct FirstBootHost<'a> {
    /// What it booted.
    pub booted: &'a OsDeployment,
    /// The kernel command line; `None` where nothing reads kernel arguments from a config.
    pub command_line: Option<&'a str>,
    /// Whether the kernel runs in FIPS mode; `None` if the host does not say.
    pub fips: Option<bool>,
}

/// What has to change so that the machine is as its first config says. If it is empty, no reboot is
/// needed.
///
/// # Errors
/// FIPS mode is on and the config does not ask for it: it cannot be turned off.
pub fn first_boot_change(
    config: &MachineConfig,
    host: FirstBootHost<'_>,
) -> Result<OsChange, String> {
    let wants_fips = config.spec.fips.unwrap_or_default();
    if host.fips == Some(true) && !wants_fips {
        return Err(
            "spec.fips is false, and this machine runs in FIPS mode, which cannot be turned off: set fips, or install the machine without it"
                .to_owned(),
        );
    }
    let mut wanted = DesiredOs::from_config(config);
    if wants_fips && host.fips != Some(true) {
        wanted.kernel_arguments.push(FIPS_ARGUMENT.to_owned());
    }
    let line = host.command_line.unwrap_or_default();
    let had = DesiredOs {
        image: host.booted.image.clone(),
        is_layered: wanted.is_layered,
        kernel_arguments: present_arguments(&wanted.kernel_arguments, line),
        kernel_type: super::kernel_type::DEFAULT_KERNEL.to_owned(),
        extensions: Vec::new(),
        extensions_image: wanted.extensions_image.clone(),
    };
    Ok(OsChange::between(&had, &wanted, host.booted))
}

/// Drops kernel arguments that nothing would read. FIPS mode is required and cannot be dropped.
///
/// # Errors
/// FIPS mode is required and would not be enabled.
pub fn drop_kernel_arguments(change: &mut OsChange) -> Result<(), String> {
    if change.kernel_arguments.append.iter().any(|argument| argument == FIPS_ARGUMENT) {
        return Err(
            "spec.fips is true, and this machine has no boot loader that could enable FIPS mode: install the machine with it, or leave fips out"
                .to_owned(),
        );
    }
    change.kernel_arguments = KernelArgumentsChange::default();
    Ok(())
}

/// The desired arguments that the machine was booted with, in the order of its command line. The order
/// counts.
fn present_arguments(wanted: &[String], command_line: &str) -> Vec<String> {
    let wanted = kernel_arguments::split_all(wanted);
    let mut words = kernel_arguments::split(command_line);
    words.retain(|word| wanted.contains(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::from_ignition;
    use serde_json::json;

    const A: &str = "q.io/os@sha256:a";
    const B: &str = "q.io/os@sha256:b";

    fn config(image: &str, arguments: &[&str], fips: bool) -> MachineConfig {
        let mut config = from_ignition(json!({}));
        config.spec.os_image_url = Some(image.to_owned());
        config.spec.kernel_arguments = Some(arguments.iter().map(|&it| it.to_owned()).collect());
        config.spec.fips = Some(fips);
        config
    }

    #[test]
    fn the_change_after_ignition() {
        let booted = OsDeployment { image: Some(A.to_owned()), ..OsDeployment::default() };
        for (image, arguments, line, expected) in [
            (A, &[][..], "root=x", (None, &[][..])),
            (A, &["a", "b"], "root=x a b", (None, &[])),
            // The order counts.
            (A, &["b", "a"], "root=x a b", (None, &["b", "a"])),
            (A, &["a", "b"], "root=x a", (None, &["a", "b"])),
            (B, &["a"], "a", (Some(B), &[])),
            (B, &["a"], "root=x", (Some(B), &["a"])),
        ] {
            let host =
                FirstBootHost { booted: &booted, command_line: Some(line), fips: Some(false) };
            let change = first_boot_change(&config(image, arguments, false), host).unwrap();
            let found = (change.image.as_deref(), change.kernel_arguments.append.as_slice());
            assert_eq!(
                found,
                (expected.0, &*expected.1.iter().map(|&it| it.to_owned()).collect::<Vec<_>>()),
                "{image} {arguments:?} {line}"
            );
        }
    }

    #[test]
    fn fips_comes_with_the_first_reboot_and_is_never_removed() {
        let booted = OsDeployment { image: Some(A.to_owned()), ..OsDeployment::default() };
        let host = |fips| FirstBootHost { booted: &booted, command_line: Some("root=x"), fips };
        let on = first_boot_change(&config(A, &[], true), host(Some(false))).unwrap();
        assert_eq!(on.kernel_arguments.append, ["fips=1"]);
        assert!(first_boot_change(&config(A, &[], true), host(Some(true))).unwrap().is_empty());
        let refused = first_boot_change(&config(A, &[], false), host(Some(true))).unwrap_err();
        assert!(refused.contains("spec.fips"), "{refused}");
    }

    #[test]
    fn unread_arguments_are_dropped_but_not_fips() {
        let booted = OsDeployment { image: Some(A.to_owned()), ..OsDeployment::default() };
        let host = FirstBootHost { booted: &booted, command_line: None, fips: None };
        let mut plain = first_boot_change(&config(A, &["a"], false), host).unwrap();
        assert!(!plain.is_empty());
        drop_kernel_arguments(&mut plain).unwrap();
        assert!(plain.is_empty());
        let mut fips = first_boot_change(&config(A, &["a"], true), host).unwrap();
        let refused = drop_kernel_arguments(&mut fips).unwrap_err();
        assert!(refused.contains("spec.fips"), "{refused}");
    }
}
