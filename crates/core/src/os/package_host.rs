//! Package hosts: kernel arguments through the files that their boot loader reads, and nothing else.

use serde::{Deserialize, Serialize};

use super::{KernelArgumentsChange, OsChange, kernel_arguments};

/// The drop-in for grub that belongs to Machinist.
pub const GRUB_DROP_IN: &str = "/etc/default/grub.d/90-machinist.cfg";
/// The file from which kernel-install takes the kernel arguments.
pub const KERNEL_CMDLINE: &str = "/etc/kernel/cmdline";

/// What reads kernel arguments on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootLoader {
    /// grub as on Debian: drop-ins, and a command that reads them.
    Grub,
    /// kernel-install and the boot loader specification.
    KernelInstall,
    /// Nothing.
    Nobody,
}

/// What was found about the boot loader of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BootLoaderFacts {
    /// Whether the machine is booted from an image that cannot be changed here.
    pub is_image: bool,
    /// Whether `update-grub` is installed.
    pub has_update_grub: bool,
    /// Whether `kernel-install` is installed.
    pub has_kernel_install: bool,
    /// Whether there are loader entries, or kernel arguments for them.
    pub has_entries: bool,
}

/// What reads kernel arguments, and the reason.
#[must_use]
pub fn detect_boot_loader(facts: BootLoaderFacts) -> (BootLoader, String) {
    match facts {
        BootLoaderFacts { is_image: true, .. } => {
            (BootLoader::Nobody, "its loader entries belong to ostree".to_owned())
        }
        BootLoaderFacts { has_update_grub: true, .. } => {
            (BootLoader::Grub, format!("kernel arguments go to {GRUB_DROP_IN} (update-grub is there)"))
        }
        BootLoaderFacts { has_kernel_install: true, has_entries: true, .. } => (
            BootLoader::KernelInstall,
            format!("kernel arguments go to {KERNEL_CMDLINE} (kernel-install and loader entries are there)"),
        ),
        BootLoaderFacts { .. } => (
            BootLoader::Nobody,
            "it has no boot loader that accepts kernel arguments (neither update-grub nor kernel-install with loader entries)"
                .to_owned(),
        ),
    }
}

/// Why a package host cannot make a change. `no_loader` says why it cannot set kernel arguments, if so.
#[must_use]
pub fn refusal(change: &OsChange, no_loader: Option<&str>) -> Option<String> {
    let no = |field: &str, what: &str| {
        Some(format!(
            "{field}: this host is package-based and {what}: take it out of the config, or put the machine into another pool"
        ))
    };
    if let Some(image) = &change.image {
        return no("spec.osImageURL", &format!("cannot boot the image {image}"));
    }
    if let Some((_, kernel)) = &change.kernel_type {
        return no("spec.kernelType", &format!("cannot change its kernel to {kernel}"));
    }
    if change.extensions.as_ref().is_some_and(|wanted| !wanted.is_empty()) {
        let wanted = change.extensions.clone().unwrap_or_default().join(", ");
        return no("spec.extensions", &format!("has no extensions ({wanted})"));
    }
    let arguments = &change.kernel_arguments;
    let added: Vec<&str> = arguments
        .append
        .iter()
        .filter(|word| !arguments.delete.contains(word))
        .map(String::as_str)
        .collect();
    no_loader.filter(|_| !added.is_empty()).and_then(|why| {
        no("spec.kernelArguments", &format!("cannot set {}: {why}", added.join(" ")))
    })
}

/// The contents of the boot loader's file after a change; `None` if it is not needed any more. `now` is its
/// current contents, `command_line` what the machine was booted with.
#[must_use]
pub fn loader_file_text(
    loader: BootLoader,
    now: Option<&str>,
    command_line: &str,
    change: &KernelArgumentsChange,
) -> Option<String> {
    match loader {
        BootLoader::Nobody => None,
        BootLoader::Grub => {
            let now = loader_file_arguments(loader, now.unwrap_or_default());
            // The whole file is ours: repeating a change must not double it.
            let again =
                KernelArgumentsChange { delete: change.append.clone(), ..Default::default() };
            let list = kernel_arguments::apply(&kernel_arguments::apply(&now, &again), change);
            (!list.is_empty()).then(|| grub_drop_in(&list))
        }
        BootLoader::KernelInstall => {
            let list = kernel_arguments::split(now.unwrap_or(command_line));
            // The boot loader adds its own arguments again at every boot.
            let own =
                |word: &String| word.starts_with("BOOT_IMAGE=") || word.starts_with("initrd=");
            let list: Vec<String> = list.into_iter().filter(|word| !own(word)).collect();
            Some(kernel_arguments::apply(&list, change).join(" ") + "\n")
        }
    }
}

/// The boot loader's file, and the command that makes it take effect; `None` if nothing reads one.
#[must_use]
pub fn loader_file(loader: BootLoader, kernel: &str) -> Option<(&'static str, Vec<String>)> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    match loader {
        BootLoader::Grub => Some((GRUB_DROP_IN, words(&["update-grub"]))),
        BootLoader::KernelInstall => {
            let image = format!("/lib/modules/{kernel}/vmlinuz");
            Some((KERNEL_CMDLINE, words(&["kernel-install", "add", kernel, &image])))
        }
        BootLoader::Nobody => None,
    }
}

const ARGUMENTS_MARKER: &str = "# machinist: ";

/// The drop-in. A shell reads it; a comment repeats the arguments verbatim.
fn grub_drop_in(arguments: &[String]) -> String {
    let line = arguments.join(" ");
    let quoted: String = line
        .chars()
        .flat_map(|letter| {
            let escape = matches!(letter, '"' | '\\' | '$' | '`').then_some('\\');
            escape.into_iter().chain(std::iter::once(letter))
        })
        .collect();
    format!(
        "# Kernel arguments of this machine's config. Written by Machinist; changes are lost.\n{ARGUMENTS_MARKER}{line}\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {quoted}\"\n"
    )
}

