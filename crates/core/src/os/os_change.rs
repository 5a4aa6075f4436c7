//! What has to change in the operating system, from one config to another.

use serde::{Deserialize, Serialize};

use super::{DesiredOs, OsDeployment, is_same_image, kernel_arguments};

/// Kernel arguments to delete and to append: first all deletions, then all additions, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelArgumentsChange {
    /// Deleted, each once, if it is there.
    pub delete: Vec<String>,
    /// Appended at the end.
    pub append: Vec<String>,
}

impl KernelArgumentsChange {
    /// Whether nothing changes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.delete.is_empty() && self.append.is_empty()
    }
}

/// A change of the operating system. All of it takes effect with one reboot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OsChange {
    /// The new image; `None` keeps the booted one.
    pub image: Option<String>,
    /// The checksum of a deployment that is on the machine already, for a rollback. It takes precedence over
    /// the image, which then is only its name.
    pub checksum: Option<String>,
    /// Kernel arguments.
    pub kernel_arguments: KernelArgumentsChange,
    /// The kernel before and after (`default`, `realtime`, `64k-pages`); `None` keeps it.
    pub kernel_type: Option<(String, String)>,
    /// The desired extensions, if they or the image change.
    pub extensions: Option<Vec<String>>,
    /// The image with the packages of extensions and other kernels.
    pub extensions_image: Option<String>,
}

impl OsChange {
    /// The change of a machine that has booted `booted` for the config `old` and should have `new`.
    #[must_use]
    pub fn between(old: &DesiredOs, new: &DesiredOs, booted: &OsDeployment) -> Self {
        let has = |image: &String| {
            booted.image.as_deref().is_some_and(|booted| is_same_image(image, booted))
        };
        let image = new.image.clone().filter(|image| !has(image));
        let kernel_arguments =
            kernel_arguments::change_between(&old.kernel_arguments, &new.kernel_arguments);
        if new.is_layered {
            // Kernel and extensions are in the image.
            return Self { image, kernel_arguments, ..Self::default() };
        }
        let replaces = image.is_some() || old.image != new.image;
        let switches = old.kernel_type != new.kernel_type
            || replaces && new.kernel_type != super::kernel_type::DEFAULT_KERNEL;
        let has_any = !(old.extensions.is_empty() && new.extensions.is_empty());
        let extends = has_any && (old.extensions != new.extensions || replaces);
        let uses_packages = switches || extends;
        Self {
            kernel_type: switches.then(|| (old.kernel_type.clone(), new.kernel_type.clone())),
            extensions: extends.then(|| new.extensions.clone()),
            extensions_image: new.extensions_image.clone().filter(|_| uses_packages),
            image,
            kernel_arguments,
            checksum: None,
        }
    }

    /// The change that repairs a machine that differs from its config: the image, and missing kernel
    /// arguments.
    #[must_use]
    pub fn repair(wanted: &DesiredOs, booted: &OsDeployment, command_line: &str) -> Self {
        let mut change = Self::between(wanted, wanted, booted);
        change.kernel_arguments.append =
            kernel_arguments::missing(&wanted.kernel_arguments, command_line);
        change
    }

    /// The change that returns to what a machine had booted before.
    #[must_use]
    pub fn rollback(
        now: &DesiredOs,
        before: &DesiredOs,
        booted: &OsDeployment,
        was: &OsDeployment,
    ) -> Self {
        let mut change = Self::between(now, before, booted);
        if !was.checksum.is_empty() && was.checksum != booted.checksum {
            change.image = before.image.clone().or_else(|| was.image.clone());
            change.checksum = Some(was.checksum.clone());
        }
        change
    }

