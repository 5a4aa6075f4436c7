//! Reads a directory of templates.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use machinist_core::template::TemplateTree;

/// The maximum size of a template.
const MAX_TEMPLATE_SIZE: u64 = 4 << 20;

/// Reads all templates in a directory.
///
/// # Errors
/// The directory or a file in it cannot be read.
pub fn read_templates(directory: &Path) -> Result<TemplateTree> {
    let mut templates = TemplateTree::new();
    walk(directory, "", &mut templates)
        .with_context(|| format!("cannot read the templates in {}", directory.display()))?;
    ensure!(
        !templates.is_empty(),
        "{} holds no templates; they are in ROLE/NAME/LAYER/files and below (see docs/templates.md)",
        directory.display()
    );
    Ok(templates)
}

/// Adds the templates in a directory. As in MCO, symlinks to files are followed and symlinks to
/// directories are not, so there are no cycles.
fn walk(directory: &Path, below: &str, templates: &mut TemplateTree) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_str().with_context(|| format!("{}: not UTF-8", path.display()))?;
        let relative = format!("{below}{name}");
        if entry.file_type()?.is_dir() {
            templates.add_directory(&relative);
            walk(&path, &format!("{relative}/"), templates)?;
            continue;
        }
        let metadata = fs::metadata(&path).with_context(|| path.display().to_string())?;
        if metadata.is_file() {
            ensure!(
                metadata.len() <= MAX_TEMPLATE_SIZE,
                "{} is larger than {MAX_TEMPLATE_SIZE} bytes",
                path.display()
            );
            let contents = fs::read(&path).with_context(|| path.display().to_string())?;
            templates.add_file(&relative, contents);
        }
    }
    Ok(())
}
