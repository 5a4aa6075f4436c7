//! What has to change beneath the files, from one config to another.

use serde::{Deserialize, Serialize};

use super::{DesiredOs, OsDeployment, is_same_image, kernel_arguments};

/// Kernel arguments to take away and to add: first all of the one, then all of the other, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelArgumentsChange {
    /// Taken away, each once, where it is there.
    pub delete: Vec<String>,
    /// Added at the end.
    pub append: Vec<String>,
}

impl KernelArgumentsChange {
    /// Whether nothing changes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.delete.is_empty() && self.append.is_empty()
    }
}

/// A change of the operating system. All of it comes with one restart, or none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OsChange {
    /// The image to go to; none where the image stays.
    pub image: Option<String>,
    /// The way back to an operating system that is on the machine already, by its checksum. It counts
    /// before the image, which is then only its name.
    pub checksum: Option<String>,
    /// Kernel arguments.
    pub kernel_arguments: KernelArgumentsChange,
    /// The kernel to go from and to (`default`, `realtime`, `64k-pages`); none where it stays.
    pub kernel_type: Option<(String, String)>,
    /// The extensions to have, where they or the image change.
    pub extensions: Option<Vec<String>>,
    /// The image that holds the packages of extensions and other kernels.
    pub extensions_image: Option<String>,
}

impl OsChange {
    /// What has to change on a machine that has booted `booted` for the sake of the config `old` and
    /// is to have `new`.
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

    /// What puts a machine right that is not as its config says: the image, and the kernel arguments
    /// that are missing.
    #[must_use]
    pub fn repair(wanted: &DesiredOs, booted: &OsDeployment, command_line: &str) -> Self {
        let mut change = Self::between(wanted, wanted, booted);
        change.kernel_arguments.append =
            kernel_arguments::missing(&wanted.kernel_arguments, command_line);
        change
    }

    /// The way back to what a machine had booted before.
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

    /// What changes, line by line.
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

    /// What changes, in the words of the real daemon.
    #[must_use]
    pub fn describe(&self) -> String {
        let parts = [
            (self.image.is_some() || self.checksum.is_some(), "Upgrading OS"),
            (self.extensions.is_some(), "Installing extensions"),
            (self.kernel_type.is_some(), "Changing kernel type"),
            (!self.kernel_arguments.is_empty(), "Changing kernel arguments"),
        ];
        let said: Vec<&str> =
            parts.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        said.join("; ")
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
    fn what_is_booted_already_is_not_fetched_again() {
        for (old, new, now, expected) in [
            (None, None, None, None),
            (Some(A), Some(B), Some(A), Some(B)),
            (Some(A), Some(B), Some(B), None),
            // By another name, but the same.
            (Some(A), Some(B), Some("mirror.example/x@sha256:bbbb"), None),
            // A machine that is not where its config says goes there all the same.
            (Some(B), Some(B), Some(A), Some(B)),
            // A config that names no image leaves the one that is there.
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
        // Where the machine has not left it, only the rest goes back.
        let back = OsChange::rollback(&new, &old, &was, &was);
        assert_eq!((back.checksum.as_deref(), back.image.as_deref()), (None, None));
        assert!(OsChange::rollback(&old, &old, &was, &was).is_empty());
    }

    #[test]
    fn a_change_in_lines() {
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