    /// Whether nothing changes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.image.is_none()
            && self.checksum.is_none()
            && self.kernel_arguments.is_empty()
            && self.kernel_type.is_none()
            && self.extensions.is_none()
    }

    /// The change, line by line.
    #[must_use]
    pub fn describe_lines(&self) -> Vec<String> {
        let arguments = &self.kernel_arguments;
        let image = self.image.iter().map(|image| format!("image {image}"));
        let gone = arguments.delete.iter().filter(|word| !arguments.append.contains(word));
        let gone = gone.map(|word| format!("kernel argument {word} goes"));
        let come = arguments.append.iter().filter(|word| !arguments.delete.contains(word));
        let come = come.map(|word| format!("kernel argument {word} comes"));
        let moved = !arguments.is_empty()
            && arguments.delete.iter().all(|word| arguments.append.contains(word))
            && arguments.append.iter().all(|word| arguments.delete.contains(word));
        let moved = moved.then(|| "kernel arguments in another order".to_owned());
        let kernel = self.kernel_type.iter().map(|(old, new)| format!("kernel {old} → {new}"));
        let extensions =
            self.extensions.iter().map(|list| format!("extensions [{}]", list.join(", ")));
        image.chain(gone).chain(come).chain(moved).chain(kernel).chain(extensions).collect()
    }

    /// The change, in MCO's words.
    #[must_use]
    pub fn describe(&self) -> String {
        let parts = [
            (self.image.is_some() || self.checksum.is_some(), "Upgrading OS"),
            (self.extensions.is_some(), "Installing extensions"),
            (self.kernel_type.is_some(), "Changing kernel type"),
            (!self.kernel_arguments.is_empty(), "Changing kernel arguments"),
        ];
        let parts: Vec<&str> =
            parts.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "registry.example/os@sha256:aaaa";
    const B: &str = "registry.example/os@sha256:bbbb";

    fn wanted(image: Option<&str>, arguments: &[&str]) -> DesiredOs {
        DesiredOs {
            image: image.map(str::to_owned),
            kernel_arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            kernel_type: "default".to_owned(),
            ..DesiredOs::default()
        }
    }

    fn booted(image: Option<&str>) -> OsDeployment {
        let image = image.map(str::to_owned);
        let checksum = image.as_deref().map_or("base", |image| &image[image.len() - 4..]);
        OsDeployment { checksum: checksum.to_owned(), image, ..OsDeployment::default() }
    }

    #[test]
    fn a_booted_image_is_not_fetched_again() {
        for (old, new, now, expected) in [
            (None, None, None, None),
            (Some(A), Some(B), Some(A), Some(B)),
            (Some(A), Some(B), Some(B), None),
            // Another reference to the same image.
            (Some(A), Some(B), Some("mirror.example/x@sha256:bbbb"), None),
            // A machine that runs another image than its config says still gets the new one.
            (Some(B), Some(B), Some(A), Some(B)),
            // A config without an image keeps the booted one.
            (Some(A), None, Some(A), None),
            (None, Some(A), None, Some(A)),
        ] {
            let change = OsChange::between(&wanted(old, &[]), &wanted(new, &[]), &booted(now));
            assert_eq!(change.image.as_deref(), expected, "{old:?} {new:?} {now:?}");
        }
    }

    #[test]
    fn kernels_and_extensions_are_reinstalled_with_a_new_image() {
        let with = |kernel: &str, extensions: &[&str], image: &str| DesiredOs {
            kernel_type: kernel.to_owned(),
            extensions: extensions.iter().map(|&one| one.to_owned()).collect(),
            extensions_image: Some("x".to_owned()),
            ..wanted(Some(image), &[])
        };
        for (old, new, kernel, extensions, words) in [
            (with("default", &[], A), with("default", &[], B), false, false, "Upgrading OS"),
            (
                with("realtime", &["usbguard"], A),
                with("realtime", &["usbguard"], B),
                true,
                true,
                "Upgrading OS; Installing extensions; Changing kernel type",
            ),
            (
                with("realtime", &["usbguard"], A),
                with("default", &["usbguard"], A),
                true,
                false,
                "Changing kernel type",
            ),
            (
                with("default", &["usbguard"], A),
                with("default", &[], A),
                false,
                true,
                "Installing extensions",
            ),
            (
                with("realtime", &["usbguard"], A),
                DesiredOs { is_layered: true, ..with("realtime", &["usbguard"], B) },
                false,
                false,
                "Upgrading OS",
            ),
        ] {
            let change = OsChange::between(&old, &new, &booted(Some(A)));
            assert_eq!(change.kernel_type.is_some(), kernel);
            assert_eq!(change.extensions.is_some(), extensions);
            assert_eq!(change.extensions_image.is_some(), kernel || extensions);
            assert_eq!(change.describe(), words);
        }
    }

    #[test]
    fn a_rollback_returns_to_what_was_booted() {
        let (old, new) = (wanted(None, &["a"]), wanted(Some(B), &["b"]));
        let was = booted(None);
        let back = OsChange::rollback(&new, &old, &booted(Some(B)), &was);
        assert_eq!((back.checksum.as_deref(), back.image.as_deref()), (Some("base"), None));
        let arguments = &back.kernel_arguments;
        assert_eq!(
            (arguments.delete.join(" "), arguments.append.join(" ")),
            ("b".into(), "a".into())
        );
        // If the machine still runs the previous deployment, only the rest is reverted.
        let back = OsChange::rollback(&new, &old, &was, &was);
        assert_eq!((back.checksum.as_deref(), back.image.as_deref()), (None, None));
        assert!(OsChange::rollback(&old, &old, &was, &was).is_empty());
    }

    #[test]
    fn a_change_is_described_in_lines() {
        let change =
            OsChange::between(&wanted(None, &["a b"]), &wanted(Some(A), &["b c"]), &booted(None));
        let expected = [&format!("image {A}"), "kernel argument a goes", "kernel argument c comes"];
        assert_eq!(change.describe_lines(), expected);
        let moved =
            OsChange::between(&wanted(None, &["a b"]), &wanted(None, &["b a"]), &booted(None));
        assert_eq!(moved.describe_lines(), ["kernel arguments in another order"]);
    }

    #[test]
    fn a_repair_adds_what_is_missing() {
        let change = OsChange::repair(&wanted(Some(A), &["a b"]), &booted(Some(A)), "root=x a");
        assert_eq!(change.kernel_arguments.append, ["b".to_owned()]);
        assert_eq!(change.describe(), "Changing kernel arguments");
        assert!(OsChange::repair(&wanted(Some(A), &["a"]), &booted(Some(A)), "a").is_empty());
    }
}