/// The arguments in the boot loader's file.
#[must_use]
pub fn loader_file_arguments(loader: BootLoader, text: &str) -> Vec<String> {
    match loader {
        BootLoader::Nobody => Vec::new(),
        BootLoader::Grub => {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(ARGUMENTS_MARKER))
                .unwrap_or_default();
            kernel_arguments::split(line)
        }
        BootLoader::KernelInstall => kernel_arguments::split(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn what_reads_kernel_arguments() {
        let none = BootLoaderFacts::default();
        let grub = BootLoaderFacts { has_update_grub: true, has_kernel_install: true, ..none };
        let entries = BootLoaderFacts { has_kernel_install: true, has_entries: true, ..none };
        for (facts, expected, words) in [
            (none, BootLoader::Nobody, "no boot loader"),
            (
                BootLoaderFacts { has_kernel_install: true, ..none },
                BootLoader::Nobody,
                "no boot loader",
            ),
            (grub, BootLoader::Grub, "90-machinist.cfg"),
            (entries, BootLoader::KernelInstall, "/etc/kernel/cmdline"),
            (BootLoaderFacts { is_image: true, ..grub }, BootLoader::Nobody, "belong to ostree"),
        ] {
            let (found, reason) = detect_boot_loader(facts);
            assert_eq!(found, expected);
            assert!(reason.contains(words), "{reason}");
        }
    }

    #[test]
    fn images_kernels_and_extensions_are_refused() {
        let some = |text: &str| Some(text.to_owned());
        let kernel = Some(("default".to_owned(), "realtime".to_owned()));
        for (change, expected) in [
            (OsChange::default(), None),
            (OsChange { image: some("os:1"), ..OsChange::default() }, Some("spec.osImageURL: ")),
            (OsChange { kernel_type: kernel, ..OsChange::default() }, Some("spec.kernelType: ")),
            (
                OsChange { extensions: Some(list(&["usbguard"])), ..OsChange::default() },
                Some("spec.extensions: "),
            ),
            (OsChange { extensions: Some(Vec::new()), ..OsChange::default() }, None),
        ] {
            let refused = refusal(&change, None);
            assert_eq!(refused.is_some(), expected.is_some(), "{refused:?}");
            assert!(refused.unwrap_or_default().starts_with(expected.unwrap_or_default()));
        }
    }

    #[test]
    fn a_host_without_a_boot_loader_refuses_new_arguments_only() {
        let change = |old: &[&str], new: &[&str]| OsChange {
            kernel_arguments: kernel_arguments::change_between(&list(old), &list(new)),
            ..OsChange::default()
        };
        let why = Some("it has no boot loader");
        let refused = refusal(&change(&["a"], &["a", "b=1"]), why).unwrap();
        let start = "spec.kernelArguments: this host is package-based and cannot set b=1: it has no boot loader: ";
        assert!(refused.starts_with(start), "{refused}");
        assert_eq!(refusal(&change(&["a", "b"], &["b"]), why), None);
        assert_eq!(refusal(&change(&[], &["a"]), None), None);
    }

    #[test]
    fn the_grub_drop_in() {
        let change = kernel_arguments::change_between(&[], &list(&["a=1 b=\"c d\"", "e=$x`y\\z"]));
        let text = loader_file_text(BootLoader::Grub, None, "", &change).unwrap();
        assert_eq!(
            loader_file_text(BootLoader::Grub, Some(&text), "", &change).as_ref(),
            Some(&text)
        );
        let expected = r#"GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX a=1 b=\"c d\" e=\$x\`y\\z""#;
        assert_eq!(text.lines().last(), Some(expected));
        let back = kernel_arguments::change_between(&change.append, &list(&["f"]));
        let text = loader_file_text(BootLoader::Grub, Some(&text), "", &back).unwrap();
        assert!(text.ends_with("LINUX f\"\n"), "{text}");
        let none = kernel_arguments::change_between(&list(&["f"]), &[]);
        assert_eq!(loader_file_text(BootLoader::Grub, Some(&text), "", &none), None);
        assert_eq!(loader_file(BootLoader::Grub, "6.1").unwrap().1, ["update-grub"]);
    }

    #[test]
    fn the_file_of_kernel_install() {
        let change = kernel_arguments::change_between(&list(&["old"]), &list(&["new=1"]));
        let booted = "BOOT_IMAGE=/vmlinuz initrd=\\x root=/dev/sda old\n";
        let text = loader_file_text(BootLoader::KernelInstall, None, booted, &change);
        assert_eq!(text.as_deref(), Some("root=/dev/sda new=1\n"));
        let text = loader_file_text(
            BootLoader::KernelInstall,
            Some("root=x old quiet\n"),
            booted,
            &change,
        );
        assert_eq!(text.as_deref(), Some("root=x quiet new=1\n"));
        assert_eq!(
            loader_file(BootLoader::KernelInstall, "6.1").unwrap().1.join(" "),
            "kernel-install add 6.1 /lib/modules/6.1/vmlinuz"
        );
        assert_eq!(loader_file(BootLoader::Nobody, "6.1"), None);
    }

    /// What is written is read back.
    #[test]
    fn arguments_survive_the_drop_in() {
        let wanted = list(&["a=1", "b=\"c  d\"", "e=$x`y\\z"]);
        assert_eq!(loader_file_arguments(BootLoader::Grub, &grub_drop_in(&wanted)), wanted);
    }
}
