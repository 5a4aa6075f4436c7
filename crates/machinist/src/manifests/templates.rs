//! A folder of templates, read into memory.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use machinist_core::template::TemplateTree;

/// No template is as large as this.
const MAX_TEMPLATE_SIZE: u64 = 4 << 20;

/// Reads all templates below a folder.
///
/// # Errors
/// The folder or something in it cannot be read.
pub fn read_templates(folder: &Path) -> Result<TemplateTree> {
    let mut templates = TemplateTree::new();
    walk(folder, "", &mut templates)
        .with_context(|| format!("cannot read the templates in {}", folder.display()))?;
    ensure!(
        !templates.is_empty(),
        "{} holds no templates; they are in ROLE/NAME/LAYER/files and below (see docs/templates.md)",
        folder.display()
    );
    Ok(templates)
}

/// Adds what is in a folder. Links to files are followed, links to folders are not: as the real
/// system does, and so nothing leads round in circles.
fn walk(folder: &Path, below: &str, templates: &mut TemplateTree) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
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
        let about = fs::metadata(&path).with_context(|| path.display().to_string())?;
        if about.is_file() {
            ensure!(
                about.len() <= MAX_TEMPLATE_SIZE,
                "{} is larger than {MAX_TEMPLATE_SIZE} bytes",
                path.display()
            );
            let contents = fs::read(&path).with_context(|| path.display().to_string())?;
            templates.add_file(&relative, contents);
        }
    }
    Ok(())
}
