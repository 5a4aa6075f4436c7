//! A directory of templates in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::COMMON;
use super::error::TemplateError;
use crate::profile::TemplateProfile;

/// A directory of templates: `<role>/<name>/<layer>/{files,units,extensions}/<template>`, and
/// `common/<layer>/…` for every role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateTree {
    /// By path components: the order in which Go walks a directory.
    files: BTreeMap<Vec<String>, Vec<u8>>,
    directories: BTreeSet<Vec<String>>,
    /// The built-in profile that it is.
    profile: Option<TemplateProfile>,
}

/// One template in a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateFile<'a> {
    /// Its full path.
    pub(super) path: &'a [String],
    /// Its text.
    pub(super) contents: &'a [u8],
}

impl TemplateFile<'_> {
    /// The last component of the path: templates of the same base name replace each other.
    pub(super) fn base_name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    pub(super) fn name(&self) -> String {
        self.path.join("/")
    }
}

impl TemplateTree {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty directory of a built-in profile.
    pub(super) fn of_profile(profile: TemplateProfile) -> Self {
        Self { profile: Some(profile), ..Self::default() }
    }

    /// The built-in profile that it is; `None` for a directory of a user.
    #[must_use]
    pub fn profile(&self) -> Option<TemplateProfile> {
        self.profile
    }

    /// Adds a file by its path below the template directory, and its parent directories.
    pub fn add_file(&mut self, path: &str, contents: impl Into<Vec<u8>>) {
        let path = split_path(path);
        if let Some((_, directory)) = path.split_last() {
            self.add_directories(directory);
        }
        self.files.insert(path, contents.into());
    }

    /// Adds a directory, which may be empty, by its path below the template directory.
    pub fn add_directory(&mut self, path: &str) {
        self.add_directories(&split_path(path));
    }

    fn add_directories(&mut self, path: &[String]) {
        for length in 1..=path.len() {
            self.directories.insert(path[..length].to_vec());
        }
    }

    /// The same directories with only the files that contain a text and those of the same base names.
    pub(super) fn with_names_of(&self, text: &str) -> Self {
        let holds =
            |contents: &[u8]| contents.windows(text.len()).any(|part| part == text.as_bytes());
        let names: BTreeSet<&String> = self
            .files
            .iter()
            .filter(|(_, contents)| holds(contents))
            .filter_map(|(path, _)| path.last())
            .collect();
        let is_named = |path: &[String]| path.last().is_some_and(|name| names.contains(name));
        let files = self.files.iter().filter(|(path, _)| is_named(path));
        Self {
            files: files.map(|(path, contents)| (path.clone(), contents.clone())).collect(),
            directories: self.directories.clone(),
            profile: self.profile,
        }
    }

    /// Whether there is no template at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The roles that it has templates for.
    pub fn roles(&self) -> impl Iterator<Item = String> {
        self.directories_in(&[]).into_iter().filter(|name| *name != COMMON).map(str::to_owned)
    }

    /// The direct subdirectories, by name.
    pub(super) fn directories_in(&self, path: &[&str]) -> Vec<&str> {
        self.directories
            .iter()
            .filter(|directory| directory.len() == path.len() + 1 && starts_with(directory, path))
            .filter_map(|directory| directory.last().map(String::as_str))
            .collect()
    }

    /// Whether a directory exists. A file in its place is an error.
    pub(super) fn has_directory(&self, path: &[&str]) -> Result<bool, TemplateError> {
        let owned: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        if self.files.contains_key(&owned) {
            return Err(TemplateError::NotADirectory(path.join("/")));
        }
        Ok(self.directories.contains(&owned))
    }

    /// Every file below a directory, in the order in which Go walks it.
    pub(super) fn files_below<'a>(
        &'a self,
        path: &[&str],
    ) -> impl Iterator<Item = TemplateFile<'a>> {
        self.files
            .iter()
            .filter(move |(file, _)| file.len() > path.len() && starts_with(file, path))
            .map(|(path, contents)| TemplateFile { path, contents })
    }
}

fn split_path(path: &str) -> Vec<String> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
}

fn starts_with(path: &[String], start: &[&str]) -> bool {
    path.iter().zip(start).all(|(a, b)| a == b)
}
